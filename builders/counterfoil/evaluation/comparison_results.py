"""What comparing a mended model with its original gives: plain values, from which table, words and report are made."""

from __future__ import annotations

from dataclasses import dataclass

from counterfoil.evaluation.statistics import CONFIDENCE, Estimate

# What is said to gain or to lose does so at this level, over all groups together.
LEVEL = round(1 - CONFIDENCE, 10)


@dataclass(frozen=True)
class GroupComparison:
    """Two models in one group, the base or another, over its classes with enough images.

    mended_accuracy, original_accuracy: averaged over classes; gain: their difference. only_mended, only_original:
    images that only one of the two is right about. p: McNemar's exact test of these, and adjusted for all groups.
    drop_gain: how much smaller the mended model's drop from the base is, over the classes that a drop is measured on;
    None for the base, and where there is none.
    """

    name: str
    kind: str | None
    is_base: bool
    classes: int
    images: int
    mended_accuracy: float | None
    original_accuracy: float | None
    gain: Estimate | None
    only_mended: int
    only_original: int
    p: float | None
    p_adjusted: float | None
    drop_gain: Estimate | None

    @property
    def gains(self) -> bool:
        """Whether it is right more often here, beyond chance."""
        return self._differs() and self.only_mended > self.only_original

    @property
    def loses(self) -> bool:
        """Whether it is right less often here, beyond chance."""
        return self._differs() and self.only_mended < self.only_original

    def _differs(self) -> bool:
        return self.p_adjusted is not None and self.p_adjusted <= LEVEL


@dataclass(frozen=True)
class ModelComparison:
    """The model `mended` against `original`, group after group, the base first.

    average: the gain averaged over groups, each counting once. gained, lost: the sums of the gains above and below 0,
    both as positive fractions. note: what must be said of the two, None for nothing.
    """

    mended: str
    original: str
    groups: tuple[GroupComparison, ...]
    average: Estimate | None
    gained: float
    lost: float
    note: str | None = None

    @property
    def loses_more(self) -> bool:
        """Whether what is lost in some groups is more than what is gained in the others."""
        return self.lost > self.gained
