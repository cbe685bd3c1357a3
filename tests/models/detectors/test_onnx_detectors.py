"""Graphs that find objects: boxes return to the pixels of each image, and what is no detector is
refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from transformers import AutoImageProcessor
from transformers.models.rt_detr.modeling_rt_detr import RTDetrObjectDetectionOutput

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.detectors import load_detector
from support.images import noise
from tiny_detectors import save_detector

SIDE = 24
NAMES = ["mug", "hat", "shoe"]
BOXES = np.asarray([[0, 0, 12, 24], [6, 3, 18, 9], [1, 2, 3, 4]], np.float32)
FORM = {
    "input_size": [3, SIDE, SIDE], "crop_pct": 1.0, "crop_mode": "squash", "interpolation": "bilinear",
    "mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0],
}  # fmt: skip


def save_graph(
    folder: Path, *, labels: tuple[int, ...] = (0, 1, 2), sides: bool = False, **form: Any
) -> str:
    """Save a graph whose scores are an image's mean red, green and blue, at fixed boxes; return the
    model's name.

    sides: whether it also takes `orig_target_sizes`, and scales boxes by them, as the exports of
    RT-DETR do.
    """
    nodes = [
        helper.make_node("GlobalAveragePool", ["images"], ["pooled"]),
        helper.make_node("Reshape", ["pooled", "flat"], ["scores"]),
        helper.make_node("Identity", ["fixed_labels"], ["labels"]),
    ]
    inputs = [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])]
    tensors = {
        "flat": np.asarray([1, 3]),
        "fixed_labels": np.asarray([labels]),
        "fixed": BOXES[None],
    }
    if sides:
        inputs.append(
            helper.make_tensor_value_info("orig_target_sizes", TensorProto.INT64, ["n", 2])
        )
        tensors |= {"fixed": BOXES[None] / SIDE, "twice": np.asarray([1, 2])}
        nodes += [
            helper.make_node("Cast", ["orig_target_sizes"], ["floats"], to=TensorProto.FLOAT),
            helper.make_node("Tile", ["floats", "twice"], ["corners"]),
            helper.make_node("Mul", ["fixed", "corners"], ["boxes"]),
        ]
    else:
        nodes.append(helper.make_node("Identity", ["fixed"], ["boxes"]))
    outputs = [
        helper.make_tensor_value_info("labels", TensorProto.INT64, [1, len(labels)]),
        helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, 3, 4]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 3]),
    ]
    return _saved(
        folder,
        nodes,
        inputs,
        outputs,
        tensors,
        {"label_names": NAMES, "pretrained_cfg": FORM | form},
    )


def _saved(
    folder: Path, nodes: Any, inputs: Any, outputs: Any, tensors: dict[str, np.ndarray], config: Any
) -> str:
    folder.mkdir(exist_ok=True)
    graph = helper.make_graph(
        nodes,
        "detector",
        inputs,
        outputs,
        [numpy_helper.from_array(value, name) for name, value in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    if config is not None:
        document = {"architecture": "mine", "num_classes": len(NAMES)} | config
        (folder / "config.json").write_text(json.dumps(document))
    return f"onnx:{folder}"


@pytest.mark.parametrize("sides", [False, True])
def test_boxes_are_in_pixels_of_each_image(tmp_path: Path, sides: bool) -> None:
    detector = load_detector(save_graph(tmp_path / "graph", sides=sides))
    assert detector.label_names == tuple(NAMES)
    images = [Image.new("RGB", (48, 24), (51, 102, 255)), Image.new("RGB", (12, 96), (255, 0, 51))]
    first, second = detector(images)
    np.testing.assert_allclose(first["boxes"].numpy(), BOXES * (2, 1, 2, 1), rtol=1e-6)
    np.testing.assert_allclose(first["scores"].numpy(), [0.2, 0.4, 1.0], rtol=1e-5)
    assert first["labels"].tolist() == [0, 1, 2]
    # A score of 0 is no answer.
    np.testing.assert_allclose(second["boxes"].numpy(), BOXES[[0, 2]] * (0.5, 4, 0.5, 4), rtol=1e-6)
    assert second["labels"].tolist() == [0, 2]


def test_an_export_of_transformers_is_read_by_its_image_processor(tmp_path: Path) -> None:
    folder = save_detector("rt_detr", tmp_path / "model")
    logits = np.random.default_rng(0).normal(size=(1, 6, 3)).astype(np.float32)
    boxes = np.random.default_rng(1).uniform(0.2, 0.4, (1, 6, 4)).astype(np.float32)
    nodes = [
        helper.make_node("ReduceMean", ["pixel_values"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["fixed", "mean"], ["logits"]),
        helper.make_node("Identity", ["places"], ["pred_boxes"]),
    ]
    name = _saved(
        folder,
        nodes,
        [helper.make_tensor_value_info("pixel_values", TensorProto.FLOAT, [1, 3, 64, 64])],
        [
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 6, 3]),
            helper.make_tensor_value_info("pred_boxes", TensorProto.FLOAT, [1, 6, 4]),
        ],
        {"fixed": logits, "places": boxes},
        None,
    )
    image = noise(5, 70, 50)
    (detections,) = load_detector(name)([image])
    processor: Any = AutoImageProcessor.from_pretrained(folder)
    mean = processor(images=image, return_tensors="pt")["pixel_values"].mean()
    raw = RTDetrObjectDetectionOutput(
        logits=torch.from_numpy(logits) * mean,  # pyrefly: ignore[bad-argument-type]
        pred_boxes=torch.from_numpy(boxes),  # pyrefly: ignore[bad-argument-type]
    )
    (expected,) = processor.post_process_object_detection(
        raw, threshold=0.0, target_sizes=[(50, 70)]
    )
    for key in ("boxes", "scores", "labels"):
        torch.testing.assert_close(detections[key], expected[key], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "form", [{"crop_pct": 0.875}, {"crop_mode": "border"}], ids=["share", "border"]
)
def test_a_preparation_that_moves_boxes_is_refused(tmp_path: Path, form: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="crops or pads images"):
        load_detector(save_graph(tmp_path / "graph", **form))


def test_a_label_without_a_name_is_no_answer(tmp_path: Path) -> None:
    for labels in ((0, 1, 3), (0, -1, 2)):
        detector = load_detector(save_graph(tmp_path / "graph", labels=labels))
        with pytest.raises(UserError, match=r"expected a label from 0 to 2: config\.json names"):
            detector([noise(0)])


def answering(folder: Path, boxes: Any, scores: Any, labels: Any) -> str:
    """Save a graph that gives the same answer for every image."""
    given = {"boxes": np.asarray(boxes), "scores": np.asarray(scores), "labels": np.asarray(labels)}
    nodes = [helper.make_node("Identity", [f"fixed_{name}"], [name]) for name in given]
    outputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(values.dtype), None)
        for name, values in given.items()
    ]
    image = helper.make_tensor_value_info("images", TensorProto.FLOAT16, [1, 3, "height", "width"])
    tensors = {f"fixed_{name}": values for name, values in given.items()}
    config = {"label_names": NAMES, "pretrained_cfg": FORM}
    return _saved(
        folder,
        [helper.make_node("Identity", ["images"], ["pixels"]), *nodes],
        [image],
        outputs,
        tensors,
        config,
    )


def test_answers_may_be_halves_empty_or_filled_up(tmp_path: Path) -> None:
    halves = answering(
        tmp_path / "halves",
        BOXES.astype(np.float16),
        np.asarray([0.5, 0.25, 0], np.float16),
        [0.0, 2.0, -1.0],
    )
    (detections,) = load_detector(halves)([noise(0, SIDE, SIDE)])
    np.testing.assert_array_equal(detections["boxes"].numpy(), BOXES[:2])
    assert detections["scores"].tolist() == [0.5, 0.25] and detections["labels"].tolist() == [0, 2]
    nothing = answering(
        tmp_path / "nothing", np.zeros((1, 0, 4), np.float32), np.zeros((1, 0), np.float32), [[]]
    )
    (detections,) = load_detector(nothing)([noise(0)])
    assert detections["boxes"].shape == (0, 4) and not len(detections["scores"])


@pytest.mark.parametrize(
    ("boxes", "scores", "labels", "problem"),
    [
        (BOXES, [0.5, np.nan, 0.5], [0, 1, 2], "not finite"),
        (np.full_like(BOXES, np.inf), [0.5, 0.5, 0.5], [0, 1, 2], "not finite"),
        (BOXES, [0.5, 0.5, 0.5], [0, 0.5, 2], r"gives the labels \[0.5\]"),
        (BOXES, [0.5, 0.5, 0.5], [0, 1], r"labels \[2\], expected boxes \[n, 4\]"),
        (BOXES.T, [0.5, 0.5, 0.5], [0, 1, 2], r"boxes \[4, 3\]"),
    ],
)
def test_an_answer_of_another_form_is_refused(
    tmp_path: Path, boxes: Any, scores: Any, labels: Any, problem: str
) -> None:
    detector = load_detector(
        answering(tmp_path / "graph", boxes, np.asarray(scores, np.float32), labels)
    )
    with pytest.raises((RunFailure, UserError), match=problem):
        detector([noise(0)])


def test_a_graph_of_another_size_than_its_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"takes images of \[3, 24, 24\], and config.json prepares \[3, 32, 32\]"
    ):
        load_detector(save_graph(tmp_path / "graph", input_size=[3, 32, 32]))


def test_a_graph_of_other_outputs_or_inputs_is_refused(tmp_path: Path) -> None:
    image = helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, SIDE, SIDE])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, None)
    pool = helper.make_node("GlobalAveragePool", ["images"], ["scores"])
    config = {"label_names": NAMES, "pretrained_cfg": FORM}
    with pytest.raises(
        UserError, match="its graph gives scores, expected boxes, scores and labels"
    ):
        load_detector(_saved(tmp_path / "scores", [pool], [image], [scores], {}, config))
    name = save_graph(tmp_path / "graph")
    model = onnx.load(tmp_path / "graph" / "model.onnx")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    onnx.save(model, tmp_path / "graph" / "model.onnx")
    with pytest.raises(UserError, match=r"expected one input of floats \[1, 3, height, width\]"):
        load_detector(name)
    document = json.loads((tmp_path / "graph" / "config.json").read_text())
    del document["label_names"]
    (tmp_path / "graph" / "config.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match="has no label_names"):
        load_detector(name)
