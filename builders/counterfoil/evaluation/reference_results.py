"""What scoring the source's validation images returns: every model's accuracy there, on the base, and the gap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from counterfoil.evaluation.statistics import Estimate


@dataclass(frozen=True)
class ReferenceGap:
    """One model: class-averaged accuracy on validation images and on the base, over the same classes.

    gap: validation - base. large: whether it is over 10 points either way, or its interval excludes 0.
    """

    model: str
    validation: Estimate
    base: Estimate
    gap: Estimate
    large: bool


@dataclass(frozen=True)
class ReferenceResult:
    """The source's validation split, as DATASET:SPLIT, and what models say of it.

    images, classes: those that the gaps are over, the classes being those that the base measures. skipped: why nothing
    was scored. left_out: model → why it has no gap. unseen: accuracy on the validation images of the classes that are
    near chance on the base, averaged over classes and models; None where there are no such classes. unseen_known:
    whether it is not near chance, so that the models know these classes, and the base does not show them.
    """

    split: str
    images: int
    classes: int
    skipped: str | None
    gaps: tuple[ReferenceGap, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    unseen: float | None = None
    unseen_known: bool = False

    def of(self, model: str) -> ReferenceGap | None:
        """The gap of a model; None where it has none."""
        return next((one for one in self.gaps if one.model == model), None)
