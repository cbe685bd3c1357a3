"""How much of a shift is too much: facts, tables and words of shifts that have levels.

Numbers are rows of the shift (`group`), at a level (`at`; "0" is the base) or of the whole curve (no `at`):

- `severity_accuracy`, `severity_drop`: averaged over the classes with enough images at every level; of classes too.
- `severity_ten_points`: the level where the drop, made to rise, first reaches ten points.
- `severity_failed`: of the `n` trajectories that are right at the base, the share whose first failure has come by a
  level; `severity_median`: the level by which half have failed; `severity_recovered`: the share that is right again.
- Both with an ending: `_lasting` (wrong from there on), `_if_lost_fail` and `_if_lost_hold` (bounds: every level that
  the screen rejected counts as wrong, or as right), `_complete` (only trajectories with every level, as CNS-Bench
  counts; so have the drop and its level).
- Between two models (`against`): `severity_difference`, accuracy less accuracy, intervals that hold for all pairs and
  levels at once; `severity_rank`, and which ranks these intervals leave open; `severity_failure_difference`, the mean
  level of failure (up to the top) less the other's, on trajectories that both get right at the base.

A level that is not reached has no value, and its row a note.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil.documents import Count, Strict

if TYPE_CHECKING:
    pass

ACCURACY, DROP, TEN_POINTS = "severity_accuracy", "severity_drop", "severity_ten_points"
FAILED, MEDIAN, RECOVERED = "severity_failed", "severity_median", "severity_recovered"
DIFFERENCE, RANK, FAILURE_DIFFERENCE = "severity_difference", "severity_rank", "severity_failure_difference"
LASTING, IF_LOST_FAIL, IF_LOST_HOLD, COMPLETE = "_lasting", "_if_lost_fail", "_if_lost_hold", "_complete"
NOT_REACHED, END_NOT_REACHED = "not reached", "upper end not reached"
SWAPS = "swaps within trajectories, Holm over pairs"


@dataclass(frozen=True, slots=True)
class SeverityLevel(Strict):
    """A level, its group of images, and how many trajectories with a base image have none here."""

    level: float
    group: str
    accepted: Count
    lost: Count


@dataclass(frozen=True, slots=True)
class Severity(Strict):
    """A shift with levels, mildest first.

    realised: whether levels are shares of the gain that the screening CLIP measures, rather than raw scales. classes:
    how many the curve averages over; left_out: the names of those that have too few images at a level. trajectories:
    those with a base image, and `complete` ones among them. recognised: how many models are not near chance.
    """

    shift: str
    realised: bool
    levels: tuple[SeverityLevel, ...]
    classes: Count
    left_out: tuple[str, ...]
    trajectories: Count
    complete: Count

    @property
    def axis(self) -> str:
        """What the levels measure."""
        return "CLIP-realised level" if self.realised else "level"

    @property
    def ats(self) -> tuple[str, ...]:
        """The base and the levels as rows have them."""
        return ("0", *(at(one.level) for one in self.levels))


def at(level: float) -> str:
    """A level as rows have it."""
    return f"{level:g}"
