"""What comparing a mended model with its original gives: plain values, from which table, words and report are made."""

from __future__ import annotations

from dataclasses import dataclass

from counterfoil.stats import CONFIDENCE, Estimate

# What is said to gain or to lose does so at this level, over all groups together.
LEVEL = round(1 - CONFIDENCE, 10)


@dataclass(frozen=True)
class GroupComparison:
    """Two models in one group, the base or another, over its classes with enough images.

    mended_accuracy, original_accuracy: averaged over the classes that are not near chance on the base, as everywhere;
    None where all are. gain: the difference over all these classes, also of those. only_mended, only_original: images
    that only one of the two is right about. p: McNemar's exact test of these, and adjusted for all groups.
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
        """Whether it is right more often here, beyond chance: by the test and by the interval over units alike."""
        low = None if self.gain is None else self.gain.low
        return self._differs() and self.only_mended > self.only_original and low is not None and low > 0

    @property
    def loses(self) -> bool:
        """Whether it is right less often here, beyond chance: by the test and by the interval over units alike."""
        high = None if self.gain is None else self.gain.high
        return self._differs() and self.only_mended < self.only_original and high is not None and high < 0

    def _differs(self) -> bool:
        # The test counts images as if no two shared a unit; the interval of the gain is what holds where they do.
        return self.p_adjusted is not None and self.p_adjusted <= LEVEL


@dataclass(frozen=True)
class ModelComparison:
    """The model `mended` against `original`, group after group, the base first.

    average: the gain averaged over groups, each counting once. gained, lost: the sums of the gains above and below 0,
    both as positive fractions. note: what must be said of the two, None for nothing. near_chance: which of the two are
    near chance on the base; classes_near_chance: the names of the classes that are.
    """

    mended: str
    original: str
    groups: tuple[GroupComparison, ...]
    average: Estimate | None
    gained: float
    lost: float
    note: str | None = None
    near_chance: tuple[str, ...] = ()
    classes_near_chance: tuple[str, ...] = ()

    @property
    def loses_more(self) -> bool:
        """Whether it surely loses more than it gains: the interval of the average over groups is below 0."""
        return self.average is not None and self.average.high is not None and self.average.high < 0

    @property
    def gains_more(self) -> bool:
        """Whether it surely gains more than it loses: that interval is above 0."""
        return self.average is not None and self.average.low is not None and self.average.low > 0
