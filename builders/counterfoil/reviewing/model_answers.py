"""What models answered about the candidates of each shift: histograms beside CLIP's, and pictures
from the lowest answer to the highest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.recipe.keep.rule import AskingRule

if TYPE_CHECKING:
    from counterfoil.recipe.keep.rule import Column
    from counterfoil.reviewing.screen_scores import ShiftScores

BARS = 20
# Pictures of one shift by one answer, evenly spread over its candidates.
MOST_AN_ANSWER = 8
# CLIP may give equal scores, and a histogram needs a width.
_LEAST_WIDTH = 1e-4


@dataclass(frozen=True, slots=True)
class Histogram:
    """The candidates of a shift by one score."""

    title: str
    low: float
    high: float
    bars: Sequence[tuple[int, int]]
    """The number of candidates in each bin of equal width that pass, and that do not."""
    limit: float | None
    """The lowest score that passes."""

    @property
    def candidates(self) -> int:
        return sum(map(sum, self.bars))

    @property
    def passing(self) -> int:
        return sum(passing for passing, _ in self.bars)


def histogram(
    title: str,
    scores: np.ndarray,
    passes: np.ndarray,
    ends: tuple[float, float],
    limit: float | None = None,
) -> Histogram:
    """Count scores, (n,), in bins from one end to the other. passes: (n,)."""
    low, high = ends
    passing, _ = np.histogram(scores[passes], BARS, ends)
    failing, _ = np.histogram(scores[~passes], BARS, ends)
    bars = list(zip(passing.tolist(), failing.tolist(), strict=True))
    return Histogram(title, low, high, bars, limit)


def spread_ranks(
    values: np.ndarray,
    has_image: np.ndarray,
    most: int,
) -> list[int]:
    """Return the indices of at most `most` images, evenly spread over ascending values, (n,). NaN
    is no answer."""
    available = np.flatnonzero(has_image & ~np.isnan(values))
    order = available[np.argsort(values[available], kind="stable")]
    count = min(order.size, most)
    spread = np.linspace(0, order.size - 1, count)
    return order[spread.round().astype(int)].tolist()


@dataclass(frozen=True, slots=True)
class AnsweredShift:
    """The histograms of a shift, CLIP's first, and its pictures by each answer."""

    name: str
    histograms: list[Histogram]
    strips: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """The title of each answer, with its pictures: the index on the page, and the answer."""


def answered_shifts(
    scores: Sequence[ShiftScores],
    places: Sequence[Mapping[int, int]],
) -> list[AnsweredShift]:
    """Return the shifts of whose images models answered something.

    places: for each shift, the index on the page of the pictures by their rank.
    """
    shifts = []
    for score, place_of in zip(scores, places, strict=False):
        columns: dict[str, Column] = {}
        limits: dict[str, float | None] = {}
        for rule in score.shift.keep:
            if isinstance(rule, AskingRule):
                columns |= rule.columns()
                limits |= rule.limits()
        objects = score.object_scores
        passes = objects >= score.object_thresholds
        low = float(objects.min(initial=1))
        high = float(objects.max(initial=-1))
        ends = (low, max(high, low + _LEAST_WIDTH))
        of_clip = histogram("Object score of CLIP", objects, passes, ends)
        answered = AnsweredShift(score.shift.name, [of_clip])
        for name, limit in limits.items():
            values = score.answers[name]
            is_answered = ~np.isnan(values)
            if not is_answered.any():
                continue
            title = columns[name].description.removesuffix(".")
            least = np.float32(0 if limit is None else limit)
            known = values[is_answered]
            of_answer = histogram(title, known, known >= least, (0.0, 1.0), limit)
            answered.histograms.append(of_answer)
            on_page = np.zeros(values.size, bool)
            on_page[list(place_of)] = True
            ranks = spread_ranks(values, on_page, MOST_AN_ANSWER)
            answered.strips[title] = [(place_of[rank], float(values[rank])) for rank in ranks]
        if answered.strips:
            shifts.append(answered)
    return shifts
