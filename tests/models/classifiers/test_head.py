"""Heads come out as the model's own last layer, and go back into a folder that answers by the new
one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file
from timm.models import save_for_hf
from torchvision.transforms import ToTensor

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.classifiers import Classifier, load_classifier
from counterfoil.models.classifiers.head import (
    LinearHead,
    head_of,
    refuse_other_logits,
    write_with_head,
)
from counterfoil.models.classifiers.of_python import classifier_of
from counterfoil.models.weights_files import weights_sha256
from support.refusals import refuses

NAMES = ["bag", "coat", "boot"]
# A form that differs from every default, with a test size of its own.
FORM = {
    "input_size": [3, 48, 48], "test_input_size": [3, 64, 64], "crop_pct": 0.9, "test_crop_pct": 1.0,
    "interpolation": "bilinear", "mean": [0.4, 0.5, 0.6], "std": [0.25, 0.2, 0.3],
}  # fmt: skip
ABOUT = {"format": 1, "lambda": 0.5, "datasets": [{"name": "größer"}]}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "convnext_atto": {"depths": [1, 1, 1, 1]},
    "resnet10t": {},
    "vit_tiny_patch16_224": {"img_size": 64, "depth": 2},
    "mobilenetv3_small_050": {},  # its features are wider than num_features
}


def saved(folder: Path, architecture: str, arguments: dict[str, Any] | None = None) -> str:
    """Save a random model, its last layer's bias random too, and return its name."""
    torch.manual_seed(3)
    model: Any = timm.create_model(architecture, num_classes=3, **(arguments or {}))
    layer = model.get_classifier()
    if isinstance(layer, torch.nn.Linear):
        torch.nn.init.normal_(layer.weight)
        torch.nn.init.normal_(layer.bias)
    form = (
        FORM
        if not architecture.startswith("vit")
        else {**FORM, "input_size": [3, 64, 64], "fixed_input_size": True}
    )
    model.pretrained_cfg.update(form)
    described = {"label_names": NAMES, "model_args": arguments or {}}
    save_for_hf(model, str(folder), model_config=described, safe_serialization=True)
    return f"local-dir:{folder}"


@pytest.fixture(scope="module", params=list(ARCHITECTURES))
def classifier(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Classifier:
    name = request.param
    return load_classifier(
        saved(tmp_path_factory.mktemp("heads") / name, name, ARCHITECTURES[name])
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Classifier:
    return load_classifier(saved(tmp_path_factory.mktemp("small") / "lcnet", "lcnet_035"))


def another(head: LinearHead, seed: int = 1) -> LinearHead:
    rng = np.random.default_rng(seed)
    shapes = head.weight.shape, head.bias.shape
    return LinearHead(*(rng.normal(size=shape).astype(np.float32) for shape in shapes))


def batch(classifier: Classifier, seed: int = 5) -> torch.Tensor:
    assert classifier.input_size is not None
    return torch.randn(4, *classifier.input_size, generator=torch.Generator().manual_seed(seed))


def close(logits: np.ndarray, wanted: np.ndarray) -> bool:
    return bool(np.abs(logits - wanted).max() <= 1e-4 * max(1.0, np.abs(wanted).max()))


def test_a_head_on_the_features_gives_the_models_logits(classifier: Classifier) -> None:
    head = head_of(classifier)
    images = batch(classifier)
    features = classifier.features(images, "cpu")
    assert features is not None and features.shape[1] == head.weight.shape[1]
    logits = classifier.logits(images, "cpu").numpy()
    assert np.ptp(logits) > 0.1
    assert close(head.logits(features.numpy()), logits)


def test_a_folder_with_another_head_answers_by_it_and_is_else_the_same(
    classifier: Classifier, tmp_path: Path
) -> None:
    head = another(head_of(classifier))
    sha256 = write_with_head(classifier, head, tmp_path / "new", about=ABOUT, card="# Mended\n")
    loaded = load_classifier(f"local-dir:{tmp_path / 'new'}")
    assert loaded.sha256 == sha256 != classifier.sha256
    for same in (
        "architecture",
        "label_names",
        "num_classes",
        "input_key",
        "input_size",
        "param_count",
    ):
        assert getattr(loaded, same) == getattr(classifier, same), same
    images = batch(classifier)
    features = classifier.features(images, "cpu")
    assert features is not None
    logits = loaded.logits(images, "cpu").numpy()
    assert close(logits, head.logits(features.numpy()))
    assert not close(logits, classifier.logits(images, "cpu").numpy())
    before = classifier.module.state_dict()
    after = loaded.module.state_dict()
    changed = {key for key in before if not torch.equal(before[key], after[key])}
    assert sorted(tuple(after[key].shape) for key in changed) == sorted(
        [head.weight.shape, head.bias.shape]
    )


def test_a_torch_module_has_a_head_too_and_stays_as_it_was(tmp_path: Path) -> None:
    """Its last Linear is the head, under any name and with other Linears before it."""
    torch.manual_seed(1)
    last = torch.nn.Linear(7, 3)
    net = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(48, 7), torch.nn.ReLU(), torch.nn.Dropout(0.5), last
    )
    net.train()
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (4, 4, 3), np.uint8))
    _, classifier = classifier_of("mine", net, ToTensor(), image)
    head = head_of(classifier)
    images = torch.rand(5, 3, 4, 4)
    assert np.array_equal(head.weight, last.weight.detach().numpy())
    assert close(
        head.logits(classifier.features(images, "cpu").numpy()),
        classifier.logits(images, "cpu").numpy(),
    )
    assert net.training and net[3].training and not last._forward_pre_hooks
    with pytest.raises(UserError, match="only timm models"):
        write_with_head(classifier, head, tmp_path / "new", about=ABOUT, card="")
    # Refuse a module with another layer behind the last Linear, or with a head of another kind.
    _, more = classifier_of(
        "mine", torch.nn.Sequential(net, torch.nn.Softmax(1)), ToTensor(), image
    )
    with pytest.raises(RunFailure, match="does not reproduce its logits"):
        head_of(more)
    _, other = classifier_of(
        "mine", torch.nn.Sequential(net, torch.nn.Linear(3, 4, bias=False)), ToTensor(), image
    )
    with pytest.raises(UserError, match="no Linear with a bias of 4 outputs"):
        head_of(other)


def test_half_floats_of_the_lab_become_a_folder_of_float32(tmp_path: Path) -> None:
    classifier = load_classifier("lab:planted/rare-0")
    head = another(head_of(classifier))
    write_with_head(classifier, head, tmp_path / "new", about=ABOUT, card="")
    stored = load_file(tmp_path / "new" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} <= {torch.float32, torch.int64}
    assert any(tensor.dtype == torch.float32 for tensor in stored.values())
    assert load_classifier(f"local-dir:{tmp_path / 'new'}").input_key == classifier.input_key


def test_a_folder_holds_what_is_said_of_it_and_the_same_bytes_twice(
    small: Classifier, tmp_path: Path
) -> None:
    head = another(head_of(small))
    folder = tmp_path / "new"
    first: dict[str, bytes] = {}
    for _ in range(2):  # the second in the place of the first
        write_with_head(small, head, folder, about=ABOUT, card="# A card\n")
        written = {file.name: file.read_bytes() for file in folder.iterdir()}
        assert set(written) == {"README.md", "config.json", "mended.json", "model.safetensors"}
        assert not first or written == first
        first = written
    assert weights_sha256(small.architecture, small.module.state_dict()) == small.sha256
    assert json.loads(first["mended.json"]) == ABOUT
    assert first["README.md"] == b"# A card\n"
    assert [file.name for file in tmp_path.iterdir()] == ["new"]


def test_what_a_killed_run_left_beside_it_goes_first(small: Classifier, tmp_path: Path) -> None:
    left = tmp_path / ".mine.writing"
    for name in ("mine", "before"):
        (left / name).mkdir(parents=True)
        (left / name / "model.safetensors").write_bytes(b"half")
    head = head_of(small)
    write_with_head(small, head, tmp_path / "mine", about=ABOUT, card="# A head\n")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    (left / "before").mkdir(parents=True)
    (left / "before" / "notes.txt").write_text("somebody's")
    with pytest.raises(UserError, match=r"notes\.txt"):
        write_with_head(small, head, tmp_path / "mine", about=ABOUT, card="# A head\n")
    assert (left / "before" / "notes.txt").exists()


def test_a_folder_of_something_else_is_not_written_over(small: Classifier, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years")
    with pytest.raises(UserError, match="holds thesis"):
        write_with_head(small, head_of(small), folder, about=ABOUT, card="")
    assert (folder / "thesis.txt").read_text() == "years"


@pytest.mark.parametrize(("kind", "says"), [("shape", "does not fit"), ("nan", "not all finite")])
def test_a_head_that_is_none_leaves_what_was_there(
    small: Classifier, tmp_path: Path, kind: str, says: str
) -> None:
    good = head_of(small)
    write_with_head(small, good, tmp_path / "new", about=ABOUT, card="old")
    weight = good.weight.copy()
    weight[1, 2] = np.nan
    bad = LinearHead(weight[:, :5], good.bias) if kind == "shape" else LinearHead(weight, good.bias)
    with refuses("unmendable-model", f"model {small.name!r}", says):
        write_with_head(small, bad, tmp_path / "new", about=ABOUT, card="new")
    assert (tmp_path / "new" / "README.md").read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize(
    ("architecture", "says"),
    [("deit_tiny_distilled_patch16_224", "2 heads"), ("dpn48b", "Conv2d")],
)
def test_a_head_that_is_no_single_linear_is_refused_by_name(
    architecture: str, says: str, tmp_path: Path
) -> None:
    model: Any = timm.create_model(architecture, num_classes=3)
    save_for_hf(model, str(tmp_path / "model"), safe_serialization=True)
    name = f"local-dir:{tmp_path / 'model'}"
    with refuses("unmendable-model", f"model {name!r}", says, architecture):
        head_of(load_classifier(name))


def test_a_classifier_that_is_no_timm_model_is_refused_by_name() -> None:
    image = Image.new("RGB", (8, 8))
    _, classifier = classifier_of("mine", lambda batch: batch[:, :, 0, 0], None, image)
    with pytest.raises(UserError, match=r"mine.*is a function: it has no last layer"):
        head_of(classifier)


class _Sharpened(torch.nn.Module):
    """A model that scales the scores of its last layer."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return 1.01 * self.inner(images)

    def __getattr__(self, name: str) -> Any:
        return (
            super().__getattr__(name)
            if name == "inner"
            else getattr(super().__getattr__("inner"), name)
        )


def test_a_model_that_does_more_after_its_last_layer_is_found_out(small: Classifier) -> None:
    with pytest.raises(RunFailure, match="does not reproduce its logits"):
        head_of(replace(small, module=_Sharpened(small.module).eval()))


@pytest.mark.parametrize("spoil", ["nan", "wide", "shift"])
def test_logits_of_another_head_are_reported(spoil: str) -> None:
    rng = np.random.default_rng(0)
    head = LinearHead(
        rng.normal(size=(5, 64)).astype(np.float32), rng.normal(size=5).astype(np.float32)
    )
    features = rng.normal(size=(7, 64)).astype(np.float32)
    logits = features @ head.weight.T + head.bias
    refuse_other_logits("m", head, features, logits)
    wrong = logits.copy()
    if spoil == "nan":
        wrong[0, 0] = np.nan
    wrong = wrong[:, :4] if spoil == "wide" else wrong + (0.05 if spoil == "shift" else 0)
    with pytest.raises(RunFailure, match="'m'"):
        refuse_other_logits("m", head, features, wrong)


def test_logits_of_many_rows_are_those_of_each() -> None:
    rng = np.random.default_rng(0)
    head = LinearHead(
        rng.normal(size=(3, 8)).astype(np.float32), rng.normal(size=3).astype(np.float32)
    )
    features = rng.normal(size=(9001, 8)).astype(np.float32)
    wanted = features.astype(np.float64) @ head.weight.T.astype(np.float64) + head.bias
    assert np.abs(head.logits(features) - wanted).max() < 1e-5
