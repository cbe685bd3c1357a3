"""A graph of ONNX Runtime scores as the same network in torch; what is no such graph is refused
before it runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from timm.data.transforms_factory import create_transform

from counterfoil import evaluate
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models.classifiers import describe_classifier, load_classifier
from counterfoil.models.preparation import read_preparation
from counterfoil.prediction.inference import shares_of
from support.refusals import refuses

NAMES = ["bowl", "mug", "plate"]
SIDE = 24
FORM = {
    "input_size": [3, SIDE, SIDE], "crop_pct": 1.0, "interpolation": "bilinear",
    "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4],
}  # fmt: skip
WEIGHT = np.random.default_rng(0).normal(size=(len(NAMES), 3)).astype(np.float32)
BIAS = np.random.default_rng(1).normal(size=len(NAMES)).astype(np.float32)


def save_graph(
    folder: Path,
    batch: int | str = "n",
    ends: str = "",
    half: bool = False,
    side: int | str = SIDE,
    change: Callable[[onnx.ModelProto], None] | None = None,
    **config: Any,
) -> str:
    """Save the mean colour of an image times a matrix, with its config.json; return the model's
    name."""
    folder.mkdir(parents=True, exist_ok=True)
    kind, dtype = (TensorProto.FLOAT16, np.float16) if half else (TensorProto.FLOAT, np.float32)
    nodes = [
        helper.make_node("GlobalAveragePool", ["images"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("Gemm", ["flat", "weight", "bias"], ["scores"], transB=1),
    ]
    if ends:
        nodes.append(helper.make_node(ends, ["scores"], ["shares"]))
    graph = helper.make_graph(
        nodes,
        "mean-colour",
        [helper.make_tensor_value_info("images", kind, [batch, 3, side, side])],
        [helper.make_tensor_value_info("shares" if ends else "scores", kind, [batch, len(NAMES)])],
        [
            numpy_helper.from_array(WEIGHT.astype(dtype), "weight"),
            numpy_helper.from_array(BIAS.astype(dtype), "bias"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if change is not None:
        change(model)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    document = {
        "architecture": "mean-colour",
        "num_classes": 3,
        "label_names": NAMES,
        "pretrained_cfg": FORM,
        **config,
    }
    (folder / "config.json").write_text(json.dumps(document), encoding="utf-8")
    return f"onnx:{folder / 'model.onnx'}"


def pictures(count: int) -> list[Image.Image]:
    draw = np.random.default_rng(2)
    darkest = draw.integers(0, 200, (count, 3))  # by picture, so that answers differ
    return [
        Image.fromarray(draw.integers(low, 256, (40, 32, 3), dtype=np.uint8)) for low in darkest
    ]


def plain_scores(images: list[Image.Image]) -> np.ndarray:
    prepare: Any = create_transform(
        input_size=(3, SIDE, SIDE), is_training=False, crop_pct=1.0, interpolation="bilinear",
        mean=tuple(FORM["mean"]), std=tuple(FORM["std"]),
    )  # fmt: skip
    batch = torch.stack([prepare(image) for image in images])
    return batch.mean((2, 3)).numpy() @ WEIGHT.T + BIAS


def scores_of(name: str, images: list[Image.Image]) -> np.ndarray:
    classifier = load_classifier(name)
    prepare = classifier.transform()
    return classifier.logits(torch.stack([prepare(image) for image in images]), "cpu").numpy()


def test_what_its_configuration_does_not_say_of_images_is_told(tmp_path: Path) -> None:
    assert load_classifier(save_graph(tmp_path)).read == ""
    form = {
        "input_size": [3, SIDE, SIDE],
        "crop_pct": 1.0,
        "interpolation": "bilinear",
    }
    read = load_classifier(save_graph(tmp_path, pretrained_cfg=form)).read
    assert "default is taken: mean [0.485, 0.456, 0.406], std [0.229, 0.224, 0.225]" in read


def centred_over_the_batch(model: onnx.ModelProto) -> None:
    """Subtract the mean over the images, as a batch normalisation in training mode does."""
    graph = model.graph
    mean = helper.make_node(
        "ReduceMean",
        ["flat"],
        ["mean"],
        axes=[0],
        keepdims=1,
    )
    difference = helper.make_node("Sub", ["flat", "mean"], ["centred"])
    graph.node[2].input[0] = "centred"
    graph.node.insert(2, difference)
    graph.node.insert(2, mean)


@pytest.mark.parametrize(
    ("change", "batch", "steady"),
    [
        (centred_over_the_batch, "n", False),
        (centred_over_the_batch, 4, False),
        (None, "n", True),
        (None, 1, True),
    ],
)
def test_a_graph_in_training_mode_is_named(
    tmp_path: Path, change: Any, batch: int | str, steady: bool
) -> None:
    classifier = load_classifier(save_graph(tmp_path, batch, change=change))
    assert ("training mode" in classifier.unsteady) != steady


@pytest.mark.parametrize("batch", ["n", 4])
def test_scores_are_those_of_the_same_network(tmp_path: Path, batch: int | str) -> None:
    images = pictures(6)
    name = save_graph(tmp_path, batch)
    np.testing.assert_allclose(scores_of(name, images), plain_scores(images), atol=1e-5)
    classifier = load_classifier(name)
    preparation = read_preparation(classifier.stages(), classifier.transform())
    assert preparation is not None
    assert preparation.mean == pytest.approx((0.5, 0.4, 0.3))
    assert (preparation.resized, preparation.interpolation) == (SIDE, "bilinear")


def test_the_hash_is_of_the_graph(tmp_path: Path) -> None:
    names = [save_graph(tmp_path / ends, ends=ends) for ends in ("Identity", "Softmax")]
    names.append(save_graph(tmp_path / "same", ends="Identity"))
    first, other, same = (load_classifier(name).sha256 for name in names)
    assert first == same != other


@pytest.mark.parametrize(
    ("ends", "scale"),
    [
        ("", "logits"),
        ("Softmax", "probabilities"),
        ("LogSoftmax", "log-probabilities"),
        ("Sigmoid", "unknown"),
    ],
)
def test_the_end_of_a_graph_decides_what_its_scores_are(
    tmp_path: Path, ends: str, scale: str
) -> None:
    name = save_graph(tmp_path, ends=ends)
    classifier = load_classifier(name)
    assert classifier.score_scale == scale and bool(classifier.read) == (scale != "logits")
    plain = torch.from_numpy(plain_scores(pictures(5)))
    scores = scores_of(name, pictures(5))
    if scale == "unknown":
        np.testing.assert_allclose(scores, plain.sigmoid().numpy(), atol=1e-5)
    else:
        shares = shares_of(classifier.score_scale)(scores)
        np.testing.assert_allclose(shares, plain.softmax(1).numpy(), atol=1e-5)
    if scale == "probabilities":
        np.testing.assert_allclose(scores, plain.log_softmax(1).numpy(), atol=1e-5)


def test_a_graph_of_half_precision_takes_its_own_numbers(tmp_path: Path) -> None:
    images = pictures(5)
    np.testing.assert_allclose(
        scores_of(save_graph(tmp_path, half=True), images), plain_scores(images), atol=2e-2
    )


def _with_outputs(**shares: float) -> Callable[[onnx.ModelProto], None]:
    """Add outputs before the first one: a share of the scores each, or their mean where the share
    is 0."""

    def change(model: onnx.ModelProto) -> None:
        for name, share in shares.items():
            model.graph.initializer.append(
                numpy_helper.from_array(np.asarray(share, np.float32), f"{name}_share")
            )
            node = helper.make_node("Mul", ["scores", f"{name}_share"], [name])
            if not share:
                node = helper.make_node("ReduceMean", ["scores"], [name], axes=[1], keepdims=1)
            model.graph.node.append(node)
            model.graph.output.insert(
                0, helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            )

    return change


def test_equally_wide_outputs_are_asked_about(tmp_path: Path) -> None:
    images = pictures(5)
    change = _with_outputs(half=0.5)
    name = save_graph(tmp_path, change=change)
    with refuses("unfit-model", f"model {name!r}", "half, scores") as refused:
        load_classifier(name)
    assert '"output": "half"' in str(refused.value)
    keys = set()
    for output, share in (("half", 0.5), ("scores", 1.0)):
        save_graph(tmp_path, change=change, output=output)
        np.testing.assert_allclose(scores_of(name, images), share * plain_scores(images), atol=1e-5)
        keys.add(load_classifier(name).input_key)
    assert len(keys) == 2, "another output has other answers, which are kept apart"
    save_graph(tmp_path, change=change, output="quarter")
    with pytest.raises(UserError, match="called 'quarter'"):
        load_classifier(name)


def test_the_only_output_as_wide_as_the_classes_has_the_scores(tmp_path: Path) -> None:
    images = pictures(5)
    name = save_graph(tmp_path, change=_with_outputs(mean=0.0))
    np.testing.assert_allclose(scores_of(name, images), plain_scores(images), atol=1e-5)


def test_a_folder_of_one_graph_is_that_graph(tmp_path: Path) -> None:
    save_graph(tmp_path)
    facts = describe_classifier(f"onnx:{tmp_path}")
    assert (facts.architecture, facts.label_names) == ("mean-colour", tuple(NAMES))
    (tmp_path / "other.onnx").write_bytes(b"")
    with pytest.raises(UserError, match="found 2 files"):
        describe_classifier(f"onnx:{tmp_path}")


def test_an_export_with_the_files_of_transformers(tmp_path: Path) -> None:
    save_graph(tmp_path)
    config = {
        "model_type": "resnet",
        "id2label": {str(index): name for index, name in enumerate(NAMES)},
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    processor = {
        "image_processor_type": "ViTImageProcessor", "size": {"height": SIDE, "width": SIDE}, "do_resize": True,
        "resample": 2, "do_rescale": True, "do_normalize": True, "image_mean": FORM["mean"], "image_std": FORM["std"],
    }  # fmt: skip
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor), encoding="utf-8")
    images = [Image.new("RGB", (30, 30), colour) for colour in ("red", "green", "navy")]
    np.testing.assert_allclose(
        scores_of(f"onnx:{tmp_path}", images), plain_scores(images), atol=1e-4
    )
    assert describe_classifier(f"onnx:{tmp_path}").label_names == tuple(NAMES)


def test_it_is_scored_like_any_classifier(tmp_path: Path) -> None:
    for index, name in enumerate(NAMES):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number, image in enumerate(pictures(9)[index::3]):
            image.save(tmp_path / "photos" / name / f"{number}.png")
    name = save_graph(tmp_path / "net")
    evaluation = evaluate(tmp_path / "photos", name, out=tmp_path / "out", device="cpu", workers=2)
    images: list[Image.Image] = [
        Image.open(tmp_path / "photos" / class_name / f"{number}.png")
        for class_name in NAMES
        for number in range(3)
    ]
    right = plain_scores(images).argmax(1) == np.repeat(np.arange(3), 3)
    assert evaluation.models[0].architecture == "mean-colour"
    assert 0 < right.sum() < 9
    top1 = evaluation.number("top1", model=name, group="all")
    assert top1 is not None and top1.value == pytest.approx(right.mean())


def external(model: onnx.ModelProto, location: str) -> None:
    """Move a weight to another file."""
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", str(WEIGHT.nbytes))):
        entry = weight.external_data.add()
        entry.key = key
        entry.value = value


def own_operator(model: onnx.ModelProto) -> None:
    model.graph.node[1].domain = "evil"


REFUSED: list[tuple[str, dict[str, Any], type[CounterfoilError], str]] = [
    ("no configuration", {}, UserError, "has no config.json"),
    (
        "other size",
        {"side": 32},
        UserError,
        r"takes images of \[3, 32, 32\], and config.json prepares",
    ),
    (
        "other outputs",
        {"num_classes": 4, "label_names": None},
        UserError,
        "a score for each output",
    ),
    ("names and number", {"num_classes": 0}, UserError, "num_classes"),
    (
        "weights in the folder",
        {"change": partial(external, location="secret")},
        RunFailure,
        "could not be loaded",
    ),
    ("an operator of its own", {"change": own_operator}, RunFailure, "could not be loaded"),
]


@pytest.mark.parametrize("name", ["onnx:", "onnx: "])
def test_a_name_without_a_path_is_not_the_working_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_graph(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="names no file, expected onnx:FOLDER"):
        describe_classifier(name)


@pytest.mark.parametrize(
    ("case", "options", "error", "says"), REFUSED, ids=[case for case, *_ in REFUSED]
)
def test_what_is_no_such_graph_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: str,
    options: dict[str, Any],
    error: type[CounterfoilError],
    says: str,
) -> None:
    for folder in (tmp_path, tmp_path / "net"):
        folder.mkdir(exist_ok=True)
        (folder / "secret").write_bytes(WEIGHT.tobytes())
    name = save_graph(tmp_path / "net", **options)
    if case == "no configuration":
        (tmp_path / "net" / "config.json").unlink()
    monkeypatch.chdir(tmp_path / "net")
    with pytest.raises(error, match=says):
        load_classifier(name)
