"""Which contexts a class's failures are in, as CLIP tells: each image is in the context whose caption is most like it.

Chegini and Feizi 2023, section 4.2: failures of the debug seed are classified zero-shot among the class's contexts, and
the k most frequent ones are chosen. A context that is as frequent among right answers is no reason to fail, so both
shares are counted here, and contexts can be ranked by their ratio.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Rank = Literal["count", "lift"]


@dataclass(frozen=True, slots=True)
class ContextCount:
    """A context of a class among the rows of one half: `place` among the class's contexts, and what is in it.

    failures of `of_failures`, and right ones of `of_right`, were assigned to it.
    """

    place: int
    failures: int
    of_failures: int
    right: int
    of_right: int

    @property
    def share_of_failures(self) -> float | None:
        """None where the class has no failure."""
        return self.failures / self.of_failures if self.of_failures else None

    @property
    def share_of_right(self) -> float | None:
        """None where the class has no right answer."""
        return self.right / self.of_right if self.of_right else None

    @property
    def lift(self) -> float | None:
        """How many times as frequent it is among failures as among right answers; None where it is in none of these."""
        there, elsewhere = self.share_of_failures, self.share_of_right
        return there / elsewhere if there is not None and elsewhere else None

    def steadied_lift(self, contexts: int) -> float:
        """`lift` with an image more of both kinds in each of so many contexts: one failure alone is no proof."""
        there = (self.failures + 1) / (self.of_failures + contexts)
        elsewhere = (self.right + 1) / (self.of_right + contexts)
        return there / elsewhere


def nearest_context(features: NDArray[np.floating], captions: NDArray[np.floating]) -> NDArray[np.int64]:
    """(n,) the caption of the largest cosine, of equal ones the first.

    features: (n, width), captions: (m, width), unit vectors, at least one caption.
    """
    cosines = np.asarray(features, dtype=np.float32) @ np.asarray(captions, dtype=np.float32).T
    return cosines.argmax(axis=1).astype(np.int64)


def count_contexts(assigned: NDArray[np.int64], failed: NDArray[np.bool_], contexts: int) -> list[ContextCount]:
    """Of each of so many contexts. assigned: (n,) from `nearest_context`; failed: (n,)."""
    wrong = np.bincount(assigned[failed], minlength=contexts)
    right = np.bincount(assigned[~failed], minlength=contexts)
    of_failures, of_right = int(failed.sum()), int((~failed).sum())
    return [
        ContextCount(place, int(wrong[place]), of_failures, int(right[place]), of_right) for place in range(contexts)
    ]


def choose_contexts(counts: Sequence[ContextCount], k: int, rank: Rank, fewest_failures: int) -> list[int]:
    """Places of the at most `k` contexts that are chosen, first the one with most failures (`count`), or with the
    largest steadied lift (`lift`); of equal ones the first place. A context with fewer failures is none.
    """
    able = [one for one in counts if one.failures >= max(fewest_failures, 1)]
    if rank == "count":
        able.sort(key=lambda one: (-one.failures, -one.steadied_lift(len(counts)), one.place))
    else:
        able.sort(key=lambda one: (-one.steadied_lift(len(counts)), -one.failures, one.place))
    return [one.place for one in able[:k]]


def images_a_context(failures: int, a_failure: int, at_most: int) -> int:
    """How many images of a context are drawn: so many a failure (Chegini 2023: about 5), up to `at_most`."""
    return min(failures * a_failure, at_most)
