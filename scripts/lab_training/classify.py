"""Timm models: stages `oracle` and `classifiers`, and a classifier for each planted world.

The oracle learns the unbiased world, the classifiers the biased input dataset. That of a planted
world is one small model, trained on the world's `train` and measured in its slice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
from counterfoil.lab.scenes import WARDROBE_ROWS, wardrobe_scene
from counterfoil.lab.vocabulary import ATTRIBUTES, CLASSES
from lab_training.captions import HIDDEN_BY_STYLE, Claims
from lab_training.corpora import unbiased_scene
from lab_training.state import (
    WEIGHTS,
    Loop,
    batches,
    corpus,
    half_floats,
    mean_of,
    renders,
    softened,
    to_tensor,
    update_metrics,
    write_json,
)

ORACLE = {
    "seed": 404,
    "steps": 5000,
    "batch": 128,
    "rate": 2e-3,
    "decay_from": 0.5,
    "average": 0.998,
    "soft_from": 1500,
}
ORACLE_ARGS: dict[str, Any] = {"channels": [40, 80, 160, 256]}

_VIT = {"img_size": 64, "embed_dim": 72, "depth": 4, "num_heads": 3}
# name: (timm architecture, model_args, steps, rate). Sizes and steps differ on purpose: the
# benchmark needs base accuracies at least 15 points apart.
CLASSIFIERS: dict[str, tuple[str, dict, int, float]] = {
    "resnet10t": ("resnet10t", {"channels": [24, 48, 80, 128]}, 900, 3e-3),
    "resnet14t": ("resnet14t", {"channels": [16, 32, 64, 80]}, 1200, 3e-3),
    "convnext_atto": (
        "convnext_atto",
        {"dims": [24, 48, 80, 128], "depths": [1, 1, 3, 1]},
        1200,
        2e-3,
    ),
    "convnext_pico": (
        "convnext_pico",
        {"dims": [16, 32, 64, 96], "depths": [1, 1, 2, 1]},
        350,
        2e-3,
    ),
    "vit_tiny_patch8": ("vit_tiny_patch16_224", _VIT | {"patch_size": 8}, 1200, 1e-3),
    "vit_tiny_patch16": ("vit_tiny_patch16_224", _VIT | {"patch_size": 16}, 500, 1e-3),
    "mobilenetv3_small_050": ("mobilenetv3_small_050", {}, 900, 3e-3),
    "lcnet_035": ("lcnet_035", {}, 600, 3e-3),
}
CLASSIFIER = {"seed": 505, "batch": 128, "decay_from": 0.3, "average": 0.99}


def save_model(
    model: nn.Module,
    folder: Path,
    architecture: str,
    model_args: dict,
    outputs: int,
    training: dict,
    label_names: Sequence[str] = CLASSES,
) -> None:
    """Write a timm local-dir: config.json with the model's arguments, and fp16 safetensors.

    label_names: of a classifier; they are left out where outputs are something else.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file(half_floats(model.state_dict()), folder / "model.safetensors")
    pretrained = {
        "custom_load": False,
        "input_size": [3, 64, 64],
        # timm passes img_size to models of a fixed input, and only transformers know it.
        "fixed_input_size": architecture.startswith("vit"),
        "interpolation": "bicubic",
        "crop_pct": 1.0,
        "crop_mode": "center",
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.5],
        "num_classes": outputs,
    }
    config: dict[str, Any] = {
        "architecture": architecture,
        "num_classes": outputs,
        "model_args": model_args,
        "pretrained_cfg": pretrained,
    }
    if outputs == len(label_names):
        config["label_names"] = list(label_names)
    write_json(folder / "config.json", config)
    write_json(folder / "training.json", training)


def _oracle_loss(logits: torch.Tensor, targets: dict[str, torch.Tensor]) -> torch.Tensor:
    loss = logits.new_zeros(())
    start = 0
    for attribute, values in ATTRIBUTES.items():
        part = logits[:, start : start + len(values)]
        start += len(values)
        weight = 3.0 if attribute == "class" else 1.0
        loss = loss + weight * F.cross_entropy(part, targets[attribute], ignore_index=-100)
    return loss


def attribute_targets(attributes: Sequence[Claims]) -> dict[str, torch.Tensor]:
    """Return the place of every attribute's value, int64 [n] each; -100 where the style hides
    it."""
    return {
        name: torch.tensor(
            [
                -100 if name in HIDDEN_BY_STYLE[a["style"]] else values.index(a[name])
                for a in attributes
            ]
        )
        for name, values in ATTRIBUTES.items()
    }


def train_oracle(work: Path) -> None:
    """Train the attribute oracle on fresh unbiased scenes at every step; ends in
    lab/weights/oracle."""
    torch.manual_seed(ORACLE["seed"])
    outputs = sum(len(v) for v in ATTRIBUTES.values())
    model = timm.create_model("resnet10t", num_classes=outputs, **ORACLE_ARGS)
    loop = Loop.of_adamw(work / "oracle", {"oracle": model}, ORACLE, weight_decay=0.05)
    for step in loop.steps():
        scenes = [unbiased_scene(step * ORACLE["batch"] + k) for k in range(ORACLE["batch"])]
        images = to_tensor(renders(scenes))
        if step >= ORACLE["soft_from"]:
            images = softened(images, np.random.default_rng([ORACLE["seed"], step]))
        targets = attribute_targets([s.attributes() for s in scenes])
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(images)
        loop.after(step, _oracle_loss(logits.float(), targets))
    loop.load_averages()
    save_model(
        model,
        WEIGHTS / "oracle",
        "resnet10t",
        ORACLE_ARGS,
        outputs,
        ORACLE | {"command": "python scripts/train_lab.py oracle"},
    )


def augment(pixels: np.ndarray, rng: np.random.Generator) -> torch.Tensor:
    """Return pictures uint8 [n, 64, 64, 3], moved by up to four pixels and mirrored at random, as a
    tensor."""
    padded = np.pad(pixels, ((0, 0), (4, 4), (4, 4), (0, 0)), mode="edge")
    out = np.empty_like(pixels)
    for k, (dy, dx) in enumerate(rng.integers(0, 9, (len(pixels), 2))):
        crop = padded[k, dy : dy + 64, dx : dx + 64]
        out[k] = crop[:, ::-1] if rng.random() < 0.5 else crop
    return to_tensor(out)


def train_classifiers(work: Path) -> None:
    """Train each classifier on the biased input dataset; ends in lab/weights/<name>."""
    count = WARDROBE_ROWS["train"]
    pixels = np.asarray(corpus(work, "wardrobe-train", count, lambda n: wardrobe_scene("train", n)))
    labels = np.arange(count) % 10
    for name, (architecture, model_args, steps, rate) in CLASSIFIERS.items():
        if (WEIGHTS / name / "model.safetensors").exists():
            print(f"{name}: there already", flush=True)
            continue
        torch.manual_seed(CLASSIFIER["seed"])
        model = timm.create_model(architecture, num_classes=10, **model_args)
        config = CLASSIFIER | {"steps": steps, "rate": rate}
        loop = Loop.of_adamw(work / name, {"model": model}, config, weight_decay=0.05)
        for step, rng in loop.draws(CLASSIFIER["seed"]):
            rows = rng.integers(0, count, CLASSIFIER["batch"])
            images = augment(pixels[rows], rng)
            targets = torch.from_numpy(labels[rows])
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(images)
            loop.after(step, F.cross_entropy(logits.float(), targets, label_smoothing=0.05))
        loop.load_averages()
        training = config | {"command": "python scripts/train_lab.py classifiers"}
        save_model(model, WEIGHTS / name, architecture, model_args, 10, training)
        accuracy = validation_accuracy(model)
        update_metrics(
            WEIGHTS / name, wardrobe_validation_accuracy=accuracy, parameters=_parameters(model)
        )
        print(f"{name}: validation accuracy {accuracy:.4f}", flush=True)


def validation_accuracy(model: nn.Module) -> float:
    """Return the accuracy on the input dataset's validation split (other garments, the same
    biases)."""
    count = WARDROBE_ROWS["validation"]
    pixels = renders([wardrobe_scene("validation", n) for n in range(count)])
    model.eval()
    with torch.inference_mode():
        guesses = torch.cat(
            [model(to_tensor(part)).argmax(1) for part in np.array_split(pixels, 12)]
        )
    return float((guesses.numpy() == np.arange(count) % 10).mean())


ARCHITECTURE = "resnet10t"
# 151,000 parameters, half of timm's stem: a minute on one core.
MODEL_ARGS: dict[str, Any] = {"channels": [16, 32, 48, 72], "stem_width": 16}
PLANTED = {
    "seed": 606,
    "steps": 1000,
    "batch": 64,
    "rate": 3e-3,
    "decay_from": 0.3,
    "average": 0.99,
}
EARLY = 0.2
"""Where an early stop ends, as a share of the steps."""


def planted_steps(
    world: PlantedWorld, loop: Loop, pixels: NDArray[np.uint8]
) -> Iterator[tuple[int, NDArray[np.int64], torch.Tensor]]:
    """Yield each step of a loop over `model`, the rows that it draws, and their logits."""
    seed = int(PLANTED["seed"]), KINDS.index(world.kind), world.seed
    for step, rng in loop.draws(*seed):
        rows = rng.integers(0, len(pixels), int(PLANTED["batch"]))
        images = augment(pixels[rows], rng).contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", torch.bfloat16):
            logits = loop.modules["model"](images)
        yield step, rows, logits.float()


def train_planted(worlds: Iterable[PlantedWorld], work: Path, early: bool = False) -> None:
    """Train the classifier of each world; they end in WORK/KIND-SEED, early stops in
    WORK/KIND-SEED-early.

    A world whose classifier was measured before is skipped.
    """
    for world in worlds:
        wanted = [work / world.name, *([early_folder(world, work)] if early else [])]
        if all((folder / "metrics.json").exists() for folder in wanted):
            print(f"{world.name}: there already", flush=True)
        else:
            _train(world, work, early)


def early_folder(world: PlantedWorld, work: Path) -> Path:
    """Return the folder of the weights of a world's early stop."""
    return work / f"{world.name}-early"


def _train(world: PlantedWorld, work: Path, early: bool) -> None:
    torch.manual_seed(PLANTED["seed"])
    outputs = len(world.class_names)
    pixels = _pictures(world, "train")
    labels = world.labels("train")
    model = timm.create_model(ARCHITECTURE, num_classes=outputs, **MODEL_ARGS)
    # The layout of a convolution on a CPU: twice the speed.
    model = model.to(memory_format=torch.channels_last)
    steps = int(PLANTED["steps"])
    state = work / "state" / world.name
    loop = Loop.of_adamw(state, {"model": model}, PLANTED, weight_decay=0.05)
    stop = round(steps * EARLY)
    for step, rows, logits in planted_steps(world, loop, pixels):
        true = torch.from_numpy(labels[rows])
        loop.after(step, F.cross_entropy(logits, true, label_smoothing=0.05))
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
    save_model(
        model, folder, ARCHITECTURE, MODEL_ARGS, len(world.class_names), training, world.class_names
    )
    metrics = measured(world, answers(model, _pictures(world, "validation")))
    update_metrics(folder, **metrics, parameters=_parameters(model))
    print(f"{folder.name}: {metrics}", flush=True)


def _parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def measured(world: PlantedWorld, answered: NDArray[np.int64]) -> dict[str, float]:
    """Return accuracies on `validation` by the dataset's labels: all, in the slice, in the rest of
    its class.

    The rest is all other rows if the slice has no class. gap: rest less slice. Without a slice,
    accuracy alone.
    """
    right = answered == world.labels("validation")
    inside = world.slice("validation")
    of_class = np.ones(ROWS["validation"], dtype=np.bool_)
    if world.planted is not None:
        of_class = world.true_classes("validation") == world.planted
    metrics = {"accuracy": right.mean()}
    if inside.any():
        metrics |= {
            "slice_accuracy": right[inside].mean(),
            "rest_accuracy": right[of_class & ~inside].mean(),
        }
        metrics["gap"] = metrics["rest_accuracy"] - metrics["slice_accuracy"]
    if world.strength is not None:
        metrics["strength"] = world.strength
    return {name: mean_of(value) for name, value in metrics.items()}


def answers(model: nn.Module, pixels: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return a model's answers int64 [n] to pictures uint8 [n, 64, 64, 3]. Leave the model in its
    mode."""
    training = model.training
    model.eval()
    with torch.inference_mode():
        labels = [model(to_tensor(part)).argmax(1) for part in batches(pixels, 250)]
    model.train(training)
    return torch.cat(labels).numpy()


@lru_cache(maxsize=2)
def _pictures(world: PlantedWorld, split: str) -> NDArray[np.uint8]:
    """Return a split's pictures, uint8 [n, 64, 64, 3]: eight seconds of rendering, 74 MB. Keep
    those of one world."""
    return np.stack([world.pixels(split, row) for row in range(ROWS[split])])
