"""Transformers folders of strangers: no code runs, no pickle is read, sizes are judged before memory is taken."""

from __future__ import annotations

import json
import pickle
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from colour_kinds import save_colour_transformer
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models.classifiers import describe_classifier, load_classifier
from support.files import Payload, edit

HUGE = 2**40
PROCESSOR = "preprocessor_config.json"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_colour_transformer(tmp_path_factory.mktemp("transformers") / "vit")


@pytest.fixture
def mine(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "mine"))


@pytest.mark.parametrize("whole", [True, False])
def test_pickled_weights_are_never_read(mine: Path, tmp_path: Path, whole: bool) -> None:
    (mine / "model.safetensors").unlink()
    (mine / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    if not whole:
        index = {"weight_map": {"classifier.weight": "pytorch_model.bin"}}
        (mine / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match="safetensors"):
        load_classifier(f"transformers:{mine}")
    assert not (tmp_path / "ran").exists()
    pickle.loads((mine / "pytorch_model.bin").read_bytes())
    assert (tmp_path / "ran").exists()  # the attack is real


def test_pickles_beside_safetensors_are_left_aside(mine: Path, tmp_path: Path) -> None:
    for name in ("pytorch_model.bin", "adapter_model.bin", "training_args.bin"):
        (mine / name).write_bytes(pickle.dumps(Payload(tmp_path / "ran")))
    (mine / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": str(tmp_path), "peft_type": "LORA"})
    )
    load_classifier(f"transformers:{mine}")
    assert not (tmp_path / "ran").exists()


CODE = "from pathlib import Path\nPath({!r}).touch()\nfrom transformers import {} as Evil\n"


@pytest.mark.parametrize(
    ("file", "named", "base"),
    [
        ("config.json", {"AutoConfig": "evil.Evil"}, "ViTConfig"),
        ("config.json", {"AutoModelForImageClassification": "evil.Evil"}, "ViTForImageClassification"),
        (PROCESSOR, {"AutoImageProcessor": "evil.Evil"}, "ViTImageProcessor"),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_code_of_an_author_never_runs(
    mine: Path, tmp_path: Path, file: str, named: dict[str, str], base: str, known: bool
) -> None:
    (mine / "evil.py").write_text(CODE.format(str(tmp_path / "ran"), base))
    edit(mine / file, lambda document: document.update(auto_map=named))
    if not known:
        edit(mine / file, lambda document: document.update(model_type="evil", image_processor_type="Evil"))
    with pytest.raises(UserError, match="auto_map names code of its author, which is never run"):
        describe_classifier(f"transformers:{mine}")
    assert not (tmp_path / "ran").exists()


ODD_MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "kind": ({"model_type": "bert"}, "no image classifier of that kind"),
    "no kind": ({"model_type": ["vit"]}, "no image classifier of that kind"),
    "timm": ({"model_type": "timm_wrapper", "architecture": "resnet18"}, "it is a timm model"),
    "width": ({"hidden_size": HUGE}, "expected at most 1,000,000"),
    "depth": ({"num_hidden_layers": 10**5}, "num_hidden_layers is 100000, expected at most 256"),
    "endless": ({"layer_norm_eps": float("inf")}, "expected a finite number"),
    "kernels": ({"attn_implementation": "someone/kernels"}, "attn_implementation is not followed"),
    "quantised": ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config is not followed"),
    "other weights": ({"transformers_weights": "../../x.bin"}, "transformers_weights is not followed"),
    "backbone": ({"nested": [{"use_timm_backbone": True}]}, "use_timm_backbone is not followed"),
    "channels": ({"num_channels": 4}, "dataset's images are RGB"),
    "no labels": ({"id2label": None}, "no classification head"),
    "labels of nobody": ({"id2label": {"1": "a", "2": "b"}}, "none for output 0"),
    "labels": ({"id2label": {"0": "a\u001b[31m"}}, "expected printable text"),
    "number": ({"num_labels": 7}, "num_labels is 7, and id2label has 3 names"),
}


@pytest.mark.parametrize("case", ODD_MODELS)
def test_a_configuration_of_no_classifier_is_told_before_a_weight_is_read(mine: Path, case: str) -> None:
    values, expected = ODD_MODELS[case]
    (mine / "model.safetensors").write_bytes(b"no weights")
    edit(mine / "config.json", lambda document: document.update(values))
    with pytest.raises(UserError) as refused:
        describe_classifier(f"transformers:{mine}")
    assert expected in str(refused.value)


ODD_PROCESSORS: dict[str, tuple[dict[str, Any], str]] = {
    "side": ({"size": {"height": HUGE, "width": 32}}, "expected at most 4,096"),
    "edge": ({"size": {"shortest_edge": 100_000}}, "size.shortest_edge is 100000"),
    "crop": ({"crop_size": 10**6}, "crop_size is 1000000"),
    "share": ({"crop_pct": 1e-9}, "crop_pct: found 1e-09"),
    "mean": ({"image_mean": [float("nan")] * 3}, "expected a finite number"),
    "class": ({"image_processor_type": "os.system"}, "expected a class of transformers"),
    "form": ({"size": "large"}, "no image processor of transformers|cannot prepare"),
    "patches": ({"image_processor_type": "Siglip2ImageProcessor", "size": None}, "expected \\[channels"),
}


@pytest.mark.parametrize("case", ODD_PROCESSORS)
def test_settings_of_no_image_processor_are_told(mine: Path, case: str) -> None:
    values, expected = ODD_PROCESSORS[case]
    edit(mine / PROCESSOR, lambda document: document.update(values))
    with pytest.raises(UserError, match=expected):
        load_classifier(f"transformers:{mine}")


OVERGROWN: dict[str, dict[str, Any]] = {
    "width": {"hidden_size": 900_000, "num_attention_heads": 1},
    "inner": {"intermediate_size": 1_000_000, "hidden_size": 999_936},
    "image": {"image_size": 1_000_000, "patch_size": 1},
    "outputs": {"id2label": {str(place): f"c{place}" for place in range(200_000)}, "hidden_size": 4_800},
    "depth": {"num_hidden_layers": 256, "hidden_size": 4_800},
}


@pytest.mark.parametrize("case", OVERGROWN)
def test_sizes_that_the_weights_cannot_fill_take_no_memory(mine: Path, case: str) -> None:
    edit(mine / "config.json", lambda document: document.update(OVERGROWN[case]))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match="Configuration and weights are not of one model"):
        load_classifier(f"transformers:{mine}")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most < 300_000  # kB


def test_weights_that_are_not_all_there_are_not_made_up(mine: Path) -> None:
    stored = load_file(mine / "model.safetensors")
    del stored["classifier.weight"]
    save_file(stored, mine / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RunFailure, match=r"do not hold classifier.weight, which would be made up"):
        load_classifier(f"transformers:{mine}")


def test_layers_that_the_configuration_leaves_out_are_told(mine: Path) -> None:
    edit(mine / "config.json", lambda document: document.update(num_hidden_layers=1))
    with pytest.raises(UserError, match="hold layers that its configuration does not have"):
        load_classifier(f"transformers:{mine}")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(mine: Path, number: float) -> None:
    stored = load_file(mine / "model.safetensors")
    stored["classifier.bias"][1] = number
    save_file(stored, mine / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"not finite: classifier.bias"):
        load_classifier(f"transformers:{mine}")


def test_damaged_weights_are_told(mine: Path) -> None:
    weights = mine / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(RunFailure, match="weights file is damaged"):
        load_classifier(f"transformers:{mine}")


@pytest.mark.parametrize(
    "name",
    ["../outside.safetensors", "/etc/passwd", "a/b.safetensors", ".hidden", "", "a.safetensors.bin",
     "a.safetensors/../../outside.safetensors"],
)  # fmt: skip
def test_an_index_names_files_of_its_folder_alone(mine: Path, tmp_path: Path, name: str) -> None:
    shutil.copy(mine / "model.safetensors", tmp_path / "outside.safetensors")
    (mine / "model.safetensors").unlink()
    (mine / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"classifier.weight": name}}))
    with pytest.raises(CounterfoilError, match=r"expected (files beside it|safetensors)"):
        load_classifier(f"transformers:{mine}")


def test_a_folder_without_an_image_processor_says_what_to_save(mine: Path) -> None:
    (mine / PROCESSOR).unlink()
    with pytest.raises(UserError, match="does not say how images are prepared"):
        describe_classifier(f"transformers:{mine}")


def test_torch_stays_as_it_was(mine: Path) -> None:
    before = torch.get_default_dtype(), torch.empty(1).device
    edit(mine / "config.json", lambda document: document.update(dtype="float16"))
    load_classifier(f"transformers:{mine}")
    assert (torch.get_default_dtype(), torch.empty(1).device) == before
