"""The arms of a run: each what is asked for by `--with`, and beside it the controls that nobody has to ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.mending.debug_images import CLASS_NAME, RANDOM, Context, DebugImages, WithControls
from counterfoil.mending.given import BY_CLIP, Given
from counterfoil.mending.sampling import equal_numbers

ArmRole = Literal["retrained", "mended", "control", "upweighted", "rival", "bound"]
RETRAINED = "lambda 0"


@dataclass(frozen=True)
class Arm:
    """One way to a new head. `of` is the arm whose control it is, `what` the control's kind; both None for others.

    debug: its images. weights: (train rows,), by λ more than 1. groups: (audited rows,), -1 for a row without one.
    offered: how many images there were before all arms of a comparison got equal numbers.
    """

    name: str
    role: ArmRole
    of: str | None = None
    what: str | None = None
    debug: DebugImages | None = None
    weights: NDArray[np.float64] | None = None
    groups: NDArray[np.int64] | None = None
    offered: int = 0

    @property
    def asked_for(self) -> bool:
        """Whether a person named it and its head may be saved: a bound knows what nobody knows."""
        return self.role in ("mended", "upweighted", "rival")

    @property
    def swept(self) -> bool:
        """Whether it has a λ."""
        return self.role in ("mended", "control", "upweighted")


def image_arms(opened: Sequence[WithControls], seed: int) -> list[Arm]:
    """Each set of images with its controls after it, all of equal numbers a class. UserError where that leaves none."""
    arms: list[Arm] = []
    for one in opened:
        every = {one.images.name: one.images} | dict(one.controls)
        rows = equal_numbers({name: images.labels for name, images in every.items()}, seed)
        if not len(rows[one.images.name]):
            lacking = " and ".join(one.controls)
            raise UserError(
                f"{one.images.name}: of no class are there images of it and of its controls ({lacking})",
                "Build more images of the controls: without them nothing says what a gain is worth.",
            )
        for name, images in every.items():
            own = name == one.images.name
            arms.append(
                Arm(
                    name=name if own else f"{images.group} beside {one.images.name}",
                    role="mended" if own else "control",
                    of=None if own else one.images.name,
                    what=None if own else name,
                    debug=images.only(rows[name]),
                    offered=len(images),
                )
            )
    return arms


def all_contexts(arms: Sequence[Arm]) -> tuple[Context, ...]:
    """What the images of all mended arms show, a class and caption once."""
    found: dict[tuple[int, str], Context] = {}
    for arm in arms:
        if arm.role == "mended" and arm.debug is not None:
            for context in arm.debug.contexts:
                found.setdefault((context.label, context.caption), context)
    return tuple(found.values())


def balanced_arm(given: Given, context_of: NDArray[np.int64], groups: Mapping[str, NDArray[np.int64]]) -> Arm:
    """Groups by CLIP, which anybody has, or by what is true, which is a bound. groups: by source, (audited rows,)."""
    if given.source == BY_CLIP:
        if not (context_of >= 0).any():
            raise UserError(
                f"--with {given.name}: CLIP finds none of the contexts in the audited images, so there are no groups",
                "Name a dataset of contexts too: --with built:contexts dfr:clip",
            )
        return Arm(given.name, "rival", groups=context_of + 1)
    return Arm(given.name, "bound", groups=groups[given.source])


CONTROL_WORDS = {
    RETRAINED: "the head retrained on training images alone",
    CLASS_NAME: "as many images of class names",
    RANDOM: "as many images of random contexts",
}
