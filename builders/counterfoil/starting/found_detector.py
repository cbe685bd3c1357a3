"""Look at an exported detector once, and write what must be known of its outputs into the
config.json beside it.

The graph runs on one image of noise. Shapes, types and values show the form of its outputs, and the
metadata of Ultralytics the labels. What they do not show is proposed, and a sentence says so.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import Floats
from counterfoil.errors import UserError
from counterfoil.models.config_files import CONFIG, LARGEST_SIDE, MOST_CLASSES, is_text
from counterfoil.models.detectors.of_onnx import OTHER_WAYS, input_shape, run_graph
from counterfoil.models.detectors.onnx_forms import SECTION, grid_cells
from counterfoil.models.onnx_graphs import open_graph, refuse_vast_input
from counterfoil.recipe.names import ONNX
from counterfoil.regular_files import named_path, visible_text
from counterfoil.store.atomic import write_together

# The usual side of the input where a graph leaves it free, and the strides of the grids of YOLO.
_SIDE = 640
_STRIDES = (8, 16, 32)
_ANCHORS = 3  # of YOLOv5 and YOLOv7, in each cell
_NMS_IOU = 0.7  # as Ultralytics has it
_LONGEST_NAMES = 1_000_000
# Graphs of rotated boxes have an angle after the scores, where others have a last label.
_OTHER_TASKS = ("obb", "segment", "pose", "classify")
# A box that is wider than this is no share of the image's sides.
_LARGEST_SHARE = 2.0


@dataclass(frozen=True)
class FoundDetector:
    """What was found in a graph. path: of the written config.json. notes: sentences."""

    path: Path
    model: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Look:
    """A graph's outputs on an image of noise. sides: width and height of the input. free: whether
    it takes any size."""

    name: str
    outputs: Mapping[str, NDArray[Any]]
    sides: tuple[int, int]
    free: bool
    labels: tuple[str, ...] | None

    @property
    def grids(self) -> tuple[int, int]:
        """The numbers of boxes that grids give, with one box a cell and with the anchors of
        YOLOv5."""
        cells = grid_cells(self.sides, _STRIDES)
        return cells, _ANCHORS * cells

    @property
    def shapes(self) -> str:
        return ", ".join(f"{name} {list(array.shape)}" for name, array in self.outputs.items())

    def refusal(self, why: str) -> UserError:
        return UserError(
            f"model {self.name!r}: its graph gives {self.shapes}: {why}",
            f"Write the section {SECTION} of {CONFIG} by hand (docs/how-to/detectors.md)."
            f" {OTHER_WAYS}",
        )


def find_detector(
    file: str | Path,
    categories: Sequence[str] = (),
    *,
    force: bool = False,
    others: Mapping[Path, bytes] | None = None,
) -> FoundDetector:
    """Look at a graph and write the config.json beside it. categories: of the dataset, for labels
    without a name. others: files that are written with it, all or none.

    Raise UserError if the graph has another form, or if there is a config.json and `force` is
    False.
    """
    path = named_path(file)
    name = f"{ONNX}{path}"
    if path.suffix.lower() != ".onnx" or not path.is_file():
        raise UserError(
            f"--detector: found no file {path}, expected the graph of a detector, NAME.onnx"
        )
    config = path.with_name(CONFIG)
    if config.exists() and not force:
        raise UserError(
            f"{config} exists already and may hold your changes", "Overwrite it with --force."
        )
    look = _look_at(name, path)
    form, notes, count = _form_of(look, categories)
    labels, names_note = _labels_of(look, count, categories)
    scaled = 1.0
    colours = "0 to 1"
    if form.get("strides"):
        scaled = 1 / 255
        colours = "0 to 255"
    document = {
        "architecture": path.stem if is_text(path.stem) else "detector",
        "label_names": labels,
        "pretrained_cfg": {
            "input_size": [3, look.sides[1], look.sides[0]],
            "mean": [0.0, 0.0, 0.0],
            "std": [scaled] * 3,
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            "crop_mode": "squash",
        },
        SECTION: form,
    }
    text = f"{visible_text(json.dumps(document, indent=2, ensure_ascii=False))}\n"
    write_together({config: text.encode()} | dict(others or {}))
    notes += (
        f"images go in as {_RESIZED[form['resize']]}, with colours from {colours}: the graph does"
        f" not say it, so check resize, mean and std in {config}",
        names_note,
    )
    return FoundDetector(config, name, notes)


_RESIZED = {
    "none": "they are",
    "squash": "a whole, squashed to the input's sides",
    "letterbox": "a whole in the middle of grey (letterbox)",
    "letterbox_corner": "a whole in the upper left corner of grey",
}


def _look_at(name: str, path: Path) -> _Look:
    graph, _ = open_graph(name, path, "cpu")
    channels, *spatial = input_shape(name, graph)
    if isinstance(channels, int) and channels != 3:
        raise UserError(
            f"model {name!r}: its graph takes images of {channels} channels, expected 3"
        )
    task = graph.metadata.get("task")
    if task in _OTHER_TASKS:
        raise UserError(
            f"model {name!r}: Ultralytics exported it for the task {task!r}, expected 'detect': its"
            " boxes have other numbers beside them",
            OTHER_WAYS,
        )
    usual = _literal(graph.metadata.get("imgsz"))
    if not isinstance(usual, list) or len(usual) != 2:
        usual = [_SIDE, _SIDE]
    sizes = []
    for given, side in zip(spatial, usual, strict=True):
        sizes.append(given if isinstance(given, int) else side)
    if not all(isinstance(side, int) and 1 <= side <= LARGEST_SIDE for side in sizes):
        raise UserError(
            f"model {name!r}: its graph takes images of {sizes}, expected sides of 1 to"
            f" {LARGEST_SIDE:,}"
        )
    refuse_vast_input(name, 1, (3, *sizes))
    pixels = np.random.default_rng(0).random((3, *sizes), np.float32)
    outputs = run_graph(graph, pixels)
    graph.close()
    free = not any(isinstance(side, int) for side in spatial)
    # Ultralytics stores the labels in a graph: {0: 'person', 1: 'bicycle'}.
    names = _literal(graph.metadata.get("names"))
    if isinstance(names, dict) and len(names) <= MOST_CLASSES:
        numbers = range(len(names))
        if set(names) == set(numbers):
            names = [names[number] for number in numbers]
    labels = None
    if isinstance(names, list) and names and all(map(is_text, names)):
        labels = tuple(names)
    return _Look(name, outputs, (sizes[1], sizes[0]), free, labels)


def _literal(text: str | None) -> Any:
    """Return a value that metadata hold as Python writes it, or None."""
    if text is None or len(text) > _LONGEST_NAMES:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _form_of(
    look: _Look, categories: Sequence[str]
) -> tuple[dict[str, Any], tuple[str, ...], int | None]:
    """Return the section of the configuration, sentences on it, and the number of labels if the
    graph shows it."""
    if {"logits", "pred_boxes"} <= set(look.outputs):
        raise look.refusal(
            "Optimum exports it with config.json and preprocessor_config.json, which belong beside"
            " it"
        )
    parts = _separate_outputs(look.outputs)
    if parts is not None:
        named, scores, labels = parts
        boxes = look.outputs[named].reshape(-1, 4)
        form: dict[str, Any] = {
            "form": "separate",
            "outputs": list(parts),
            "boxes": _order(boxes),
            "unit": _unit(boxes),
            "resize": "none" if look.free else "squash",
        }
        read = f"{named} are read as {_ORDERS[form['boxes']]} in {form['unit']}"
        return form, (f"{read}, {scores} as scores and {labels} as labels",), None
    tables = []
    for name, array in look.outputs.items():
        if array.ndim == 3 and len(array) == 1:
            tables.append((name, array[0]))
    if len(tables) != 1:
        raise look.refusal("expected one table of boxes, or boxes, scores and labels")
    [(output, table)] = tables
    rows = np.asarray(table, np.float64)
    if rows.shape[1] == 6 and len(rows) not in look.grids and _are_rows(rows):
        form = {
            "form": "rows",
            "outputs": [output],
            "boxes": "xyxy",
            "unit": _unit(rows),
            "resize": "letterbox",
        }
        read = f"{output} is read as rows of [x1, y1, x2, y2, score, label], in {form['unit']}"
        return form, (read,), None
    return _raw_form(look, output, rows, categories)


_ORDERS = {"xyxy": "corners [x1, y1, x2, y2]", "cxcywh": "[centre x, centre y, width, height]"}


def _order(boxes: NDArray[Any]) -> str:
    return "xyxy" if (boxes[:, 2:] >= boxes[:, :2]).all() else "cxcywh"


def _raw_form(
    look: _Look, output: str, table: Floats, categories: Sequence[str]
) -> tuple[dict[str, Any], tuple[str, ...], int]:
    """Return the same of a table with a box and a score for each label in each row, or in each
    column."""
    labels = look.labels or tuple(categories)
    axis, count, objectness = _columns_of(look, table.shape, len(labels))
    rows = table if axis == 1 else table.T
    grid = len(rows) in look.grids
    form: dict[str, Any] = {
        "form": "raw",
        "outputs": [output],
        "boxes": "cxcywh",
        "unit": _unit(rows),
        "objectness": objectness,
        "scores": "logits",
    }
    if _are_shares(rows[:, 4:]):
        form["scores"] = "probabilities"
    if len(rows) == look.grids[0] and (rows[:, 2:4] < 0).any():
        form |= {"unit": "pixels", "strides": list(_STRIDES), "channels": "bgr"}
    # DETR and its like, whose boxes are shares, find each object once in a squashed image.
    overlapping = grid or form["unit"] == "pixels"
    form["nms_iou"] = None
    form["resize"] = "squash"
    once = "no box is removed because another one finds its object (nms_iou)"
    if overlapping:
        form["nms_iou"] = _NMS_IOU
        form["resize"] = "letterbox_corner" if "strides" in form else "letterbox"
        once = f"boxes of one label that overlap by more than {_NMS_IOU} are one object (nms_iou)"
    scores = f" and {count:,} {form['scores']}"
    if objectness:
        scores = f", a score of any object{scores}"
    boxes = f"{len(rows):,} boxes {_ORDERS['cxcywh']} in {form['unit']}"
    return form, (f"{output} is read as {boxes}{scores}", once), count


def _columns_of(look: _Look, shape: tuple[int, ...], labels: int) -> tuple[int, int, bool]:
    """Return the axis of a raw table that has a box and scores, how many labels, and whether
    `objectness` is one.

    labels: how many there are by the graph's metadata, or else the dataset; 0 if unknown.
    """
    fitting = []
    for axis in (0, 1):
        if labels and shape[axis] - labels in (4, 5):
            fitting.append((axis, labels, shape[axis] - labels == 5))
    if len(fitting) == 1:
        return fitting[0]
    if look.labels is not None or fitting:
        raise look.refusal(
            f"expected one side of 4 numbers and a score for each of {labels:,} labels"
        )
    axis = 0 if shape[0] < shape[1] else 1
    width = shape[axis]
    if shape[0] == shape[1] or width < 5:
        raise look.refusal("expected 4 numbers of a box and a score for each label")
    if axis == 0:
        return axis, width - 4, False
    if max(shape) in look.grids and width > 5:
        return axis, width - 5, True
    raise look.refusal(
        "it does not show whether a score of any object is before those of labels (objectness)"
    )


def _separate_outputs(outputs: Mapping[str, NDArray[Any]]) -> tuple[str, str, str] | None:
    """Return the names of boxes, scores and labels, by their shapes and types; None if these do not
    show them."""
    names_of: dict[str, list[str]] = {"boxes": [], "scores": [], "labels": []}
    for name, array in outputs.items():
        kind = array.dtype.kind
        if array.ndim in (2, 3) and array.shape[-1] == 4 and kind == "f":
            names_of["boxes"].append(name)
            continue
        if array.ndim > 1 and len(array) == 1 and array.shape[-1] != 4:
            array = array[0]
        if array.ndim == 1 and kind in "fiu":
            names_of["scores" if kind == "f" else "labels"].append(name)
    if any(len(names) != 1 for names in names_of.values()):
        return None
    return names_of["boxes"][0], names_of["scores"][0], names_of["labels"][0]


def _are_rows(rows: Floats) -> bool:
    """Return whether six columns are corners, a score and a label."""
    ordered = (rows[:, 2:4] >= rows[:, :2]).all()
    labels = rows[:, 5]
    whole = (labels == np.floor(labels)).all()
    return bool(ordered and whole and _are_shares(rows[:, 4]))


def _are_shares(scores: Floats) -> bool:
    return bool(((scores >= 0) & (scores <= 1)).all())


def _unit(rows: NDArray[Any]) -> str:
    if not rows.any() or np.abs(rows[:, :4]).max() > _LARGEST_SHARE:
        return "pixels"
    return "shares"


def _labels_of(
    look: _Look, count: int | None, categories: Sequence[str]
) -> tuple[list[str] | None, str]:
    """Return the names of labels, None if nothing shows them, and a sentence on where they are
    from."""
    if look.labels is not None:
        return list(look.labels), f"the graph names its {len(look.labels):,} labels"
    unnamed = "the graph names no label:"
    if count is not None and count == len(categories):
        return list(categories), (
            f"{unnamed} label_names are the dataset's categories in their order, which it may have"
            " learnt in another: check them"
        )
    if count is not None:
        return None, f"{unnamed} write its {count:,} label_names into {CONFIG}, in order."
    return None, (
        f"{unnamed} write its label_names into {CONFIG}, in order. The first one stands for none"
        " where labels count from 1, as torchvision's do."
    )
