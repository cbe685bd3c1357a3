"""Learning from Failure's biased classifiers: a world's classifier again, by a loss that prefers
the easy (Nam 2020).

Rows that the classifier already finds easy weigh most, so it learns the shortcut first and little
else.
"""

from __future__ import annotations

import numpy as np
import timm
import torch
from torch.nn import functional as F

from counterfoil.mending.network import biased_losses
from directions_proof.worlds import AuditedWorld
from lab_training.classify import ARCHITECTURE, MODEL_ARGS, PLANTED, planted_steps, save_model
from lab_training.state import Loop, warm_then_linear


def train_biased(audited: AuditedWorld) -> None:
    """Train where there is none yet; it ends beside the world's classifier, in KIND-SEED-biased."""
    folder = audited.biased_folder
    world = audited.world
    if (folder / "config.json").exists():
        return
    pixels = np.stack([world.pixels("train", row) for row in range(len(world.labels("train")))])
    labels = torch.from_numpy(world.labels("train"))
    torch.manual_seed(PLANTED["seed"])
    model = timm.create_model(ARCHITECTURE, num_classes=len(audited.classes), **MODEL_ARGS)
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PLANTED["rate"], weight_decay=0.05)
    schedule = warm_then_linear(PLANTED["decay_from"])
    loop = Loop(
        audited.kept / "state" / folder.name,
        {"model": model},
        optimizer,
        int(PLANTED["steps"]),
        schedule,
    )
    for step, rows, logits in planted_steps(world, loop, pixels):
        losses = F.cross_entropy(logits, labels[rows], reduction="none")
        loop.after(step, biased_losses(losses).mean())
    loop.path.unlink()
    training = PLANTED | {"world": world.name, "loss": "generalised cross-entropy, q 0.7"}
    save_model(
        model.eval(),
        folder,
        ARCHITECTURE,
        MODEL_ARGS,
        len(audited.classes),
        training,
        world.class_names,
    )
