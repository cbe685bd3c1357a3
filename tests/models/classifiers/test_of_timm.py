"""Classifiers of timm: what is no classifier is refused in words before a weight is read, and no
pickle runs."""

from __future__ import annotations

import argparse
import builtins
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file
from timm.models import save_for_hf
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    TimmWrapperConfig,
    TimmWrapperForImageClassification,
)

import warm
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models import trials
from counterfoil.models.classifiers import describe_classifier, load_classifier, of_timm
from counterfoil.models.classifiers.of_timm import checked_config
from counterfoil.models.weights_files import read_pickled
from loopback_hub.clients import client, client_environment
from loopback_hub.hub import LoopbackHub
from support.hostile_files import FORMS, Attack, assert_that_it_works
from support.refusals import problems_of, refuses

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


def test_a_classifier_is_in_eval_mode_without_gradients_at_its_test_size(folder: Path) -> None:
    classifier = of_timm.load(f"local-dir:{folder}")
    assert same(folder, f"local-dir:{folder}")
    assert not classifier.module.training
    assert not any(parameter.requires_grad for parameter in classifier.module.parameters())
    assert (classifier.num_classes, classifier.architecture) == (4, "test_resnet")
    assert classifier.data_config["input_size"] == [3, 48, 48]
    assert classifier.data_config["crop_pct"] == 1.0
    assert classifier.data_config["std"] == [0.25, 0.25, 0.25]


def test_a_model_that_transformers_wrapped_answers_as_there(tmp_path: Path) -> None:
    torch.manual_seed(3)
    settings: dict[str, Any] = {"id2label": {0: "a", 1: "b", 2: "c"}, "pretrained_cfg": CONFIG}
    config = TimmWrapperConfig(architecture="test_resnet", **settings)
    TimmWrapperForImageClassification(config).save_pretrained(tmp_path)
    module: Any = AutoModelForImageClassification.from_pretrained(tmp_path).eval()
    processor = AutoImageProcessor.from_pretrained(tmp_path)
    classifier = load_classifier(f"local-dir:{tmp_path}")
    assert classifier.label_names == ("a", "b", "c")
    # the processor's, which does not look at test_input_size
    assert classifier.input_size == (3, 32, 32)
    for sides in ((40, 60), (97, 31)):
        image = Image.fromarray(
            np.random.default_rng(5).integers(0, 256, (*sides, 3), dtype=np.uint8)
        )
        pixels = processor(image, return_tensors="pt")["pixel_values"]
        torch.testing.assert_close(classifier.transform()(image)[None], pixels, rtol=0, atol=0)
        torch.testing.assert_close(
            classifier.logits(pixels, "cpu"), module(pixel_values=pixels).logits
        )


def test_the_hash_follows_the_weights_and_not_the_place(folder: Path, tmp_path: Path) -> None:
    same = Path(shutil.copytree(folder, tmp_path / "same"))
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    stored = load_file(other / "model.safetensors")
    key = next(key for key, value in stored.items() if value.is_floating_point())
    stored[key].view(-1)[0] += 1e-3
    save_file(stored, other / "model.safetensors")
    hashes = [load_classifier(f"local-dir:{path}").sha256 for path in (folder, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_answers_are_kept_by_the_arguments_that_weights_do_not_show(tmp_path: Path) -> None:
    module = timm.create_model("test_vit", num_classes=3)
    kept_by = set()
    for heads in (1, 2):
        folder = tmp_path / str(heads)
        names = {"model_args": {"num_heads": heads}, "num_classes": 3}
        save_for_hf(
            module,
            str(folder),
            model_config=names,
            safe_serialization=True,
        )
        classifier = load_classifier(f"local-dir:{folder}")
        kept_by.add((classifier.sha256, classifier.input_key))
    assert len(kept_by) == 2


def test_what_a_configuration_does_not_say_of_images_is_told(folder: Path, tmp_path: Path) -> None:
    assert load_classifier(f"local-dir:{folder}").read == ""
    folder = Path(shutil.copytree(folder, tmp_path / "model"))
    document = json.loads((folder / "config.json").read_text())
    del document["pretrained_cfg"]["mean"], document["pretrained_cfg"]["crop_pct"]
    del document["pretrained_cfg"]["test_crop_pct"]
    (folder / "config.json").write_text(json.dumps(document))
    read = load_classifier(f"local-dir:{folder}").read
    assert "default is taken: crop_pct 0.875, mean [0.485, 0.456, 0.406]" in read


def test_a_description_needs_no_weights_to_be_read(folder: Path, tmp_path: Path) -> None:
    unreadable = Path(shutil.copytree(folder, tmp_path / "unreadable"))
    (unreadable / "model.safetensors").write_bytes(b"not weights")
    facts = describe_classifier(f"local-dir:{unreadable}")
    assert (facts.architecture, facts.num_classes, facts.label_names) == (
        "test_resnet",
        4,
        ("a", "b", "c", "d"),
    )
    with pytest.raises(RunFailure, match="damaged"):
        load_classifier(f"local-dir:{unreadable}")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("resnet81", "did you mean 'resnet"),
        ("resnet18.a1_in1q", "it has .*a1_in1k"),
        ("timm/resnet18", "not a timm name"),
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
        name
        for name in timm.list_models()
        if not any(full.startswith(f"{name}.") or full == name for full in trained)
    )
    with pytest.raises(UserError, match="no trained weights"):
        describe_classifier(untrained)


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights"),
    ],
)
def test_a_broken_folder_says_what_is_missing(
    folder: Path, tmp_path: Path, break_it: Any, says: str
) -> None:
    broken = Path(shutil.copytree(folder, tmp_path / "broken"))
    break_it(broken)
    with pytest.raises(UserError, match=says):
        describe_classifier(f"local-dir:{broken}")


@pytest.mark.parametrize("kind", ["hf-hub", "transformers"])
def test_a_hub_model_out_of_reach_says_so(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CounterfoilError, match="the Hub cannot be reached") as caught:
        describe_classifier(f"{kind}:nobody/no-such-model-0")
    assert caught.value.exit_code == 1


HUGE = 2**40


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    configured = tmp_path_factory.mktemp("classifier") / "tiny"
    torch.manual_seed(7)
    model: Any = timm.create_model("test_resnet", num_classes=4)
    save_for_hf(
        model,
        str(configured),
        model_config={"label_names": ["a", "b", "c", "d"]},
        safe_serialization=True,
    )
    return configured


@pytest.fixture
def mine(configured: Path, tmp_path: Path) -> Path:
    """Return a copy whose weights cannot be read, for checks that must not read them."""
    shutil.copytree(configured, tmp_path / "mine")
    (tmp_path / "mine" / "model.safetensors").write_bytes(b"no weights")
    return tmp_path / "mine"


def change(configured: Path, **values: Any) -> str:
    """Change the configuration, `its_…` keys in `pretrained_cfg`, and return the folder's name."""
    file = configured / "config.json"
    document = json.loads(file.read_text())
    for key, value in values.items():
        section = document["pretrained_cfg"] if key.startswith("its_") else document
        section[key.removeprefix("its_")] = value
    file.write_text(json.dumps(document))
    return f"local-dir:{configured}"


NO_SIZES = (
    [3, 0, 0], [1, 32, 32], [3, 32], [3, 32.0, 32], [3, 4097, 1], [3, True, 32], [3.0, 32, 32], "3,32,32", {"h": 3},
)  # fmt: skip
NO_CROPS = (1e-9, 0, 100, float("nan"), "0.9", True)
NO_STDS = ([0.5, 0.5, 0], [1, 1], "std", [float("nan")] * 3, [1e-300] * 3, [HUGE] * 3)
NO_MEANS = ([0, 0], [float("inf"), 0, 0], ["0"] * 3, [HUGE] * 3)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("input_size", value) for value in NO_SIZES),
        ("test_input_size", [3, 0, 32]),
        *(("crop_pct", value) for value in NO_CROPS),
        ("test_crop_pct", 1e-9),
        *(("std", value) for value in NO_STDS),
        *(("mean", value) for value in NO_MEANS),
        ("interpolation", "sinc"),
        ("interpolation", 3),
        ("crop_mode", "corner"),
        ("fixed_input_size", "yes"),
    ],
)
def test_an_input_that_no_image_can_have_is_refused(mine: Path, key: str, value: Any) -> None:
    name = change(mine, **{f"its_{key}": value})
    (problem,) = problems_of(describe_classifier, name)
    assert (
        name in problem and f"pretrained_cfg.{key}: found " in problem and ", expected " in problem
    )
    assert "\n" not in problem and len(problem) < 400 + len(name)


def test_sides_and_crop_that_fit_alone_may_be_too_much_together(mine: Path) -> None:
    """Sides of 4,096 / 0.1 pixels make an image of 5 GB."""
    with pytest.raises(UserError, match="would be resized to 40,960 x 40,960"):
        describe_classifier(change(mine, its_input_size=[3, 4096, 4096], its_crop_pct=0.1))


@pytest.mark.parametrize("value", [True, 0, HUGE, "4", 4.0])
def test_a_number_of_classes_that_is_none_is_refused(mine: Path, value: Any) -> None:
    with pytest.raises(UserError, match="no classification head"):
        describe_classifier(change(mine, num_classes=value, model_args={}))


@pytest.mark.parametrize("value", [["resnet18"], None, "", "hf-hub:eve/evil", "a" * 9999])
def test_an_architecture_that_timm_does_not_know_is_refused(mine: Path, value: Any) -> None:
    with pytest.raises(UserError, match="does not know") as refused:
        describe_classifier(change(mine, architecture=value))
    assert len(refused.value.problems[0]) < 400 + len(str(mine))


@pytest.mark.parametrize(
    "value",
    [
        "abcd",
        [1, 2, 3, 4],
        {"a": 1},
        ["a\ud800"],
        ["a\x1b[31m"],
        ["a", "b", "a\nb"],
        ["a" * 10_000],
    ],
)
def test_names_of_outputs_that_are_no_text_are_refused(mine: Path, value: Any) -> None:
    position = r"\.2" if len(value) == 3 else r"(\.\d)?"
    with pytest.raises(
        UserError, match=rf"label_names{position}: found .*, expected .*"
    ) as refused:
        describe_classifier(change(mine, label_names=value))
    refused.value.problems[0].encode()


@pytest.mark.parametrize(("key", "value"), [("pretrained_cfg", [1]), ("model_args", "x")])
def test_a_part_that_is_no_mapping_is_refused(mine: Path, key: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"{key}: found .*, expected a mapping"):
        describe_classifier(change(mine, **{key: value}))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"checkpoint_path": "/etc/hostname"}, "checkpoint_path is set here"),
        ({"pretrained_strict": False}, "pretrained_strict is set here"),
        ({"pretrained_cfg_overlay": {"file": "/etc/hostname"}}, "pretrained_cfg_overlay is set here"),
        ({"features_only": True}, "features_only is set here"),
        ({"pruned": True}, "pruned is set here"),
        ({"device": "cuda"}, "device is set here"),
        ({"depth": HUGE}, "expected a whole number from"),
        ({"drop_rate": float("nan")}, "expected a number from"),
        ({"channels": list(range(1000))}, "at most 64 values"),
        ({"channels": [[[1]]]}, "or a short list"),
        ({"block_args": {"a": 1}}, "or a short list"),
        ({"act_layer": "a" * 1000}, "printable characters"),
        ({"num_classes": 5}, "model_args.num_classes is 5, num_classes 4"),
        ({"in_chans": 4}, "expected 3"),
        ({"img_size": 100_000}, "sides from 1 to 4,096"),
        ({"img_size": [3, 3, 3]}, "sides from 1 to 4,096"),
    ],
)  # fmt: skip
def test_arguments_that_are_not_the_models_are_refused(
    mine: Path, arguments: dict[str, Any], says: str
) -> None:
    with refuses("invalid-config", f"model 'local-dir:{mine}'", says):
        describe_classifier(change(mine, model_args=arguments))


def test_all_problems_are_reported_together(mine: Path) -> None:
    with pytest.raises(UserError) as refused:
        describe_classifier(change(mine, architecture="x", num_classes=-1, its_std=[0, 0, 0], its_interpolation="sinc",
                                   model_args={"depth": HUGE}, label_names=3))  # fmt: skip
    assert len(refused.value.problems) == 6
    for word in ("architecture", "num_classes", "std", "interpolation", "depth", "label_names"):
        assert sum(f"{word}" in problem for problem in refused.value.problems) == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=8,
)
_PLACES = ("architecture", "num_classes", "label_names", "pretrained_cfg", "model_args")
_INNER = (
    "input_size",
    "crop_pct",
    "interpolation",
    "crop_mode",
    "mean",
    "std",
    "fixed_input_size",
    "num_classes",
)


@given(st.data())
def test_any_value_in_any_place_is_taken_or_refused(data: st.DataObject) -> None:
    document: dict[str, Any] = {
        "architecture": "test_resnet",
        "num_classes": 4,
        "pretrained_cfg": {},
    }
    for key in data.draw(st.lists(st.sampled_from(_PLACES), max_size=2)):
        document[key] = data.draw(json_values)
    if isinstance(document["pretrained_cfg"], dict):
        for key in data.draw(st.lists(st.sampled_from(_INNER), max_size=2)):
            document["pretrained_cfg"][key] = data.draw(json_values)
    try:
        config = checked_config("m", json.loads(json.dumps(document)))
    except UserError as error:
        assert all("\n" not in problem and len(problem) < 600 for problem in error.problems)
        str(error).encode()
    else:
        assert timm.is_model(config.architecture)
        assert isinstance(config.num_classes, int) and not isinstance(config.num_classes, bool)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b" " * 1_000_001, "1,000,001 bytes, expected at most 1,000,000"),
        (b"\xff\xfe", "not readable JSON"),
        (b"[1, 2]", "JSON mapping"),
        (b'{"num_classes": ' + b"9" * 5000 + b"}", "not readable JSON"),
    ],
)
def test_a_file_of_anything_is_reported(mine: Path, content: bytes, says: str) -> None:
    (mine / "config.json").write_bytes(content)
    with refuses("unreadable-model", f"model 'local-dir:{mine}'", says) as refused:
        describe_classifier(f"local-dir:{mine}")
    assert len(refused.value.problems[0]) < 1000


def test_only_a_regular_file_is_read(mine: Path) -> None:
    weights_file = mine / "model.safetensors"
    weights_file.unlink()
    os.mkfifo(weights_file)
    with pytest.raises(UserError, match="no weights"):
        load_classifier(f"local-dir:{mine}")
    weights_file.unlink()
    weights_file.write_bytes(b"no weights")
    file = mine / "config.json"
    for make in (os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")):
        file.rmdir() if file.is_dir() else file.unlink()
        make(file)
        with pytest.raises(UserError, match="expected a regular file"):
            describe_classifier(f"local-dir:{mine}")


# What timm would read instead of the folder's weights; its loader of old formats among them.
ELSEWHERE = {
    "file": "/etc/hostname", "source": "timm", "hf_hub_id": "eve/evil", "hf_hub_filename": "evil.npz",
    "url": "http://127.0.0.1:9/evil.pth", "custom_load": True, "state_dict": {"fc.weight": [1]},
}  # fmt: skip


@pytest.mark.parametrize("keys", [("file",), ("state_dict",), tuple(ELSEWHERE)])
def test_weights_come_from_the_folder_whatever_the_configuration_names(
    configured: Path, mine: Path, keys: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(configured / "model.safetensors", mine)
    wanted = load_classifier(f"local-dir:{configured}").sha256
    named = {key: ELSEWHERE[key] for key in keys}
    name = change(mine, **{f"its_{setting}": value for setting, value in named.items()})
    read: list[str] = []
    opened = builtins.open
    monkeypatch.setattr(
        builtins, "open", lambda file, *a, **k: read.append(str(file)) or opened(file, *a, **k)
    )
    assert load_classifier(name).sha256 == wanted
    assert not [file for file in read if file.startswith("/etc")]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"architecture": "vit_small_patch14_dinov2", "model_args": {}}, "asks for .* parameters"),
        ({"num_classes": 1_000_000, "model_args": {}}, "a tensor of 96,000,000 numbers"),
        ({"model_args": {"layers": [60_000] * 4}}, "asks for more than"),
        ({"architecture": "swin_tiny_patch4_window7_224", "model_args": {"img_size": 4096, "window_size": 1024}},
         "a tensor of 1,099,511,627,776"),
        ({"architecture": "regnetx_002", "model_args": {"num_classes": 4, "output_stride": 0}}, "nothing can be built"),
        ({"model_args": {"no_such_argument": 1}}, "nothing can be built"),
    ],
)  # fmt: skip
def test_a_model_larger_than_its_file_is_refused_before_memory_is_taken(
    configured: Path, mine: Path, values: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    monkeypatch.setattr(trials, "_MOST_MODULES", 1_000)  # sooner met than fifty times as many
    shutil.copy(configured / "model.safetensors", mine)
    name = change(mine, **values)
    load_classifier(f"local-dir:{configured}")  # the libraries are in memory from here on
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=says) as refused:
        load_classifier(name)
    assert len(refused.value.problems) == 1 and "\n" not in refused.value.problems[0]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kB


def test_as_many_parameters_as_the_weights_have_bytes_may_be_built_and_not_one_more(
    tmp_path: Path,
) -> None:
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(bytes(30))
    trials.refuse_overgrown("m", [weights], lambda: torch.nn.Linear(5, 5))
    weights.write_bytes(bytes(29))
    with pytest.raises(
        UserError, match=r"asks for 30 parameters, and its weights .* have 29 bytes"
    ):
        trials.refuse_overgrown("m", [weights], lambda: torch.nn.Linear(5, 5))


# Forms that timm's own models have, with what they resolve to.
LEGITIMATE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "test size": (
        {"test_input_size": [3, 192, 128], "test_crop_pct": 1.0},
        {"input_size": [3, 192, 128], "crop_pct": 1.0},
    ),
    "wide crop": ({"crop_pct": 1.15}, {"crop_pct": 1.15}),
    "squash": (
        {"crop_mode": "squash", "mean": [0, 0, 0], "std": [1, 1, 1]},
        {"crop_mode": "squash", "std": [1, 1, 1]},
    ),
    "border": ({"crop_mode": "border", "interpolation": "bicubic"}, {"crop_mode": "border"}),
    "nulls": ({"crop_pct": None, "test_input_size": None, "mean": None}, {"crop_pct": 0.875}),
    "interpolation": ({"interpolation": "lanczos"}, {"interpolation": "lanczos"}),
}


@pytest.mark.parametrize(("form", "resolved"), LEGITIMATE.values(), ids=LEGITIMATE)
def test_a_form_that_models_have_is_followed(
    configured: Path, tmp_path: Path, form: dict[str, Any], resolved: dict
) -> None:
    shutil.copytree(configured, tmp_path / "mine")
    classifier = of_timm.load(
        change(tmp_path / "mine", **{f"its_{key}": value for key, value in form.items()})
    )
    assert {key: classifier.data_config[key] for key in resolved} == resolved
    image = Image.fromarray(np.zeros((50, 70, 3), np.uint8))
    assert list(classifier.transform()(image).shape) == classifier.data_config["input_size"]


def test_an_export_of_old_with_everything_in_one_mapping_loads(
    configured: Path, tmp_path: Path
) -> None:
    shutil.copytree(configured, tmp_path / "mine")
    document = json.loads((configured / "config.json").read_text())
    # Not every version of timm writes the number of outputs into this part.
    described = {**document["pretrained_cfg"], "num_classes": document["num_classes"]}
    flat = {"architecture": document["architecture"], "num_features": 96, **described}
    (tmp_path / "mine" / "config.json").write_text(json.dumps(flat))
    old = of_timm.load(f"local-dir:{tmp_path / 'mine'}")
    new = of_timm.load(f"local-dir:{configured}")
    assert (old.sha256, old.data_config) == (new.sha256, new.data_config)


def test_a_fixed_input_size_is_that_of_the_arguments(tmp_path: Path) -> None:
    """timm repairs its older exports, which kept the size of the initial weights, in the same
    way."""
    model: Any = timm.create_model("test_vit", num_classes=4, img_size=64)
    save_for_hf(model, str(tmp_path / "vit"), safe_serialization=True)
    name = change(
        tmp_path / "vit",
        model_args={"img_size": 64},
        its_fixed_input_size=True,
        its_input_size=[3, 160, 160],
    )
    classifier = of_timm.load(name)
    assert classifier.data_config["input_size"] == [3, 64, 64]
    assert classifier.module(torch.zeros(1, 3, 64, 64)).shape == (1, 4)


@pytest.mark.parametrize(
    ("sides", "mode"), [((1, 60_000), "center"), ((60_000, 1), "center"), ((1, 60_000), "border")]
)
def test_an_image_of_one_row_is_refused_rather_than_resized(
    configured: Path, tmp_path: Path, sides: tuple, mode: str
) -> None:
    """With 168 pixels on the shorter side, the other would have ten million: 5 GB."""
    shutil.copytree(configured, tmp_path / "mine")
    classifier = load_classifier(change(tmp_path / "mine", its_crop_mode=mode))
    with pytest.raises(CounterfoilError, match="would be resized to"):
        classifier.transform()(Image.new("RGB", sides))
    assert classifier.transform()(Image.new("RGB", (10, 400))).shape == (3, 160, 160)


@pytest.fixture
def beside(configured: Path, tmp_path: Path) -> Path:
    """Return a copy of the folder without weights."""
    shutil.copytree(configured, tmp_path / "mine", ignore=shutil.ignore_patterns("*.safetensors"))
    return tmp_path / "mine"


def weights(configured: Path) -> dict[str, torch.Tensor]:
    return load_file(configured / "model.safetensors")


def same(configured: Path, name: str) -> bool:
    loaded = load_classifier(name).module.state_dict()
    return all(torch.equal(loaded[key], value) for key, value in weights(configured).items())


@pytest.mark.parametrize(
    ("form", "name"),
    [
        *((form, "pytorch_model.bin") for form in FORMS),
        ("zipped", "model.pth"),
        ("bare", "other.pth.tar"),
    ],
)
def test_no_pickle_runs(beside: Path, tmp_path: Path, form: str, name: str) -> None:
    proof = tmp_path / "proof"
    assert_that_it_works(form, proof)
    (beside / name).write_bytes(FORMS[form](Attack(proof)))
    with refuses(
        "unreadable-model", f"model 'local-dir:{beside}'", name, "as weights alone"
    ) as refused:
        load_classifier(f"local-dir:{beside}")
    assert not proof.exists()
    assert "\n" not in refused.value.problems[0]
    assert "safetensors" in (refused.value.hint or "")


@pytest.mark.parametrize("source", ["local-dir", "hf-hub"])
def test_no_pickle_runs_whatever_timm_would_do(
    beside: Path, tmp_path: Path, source: str, loopback: LoopbackHub
) -> None:
    """timm before 1.0.26 trusts every pickle; the process of this test makes the installed timm do
    so too."""
    proof = tmp_path / "proof"
    (beside / "pytorch_model.bin").write_bytes(FORMS["zipped"](Attack(proof)))
    name = f"local-dir:{beside}"
    if source == "hf-hub":
        client(loopback).create_repo("someone/evil")
        client(loopback).upload_folder(repo_id="someone/evil", folder_path=str(beside))
        name = "hf-hub:someone/evil"
    output = in_a_process(TRUSTING + LOAD, name, loopback, tmp_path)
    assert (
        output.startswith("UserError: ")
        and "pytorch_model.bin: cannot be read as weights alone" in output
    )
    assert not proof.exists()


TRUSTING = """
import sys
import torch
careful = torch.load
def as_timm_once_did(*arguments, **options):
    by_timm = sys._getframe(1).f_globals["__name__"].startswith("timm.")
    return careful(*arguments, **(options | {"weights_only": False} if by_timm else options))
torch.load = as_timm_once_did
"""
LOAD = """
import sys
from counterfoil.errors import CounterfoilError
from counterfoil.models.classifiers import load_classifier
from support.refusals import refuses
try:
    model = load_classifier(sys.argv[1])
    print(model.sha256)
except CounterfoilError as error:
    print(f"{type(error).__name__}: {error}")
"""


def in_a_process(code: str, name: str, hub: LoopbackHub, home: Path) -> str:
    run = warm.run([sys.executable, "-c", code, name], client_environment(hub, home / "home"))
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.release(of="hub")
def test_a_model_of_the_hub_is_that_of_its_folder(
    configured: Path, tmp_path: Path, loopback: LoopbackHub
) -> None:
    pickled = shutil.copytree(configured, tmp_path / "pickled")
    torch.save(weights(configured), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    hashes = {f"{load_classifier(f'local-dir:{configured}').sha256}\n"}
    for model_folder in (configured, pickled):
        client(loopback).create_repo(f"someone/{model_folder.name}")
        client(loopback).upload_folder(
            repo_id=f"someone/{model_folder.name}", folder_path=str(model_folder)
        )
        hashes.add(in_a_process(LOAD, f"hf-hub:someone/{model_folder.name}", loopback, tmp_path))
    assert len(hashes) == 1
    first = client(loopback).repo_info("someone/tiny").sha
    (pickled / "model.safetensors").write_bytes(b"another commit")
    client(loopback).upload_folder(repo_id="someone/tiny", folder_path=str(pickled))
    assert {in_a_process(LOAD, f"hf-hub:someone/tiny@{first}", loopback, tmp_path)} == hashes


def test_a_repository_without_weights_is_reported(
    beside: Path, tmp_path: Path, loopback: LoopbackHub
) -> None:
    client(loopback).create_repo("someone/empty")
    client(loopback).upload_folder(repo_id="someone/empty", folder_path=str(beside))
    output = in_a_process(LOAD, "hf-hub:someone/empty", loopback, tmp_path)
    assert (
        output.startswith("UserError: ")
        and "none of model.safetensors, pytorch_model.bin" in output
    )


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("pytorch_model.bin", None),
        ("model.pth", "state_dict"),
        ("checkpoint-12.pth.tar", "model"),
        ("model.pth", "state_dict_ema"),
    ],
)
def test_weights_alone_load_from_any_file_of_torch(
    configured: Path, beside: Path, name: str, inside: str | None
) -> None:
    state: dict[str, Any] = weights(configured)
    if inside is not None:
        # As timm's training writes them: wrapped, beside the number of the epoch and the arguments.
        wrapped = {f"module.{key}": value for key, value in state.items()}
        state = {inside: wrapped, "epoch": 12, "args": argparse.Namespace(lr=0.1)}
    torch.save(state, beside / name, _use_new_zipfile_serialization=inside is not None)
    assert same(configured, f"local-dir:{beside}")


def test_safetensors_come_first(configured: Path, beside: Path, tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    for name in ("pytorch_model.bin", "model.pth"):
        (beside / name).write_bytes(FORMS["zipped"](Attack(proof)))
    shutil.copy(configured / "model.safetensors", beside / "weights-of-mine.safetensors")
    assert same(configured, f"local-dir:{beside}")
    assert not proof.exists()


@pytest.mark.parametrize(
    "names", [["checkpoint-10.pth.tar", "last.pth.tar"], ["one.safetensors", "two.safetensors"]]
)
def test_of_several_checkpoints_none_is_guessed(
    configured: Path, beside: Path, names: list[str]
) -> None:
    for name in names:
        shutil.copy(configured / "model.safetensors", beside / name)
    with refuses(
        "missing-model-file",
        f"model 'local-dir:{beside}'",
        *names,
    ):
        describe_classifier(f"local-dir:{beside}")
    shutil.copy(configured / "model.safetensors", beside / "model.safetensors")
    assert same(configured, f"local-dir:{beside}")


@pytest.mark.parametrize(
    "pickled",
    [[1, 2], {}, {"fc.weight": 3}, {1: torch.zeros(1)}, {"state_dict": {"a": None}}, torch.zeros(3),
     {"fc.weight": torch.zeros(1).expand(10**6, 10**6)}, {"fc.weight": torch.zeros(4, 4).to_sparse()},
     {f"layer{number}": value for number, value in enumerate([torch.zeros(10**5)] * 40)}],
)  # fmt: skip
def test_what_is_no_weights_by_name_is_refused(tmp_path: Path, pickled: Any) -> None:
    """Declared but absent numbers are refused too: a layer of a million copies of one would fill
    memory."""
    torch.save(pickled, tmp_path / "model.pth")
    with pytest.raises(UserError, match=r"model\.pth"):
        read_pickled(tmp_path / "model.pth", "mine")


@pytest.mark.parametrize("stored", [0, 1], ids=["all of it", "but one member"])
def test_a_packed_archive_is_refused(stored: int, tmp_path: Path) -> None:
    torch.save({"fc.weight": torch.zeros(10**6)}, tmp_path / "plain.pth")
    with (
        zipfile.ZipFile(tmp_path / "plain.pth") as plain,
        zipfile.ZipFile(tmp_path / "p.pth", "w", 8) as packed,
    ):
        for index, member in enumerate(plain.infolist()):
            how = zipfile.ZIP_STORED if index < stored else zipfile.ZIP_DEFLATED
            packed.writestr(member.filename, plain.read(member), how)
    assert (tmp_path / "p.pth").stat().st_size < 50_000
    with pytest.raises(UserError, match="packed"):
        read_pickled(tmp_path / "p.pth", "mine")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b""),
        ("model.safetensors", b"not weights" * 100),
        ("pytorch_model.bin", b""),
        ("pytorch_model.bin", b"PK\3\4" + b"\0" * 60),
        ("pytorch_model.bin", b"\x80\x02."),
    ],
)
def test_weights_of_anything_are_reported(beside: Path, name: str, content: bytes) -> None:
    (beside / name).write_bytes(content)
    with pytest.raises(CounterfoilError, match=name) as raised:
        load_classifier(f"local-dir:{beside}")
    assert all("\n" not in problem for problem in raised.value.problems)


@pytest.mark.parametrize(
    ("end", "value"), [("fc.weight", float("nan")), ("running_mean", float("-inf"))]
)
def test_weights_that_are_no_numbers_are_refused(
    configured: Path, beside: Path, end: str, value: float
) -> None:
    state = weights(configured)
    key = next(name for name in state if name.endswith(end))
    state[key].view(-1)[-1] = value
    save_file(state, beside / "model.safetensors")
    with pytest.raises(UserError, match="not finite") as refused:
        load_classifier(f"local-dir:{beside}")
    assert key in refused.value.problems[0]


@pytest.mark.parametrize("shape", [(4, 95), (5, 96)])
def test_weights_of_another_shape_are_reported(
    configured: Path, beside: Path, shape: tuple[int, ...]
) -> None:
    state = weights(configured)
    assert state["fc.weight"].shape == (4, 96)
    state["fc.weight"] = torch.zeros(shape)
    save_file(state, beside / "model.safetensors")
    with pytest.raises(UserError, match=r"fc\.weight is|weights for 5 outputs"):
        load_classifier(f"local-dir:{beside}")


def test_nothing_of_the_file_stays_beside_the_module(configured: Path, beside: Path) -> None:
    torch.save(weights(configured), beside / "pytorch_model.bin")
    module = load_classifier(f"local-dir:{beside}").module
    assert "state_dict" not in module.pretrained_cfg
    assert str(beside) not in json.dumps(module.pretrained_cfg)
