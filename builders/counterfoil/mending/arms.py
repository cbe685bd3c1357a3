"""The arms of a run: each what is asked for by `--with`, and beside it the controls that nobody has to ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.mending.debug_images import CLASS_NAME, RANDOM, Context, DebugImages, WithControls
from counterfoil.mending.given import BALANCED, BY_CLIP, IMAGES, Given
from counterfoil.mending.sampling import equal_numbers

ArmRole = Literal["retrained", "mended", "control", "upweighted", "rival", "bound"]
RETRAINED = "lambda 0"
# Those whose head may be left: a bound knows what nobody knows.
SAVED_ROLES = ("mended", "upweighted", "rival")


@dataclass(frozen=True)
class Arm:
    """One way to a new head. `of` is the arm whose control it is, `what` the control's kind; both None for others.

    debug: its images. weights: (train rows,), by λ more than 1. groups: (audited rows,), -1 for a row without one.
    offered: how many images there were before all arms of a comparison got equal numbers. lacking: by control, labels
    of images here of which it has none, so that none of these is learned from. mined: what weights came from.
    """

    name: str
    role: ArmRole
    of: str | None = None
    what: str | None = None
    debug: DebugImages | None = None
    weights: NDArray[np.float64] | None = None
    groups: NDArray[np.int64] | None = None
    offered: int = 0
    lacking: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    mined: tuple[Mapping[str, Any], ...] = ()

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
                    lacking=_lacking(one) if own else {},
                )
            )
    return arms


def _lacking(one: WithControls) -> dict[str, tuple[int, ...]]:
    own = np.unique(one.images.labels)
    missing = {what: tuple(own[~np.isin(own, images.labels)].tolist()) for what, images in one.controls.items()}
    return {what: labels for what, labels in missing.items() if labels}


def all_contexts(arms: Sequence[Arm]) -> tuple[Context, ...]:
    """What the images of all mended arms show, a class and caption once."""
    found: dict[tuple[int, str], Context] = {}
    for arm in arms:
        if arm.role == "mended" and arm.debug is not None:
            for context in arm.debug.contexts:
                found.setdefault((context.label, context.caption), context)
    return tuple(found.values())


def role_of(given: Given) -> ArmRole:
    """What becomes of what a person names."""
    if given.kind == BALANCED:
        return "rival" if given.source == BY_CLIP else "bound"
    return "mended" if given.kind == IMAGES else "upweighted"


def balanced_arm(given: Given, context_of: NDArray[np.int64], groups: Mapping[str, NDArray[np.int64]]) -> Arm:
    """Groups by CLIP, which anybody has, or by what is true, which is a bound. groups: by source, (audited rows,)."""
    if given.source == BY_CLIP:
        if not (context_of >= 0).any():
            raise UserError(
                f"--with {given.name}: CLIP finds none of the contexts in the audited images, so there are no groups",
                "Name a dataset of contexts too: --with built:contexts dfr:clip",
            )
        return Arm(given.name, role_of(given), groups=context_of + 1)
    return Arm(given.name, role_of(given), groups=groups[given.source])


CONTROL_WORDS = {
    RETRAINED: "the head retrained on training images alone",
    CLASS_NAME: "as many images of class names",
    RANDOM: "as many images of random contexts",
}
