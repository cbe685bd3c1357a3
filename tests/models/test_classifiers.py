"""Classifiers load with their trained weights, at their test size, or end in a message that says why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from timm.models import save_for_hf

from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models.classifiers import describe_classifier, load_classifier, of_timm

CONFIG = {
    "input_size": [3, 32, 32],
    "test_input_size": [3, 48, 48],
    "test_crop_pct": 1.0,
    "crop_pct": 0.9,
    "interpolation": "bilinear",
    "mean": [0.5, 0.5, 0.5],
    "std": [0.25, 0.25, 0.25],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier") / "tiny"
    torch.manual_seed(7)
    model: Any = timm.create_model("test_resnet", num_classes=4)
    names = {"label_names": ["a", "b", "c", "d"]}
    model.pretrained_cfg.update(CONFIG)
    save_for_hf(model, str(folder), model_config=names, safe_serialization=True)
    return folder


def copied(folder: Path, to: Path) -> Path:
    to.mkdir()
    for file in folder.iterdir():
        (to / file.name).write_bytes(file.read_bytes())
    return to


def test_the_loaded_tensors_are_those_of_the_file(folder: Path) -> None:
    classifier = load_classifier(f"local-dir:{folder}")
    loaded, stored = classifier.module.state_dict(), load_file(folder / "model.safetensors")
    assert set(loaded) == set(stored)
    assert all(torch.equal(loaded[key], stored[key]) for key in stored)


def test_a_classifier_is_in_eval_mode_without_gradients_at_its_test_size(folder: Path) -> None:
    classifier = of_timm.load(f"local-dir:{folder}")
    assert not classifier.module.training
    assert not any(parameter.requires_grad for parameter in classifier.module.parameters())
    assert (classifier.num_classes, classifier.architecture) == (4, "test_resnet")
    assert classifier.data_config["input_size"] == [3, 48, 48]
    assert classifier.data_config["crop_pct"] == 1.0
    assert classifier.data_config["std"] == [0.25, 0.25, 0.25]


def test_half_precision_weights_load_into_float32(folder: Path, tmp_path: Path) -> None:
    half = copied(folder, tmp_path / "half")
    stored = load_file(half / "model.safetensors")
    save_file(
        {key: value.half() if value.is_floating_point() else value for key, value in stored.items()},
        half / "model.safetensors",
    )
    loaded = load_classifier(f"local-dir:{half}").module.state_dict()
    assert all(value.dtype == torch.float32 for value in loaded.values() if value.is_floating_point())
    assert all(torch.equal(loaded[k], v.half().float()) for k, v in stored.items() if v.is_floating_point())


def test_the_hash_follows_the_weights_and_not_the_place(folder: Path, tmp_path: Path) -> None:
    same = copied(folder, tmp_path / "same")
    other = copied(folder, tmp_path / "other")
    stored = load_file(other / "model.safetensors")
    key = next(key for key, value in stored.items() if value.is_floating_point())
    stored[key].view(-1)[0] += 1e-3
    save_file(stored, other / "model.safetensors")
    hashes = [load_classifier(f"local-dir:{place}").sha256 for place in (folder, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_description_needs_no_weights_to_be_read(folder: Path, tmp_path: Path) -> None:
    unreadable = copied(folder, tmp_path / "unreadable")
    (unreadable / "model.safetensors").write_bytes(b"not weights")
    facts = describe_classifier(f"local-dir:{unreadable}")
    assert (facts.architecture, facts.num_classes, facts.label_names) == (
        "test_resnet",
        4,
        ("a", "b", "c", "d"),
    )
    with pytest.raises(RunFailure, match="damaged"):
        load_classifier(f"local-dir:{unreadable}")


def test_missing_weights_are_refused_rather_than_left_random(folder: Path, tmp_path: Path) -> None:
    other = copied(folder, tmp_path / "missing")
    stored = load_file(other / "model.safetensors")
    del stored["fc.weight"]
    save_file(stored, other / "model.safetensors")
    with pytest.raises(RunFailure, match="could not be loaded"):
        load_classifier(f"local-dir:{other}")


def test_timm_names_are_described_from_their_registry() -> None:
    facts = describe_classifier("resnet18.a1_in1k")
    assert (facts.architecture, facts.num_classes) == ("resnet18", 1000)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("resnet81", "did you mean 'resnet"),
        ("resnet18.a1_in1q", "it has .*a1_in1k"),
        ("timm/resnet18", "no timm name"),
        ("./no/such/folder", "there is no folder"),
        ("local-dir:/no/such/folder", "there is no folder"),
        ("lab:no_such_model_at_all", "the lab has no"),
    ],
)
def test_a_name_that_is_no_model_is_a_users_mistake(name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        describe_classifier(name)


def test_an_architecture_without_trained_weights_is_refused() -> None:
    trained = set(timm.list_models(pretrained=True))
    untrained = next(
        name for name in timm.list_models() if not any(one.startswith(f"{name}.") or one == name for one in trained)
    )
    with pytest.raises(UserError, match="no trained weights"):
        describe_classifier(untrained)


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
        (lambda folder: (folder / "config.json").write_text("{"), "not readable JSON"),
        (lambda folder: (folder / "config.json").write_text("[1]"), "JSON mapping"),
        (lambda folder: changed(folder, architecture="resnetty"), "does not know"),
        (lambda folder: changed(folder, num_classes=0), "no classification head"),
    ],
)
def test_a_broken_folder_says_what_is_missing(folder: Path, tmp_path: Path, break_it: Any, says: str) -> None:
    broken = copied(folder, tmp_path / "broken")
    break_it(broken)
    with pytest.raises(UserError, match=says):
        describe_classifier(f"local-dir:{broken}")


def changed(folder: Path, **values: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def test_a_hub_model_out_of_reach_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CounterfoilError, match="the Hub cannot be reached") as caught:
        describe_classifier("hf-hub:nobody/no-such-model-0")
    assert caught.value.exit_code == 1


# Heads differ: a plain layer, one behind a hidden layer wider than num_features, one behind a norm, one on a token.
@pytest.mark.parametrize("architecture", ["test_resnet", "mobilenetv3_small_050", "test_convnext", "test_vit"])
def test_features_are_what_the_last_layer_sees(tmp_path: Path, architecture: str) -> None:
    torch.manual_seed(3)
    model: Any = timm.create_model(architecture, num_classes=5)
    save_for_hf(model, str(tmp_path / "model"), safe_serialization=True)
    classifier = load_classifier(f"local-dir:{tmp_path / 'model'}")
    assert classifier.input_size is not None
    batch = torch.randn(3, *classifier.input_size)
    features = classifier.features(batch, "cpu")
    assert features is not None and features.shape == (3, classifier.module.head_hidden_size)
    with torch.inference_mode():
        again = classifier.module.get_classifier()(features)
    torch.testing.assert_close(again, classifier.logits(batch, "cpu"))
