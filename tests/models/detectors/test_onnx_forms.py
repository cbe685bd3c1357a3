"""Exports of detectors as they are: `init --detector` looks once, and answers equal plain loops
over the outputs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.detectors import load_detector
from counterfoil.models.detectors.onnx_forms import (
    GraphAnswers,
    OutputForm,
    distinct,
    letterboxed,
    read_outputs,
)
from counterfoil.starting.found_detector import find_detector
from support.fixed_graph import save_fixed_graph

SIDE = 64  # its grids have 8 · 8 + 4 · 4 + 2 · 2 cells
CELLS = 84
NAMES = ("cat", "dog", "bus")
IMAGE = Image.new("RGB", (128, 96), (40, 90, 200))
# The image lies in the input of 64 × 64 at half its size, 8 pixels below the upper edge.
SCALE = 0.5
ABOVE = 8


def table(
    labels: int, *, objectness: bool = False, boxes: int = CELLS, seed: int = 0
) -> np.ndarray:
    """Return centres and sizes in pixels of the input and scores, (boxes, 4 + labels), as a raw
    YOLO has them."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(10, 54, (boxes, 2))
    sizes = rng.uniform(6, 30, (boxes, 2))
    scores = rng.random((boxes, labels + objectness)) ** 4
    return np.concatenate([centres, sizes, scores], axis=1).astype(np.float32)


def overlap(first: Sequence[float], other: Sequence[float]) -> float:
    across = min(first[2], other[2]) - max(first[0], other[0])
    down = min(first[3], other[3]) - max(first[1], other[1])
    shared = across * down if across > 0 and down > 0 else 0.0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (first, other)]
    return shared / (sum(areas) - shared)


def plain_answers(
    rows: np.ndarray, *, objectness: bool = False, iou: float = 0.7, above: int = ABOVE
) -> list[tuple[Any, ...]]:
    """Return (score, label, corners in pixels of the image) of a raw table by plain loops, best
    first."""
    candidates = []
    for x, y, width, height, *scores in rows.astype(np.float64).tolist():
        whole = scores.pop(0) if objectness else 1.0
        label = max(range(len(scores)), key=lambda number: scores[number])
        if whole * scores[label] >= 0.001:
            corners = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
            candidates.append((whole * scores[label], label, corners))
    kept: list[tuple[Any, ...]] = []
    for candidate in sorted(candidates, key=lambda answer: -answer[0]):
        if all(
            candidate[1] != answer[1] or overlap(candidate[2], answer[2]) <= iou for answer in kept
        ):
            kept.append(candidate)
    return [
        (
            score,
            label,
            [(value - (0, above)[side % 2]) / SCALE for side, value in enumerate(corners)],
        )
        for score, label, corners in kept
    ]


def assert_answers(detections: Mapping[str, Any], expected: Sequence[tuple[Any, ...]]) -> None:
    assert len(detections["scores"]) == len(expected) > 0
    np.testing.assert_allclose(
        detections["scores"].numpy(), [answer[0] for answer in expected], rtol=1e-5
    )
    assert detections["labels"].tolist() == [answer[1] for answer in expected]
    np.testing.assert_allclose(
        detections["boxes"].numpy(), [answer[2] for answer in expected], rtol=1e-4, atol=1e-3
    )


RAW = {
    "columns, named": (lambda rows: rows.T[None], False, dict(enumerate(NAMES)), ()),
    "columns, as the dataset": (lambda rows: rows.T[None], False, None, NAMES),
    "rows, named": (lambda rows: rows[None], False, list(NAMES), ()),
    "rows with objectness, named": (lambda rows: rows[None], True, dict(enumerate(NAMES)), ()),
    "rows with objectness, as the dataset": (lambda rows: rows[None], True, None, NAMES),
}


@pytest.mark.parametrize("case", RAW)
def test_raw_tables_answer_as_plain_loops(tmp_path: Path, case: str) -> None:
    shaped, objectness, names, categories = RAW[case]
    rows = table(len(NAMES), objectness=objectness)
    file = save_fixed_graph(tmp_path / "graph", {"output0": shaped(rows)}, names)
    described = find_detector(file, categories)
    section = json.loads(described.path.read_text())["detector"]
    assert (
        section["nms_iou"] == 0.7
        and section["resize"] == "letterbox"
        and section["objectness"] is objectness
    )
    assert ("the graph names no label" in described.notes[-1]) == (names is None)
    detector = load_detector(described.model)
    assert detector.label_names == NAMES
    assert_answers(detector([IMAGE])[0], plain_answers(rows, objectness=objectness))


def test_grids_of_yolox_are_resolved_by_their_strides(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    raw = np.concatenate(
        [
            rng.normal(0.5, 0.3, (CELLS, 2)),
            rng.normal(0.5, 0.7, (CELLS, 2)),
            rng.random((CELLS, 4)) ** 4,
        ],
        axis=1,
    ).astype(np.float32)
    described = find_detector(
        save_fixed_graph(tmp_path / "graph", {"output": raw[None]}, dict(enumerate(NAMES)))
    )
    document = json.loads(described.path.read_text())
    assert (
        document["detector"]["strides"] == [8, 16, 32] and document["detector"]["channels"] == "bgr"
    )
    assert document["pretrained_cfg"]["std"] == [1 / 255] * 3
    decoded = raw.astype(np.float64)
    row = 0
    for stride in (8, 16, 32):
        for down in range(SIDE // stride):
            for across in range(SIDE // stride):
                x, y, width, height = raw[row, :4].astype(float)
                sides = [math.exp(width) * stride, math.exp(height) * stride]
                decoded[row, :4] = [(x + across) * stride, (y + down) * stride, *sides]
                row += 1
    # The image lies in the upper left corner.
    expected = plain_answers(decoded, objectness=True, above=0)
    assert_answers(load_detector(described.model)([IMAGE])[0], expected)


ROWS = np.asarray(
    [[10, 18, 40, 50, 0.9, 2], [4, 8, 30, 30, 0.4, 0], [0, 0, 0, 0, 0, 0]], np.float32
)


def test_rows_of_an_end_to_end_export_are_answers(tmp_path: Path) -> None:
    described = find_detector(
        save_fixed_graph(tmp_path / "graph", {"output0": ROWS[None]}, dict(enumerate(NAMES)))
    )
    (answer,) = load_detector(described.model)([IMAGE])
    np.testing.assert_allclose(answer["boxes"].numpy(), [[20, 20, 80, 84], [8, 0, 60, 44]])
    np.testing.assert_allclose(answer["scores"].numpy(), [0.9, 0.4], rtol=1e-6)
    assert answer["labels"].tolist() == [2, 0]


def test_a_table_of_two_labels_is_not_taken_for_rows(tmp_path: Path) -> None:
    rows = table(2)
    described = find_detector(
        save_fixed_graph(tmp_path / "graph", {"output0": rows[None]}, {0: "cat", 1: "dog"})
    )
    assert_answers(load_detector(described.model)([IMAGE])[0], plain_answers(rows))


def test_boxes_as_shares_with_logits_are_read_as_detr_gives_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    boxes = np.concatenate([rng.uniform(0.3, 0.7, (9, 2)), rng.uniform(0.1, 0.4, (9, 2))], axis=1)
    rows = np.concatenate([boxes, rng.normal(0, 3, (9, 3))], axis=1).astype(np.float32)
    described = find_detector(
        save_fixed_graph(tmp_path / "graph", {"output0": rows[None]}, dict(enumerate(NAMES)))
    )
    section = json.loads(described.path.read_text())["detector"]
    assert (section["unit"], section["scores"], section["nms_iou"], section["resize"]) == (
        "shares", "logits", None, "squash"
    )  # fmt: skip
    (answer,) = load_detector(described.model)([IMAGE])
    for row, box, score, label in zip(
        rows.tolist(), answer["boxes"], answer["scores"], answer["labels"], strict=True
    ):
        x, y, width, height, *logits = row
        corners = [
            128 * (x - width / 2),
            96 * (y - height / 2),
            128 * (x + width / 2),
            96 * (y + height / 2),
        ]
        np.testing.assert_allclose(box.numpy(), corners, rtol=1e-4, atol=1e-3)
        assert label == int(np.argmax(logits)) and float(score) == pytest.approx(
            1 / (1 + math.exp(-max(logits)))
        )


@pytest.mark.parametrize(
    "shape", [(3, "height", "width"), (1, 3, "height", "width")], ids=["no batch", "batch"]
)
def test_unnamed_outputs_of_torchvision_are_known_by_shape_and_type(
    tmp_path: Path, shape: tuple[Any, ...]
) -> None:
    boxes = np.asarray([[5, 6, 50, 60], [70, 10, 120, 90]], np.float32)
    outputs = {
        "2774": boxes,
        "2803": np.asarray([1, 3]),
        "2804": np.asarray([0.75, 0.5], np.float32),
    }
    described = find_detector(save_fixed_graph(tmp_path / "graph", outputs, shape=shape))
    document = json.loads(described.path.read_text())
    assert (
        document["detector"]["outputs"] == ["2774", "2804", "2803"]
        and document["detector"]["resize"] == "none"
    )
    assert "The first one stands for none where labels count from 1" in described.notes[-1]
    with pytest.raises(UserError, match="has no label_names"):
        load_detector(described.model)
    described.path.write_text(json.dumps(document | {"label_names": ["none", *NAMES]}))
    (answer,) = load_detector(described.model)([IMAGE])
    np.testing.assert_array_equal(answer["boxes"].numpy(), boxes)
    assert answer["labels"].tolist() == [1, 3] and answer["scores"].tolist() == [0.75, 0.5]
    described.path.write_text(json.dumps(document | {"label_names": NAMES}))
    with pytest.raises(UserError, match=r"gives the labels \[3.*\], expected a label from 0 to 2"):
        load_detector(described.model)([IMAGE])


@pytest.mark.parametrize(
    ("size", "corner"), [((128, 96), False), ((33, 100), True), ((640, 17), False)]
)
def test_a_letterbox_keeps_the_image_whole_and_boxes_in_place(
    size: tuple[int, int], corner: bool
) -> None:
    canvas, placement = letterboxed(Image.new("RGB", size, (255, 0, 0)), (SIDE, SIDE), corner, 114)
    red = np.asarray(canvas)[:, :, 0] == 255
    rows = np.flatnonzero(red.any(axis=1))
    columns = np.flatnonzero(red.any(axis=0))
    assert canvas.size == (SIDE, SIDE) and (np.asarray(canvas)[~red] == 114).all()
    inner = np.asarray([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]], np.float64)
    # The rounded picture is at most half a pixel of the input from its place.
    reach = 0.6 / placement.scale[0]
    np.testing.assert_allclose(placement.in_image(inner), [[0, 0, *size]], atol=reach)
    assert (rows[0] == 0 and columns[0] == 0) or not corner


def test_of_overlapping_boxes_of_a_label_the_best_is_kept() -> None:
    rng = np.random.default_rng(1)
    low = rng.uniform(0, 40, (200, 2))
    boxes = np.concatenate([low, low + rng.uniform(5, 40, (200, 2))], axis=1)
    described = GraphAnswers(boxes, rng.random(200), rng.integers(0, 3, 200).astype(float))
    for iou in (0.0, 0.3, 0.7, 1.0):
        kept: list[int] = []
        for index in np.argsort(-described.scores, kind="stable").tolist():
            same = [other for other in kept if described.labels[other] == described.labels[index]]
            if all(overlap(boxes[index].tolist(), boxes[other].tolist()) <= iou for other in same):
                kept.append(index)
        assert distinct(described, iou).tolist() == kept


def test_a_table_of_another_width_is_refused_when_it_answers() -> None:
    form = OutputForm(form="raw", outputs=["out"])
    for shape in ((1, 7, 7), (1, 9, 20), (2, 7, 20), (7,)):
        with pytest.raises(ValueError, match="expected \\[1, n, 7\\]"):
            read_outputs(form, {"out": np.ones(shape, np.float32)}, (SIDE, SIDE), 3)


REFUSED: dict[str, tuple[dict[str, np.ndarray], Any, str]] = {
    "other widths": ({"out": np.zeros((1, 40, CELLS), np.float32)}, dict(enumerate(NAMES)), "for each of 3 labels"),
    "nothing shows objectness": ({"out": np.ones((1, 30, 9), np.float32)}, None, "objectness"),
    "two tables": ({name: np.ones((1, 7, 84), np.float32) for name in "ab"}, None, "expected one"
        " table of boxes"),
    "scores alone": ({"out": np.ones((1, 5), np.float32)}, None, "expected one table of boxes"),
    "of transformers": (
        {"logits": np.ones((1, 6, 3), np.float32), "pred_boxes": np.ones((1, 6, 4), np.float32)}, None, "Optimum",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_look_does_not_show_is_refused_with_other_ways(tmp_path: Path, case: str) -> None:
    outputs, names, says = REFUSED[case]
    with pytest.raises(UserError, match=says) as refused:
        find_detector(save_fixed_graph(tmp_path / "graph", outputs, names))
    assert "predictions:FILE" in str(refused.value) and "python:MODULE:FUNCTION" in str(
        refused.value
    )
    assert not (tmp_path / "graph" / "config.json").exists()


def test_a_graph_of_rotated_boxes_is_no_table_with_objectness(tmp_path: Path) -> None:
    """Give a table of rotated boxes, which is as wide: four numbers, a score a label, an angle."""
    output = {"output0": table(len(NAMES), objectness=True)[None]}
    file = save_fixed_graph(
        tmp_path / "graph",
        output,
        dict(enumerate(NAMES)),
        task="obb",
    )
    with pytest.raises(UserError, match="task 'obb', expected 'detect'"):
        find_detector(file)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"form": "yolo"}, "detector.form: found 'yolo', expected separate, rows or raw"),
        ({"outputs": ["output1"]}, "the graph gives output0, and no output1"),
        ({"form": "separate"}, "separate has three outputs"),
        ({"nms_iou": 7}, "expected a number from 0 to 1"),
        ({"strides": [0]}, "whole numbers from 1"),
        ({"resize": "crop"}, "expected squash, letterbox"),
    ],
)
def test_a_section_of_another_form_is_refused(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    described = find_detector(
        save_fixed_graph(tmp_path / "graph", {"output0": table(3).T[None]}, dict(enumerate(NAMES)))
    )
    document = json.loads(described.path.read_text())
    document["detector"] |= change
    described.path.write_text(json.dumps(document))
    with pytest.raises(UserError) as refused:
        load_detector(described.model)
    assert says in str(refused.value)


def test_a_graph_without_a_section_names_init_and_a_config_is_kept(tmp_path: Path) -> None:
    file = save_fixed_graph(
        tmp_path / "graph", {"output0": table(3).T[None]}, dict(enumerate(NAMES))
    )
    with pytest.raises(UserError, match="counterfoil init --detector"):
        load_detector(f"onnx:{file}")
    described = find_detector(file)
    with pytest.raises(UserError, match="exists already and may hold your changes"):
        find_detector(file)
    first = load_detector(described.model)
    document = json.loads(described.path.read_text())
    document["detector"]["nms_iou"] = 0.5
    described.path.write_text(json.dumps(document))
    assert load_detector(described.model).input_key != first.input_key, (
        "other answers, so other kept answers"
    )
    del document["detector"]
    described.path.write_text(json.dumps(document))
    with pytest.raises(UserError, match="predictions:FILE, or a Python function"):
        load_detector(described.model)


def test_numbers_that_are_not_finite_are_no_answer(tmp_path: Path) -> None:
    rows = table(3)
    rows[4, 5] = np.nan
    described = find_detector(
        save_fixed_graph(tmp_path / "graph", {"output0": table(3).T[None]}, dict(enumerate(NAMES)))
    )
    save_fixed_graph(tmp_path / "graph", {"output0": rows.T[None]}, dict(enumerate(NAMES)))
    with pytest.raises(RunFailure, match="not finite"):
        load_detector(described.model)([IMAGE])
