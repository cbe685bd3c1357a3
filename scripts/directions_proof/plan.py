"""Which worlds are measured: those that settings are chosen on, and those of the printed table.

Seeds 0 to 3 chose every setting. The printed table is of seeds from 100, which nothing was chosen
on.
"""

from __future__ import annotations

SETTINGS: tuple[str, ...] = tuple(
    f"{kind}-{seed}" for kind in ("correlation", "rare", "noisy", "null") for seed in range(4)
)
"""The worlds that settings were chosen on."""

STRENGTHS: tuple[str, ...] = tuple(f"correlation-{seed}" for seed in range(100, 124))
"""Eight strengths, three worlds each."""

FULL: tuple[str, ...] = (
    *STRENGTHS[:12],
    *(f"{kind}-{seed}" for kind in ("rare", "noisy", "null") for seed in range(100, 104)),
    "corruption-100",
)
"""The worlds of the full table: of 12 of the correlations each strength is there once, and four
twice."""

INTERVENED: tuple[str, ...] = (
    "correlation-103",
    "correlation-104",
    "correlation-105",
    "correlation-107",
    "rare-100",
    "rare-101",
    "corruption-100",
)
"""Six worlds whose classifiers are mended (strong correlations, scarce subtypes); one where nothing
should help."""

INTERVENED_SETTINGS: tuple[str, ...] = ("correlation-0", "correlation-1", "rare-0")

ABSENCES: tuple[str, ...] = (
    "correlation-103",
    "correlation-104",
    "correlation-105",
    "correlation-107",
)
"""Four worlds in whose rows failures are planted by chance: in each one class has a frequent
context."""

ABSENCES_SETTINGS: tuple[str, ...] = ("correlation-0", "correlation-1")

LABELS: tuple[str, ...] = (
    "correlation-100",
    "correlation-103",
    "correlation-104",
    "rare-100",
    "rare-101",
    *(f"noisy-{seed}" for seed in range(100, 104)),
    "null-100",
    "resnet14t",
    "convnext_pico",
    "vit_tiny_patch16",
    "mobilenetv3_small_050",
)
"""Worlds of every kind, and half of the lab's classifiers, which chose nothing."""

LABELS_SETTINGS: tuple[str, ...] = (
    *SETTINGS,
    "resnet10t",
    "convnext_atto",
    "vit_tiny_patch8",
    "lcnet_035",
)

SIDE = {"correlation": "easy", "rare": "hard", "noisy": "hard"}
"""Which caption should name what was planted: in correlation worlds what fails is the context's
absence."""


def kind_of(world: str) -> str:
    """Return the kind of a world: `correlation` of `correlation-100`."""
    return world.rpartition("-")[0]
