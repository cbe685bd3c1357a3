"""A config.json of anybody: what no classifier of images can be is told in words, before a weight is read."""

from __future__ import annotations

import builtins
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from timm.models import save_for_hf

from counterfoil.errors import CounterfoilError, UserError
from counterfoil.models import trials
from counterfoil.models.classifiers import describe_classifier, load_classifier, of_timm
from counterfoil.models.classifiers.of_timm import INTERPOLATIONS, checked_config

HUGE = 2**40


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier") / "tiny"
    torch.manual_seed(7)
    model: Any = timm.create_model("test_resnet", num_classes=4)
    save_for_hf(model, str(folder), model_config={"label_names": ["a", "b", "c", "d"]}, safe_serialization=True)
    return folder


@pytest.fixture
def mine(folder: Path, tmp_path: Path) -> Path:
    """A copy whose weights cannot be read: what is told here is told without them."""
    shutil.copytree(folder, tmp_path / "mine")
    (tmp_path / "mine" / "model.safetensors").write_bytes(b"no weights")
    return tmp_path / "mine"


def change(folder: Path, **values: Any) -> str:
    """The name of the folder after its configuration changed; names with a dot stand in `pretrained_cfg`."""
    file = folder / "config.json"
    document = json.loads(file.read_text())
    for key, value in values.items():
        place = document["pretrained_cfg"] if key.startswith("its_") else document
        place[key.removeprefix("its_")] = value
    file.write_text(json.dumps(document))
    return f"local-dir:{folder}"


NO_SIZES = (
    [3, 100_000, 100_000], [3, 0, 0], [1, 32, 32], [3, 32], [3, 32.0, 32], [3, 4097, 1], [3, True, 32], [3, -5, 32],
    [3, HUGE, 1], "3,32,32", {"h": 3}, 32, [[3], 3, 3],
)  # fmt: skip
NO_CROPS = (1e-9, 0, -1, 100, float("nan"), float("inf"), "0.9", True, [0.9], HUGE)
NO_STDS = (
    [0, 0, 0], [0.5, 0.5, 0], [1, 1], 1, "std", [float("nan")] * 3, [1e-300] * 3, [-1, 1, 1], [True] * 3, [None] * 3,
    [HUGE] * 3,
)  # fmt: skip
NO_MEANS = ([0, 0], 0.5, [float("nan"), 0, 0], [float("inf"), 0, 0], ["0"] * 3, [HUGE] * 3)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("input_size", value) for value in NO_SIZES),
        ("test_input_size", [3, 0, 32]),
        *(("crop_pct", value) for value in NO_CROPS),
        ("test_crop_pct", 1e-9),
        *(("std", value) for value in NO_STDS),
        *(("mean", value) for value in NO_MEANS),
        *(("interpolation", value) for value in ("sinc", "random", 3, ["bicubic"], {})),
        *(("crop_mode", value) for value in ("corner", 1, ["center"])),
        ("fixed_input_size", "yes"),
    ],
)
def test_an_input_that_no_image_can_have_is_refused(mine: Path, key: str, value: Any) -> None:
    name = change(mine, **{f"its_{key}": value})
    with pytest.raises(UserError) as refused:
        describe_classifier(name)
    (problem,) = refused.value.problems
    assert name in problem and f"pretrained_cfg.{key}: found " in problem and ", expected " in problem
    assert "\n" not in problem and len(problem) < 400 + len(name)


def test_sides_and_crop_that_fit_alone_may_be_too_much_together(mine: Path) -> None:
    """4,096 / 0.1 pixels a side: an image of 5 GB."""
    with pytest.raises(UserError, match="would be resized to 40,960 x 40,960"):
        describe_classifier(change(mine, its_input_size=[3, 4096, 4096], its_crop_pct=0.1))


@pytest.mark.parametrize("value", [True, False, -1, 0, HUGE, "ten", "4", 4.0, [4], {}, float("nan")])
def test_a_number_of_classes_that_is_none_is_refused(mine: Path, value: Any) -> None:
    with pytest.raises(UserError, match="no classification head"):
        describe_classifier(change(mine, num_classes=value, model_args={}))


@pytest.mark.parametrize(
    "value", [["resnet18"], {"a": 1}, None, 3, "", "hf-hub:eve/evil", "local-dir:/tmp", "../x", "a" * 9999]
)
def test_an_architecture_that_timm_does_not_know_is_refused(mine: Path, value: Any) -> None:
    with pytest.raises(UserError, match="does not know") as refused:
        describe_classifier(change(mine, architecture=value))
    assert len(refused.value.problems[0]) < 400 + len(str(mine))


@pytest.mark.parametrize(
    "value",
    ["abcd", [1, 2, 3, 4], ["a", None], {"a": 1}, 7, ["a\ud800"], ["a\x1b[31m"], ["a\nb"], ["a" * 10_000], [["a"]]],
)
def test_names_of_outputs_that_are_no_text_are_refused(mine: Path, value: Any) -> None:
    with pytest.raises(UserError, match="label_names: found") as refused:
        describe_classifier(change(mine, label_names=value))
    refused.value.problems[0].encode()


@pytest.mark.parametrize("key", ["pretrained_cfg", "model_args"])
@pytest.mark.parametrize("value", [[1], "x", 3, True])
def test_a_part_that_is_no_mapping_is_refused(mine: Path, key: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"{key}: found .*, expected a mapping"):
        describe_classifier(change(mine, **{key: value}))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"checkpoint_path": "/etc/hostname"}, "checkpoint_path says how a model is made"),
        ({"pretrained_strict": False}, "pretrained_strict says how"),
        ({"pretrained": False}, "pretrained says how"),
        ({"pretrained_cfg_overlay": {"file": "/etc/hostname"}}, "pretrained_cfg_overlay says how"),
        ({"cache_dir": "/tmp"}, "cache_dir says how"),
        ({"features_only": True}, "features_only says how"),
        ({"pruned": True}, "pruned says how"),
        ({"device": "cuda"}, "device says how"),
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
def test_arguments_that_are_not_the_models_are_refused(mine: Path, arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        describe_classifier(change(mine, model_args=arguments))


def test_all_problems_are_told_together(mine: Path) -> None:
    with pytest.raises(UserError) as refused:
        describe_classifier(change(mine, architecture="x", num_classes=-1, its_std=[0, 0, 0], its_interpolation="sinc",
                                   model_args={"depth": HUGE}, label_names=3))  # fmt: skip
    assert len(refused.value.problems) == 6
    for word in ("architecture", "num_classes", "std", "interpolation", "depth", "label_names"):
        assert sum(f"{word}" in problem for problem in refused.value.problems) == 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
_PLACES = ("architecture", "num_classes", "label_names", "pretrained_cfg", "model_args")
_INNER = ("input_size", "crop_pct", "interpolation", "crop_mode", "mean", "std", "fixed_input_size", "num_classes")


@given(st.data())
def test_any_value_in_any_place_is_taken_or_told(data: st.DataObject) -> None:
    document: dict[str, Any] = {"architecture": "test_resnet", "num_classes": 4, "pretrained_cfg": {}}
    for place in data.draw(st.lists(st.sampled_from(_PLACES), max_size=2)):
        document[place] = data.draw(json_values)
    if isinstance(document["pretrained_cfg"], dict):
        for place in data.draw(st.lists(st.sampled_from(_INNER), max_size=2)):
            document["pretrained_cfg"][place] = data.draw(json_values)
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
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b" " * 1_000_001, "1,000,001 bytes, expected at most 1,000,000"),
        (b"\xff\xfe", "not readable JSON"),
        (b"[1, 2]", "JSON mapping"),
        (b"3", "JSON mapping"),
        (b'{"num_classes": ' + b"9" * 5000 + b"}", "not readable JSON"),
        (b"", "not readable JSON"),
    ],
)
def test_a_file_of_anything_is_told(mine: Path, content: bytes, says: str) -> None:
    (mine / "config.json").write_bytes(content)
    with pytest.raises(UserError, match=says) as refused:
        describe_classifier(f"local-dir:{mine}")
    assert len(refused.value.problems[0]) < 1000


def test_only_a_regular_file_is_read(mine: Path) -> None:
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


@pytest.mark.parametrize("key", [*ELSEWHERE, "all"])
def test_weights_come_from_the_folder_whatever_the_configuration_names(
    folder: Path, mine: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(folder / "model.safetensors", mine)
    wanted = load_classifier(f"local-dir:{folder}").sha256
    named = ELSEWHERE if key == "all" else {key: ELSEWHERE[key]}
    name = change(mine, **{f"its_{one}": value for one, value in named.items()})
    read: list[str] = []
    opened = builtins.open
    monkeypatch.setattr(builtins, "open", lambda file, *a, **k: read.append(str(file)) or opened(file, *a, **k))
    assert load_classifier(name).sha256 == wanted
    assert not [file for file in read if file.startswith("/etc")]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"architecture": "vit_giant_patch14_dinov2", "model_args": {}}, "asks for .* parameters"),
        ({"num_classes": 1_000_000, "model_args": {}}, "a tensor of 96,000,000 numbers"),
        ({"model_args": {"channels": [60_000] * 4}}, "a tensor of 32,400,000,000 numbers"),
        ({"model_args": {"layers": [60_000] * 4}}, "asks for more than"),
        ({"architecture": "vit_tiny_patch16_224", "model_args": {"depth": 60_000}}, "asks for more than"),
        ({"architecture": "vit_tiny_patch16_224", "model_args": {"img_size": 4096, "embed_dim": 60_000}}, "a tensor"),
        ({"architecture": "swin_tiny_patch4_window7_224", "model_args": {"img_size": 4096, "window_size": 1024}},
         "a tensor of 1,099,511,627,776"),
        ({"architecture": "regnetx_002", "model_args": {"num_classes": 4, "output_stride": 0}}, "nothing can be built"),
        ({"model_args": {"stem_width": -5}}, "nothing can be built"),
        ({"model_args": {"no_such_argument": 1}}, "nothing can be built"),
    ],
)  # fmt: skip
def test_a_model_larger_than_its_file_is_refused_before_memory_is_taken(
    folder: Path, mine: Path, values: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import resource

    monkeypatch.setattr(trials, "_MOST_MODULES", 5_000)  # sooner met than ten times as many
    shutil.copy(folder / "model.safetensors", mine)
    name = change(mine, **values)
    load_classifier(f"local-dir:{folder}")  # the libraries are in memory from here on
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=says) as refused:
        load_classifier(name)
    assert len(refused.value.problems) == 1 and "\n" not in refused.value.problems[0]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kB


def test_as_many_parameters_as_the_weights_have_bytes_may_be_built_and_not_one_more(tmp_path: Path) -> None:
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(bytes(30))
    trials.refuse_overgrown("m", [weights], lambda: torch.nn.Linear(5, 5))
    weights.write_bytes(bytes(29))
    with pytest.raises(UserError, match=r"asks for 30 parameters, and its weights .* have 29 bytes"):
        trials.refuse_overgrown("m", [weights], lambda: torch.nn.Linear(5, 5))


# Forms that timm's own models have, with what they resolve to.
LEGITIMATE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "test size": (
        {"test_input_size": [3, 192, 128], "test_crop_pct": 1.0},
        {"input_size": [3, 192, 128], "crop_pct": 1.0},
    ),
    "wide crop": ({"crop_pct": 1.15}, {"crop_pct": 1.15}),
    "squash": ({"crop_mode": "squash", "mean": [0, 0, 0], "std": [1, 1, 1]}, {"crop_mode": "squash", "std": [1, 1, 1]}),
    "border": ({"crop_mode": "border", "interpolation": "bicubic"}, {"crop_mode": "border"}),
    "nulls": ({"crop_pct": None, "test_input_size": None, "mean": None}, {"crop_pct": 0.875}),
} | {one: ({"interpolation": one}, {"interpolation": one}) for one in INTERPOLATIONS}


@pytest.mark.parametrize(("form", "resolved"), LEGITIMATE.values(), ids=LEGITIMATE)
def test_a_form_that_models_have_is_followed(
    folder: Path, tmp_path: Path, form: dict[str, Any], resolved: dict
) -> None:
    shutil.copytree(folder, tmp_path / "mine")
    classifier = of_timm.load(change(tmp_path / "mine", **{f"its_{key}": value for key, value in form.items()}))
    assert {key: classifier.data_config[key] for key in resolved} == resolved
    image = Image.fromarray(np.zeros((50, 70, 3), np.uint8))
    assert list(classifier.transform()(image).shape) == classifier.data_config["input_size"]


def test_an_export_of_old_with_everything_in_one_mapping_loads(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "mine")
    document = json.loads((folder / "config.json").read_text())
    # Not every version of timm writes the number of outputs into this part.
    described = {**document["pretrained_cfg"], "num_classes": document["num_classes"]}
    flat = {"architecture": document["architecture"], "num_features": 96, **described}
    (tmp_path / "mine" / "config.json").write_text(json.dumps(flat))
    old, new = of_timm.load(f"local-dir:{tmp_path / 'mine'}"), of_timm.load(f"local-dir:{folder}")
    assert (old.sha256, old.data_config) == (new.sha256, new.data_config)


def test_a_fixed_input_size_is_that_of_the_arguments(tmp_path: Path) -> None:
    """As timm repairs its older exports, which kept the size of the weights that training began with."""
    model: Any = timm.create_model("test_vit", num_classes=4, img_size=64)
    save_for_hf(model, str(tmp_path / "vit"), safe_serialization=True)
    name = change(
        tmp_path / "vit", model_args={"img_size": 64}, its_fixed_input_size=True, its_input_size=[3, 160, 160]
    )
    classifier = of_timm.load(name)
    assert classifier.data_config["input_size"] == [3, 64, 64]
    assert classifier.module(torch.zeros(1, 3, 64, 64)).shape == (1, 4)


@pytest.mark.parametrize(("sides", "mode"), [((1, 60_000), "center"), ((60_000, 1), "center"), ((1, 60_000), "border")])
def test_an_image_of_one_row_is_refused_rather_than_resized(
    folder: Path, tmp_path: Path, sides: tuple, mode: str
) -> None:
    """Its shorter side made 168 pixels, the other would have ten million: 5 GB."""
    shutil.copytree(folder, tmp_path / "mine")
    classifier = load_classifier(change(tmp_path / "mine", its_crop_mode=mode))
    with pytest.raises(CounterfoilError, match="would be resized to"):
        classifier.transform()(Image.new("RGB", sides))
    assert classifier.transform()(Image.new("RGB", (10, 400))).shape == (3, 160, 160)
