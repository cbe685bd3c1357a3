"""Segmenters of ONNX Runtime: scores and numbers of classes, and configurations that do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from counterfoil.evaluation.tasks.masks.answers import class_numbers
from counterfoil.models.segmenters import load_segmenter
from support.masks import COLOURS, NAMES, ColourSegmenter
from support.refusals import problems_of

CONFIG: dict[str, Any] = {
    "architecture": "colours",
    "label_names": NAMES,
    "pretrained_cfg": {
        "input_size": [3, 48, 64],
        "mean": [0, 0, 0],
        "std": [1, 1, 1],
        "crop_pct": 1.0,
        "crop_mode": "squash",
        "interpolation": "bilinear",
    },
}


def save_graph(folder: Path, *, numbers: bool = False, outputs: int = 1) -> Path:
    """Save the segmenter of the nearest colour as a graph, which gives scores or numbers."""
    folder.mkdir(exist_ok=True)
    colours = COLOURS[:3].astype(np.float32) / 255
    weights = {
        "weight": 2 * colours[:, :, None, None],
        "bias": -np.square(colours).sum(axis=1),
    }
    nodes = [helper.make_node("Conv", ["images", "weight", "bias"], ["scores"])]
    named = {"scores": TensorProto.FLOAT}
    if numbers:
        nodes.append(helper.make_node("ArgMax", ["scores"], ["numbers"], axis=1, keepdims=0))
        named = {"numbers": TensorProto.INT64}
    if outputs > 1:
        nodes.append(helper.make_node("Identity", ["images"], ["again"]))
        named["again"] = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "segmenter",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 48, 64])],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in named.items()],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


@pytest.mark.parametrize("numbers", [False, True])
def test_answers_are_those_of_the_graph(tmp_path: Path, numbers: bool) -> None:
    segmenter = load_segmenter(f"onnx:{save_graph(tmp_path / 'model', numbers=numbers)}")
    assert segmenter.label_names == NAMES
    rng = np.random.default_rng(0)
    pixels = COLOURS[rng.integers(0, 3, (48, 64))].astype(int) + rng.integers(-9, 9, (48, 64, 3))
    image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
    (answer,) = segmenter([image])
    assert answer.shape == ((48, 64) if numbers else (3, 48, 64))
    (expected,) = ColourSegmenter()([image])
    assert (class_numbers("mine", answer, (48, 64), 3) == expected).all()


CHANGES: dict[str, tuple[dict[str, Any], int, str]] = {
    "a crop": (
        {"pretrained_cfg": CONFIG["pretrained_cfg"] | {"crop_pct": 0.9}},
        1,
        "crops or pads",
    ),
    "another size": (
        {"pretrained_cfg": CONFIG["pretrained_cfg"] | {"input_size": [3, 64, 64]}},
        1,
        "its graph takes images of",
    ),
    "no names": ({"label_names": None}, 1, "has no label_names"),
    "two outputs": ({}, 2, "its graph gives scores, again, expected one output"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_unfit_folders_are_refused(tmp_path: Path, name: str) -> None:
    values, outputs, problem = CHANGES[name]
    folder = save_graph(tmp_path / "model", outputs=outputs)
    (folder / "config.json").write_text(json.dumps(CONFIG | values))
    problems = problems_of(load_segmenter, f"onnx:{folder}")
    assert problem in "\n".join(problems)


def test_an_output_is_named_in_the_configuration(tmp_path: Path) -> None:
    folder = save_graph(tmp_path / "model", outputs=2)
    (folder / "config.json").write_text(json.dumps(CONFIG | {"output": "scores"}))
    assert load_segmenter(f"onnx:{folder}")([Image.new("RGB", (64, 48))])[0].shape == (3, 48, 64)
