"""A whole network is trained by the same recipe for every variant, and stands in the place of a
head."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load_file
from torch import nn

from counterfoil.data.labelled_sources import labelled_split
from counterfoil.errors import UserError
from counterfoil.mending.fitting import KeptHeads, Lesson
from counterfoil.mending.mend_models import mend
from counterfoil.mending.network import BATCH, Network, biased_losses, fit_network
from counterfoil.models.classifiers import load_classifier
from counterfoil.models.classifiers.of_python import classifier_of
from counterfoil.models.mended import read_mended
from counterfoil.recipe import load_recipe
from mending.scenes_to_mend import NAMES, World

SIDE = 8
CLASSES = 3


class Small(nn.Module):
    """A network without any statistic of a batch."""

    label_names = tuple(NAMES.values())

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1)
        self.linear = nn.Linear(8, CLASSES)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.relu(self.convolution(images)).mean((2, 3)))


def prepared(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(
        np.asarray(image.convert("RGB").resize((SIDE, SIDE)), np.float32).transpose(2, 0, 1) / 255
    )


def network(module: nn.Module | None = None, images: int = 0) -> Network:
    torch.manual_seed(5)
    _, classifier = classifier_of(
        "python:small", module or Small(), prepared, Image.new("RGB", (SIDE, SIDE))
    )
    return Network.of(classifier, images=images)


def lesson(rows: int, seed: int) -> Lesson:
    """Return images of one colour each, whose label it is, with noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, rows)
    images = rng.normal(0, 0.2, (rows, 3, SIDE, SIDE)).astype(np.float32)
    images[np.arange(rows), labels] += 1
    return Lesson(images.reshape(rows, -1), labels)


def accuracy(trained: Network, of: Lesson) -> float:
    return float((trained.logits(of.features).argmax(axis=1) == of.targets).mean())


def weights_of(trained: Network) -> np.ndarray:
    return np.concatenate([values.ravel() for values in trained.tensors().values()])


def test_it_learns_from_new_weights_and_leaves_the_old_ones() -> None:
    start = network()
    train = lesson(128, 0)
    test = lesson(100, 1)
    before = weights_of(start)
    trained = fit_network(start, train, None, 0.0, epochs=60).head
    assert accuracy(trained, test) > 0.9 > accuracy(start, test)
    assert np.array_equal(weights_of(start), before)
    first, again, other = (
        fit_network(start, train, None, 0.0, epochs=2, seed=seed).head for seed in (0, 0, 1)
    )
    assert np.array_equal(weights_of(again), weights_of(first))
    assert not np.allclose(weights_of(other), weights_of(first))


def test_a_module_of_ones_own_stays_in_its_mode_with_its_statistics() -> None:
    module = nn.Sequential(nn.BatchNorm2d(3), Small()).train()
    state = {key: values.clone() for key, values in module.state_dict().items()}
    trained = fit_network(network(module), lesson(70, 0), None, 0.0, epochs=1).head
    assert not trained.module.training and module.training
    assert all(torch.equal(values, state[key]) for key, values in module.state_dict().items())


def test_every_variant_sees_the_same_training_batches() -> None:
    """At a λ of nearly nothing, other images beside the training rows leave the weights where they
    were."""
    start = network()
    train = lesson(150, 0)
    alone = weights_of(fit_network(start, train, None, 0.0, epochs=3).head)
    for debug in (lesson(20, 2), lesson(90, 3)):
        none, little, much = (
            weights_of(fit_network(start, train, debug, lam, epochs=3).head)
            for lam in (0.0, 1e-9, 1.0)
        )
        assert np.array_equal(none, alone) and np.allclose(little, alone, atol=1e-5)
        assert not np.allclose(much, alone, atol=1e-3)


def test_weights_count_rows() -> None:
    """Rows without weight teach nothing, whatever their labels."""
    train = lesson(192, 0)
    test = lesson(100, 1)
    wrong = np.arange(192) % 3 != 0
    targets = np.where(wrong, (train.targets + 1) % CLASSES, train.targets)
    misled = replace(train, targets=targets)
    assert accuracy(fit_network(network(), misled, None, 0.0, epochs=60).head, test) < 0.3
    weighted = replace(misled, weights=np.where(wrong, 0.0, 1.0))
    assert accuracy(fit_network(network(), weighted, None, 0.0, epochs=60).head, test) > 0.9


def test_an_early_stop_is_the_same_training_after_a_third() -> None:
    train = lesson(2 * BATCH, 0)
    stopped = fit_network(network(), train, None, 0.0, epochs=6, early=True)
    assert (
        stopped.steps == 4
        and stopped.loss > fit_network(network(), train, None, 0.0, epochs=6).loss
    )


def test_biased_losses_are_the_generalised_cross_entropy() -> None:
    shares = torch.tensor([0.9, 0.5, 0.1], requires_grad=True)
    losses = biased_losses(-shares.log())
    assert torch.allclose(losses, (1 - shares**0.7) / 0.7)
    (slopes,) = torch.autograd.grad(losses.sum(), shares)
    plain = -1 / shares.detach()
    ratio = slopes / plain  # how much a row weighs beside plain cross-entropy
    assert (ratio[:-1] > ratio[1:]).all()


def test_a_network_that_was_trained_before_is_read_again(tmp_path: Path) -> None:
    start = network()
    train = lesson(80, 0)
    trainings = list[int]()

    def fit(*given: object) -> object:
        trainings.append(1)
        return partial(fit_network, epochs=1)(*given)  # pyrefly: ignore[bad-argument-type]

    kept = KeptHeads(tmp_path, start, ["network", 1], fit)  # pyrefly: ignore[bad-argument-type]
    first, second = (kept.fitted(train, None, 0.0).head for _ in range(2))
    assert len(trainings) == 1
    assert np.array_equal(first.logits(train.features), second.logits(train.features))


def test_what_cannot_be_trained_is_refused_in_words() -> None:
    class WithParameter(Small):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

    with pytest.raises(
        UserError, match=r"the module of its parameter scale has no reset_parameters"
    ):
        network(WithParameter())
    with pytest.raises(UserError, match="holds all 90,000,000 images in memory, 69 GB"):
        network(images=90_000_000)


def test_the_saved_folder_is_the_network_that_was_measured(world: World, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = mend(
        "lab:lcnet_035", world.recipe, "confidence:test", out,
        fit="network", epochs=1, lambdas=[0.5], save="best", device="cpu",
    )  # fmt: skip
    (model,) = result.mended.models
    assert (result.mended.fit.how, result.mended.fit.epochs, result.mended.fit.batch) == (
        "network",
        1,
        BATCH,
    )
    assert [arm.of for arm in model.arms] == [None, None, "confidence:test"]
    assert model.arms[1].images == model.arms[2].images == 60 and not model.arms[0].images
    assert any("trained again from new weights" in note for note in result.mended.notes)
    about = read_mended(out / "model", "mended")
    assert about is not None and about.fit == "network"
    loaded = load_classifier(f"local-dir:{out / 'model'}")
    old = load_classifier("lab:lcnet_035")
    changed = [key for key, old_tensor in old.module.state_dict().items() if old_tensor.dim() > 1]
    assert not any(
        torch.allclose(old.module.state_dict()[key], loaded.module.state_dict()[key])
        for key in changed
    )
    recipe = load_recipe(world.recipe)
    audited = labelled_split(recipe.source, "validation", recipe.classes)
    images = torch.stack(
        [loaded.transform()(audited.decoded(image)) for _, image in audited.images()]
    )
    outputs = np.asarray([loaded.label_names.index(NAMES[cls.id]) for cls in recipe.classes])  # pyrefly: ignore[missing-attribute]
    right = loaded.logits(images, "cpu").numpy().argmax(axis=1) == outputs[audited.labels]
    measured = [model.shown_first.of_set(name) for name in ("debug_seed", "debug_heldout")]
    before = old.logits(images, "cpu").numpy().argmax(axis=1) == outputs[audited.labels]
    assert sum(part.gained for part in measured if part is not None) == (right & ~before).sum()


def test_a_module_of_ones_own_is_trained_by_each_baseline(world: World, tmp_path: Path) -> None:
    using = [f"{baseline}:test" for baseline in ("confidence", "early", "lff")]
    module = Small()
    options: dict[str, Any] = {"fit": "network", "epochs": 1, "save": "best", "lambdas": [0.5]}
    result = mend(
        {"mine": module}, world.recipe, using, tmp_path, transform=prepared, device="cpu", **options
    )
    (model,) = result.mended.models
    assert {arm.name for arm in model.arms if arm.role == "mended"} == set(using)
    trained = result.heads["mine"]
    assert isinstance(trained, Network)
    stored = load_file(tmp_path / "model-network.safetensors")
    assert all(np.array_equal(stored[key], values) for key, values in trained.tensors().items())
