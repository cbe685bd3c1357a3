"""Read the outputs of exported graphs: what `detector` in a config.json says of them, as functions
on arrays.

Three forms are read. `separate`: three outputs, boxes, scores and labels. `rows`: one output [1, N,
6] of corners, score and label, from which the graph has removed boxes of the same object. `raw`:
one output [1, 4+n, N] or [1, N, 4+n] of a box and a score for each of n labels, with a score of any
object before them where `objectness` is true; boxes of the same object are removed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.models.config_files import Foreign, Label, declared_values, expected_words

if TYPE_CHECKING:
    from PIL.Image import Image

SECTION = "detector"
BoxOrder = Literal["xyxy", "cxcywh", "xywh"]
Resize = Literal["squash", "letterbox", "letterbox_corner", "none"]
_Share = Annotated[float, Field(ge=0, le=1), expected_words("a number from 0 to 1")]
_Stride = Annotated[int, Field(ge=1, le=1024), expected_words("whole numbers from 1 to 1,024")]
# Candidates of higher scores are compared with each other; Ultralytics takes as many.
_MOST_COMPARED = 30_000


class OutputForm(Foreign):
    """The form of a graph's outputs and of its input, beside timm's keys."""

    form: Annotated[Literal["separate", "rows", "raw"], expected_words("separate, rows or raw")]
    outputs: Annotated[
        list[Label], Field(min_length=1, max_length=3), expected_words("a list of names of outputs")
    ]
    """Names, in the order boxes, scores, labels for `separate`."""
    boxes: Annotated[BoxOrder, expected_words("xyxy, cxcywh or xywh")] = "xyxy"
    """Order of the four numbers."""
    unit: Annotated[Literal["pixels", "shares"], expected_words("pixels or shares")] = "pixels"
    """Pixels of the input, or shares of its sides."""
    scores: Annotated[
        Literal["probabilities", "logits"], expected_words("probabilities or logits")
    ] = "probabilities"
    objectness: Annotated[bool, expected_words("true or false")] = False
    strides: Annotated[
        list[_Stride] | None,
        Field(max_length=8),
        expected_words("a list of whole numbers, or null"),
    ] = None
    """Of the grids that boxes are relative to, where the graph leaves them so (YOLOX)."""
    nms_iou: _Share | None = None
    """Boxes of one label that overlap more are one object; null if none are removed."""
    least_score: _Share = 0.001
    most_boxes: Annotated[
        int, Field(ge=1, le=10_000), expected_words("a whole number from 1 to 10,000")
    ] = 300
    resize: Annotated[Resize, expected_words("squash, letterbox, letterbox_corner or none")] = (
        "squash"
    )
    """The image is squashed to the input, scaled as a whole into its middle or its upper left
    corner, or given as it is."""
    pad: Annotated[int, Field(ge=0, le=255), expected_words("a whole number from 0 to 255")] = 114
    """The grey around it."""
    channels: Annotated[Literal["rgb", "bgr"], expected_words("rgb or bgr")] = "rgb"


def checked_form(document: Mapping[str, Any]) -> tuple[OutputForm | None, list[str]]:
    """Check the section `detector` of a config.json. Return it, or None and a line for each
    problem."""
    section = document.get(SECTION)
    if not isinstance(section, Mapping):
        return None, [f"{SECTION}: expected a mapping"]
    form, problems = declared_values(OutputForm, section, f"{SECTION}.")
    if form is not None:
        count = 1
        names = "one output"
        if form.form == "separate":
            count = 3
            names = "three outputs, boxes, scores and labels"
        if len(form.outputs) != count:
            return None, [f"{SECTION}.outputs: {form.form} has {names}"]
    return form, problems


# ---- Images


@dataclass(frozen=True)
class InputPlacement:
    """How an image lies in a graph's input: pixel (x, y) of the image is at `scale` · (x, y) +
    `offset`."""

    scale: tuple[float, float]
    offset: tuple[float, float] = (0.0, 0.0)

    def in_image(self, boxes: Floats) -> Floats:
        """Return corners in pixels of the input as corners in pixels of the image."""
        offset = self.offset * 2
        scale = self.scale * 2
        return (boxes - offset) / scale


def letterboxed(
    image: Image, size: tuple[int, int], corner: bool, pad: int
) -> tuple[Image, InputPlacement]:
    """Scale an image as a whole into `size` (height, width), on grey. The rounding is Ultralytics'.

    corner: whether it lies in the upper left corner, as YOLOX has it, and not in the middle.
    """
    from PIL import Image as Pictures

    height, width = size
    scale = min(height / image.height, width / image.width)
    inner_width = max(1, round(image.width * scale))
    inner_height = max(1, round(image.height * scale))
    left = top = 0
    if not corner:
        left = round((width - inner_width) / 2 - 0.1)
        top = round((height - inner_height) / 2 - 0.1)
    canvas = Pictures.new("RGB", (width, height), (pad, pad, pad))
    if image.size != (inner_width, inner_height):
        image = image.resize((inner_width, inner_height), Pictures.Resampling.BILINEAR)
    canvas.paste(image, (left, top))
    return canvas, InputPlacement((scale, scale), (float(left), float(top)))


# ---- Outputs


@dataclass(frozen=True)
class GraphAnswers:
    """The answers to one image."""

    boxes: Floats
    """(d, 4) corners in pixels of the input."""
    scores: Floats
    """(d,)"""
    labels: Floats
    """(d,)"""

    def rows(self, chosen: Ints | Bools) -> GraphAnswers:
        return GraphAnswers(self.boxes[chosen], self.scores[chosen], self.labels[chosen])


def read_outputs(
    form: OutputForm, outputs: Mapping[str, NDArray[Any]], sides: tuple[int, int], labels: int
) -> GraphAnswers:
    """Return the answers to an image. ValueError if the outputs have another shape than their form.

    sides: width and height of the input. labels: the number of labels.
    """
    arrays = [outputs[name] for name in form.outputs]
    if form.form == "separate":
        answers = _separate(form.outputs, *arrays)
    elif form.form == "rows":
        rows = _candidates(arrays[0], 6)
        answers = GraphAnswers(rows[:, :4], rows[:, 4], rows[:, 5])
    else:
        rows = _candidates(arrays[0], 4 + form.objectness + labels)
        answers = _raw(form, rows, sides)
    boxes = _corners(answers.boxes, form.boxes)
    if form.unit == "shares":
        boxes = boxes * (sides * 2)
    scores = answers.scores
    # A score that is no number is kept, and is refused.
    if form.form == "raw":
        left_out = scores < form.least_score
    else:
        if form.scores == "logits":
            scores = _sigmoid(scores)
        left_out = scores <= 0  # graphs fill up their answers with scores of 0
    answers = GraphAnswers(boxes, scores, answers.labels).rows(~left_out)
    if form.nms_iou is None:
        return answers
    return answers.rows(distinct(answers, form.nms_iou)[: form.most_boxes])


def _separate(
    names: Sequence[str], boxes: NDArray[Any], scores: NDArray[Any], labels: NDArray[Any]
) -> GraphAnswers:
    count = scores.size
    if labels.size != count or boxes.size != 4 * count or (count and boxes.shape[-1] != 4):
        named = zip(names, (boxes, scores, labels), strict=True)
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in named)
        raise ValueError(f"{shapes}, expected boxes [n, 4], scores [n] and labels [n] for an image")
    return GraphAnswers(
        boxes.astype(np.float64).reshape(-1, 4),
        scores.astype(np.float64).reshape(-1),
        labels.astype(np.float64).reshape(-1),
    )


def _candidates(output: NDArray[Any], width: int) -> Floats:
    """Return an output [1, N, width] or [1, width, N] of an image as rows (N, width)."""
    rows = output
    if output.ndim == 3 and len(output) == 1:
        rows = output[0]
    if rows.ndim != 2 or rows.shape.count(width) != 1:
        raise ValueError(
            f"an output {list(output.shape)}, expected [1, n, {width}] or [1, {width}, n]"
        )
    if rows.shape[1] != width:
        rows = rows.T
    return rows.astype(np.float64)


def _raw(form: OutputForm, rows: Floats, sides: tuple[int, int]) -> GraphAnswers:
    """Return the best label of each candidate, as the exports' own programs do."""
    boxes = rows[:, :4]
    rest = rows[:, 4:]
    if form.strides is not None:
        boxes = _from_grids(boxes, sides, form.strides)
    if form.scores == "logits":
        rest = _sigmoid(rest)
    scores = rest
    if form.objectness:
        scores = rest[:, :1] * rest[:, 1:]
    # A score that is no number comes before any other, and is refused.
    labels = scores.argmax(axis=1)
    best = scores[np.arange(len(scores)), labels]
    return GraphAnswers(boxes, best, labels.astype(np.float64))


def grid_cells(sides: tuple[int, int], strides: Sequence[int]) -> int:
    """Return how many cells the grids of an input have."""
    return sum((sides[0] // stride) * (sides[1] // stride) for stride in strides)


def _from_grids(boxes: Floats, sides: tuple[int, int], strides: Sequence[int]) -> Floats:
    """Return centre and size in pixels of boxes relative to the cells of grids, row by row, as
    YOLOX has them."""
    cells = grid_cells(sides, strides)
    if len(boxes) != cells:
        raise ValueError(f"{len(boxes):,} candidates, expected {cells:,} for strides {strides}")
    corners = []
    scales = []
    for stride in strides:
        down, across = np.mgrid[: sides[1] // stride, : sides[0] // stride]
        corners.append(np.stack([across.ravel(), down.ravel()], axis=1))
        scales.append(np.full((across.size, 1), stride))
    scale = np.concatenate(scales)
    centres = (boxes[:, :2] + np.concatenate(corners)) * scale
    sizes = np.exp(boxes[:, 2:]) * scale
    return np.concatenate([centres, sizes], axis=1)


def _corners(boxes: Floats, order: BoxOrder) -> Floats:
    if order == "xyxy":
        return boxes
    start = boxes[:, :2]
    sides = boxes[:, 2:]
    if order == "cxcywh":
        start = start - sides / 2
    return np.concatenate([start, start + sides], axis=1)


def distinct(answers: GraphAnswers, iou: float) -> Ints:
    """Return the answers that no better answer of the same label overlaps by more than `iou`, best
    first."""
    order = np.argsort(-answers.scores, kind="stable")[:_MOST_COMPARED]
    boxes = answers.boxes[order]
    labels = answers.labels[order]
    low = boxes[:, :2]
    high = boxes[:, 2:]
    areas = np.prod(np.maximum(high - low, 0), axis=1)
    left = np.ones(len(order), np.bool_)
    for index in range(len(order)):
        if not left[index]:
            continue
        of_label = left & (labels == labels[index])
        later = index + 1 + np.flatnonzero(of_label[index + 1 :])
        sides = np.minimum(high[index], high[later]) - np.maximum(low[index], low[later])
        shared = np.prod(np.maximum(sides, 0), axis=1)
        union = areas[index] + areas[later] - shared
        left[later[shared > iou * union]] = False
    return order[left]


def _sigmoid(values: Floats) -> Floats:
    return 1 / (1 + np.exp(-np.clip(values, -700, 700)))
