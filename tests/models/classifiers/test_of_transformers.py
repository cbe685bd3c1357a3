"""A folder that transformers saved answers as transformers itself would, and is known by its content."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoImageProcessor, AutoModelForImageClassification

from colour_kinds import save_colour_transformer
from colour_world import COLOURS
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models.classifiers import describe_classifier, load_classifier
from support.images import noise


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_colour_transformer(tmp_path_factory.mktemp("transformers") / "vit", names=("blue", "x", "red", "green"))


@pytest.fixture
def mine(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "mine"))


def edited(folder: Path, file: str = "config.json", **values: Any) -> str:
    """The classifier's name after its settings changed; None removes one."""
    document = json.loads((folder / file).read_text()) | values
    (folder / file).write_text(json.dumps({key: value for key, value in document.items() if value is not None}))
    return f"transformers:{folder}"


def picture(seed: int, width: int = 40, height: int = 56) -> Image.Image:
    return noise(seed, width, height)


def test_it_is_described_by_its_configuration_alone(mine: Path) -> None:
    (mine / "model.safetensors").write_bytes(b"no weights")
    facts = describe_classifier(f"transformers:{mine}")
    assert (facts.architecture, facts.num_classes) == ("ViTForImageClassification", 4)
    assert facts.label_names == ("blue", "x", "red", "green")
    assert describe_classifier(f"transformers:local-dir:{mine}").label_names == facts.label_names


def test_scores_equal_those_of_transformers_own_loading(folder: Path) -> None:
    classifier = load_classifier(f"transformers:{folder}")
    images = [picture(0), picture(1, 80, 33), Image.new("RGB", (9, 7), COLOURS[1])]
    theirs: Any = AutoModelForImageClassification.from_pretrained(folder).eval()
    prepared = AutoImageProcessor.from_pretrained(folder)(images=images, return_tensors="pt")
    with torch.inference_mode():
        expected = theirs(**prepared).logits
    batch = torch.stack([classifier.transform()(image) for image in images])
    torch.testing.assert_close(batch, prepared["pixel_values"])
    torch.testing.assert_close(classifier.logits(batch, "cpu"), expected)
    assert not classifier.module.training and not any(p.requires_grad for p in classifier.module.parameters())
    assert (classifier.input_size, classifier.interpolation) == ((3, 32, 32), "bilinear")
    assert classifier.param_count == sum(p.numel() for p in theirs.parameters())


def test_equal_input_keys_mean_equal_tensors(folder: Path, mine: Path) -> None:
    same = load_classifier(edited(mine, initializer_range=0.5))
    other = load_classifier(edited(mine, "preprocessor_config.json", image_mean=[0.1, 0.5, 0.5]))
    key = load_classifier(f"transformers:{folder}").input_key
    assert same.input_key == key != other.input_key


def test_the_hash_follows_what_it_computes_and_neither_place_nor_names(folder: Path, mine: Path) -> None:
    first = load_classifier(f"transformers:{folder}").sha256
    renamed = edited(mine, id2label={"0": "a", "1": "b", "2": "c", "3": "d"}, label2id=None, dtype="float16")
    assert load_classifier(renamed).sha256 == first
    assert load_classifier(edited(mine, hidden_act="relu")).sha256 != first
    stored = load_file(mine / "model.safetensors")
    stored["classifier.bias"][0] += 1e-3
    edited(mine, hidden_act="gelu")
    save_file(stored, mine / "model.safetensors", metadata={"format": "pt"})
    assert load_classifier(f"transformers:{mine}").sha256 != first


def test_half_precision_and_shards_load_whole_in_float32(folder: Path, mine: Path) -> None:
    stored = {key: value.half() for key, value in load_file(folder / "model.safetensors").items()}
    names = sorted(stored)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, keys in shards.items():
        save_file({key: stored[key] for key in keys}, mine / file, metadata={"format": "pt"})
    (mine / "model.safetensors").unlink()
    index = {"weight_map": {key: file for file, keys in shards.items() for key in keys}}
    (mine / "model.safetensors.index.json").write_text(json.dumps(index))
    loaded = load_classifier(f"transformers:{mine}").module.state_dict()
    assert all(loaded[key].dtype == torch.float32 for key in loaded)
    whole = load_classifier(f"transformers:{folder}").module.state_dict()
    assert all(torch.equal(loaded[key], whole[key].half().float()) for key in loaded)
    (mine / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(RunFailure, match="lists model-00002-of-00002"):
        load_classifier(f"transformers:{mine}")


def test_a_processor_that_follows_the_image_has_no_size(mine: Path) -> None:
    size = {"shortest_edge": 32}
    name = edited(mine, "preprocessor_config.json", image_processor_type="ConvNextImageProcessor", size={**size})
    assert load_classifier(name).input_size == (3, 32, 32)
    name = edited(
        mine, "preprocessor_config.json", image_processor_type="CLIPImageProcessor", size=size, do_center_crop=False
    )
    assert load_classifier(name).input_size is None


def test_an_image_without_end_is_refused(mine: Path) -> None:
    name = edited(
        mine, "preprocessor_config.json", image_processor_type="CLIPImageProcessor", size={"shortest_edge": 32}
    )
    with pytest.raises(UserError, match="would be resized"):
        load_classifier(name).transform()(Image.new("RGB", (500_000, 1)))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("transformers:./no/such", "there is no folder"),
        ("transformer:x", "no kind of classifier 'transformer'; did you mean 'transformers'"),
        ("transformers:lab:resnet10t", "it is a timm model: name it hf-hub:NAME, or local-dir:FOLDER"),
        ("transformers:lab:clip", "has no config.json"),
    ],
)
def test_a_name_that_is_no_model_is_a_users_mistake(name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        describe_classifier(name)


def test_a_hub_model_out_of_reach_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CounterfoilError, match="the Hub cannot be reached") as caught:
        describe_classifier("transformers:nobody/no-such-model-0")
    assert caught.value.exit_code == 1
