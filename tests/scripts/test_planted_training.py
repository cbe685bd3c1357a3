"""Training of planted worlds' classifiers at small size: a resumed run ends with the same bytes,
and measures right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from counterfoil.lab import planted as worlds
from counterfoil.lab.planted import PlantedWorld, planted_world
from counterfoil.models.classifiers import load_classifier
from lab_training import classify as training
from lab_training.classify import early_folder, measured, train_planted

STEPS = 10
WORLD = planted_world("correlation", 0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Train with sixty pictures a split, ten steps, one thread."""
    for split in ("train", "validation"):
        monkeypatch.setitem(worlds.ROWS, split, 60)
    monkeypatch.setitem(training.PLANTED, "steps", STEPS)
    monkeypatch.setitem(training.PLANTED, "batch", 8)
    training._pictures.cache_clear()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    training._pictures.cache_clear()


class _Killed(Exception):
    """Raised instead of a kill, after a checkpoint."""


@pytest.mark.usefixtures("small")
def test_a_training_that_is_killed_ends_with_the_same_weights_and_is_left_alone_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train_planted([WORLD], tmp_path / "whole", early=True)
    after = training.Loop.after

    def killed(self: training.Loop, step: int, loss: torch.Tensor) -> None:
        after(self, step, loss)
        if step == 5:
            self.save(step + 1)
            raise _Killed

    with monkeypatch.context() as patched:
        patched.setattr(training.Loop, "after", killed)
        with pytest.raises(_Killed):
            train_planted([WORLD], tmp_path / "resumed", early=True)
    assert not (tmp_path / "resumed" / WORLD.name / "metrics.json").exists()
    train_planted([WORLD], tmp_path / "resumed", early=True)
    for folder in (WORLD.name, early_folder(WORLD, tmp_path).name):
        for file in ("model.safetensors", "config.json", "training.json", "metrics.json"):
            whole, resumed = (tmp_path / run / folder / file for run in ("whole", "resumed"))
            assert whole.read_bytes() == resumed.read_bytes(), file
    stopped, trained = (
        tmp_path / "whole" / name / "model.safetensors"
        for name in (f"{WORLD.name}-early", WORLD.name)
    )
    assert stopped.read_bytes() != trained.read_bytes()
    assert json.loads((stopped.parent / "training.json").read_text())["steps"] == 2
    assert load_classifier(f"local-dir:{trained.parent}").label_names == WORLD.class_names
    before = trained.stat().st_mtime_ns
    capsys.readouterr()
    train_planted([WORLD], tmp_path / "whole", early=True)
    assert capsys.readouterr().out == f"{WORLD.name}: there already\n"
    assert trained.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "world", [WORLD, planted_world("rare", 0), planted_world("noisy", 1)], ids=lambda w: w.name
)
def test_accuracies_are_those_of_the_slice_and_of_the_rest_of_its_class(
    world: PlantedWorld,
) -> None:
    labels = world.labels("validation")
    inside = world.slice("validation")
    assert measured(world, labels)["gap"] == 0
    wrong = np.where(inside, labels + 1, labels)
    measures = measured(world, wrong)
    assert (measures["slice_accuracy"], measures["rest_accuracy"], measures["gap"]) == (0, 1, 1)
    assert measures["accuracy"] == pytest.approx(1 - inside.mean(), abs=1e-4)
    # What happens in other classes is in the accuracy alone.
    elsewhere = np.where(world.true_classes("validation") == world.planted, labels, labels + 1)
    assert measured(world, elsewhere)["gap"] == 0
    assert measured(world, elsewhere)["accuracy"] < 0.5


def test_without_a_slice_there_is_no_gap() -> None:
    world = planted_world("null", 0)
    assert measured(world, world.labels("validation")) == {"accuracy": 1.0}
