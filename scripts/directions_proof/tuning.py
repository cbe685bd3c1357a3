"""Fine-tune a planted world's classifier briefly on its train split and more pictures; every arm
sees the same chances.

The last step has a rate of nearly nothing, so that the weights at the end are the result, without
averages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import timm
import torch
from torch import nn
from torch.nn import functional as F

from counterfoil.arrays import Bools, Floats, Ints
from lab_training.classify import ARCHITECTURE, MODEL_ARGS, answers, augment
from proof_pictures import Pixels

STEPS = 200
BATCH = 64
RATE = 1e-3
SEED = 707
# Of a batch, where a lesson has new pictures: among 6,000 old ones they would hardly be seen in so
# few steps.
NEW = BATCH // 8
_WARM = 20


@dataclass(frozen=True, slots=True)
class Lesson:
    """n pictures uint8 [n, 64, 64, 3] with labels (n,) and weights of their losses (n,); the last
    `added` are new."""

    pixels: Pixels
    labels: Ints
    weights: Floats
    added: int = 0

    def with_more(self, pixels: Pixels, label: int) -> Lesson:
        """Return the lesson with more pictures of one label."""
        return Lesson(
            np.concatenate([self.pixels, pixels]),
            np.concatenate([self.labels, np.full(len(pixels), label, np.int64)]),
            np.concatenate([self.weights, np.ones(len(pixels))]),
            self.added + len(pixels),
        )

    def weighted(self, rows: Bools, factor: float) -> Lesson:
        """Return the lesson with the weight of some rows multiplied."""
        return replace(self, weights=np.where(rows, self.weights * factor, self.weights))


def load(folder: Path, outputs: int) -> nn.Module:
    """Load a planted classifier as it was trained."""
    from safetensors.torch import load_file

    model = timm.create_model(ARCHITECTURE, num_classes=outputs, **MODEL_ARGS)
    model.load_state_dict(
        {name: values.float() for name, values in load_file(folder / "model.safetensors").items()}
    )
    return model.to(memory_format=torch.channels_last)


def tuned(folder: Path, outputs: int, lesson: Lesson, seed: int) -> nn.Module:
    """Return the classifier of a folder after `STEPS` more steps on a lesson."""
    model = load(folder, outputs).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.05)
    weights = torch.from_numpy(lesson.weights).float()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / _WARM) * (1 - step / STEPS)
        rng = np.random.default_rng([SEED, seed, step])
        # Every arm draws the same old pictures at the same steps, but for those that new ones stand
        # in for.
        old = len(lesson.labels) - lesson.added
        rows = rng.integers(0, old, BATCH)
        if lesson.added:
            rows[:NEW] = old + np.random.default_rng([SEED, seed, step, 1]).integers(
                0, lesson.added, NEW
            )
        images = augment(lesson.pixels[rows], rng).contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(images)
        targets = torch.from_numpy(lesson.labels[rows])
        row_weights = weights[torch.from_numpy(rows)]
        losses = F.cross_entropy(logits.float(), targets, label_smoothing=0.05, reduction="none")
        optimizer.zero_grad(set_to_none=True)
        (losses * row_weights).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


def accuracies(
    model: nn.Module,
    pixels: Pixels,
    labels: Ints,
    members: Bools,
    label: int,
) -> dict[str, float]:
    """Return the accuracy on the slice within a class, on the rest of that class, and on all
    rows."""
    right = answers(model, pixels) == labels
    of_class = labels == label
    return {
        "slice": float(right[members & of_class].mean()),
        "rest": float(right[of_class & ~members].mean()),
        "all": float(right.mean()),
    }
