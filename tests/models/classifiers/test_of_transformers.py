"""Classifiers of transformers: of a folder, of the Hub, and of strangers, whose code never runs."""

from __future__ import annotations

import json
import pickle
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import (
    AutoImageProcessor,
    AutoModelForImageClassification,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessor,
)

import warm
from colour_kinds import save_colour_transformer
from colour_world import COLOURS
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.models.classifiers import describe_classifier, load_classifier
from counterfoil.models.preparation import read_preparation
from counterfoil.prediction.inference import logits_of
from loopback_hub.clients import client, client_environment
from loopback_hub.hub import LoopbackHub
from support.files import AUTHORS_CODE, Payload, edit
from support.images import noise
from support.refusals import refuses


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_colour_transformer(
        tmp_path_factory.mktemp("transformers") / "vit", names=("blue", "x", "red", "green")
    )


@pytest.fixture
def mine(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "mine"))


def edited(folder: Path, file: str = "config.json", **values: Any) -> str:
    """Change settings of the classifier, None removes one, and return its name."""
    document = json.loads((folder / file).read_text()) | values
    (folder / file).write_text(
        json.dumps({key: value for key, value in document.items() if value is not None})
    )
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
    model: Any = AutoModelForImageClassification.from_pretrained(folder).eval()
    prepared = AutoImageProcessor.from_pretrained(folder)(images=images, return_tensors="pt")
    with torch.inference_mode():
        expected = model(**prepared).logits
    batch = torch.stack([classifier.transform()(image) for image in images])
    torch.testing.assert_close(batch, prepared["pixel_values"])
    torch.testing.assert_close(classifier.logits(batch, "cpu"), expected)
    assert not classifier.module.training and not any(
        p.requires_grad for p in classifier.module.parameters()
    )
    assert (classifier.input_size, classifier.interpolation) == ((3, 32, 32), "bilinear")
    assert classifier.param_count == sum(p.numel() for p in model.parameters())


def test_two_outputs_without_names_are_a_classifier(tmp_path: Path) -> None:
    config = ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
        image_size=32, patch_size=16,
    )  # fmt: skip
    torch.manual_seed(0)
    module: Any = ViTForImageClassification(config).eval()
    module.save_pretrained(tmp_path)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    assert "id2label" not in json.loads((tmp_path / "config.json").read_text())
    classifier = load_classifier(f"transformers:{tmp_path}")
    assert classifier.label_names == ("LABEL_0", "LABEL_1")
    batch = classifier.transform()(picture(0))[None]
    with torch.inference_mode():
        torch.testing.assert_close(classifier.logits(batch, "cpu"), module(batch).logits)
    edited(tmp_path, architectures=["ViTModel"])
    with pytest.raises(UserError, match="no classification head"):
        describe_classifier(f"transformers:{tmp_path}")


def test_equal_input_keys_mean_equal_tensors(folder: Path, mine: Path) -> None:
    same = load_classifier(edited(mine, initializer_range=0.5))
    other = load_classifier(edited(mine, "preprocessor_config.json", image_mean=[0.1, 0.5, 0.5]))
    key = load_classifier(f"transformers:{folder}").input_key
    assert same.input_key == key != other.input_key


def test_the_hash_follows_what_it_computes_and_neither_place_nor_names(
    folder: Path, mine: Path
) -> None:
    first = load_classifier(f"transformers:{folder}").sha256
    renamed = edited(
        mine, id2label={"0": "a", "1": "b", "2": "c", "3": "d"}, label2id=None, dtype="float16"
    )
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
    shards = {
        "model-00001-of-00002.safetensors": names[::2],
        "model-00002-of-00002.safetensors": names[1::2],
    }
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
    name = edited(
        mine,
        "preprocessor_config.json",
        image_processor_type="ConvNextImageProcessor",
        size={**size},
    )
    assert load_classifier(name).input_size == (3, 32, 32)
    name = edited(
        mine,
        "preprocessor_config.json",
        image_processor_type="CLIPImageProcessor",
        size=size,
        do_center_crop=False,
    )
    assert load_classifier(name).input_size is None


@pytest.mark.parametrize(
    ("name", "code", "path", "word"),
    [
        ("transformers:./no/such", "missing-model-file", "./no/such", "no/such"),
        ("transformer:x", "unknown-model", "transformer:x", "did you mean 'transformers:'"),
        ("transformers:lab:resnet10t", "unfit-model", "transformers:lab:resnet10t", "hf-hub:NAME"),
        ("transformers:lab:clip", "missing-model-file", "transformers:lab:clip", "config.json"),
    ],
)
def test_a_name_that_is_no_model_is_a_users_mistake(
    name: str, code: str, path: str, word: str
) -> None:
    with refuses(code, f"model {path!r}", word):
        describe_classifier(name)


def test_an_image_without_end_is_refused(mine: Path) -> None:
    name = edited(
        mine,
        "preprocessor_config.json",
        image_processor_type="CLIPImageProcessor",
        size={"shortest_edge": 32},
    )
    with pytest.raises(UserError, match="would be resized"):
        load_classifier(name).transform()(Image.new("RGB", (500_000, 1)))


REPO = "someone/vit"
LOAD = """
import sys
from counterfoil.errors import CounterfoilError
from counterfoil.models.classifiers import load_classifier
from support.refusals import refuses
for name in sys.argv[1:]:
    try:
        model = load_classifier(name)
        print(model.sha256, *model.label_names)
    except CounterfoilError as error:
        print(f"{type(error).__name__}: {error.problems[0]}")
"""


def test_its_preparation_is_read_from_the_image_processor(folder: Path) -> None:
    classifier = load_classifier(f"transformers:{folder}")
    preparation = read_preparation(classifier.stages(), classifier.transform())
    assert preparation is not None and classifier.input_size is not None
    assert preparation.resized == classifier.input_size[1:]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Save two models that differ in the order of outputs, weights and size of the input."""
    root = tmp_path_factory.mktemp("hub")
    return (
        save_colour_transformer(root / "first"),
        save_colour_transformer(root / "second", names=("blue", "green", "red"), size=48),
    )


def loaded(hub: LoopbackHub, home: Path, *names: str) -> list[str]:
    """Load each model in a new process, with its cache and working folder in `home`, and return its
    lines."""
    (home / "here").mkdir(parents=True, exist_ok=True)
    run = warm.run(
        [sys.executable, "-c", LOAD, *names], client_environment(hub, home), cwd=home / "here"
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def expected(folder: Path) -> str:
    model = load_classifier(f"transformers:{folder}")
    return " ".join([model.sha256 or "", *(model.label_names or ())])


def upload(hub: LoopbackHub, folder: Path, name: str = REPO) -> str:
    hub_client = client(hub, observer=True)
    hub_client.create_repo(name, exist_ok=True)
    return hub_client.upload_folder(repo_id=name, folder_path=str(folder)).oid


@pytest.mark.release(of="hub")
def test_a_model_of_the_hub_is_that_of_its_folder_at_each_commit(
    folders: tuple[Path, Path], tmp_path: Path, loopback: LoopbackHub
) -> None:
    first = upload(loopback, folders[0])
    upload(loopback, folders[1])
    names = (
        f"transformers:{REPO}@{first}",
        f"transformers:{REPO}",
        f"transformers:hf-hub:{REPO}@{first}",
    )
    assert loaded(loopback, tmp_path, *names) == [expected(folders[index]) for index in (0, 1, 0)]


@pytest.mark.release(of="hub")
@pytest.mark.parametrize("request_number", [1, 4])
def test_a_branch_that_moves_between_two_requests_changes_nothing(
    folders: tuple[Path, Path], tmp_path: Path, loopback: LoopbackHub, request_number: int
) -> None:
    upload(loopback, folders[0])
    before = loopback.keep(REPO, "model")
    upload(loopback, folders[1])
    after = loopback.keep(REPO, "model")
    loopback.put_back(before)
    paths: list[str] = []

    def on_request(request: Any) -> None:
        paths.append(request.path)
        if len(paths) == request_number + 1:
            loopback.put_back(after)

    loopback.on_request = on_request
    output = loaded(loopback, tmp_path, f"transformers:{REPO}")
    loopback.on_request = None
    assert len(paths) > request_number + 2
    assert output == [expected(folders[0])]


@pytest.mark.release(of="hub")
def test_pickles_stay_there_and_a_folder_of_the_same_name_is_not_taken_for_it(
    folders: tuple[Path, Path], tmp_path: Path, loopback: LoopbackHub
) -> None:
    pickled = Path(shutil.copytree(folders[0], tmp_path / "pickled"))
    (pickled / "model.safetensors").unlink()
    (pickled / "pytorch_model.bin").write_bytes(pickle.dumps({"classifier.weight": [1.0]}))
    upload(loopback, pickled, "someone/pickled")
    upload(loopback, folders[0])
    shutil.copytree(folders[1], tmp_path / "here" / REPO)
    first, second = loaded(
        loopback, tmp_path, "transformers:someone/pickled", f"transformers:{REPO}"
    )
    assert first.startswith("UserError: ") and "has no model.safetensors" in first
    assert not any(
        request.path.endswith("pytorch_model.bin") and not request.observer
        for request in loopback.requests
    )
    assert second.startswith("UserError: ") and "a local folder has this name" in second


HUGE = 2**40
PROCESSOR = "preprocessor_config.json"


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


@pytest.mark.parametrize(
    ("file", "named", "base"),
    [
        ("config.json", {"AutoConfig": "evil.Evil"}, "ViTConfig"),
        (
            "config.json",
            {"AutoModelForImageClassification": "evil.Evil"},
            "ViTForImageClassification",
        ),
        (PROCESSOR, {"AutoImageProcessor": "evil.Evil"}, "ViTImageProcessor"),
    ],
)
def test_code_of_an_author_never_runs(
    mine: Path, tmp_path: Path, file: str, named: dict[str, str], base: str
) -> None:
    (mine / "evil.py").write_text(AUTHORS_CODE.format(str(tmp_path / "ran"), base))
    edit(mine / file, lambda document: document.update(auto_map=named))
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
    "quantised": (
        {"quantization_config": {"quant_method": "gptq"}},
        "quantization_config is not followed",
    ),
    "other weights": (
        {"transformers_weights": "../../x.bin"},
        "transformers_weights is not followed",
    ),
    "backbone": ({"nested": [{"use_timm_backbone": True}]}, "use_timm_backbone is not followed"),
    "channels": ({"num_channels": 4}, "dataset's images are RGB"),
    "no labels": ({"id2label": None}, "no classification head"),
    "labels of nobody": ({"id2label": {"1": "a", "2": "b"}}, "none for output 0"),
    "labels": ({"id2label": {"0": "a\u001b[31m"}}, "expected printable text"),
    "label": (
        {"id2label": {"0": "a", "1": "b", "2": "a\tb"}},
        "id2label.2: found 'a\\tb', expected printable text",
    ),
    "number": ({"num_labels": 7}, "num_labels is 7, and id2label has 4 names"),
}


@pytest.mark.parametrize("case", ODD_MODELS)
def test_a_configuration_of_no_classifier_is_reported_before_a_weight_is_read(
    mine: Path, case: str
) -> None:
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
    "patches": (
        {"image_processor_type": "Siglip2ImageProcessor", "size": None},
        "expected \\[channels",
    ),
}


@pytest.mark.parametrize("case", ODD_PROCESSORS)
def test_settings_of_no_image_processor_are_reported(mine: Path, case: str) -> None:
    values, expected = ODD_PROCESSORS[case]
    edit(mine / PROCESSOR, lambda document: document.update(values))
    with pytest.raises(UserError, match=expected):
        load_classifier(f"transformers:{mine}")


OVERGROWN: dict[str, dict[str, Any]] = {
    "width": {"hidden_size": 900_000, "num_attention_heads": 1},
    "image": {"image_size": 1_000_000, "patch_size": 1},
    "outputs": {
        "id2label": {str(index): f"c{index}" for index in range(200_000)},
        "hidden_size": 4_800,
    },
    "depth": {"num_hidden_layers": 256, "hidden_size": 4_800},
}


@pytest.mark.parametrize("case", OVERGROWN)
def test_sizes_that_the_weights_cannot_fill_take_no_memory(mine: Path, case: str) -> None:
    edit(mine / "config.json", lambda document: document.update(OVERGROWN[case]))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match="belong to different models"):
        load_classifier(f"transformers:{mine}")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most < 300_000  # kB


def test_weights_that_are_not_all_there_are_not_made_up(mine: Path) -> None:
    stored = load_file(mine / "model.safetensors")
    del stored["classifier.weight"]
    save_file(stored, mine / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RunFailure, match=r"do not hold classifier.weight, which would be random"):
        load_classifier(f"transformers:{mine}")


def test_layers_that_the_configuration_leaves_out_are_reported(mine: Path) -> None:
    edit(mine / "config.json", lambda document: document.update(num_hidden_layers=1))
    with pytest.raises(UserError, match="hold layers that its configuration does not have"):
        load_classifier(f"transformers:{mine}")


def test_weights_that_are_no_numbers_are_refused(mine: Path) -> None:
    stored = load_file(mine / "model.safetensors")
    stored["classifier.bias"][1] = float("inf")
    save_file(stored, mine / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"not finite: classifier.bias"):
        load_classifier(f"transformers:{mine}")


def test_damaged_weights_are_reported(mine: Path) -> None:
    weights = mine / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(RunFailure, match="weights file is damaged"):
        load_classifier(f"transformers:{mine}")


@pytest.mark.parametrize(
    "name",
    ["../outside.safetensors", "/etc/passwd", "a/b.safetensors", ".hidden", "", "a.safetensors.bin"],
)  # fmt: skip
def test_an_index_names_files_of_its_folder_alone(mine: Path, tmp_path: Path, name: str) -> None:
    shutil.copy(mine / "model.safetensors", tmp_path / "outside.safetensors")
    (mine / "model.safetensors").unlink()
    (mine / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"classifier.weight": name}})
    )
    with pytest.raises(CounterfoilError, match=r"expected (files in the same folder|safetensors)"):
        load_classifier(f"transformers:{mine}")


def test_a_folder_without_an_image_processor_says_what_to_save(mine: Path) -> None:
    (mine / PROCESSOR).unlink()
    with pytest.raises(UserError, match="does not say how images are prepared"):
        describe_classifier(f"transformers:{mine}")


def test_a_processor_of_another_size_than_the_network_is_a_users_mistake(mine: Path) -> None:
    classifier = load_classifier(edited(mine, PROCESSOR, size={"height": 48, "width": 48}))
    batch = torch.stack([classifier.transform()(picture(0))])
    with pytest.raises(UserError, match=r"takes no images of \[3, 48, 48\]: .*doesn't match model"):
        logits_of(classifier, batch, "cpu")


def test_torch_stays_as_it_was(mine: Path) -> None:
    before = torch.get_default_dtype(), torch.empty(1).device
    edit(mine / "config.json", lambda document: document.update(dtype="float16"))
    load_classifier(f"transformers:{mine}")
    assert (torch.get_default_dtype(), torch.empty(1).device) == before
