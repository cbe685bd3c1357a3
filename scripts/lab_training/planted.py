"""Classifiers of planted worlds: one small timm model a world, trained on its `train` and measured in its slice."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional as F

from counterfoil.lab.planted import KINDS, ROWS, PlantedWorld
from lab_training.classify import augment, save_model
from lab_training.corpus import to_tensor
from lab_training.state import Loop, update_metrics, warm_then_linear

ARCHITECTURE = "resnet10t"
# 151,000 parameters, half of timm's stem: a minute on one core.
MODEL_ARGS: dict[str, Any] = {"channels": [16, 32, 48, 72], "stem_width": 16}
PLANTED = {"seed": 606, "steps": 1000, "batch": 64, "rate": 3e-3, "decay_from": 0.3, "average": 0.99}
EARLY = 0.2
"""Where an early stop ends, as a share of the steps."""


def train_planted(worlds: Iterable[PlantedWorld], work: Path, early: bool = False) -> None:
    """Train the classifier of each world; they end in WORK/KIND-SEED, early stops in WORK/KIND-SEED-early.

    A world whose classifier was measured before is skipped.
    """
    for world in worlds:
        wanted = [work / world.name, *([early_folder(world, work)] if early else [])]
        if all((folder / "metrics.json").exists() for folder in wanted):
            print(f"{world.name}: there already", flush=True)
        else:
            _train(world, work, early)


def early_folder(world: PlantedWorld, work: Path) -> Path:
    """Where the weights of a world's early stop are."""
    return work / f"{world.name}-early"


def _train(world: PlantedWorld, work: Path, early: bool) -> None:
    torch.manual_seed(PLANTED["seed"])
    outputs = len(world.class_names)
    pixels, labels = _pictures(world, "train"), world.labels("train")
    model = timm.create_model(ARCHITECTURE, num_classes=outputs, **MODEL_ARGS)
    # The layout of a convolution on a CPU: twice the speed.
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PLANTED["rate"], weight_decay=0.05)
    steps = int(PLANTED["steps"])
    state = work / "state" / world.name
    loop = Loop(state, {"model": model}, optimizer, steps, warm_then_linear(PLANTED["decay_from"]), PLANTED["average"])
    stop = round(steps * EARLY)
    for step in loop.steps():
        rng = np.random.default_rng([int(PLANTED["seed"]), KINDS.index(world.kind), world.seed, step])
        rows = rng.integers(0, len(labels), int(PLANTED["batch"]))
        images = augment(pixels[rows], rng).contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(images)
        loop.after(step, F.cross_entropy(logits.float(), torch.from_numpy(labels[rows]), label_smoothing=0.05))
        if early and step + 1 == stop:
            stopped = timm.create_model(ARCHITECTURE, num_classes=outputs, **MODEL_ARGS)
            stopped.load_state_dict(loop.averaged["model"])
            _finish(stopped, world, early_folder(world, work), stop)
    loop.load_averages()
    _finish(model, world, work / world.name, steps)
    # What is finished is never resumed.
    loop.path.unlink()


def _finish(model: nn.Module, world: PlantedWorld, folder: Path, steps: int) -> None:
    training = PLANTED | {
        "world": world.name,
        "steps": steps,
        "command": f"python scripts/train_planted.py {world.name}",
    }
    save_model(model, folder, ARCHITECTURE, MODEL_ARGS, len(world.class_names), training, world.class_names)
    metrics = measured(world, answers(model, _pictures(world, "validation")))
    update_metrics(folder, **metrics, parameters=sum(p.numel() for p in model.parameters()))
    print(f"{folder.name}: {metrics}", flush=True)


def measured(world: PlantedWorld, answered: NDArray[np.int64]) -> dict[str, float]:
    """Accuracies on `validation` by the labels that the dataset tells: all, in the slice, in the rest of its class.

    The rest is all other rows where the slice is of no class. gap: rest less slice. Without a slice, accuracy alone.
    """
    right = answered == world.labels("validation")
    inside, of_class = world.slice("validation"), np.ones(ROWS["validation"], dtype=np.bool_)
    if world.planted is not None:
        of_class = world.true_classes("validation") == world.planted
    metrics = {"accuracy": right.mean()}
    if inside.any():
        metrics |= {"slice_accuracy": right[inside].mean(), "rest_accuracy": right[of_class & ~inside].mean()}
        metrics["gap"] = metrics["rest_accuracy"] - metrics["slice_accuracy"]
    if world.strength is not None:
        metrics["strength"] = world.strength
    return {name: round(float(value), 4) for name, value in metrics.items()}


def answers(model: nn.Module, pixels: NDArray[np.uint8]) -> NDArray[np.int64]:
    """What a model answers to pictures uint8 [n, 64, 64, 3]: int64 [n]. It is left in the mode that it was in."""
    training = model.training
    model.eval()
    with torch.inference_mode():
        found = [model(to_tensor(pixels[start : start + 250])).argmax(1) for start in range(0, len(pixels), 250)]
    model.train(training)
    return torch.cat(found).numpy()


@lru_cache(maxsize=2)
def _pictures(world: PlantedWorld, split: str) -> NDArray[np.uint8]:
    """A split's pictures, uint8 [n, 64, 64, 3]: eight seconds of rendering, 74 MB. Those of one world are kept."""
    return np.stack([world.pixels(split, row) for row in range(ROWS[split])])
