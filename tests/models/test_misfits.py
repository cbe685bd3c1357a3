"""Weights under other names, or of another head: they are read if a prefix explains it, else the
cause is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from colour_world import COLOURS, save_colour_model
from counterfoil.errors import CounterfoilError, UserError
from counterfoil.models.classifiers import load_classifier
from counterfoil.models.weights_files import without_prefix

NAMES = {
    "conv.weight": 1,
    "conv.bias": 2,
    "fc.weight": 3,
    "fc.bias": 4,
    "bn.num_batches_tracked": 5,
}


@pytest.mark.parametrize(
    ("written", "prefix"),
    [
        (lambda name: name, ""),
        (lambda name: f"model.{name}", "model."),
        (lambda name: f"module._orig_mod.net.{name}", "module._orig_mod.net."),
        (lambda name: name if name.startswith("fc") else f"backbone.{name}", "backbone."),
        (lambda name: f"model.{name}" if "num_batches" not in name else "", "model."),
        (lambda name: f"model.{name.replace('fc', 'head')}", ""),
        (lambda name: name.replace("conv", "stem"), ""),
    ],
    ids=[
        "none",
        "one",
        "three",
        "all but the head",
        "without counters",
        "another head",
        "another stem",
    ],
)
def test_a_prefix_is_removed_only_if_every_name_then_fits(
    written: Callable[[str], str], prefix: str
) -> None:
    weights = {written(name): number for name, number in NAMES.items() if written(name)}
    renamed, removed = without_prefix(weights, NAMES)
    assert removed == prefix
    expected = (
        {name: number for name, number in NAMES.items() if written(name)} if prefix else weights
    )
    assert renamed == expected


def test_two_weights_are_never_made_one() -> None:
    weights = {"model.a": 1, "model.b": 2, "a": 3}
    assert without_prefix(weights, {"a": 0, "b": 0}) == (weights, "")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_colour_model(tmp_path_factory.mktemp("misfits") / "saved", labels=True)


def changed(
    saved: Path,
    folder: Path,
    change: Callable[[dict[str, Any]], dict[str, Any]],
    config: dict[str, Any] | None = None,
) -> str:
    folder.mkdir()
    document = json.loads((saved / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(document | (config or {})))
    save_file(change(load_file(saved / "model.safetensors")), folder / "model.safetensors")
    return f"local-dir:{folder}"


def prefixed(prefix: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda weights: {prefix + name: tensor for name, tensor in weights.items()}


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module.model."])
def test_a_model_under_a_prefix_answers_as_the_model(
    saved: Path, prefix: str, tmp_path: Path
) -> None:
    plain = load_classifier(f"local-dir:{saved}")
    classifier = load_classifier(changed(saved, tmp_path / "model", prefixed(prefix)))
    pictures = [Image.fromarray(np.full((32, 32, 3), colour, np.uint8)) for colour in COLOURS]
    batch = torch.stack([plain.transform()(picture) for picture in pictures])
    assert torch.equal(classifier.logits(batch, "cpu"), plain.logits(batch, "cpu"))
    assert classifier.sha256 == plain.sha256
    assert (plain.read, classifier.read) == (
        "",
        f"the weights' names begin with {prefix!r}, which was left out",
    )


def without(part: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda weights: {name: tensor for name, tensor in weights.items() if part not in name}


@pytest.mark.parametrize(
    ("change", "config", "problem"),
    [
        pytest.param(
            lambda weights: weights,
            {"num_classes": 5, "label_names": list("abcde"), "model_args": {}},
            "has weights for 3 outputs, and config.json says 5",
            id="five names for three weights",
        ),
        pytest.param(without("fc."), None, "lacks 2 weights of the model: fc.bias, fc.weight", id="no head"),
        pytest.param(
            lambda weights: prefixed("net.")(without("fc.")(weights)), None,
            "names begin with 'net.': without it, 2 would still be missing", id="a prefix and no"
                " head",
        ),
        pytest.param(
            lambda weights: weights | {"more.weight": torch.zeros(3)}, None, "has 1 weight of"
                " another: more.weight",
            id="one more",
        ),
        pytest.param(prefixed("of another model "), None, "lacks", id="no name in common"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(
    saved: Path, change: Any, config: dict[str, Any] | None, problem: str, tmp_path: Path
) -> None:
    name = changed(saved, tmp_path / "model", change, config)
    with pytest.raises(CounterfoilError) as refused:
        load_classifier(name)
    assert isinstance(refused.value, UserError)
    assert problem in "\n".join(refused.value.problems)
    assert max(map(len, refused.value.problems)) < 400, "no list of keys"
