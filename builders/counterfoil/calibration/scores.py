"""The shift scores of a built dataset's candidates, shift by shift, as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.errors import RunFailure
from counterfoil.keep import ACCEPTED, keeps_image
from counterfoil.screen import percentile_of
from counterfoil.store.reading import read_shard

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe, Shift
    from counterfoil.store import Receipt

_VERIFY = "`counterfoil verify` names what is damaged, and how it is repaired."
_COLUMNS = ("shift", "label", "index", "object_score", "shift_score", "object_threshold", "reason")


@dataclass(frozen=True, slots=True)
class ShiftScores:
    """All scored candidates of a shift, by ascending shift score; arrays of one length n.

    `object_passes` and `has_image` are bool, `shards` the position of the receipt that a candidate is under.
    `failed` candidates have no score and are in no array.
    """

    shift: Shift
    scores: np.ndarray
    object_passes: np.ndarray
    has_image: np.ndarray
    labels: np.ndarray
    indices: np.ndarray
    shards: np.ndarray
    failed: int

    @property
    def candidates(self) -> int:
        return int(self.scores.size) + self.failed

    @property
    def is_open(self) -> bool:
        return self.shift.threshold is not None and self.shift.threshold.percentile is not None

    @property
    def threshold(self) -> float | None:
        """The recipe's value, or its percentile over all candidates; None for a percentile of none.

        The shortest number whose float32, in which scores are compared, is the threshold's.
        """
        spec = self.shift.threshold
        if spec is None or spec.percentile is None:
            return None if spec is None else spec.value
        return self.at_percentile(spec.percentile)

    def at_percentile(self, percentile: float) -> float | None:
        return shortest(percentile_of(self.scores, percentile)) if self.scores.size else None

    def accepted_at(self, threshold: float) -> int:
        """Candidates that a threshold accepts: object and shift pass."""
        return int((self.object_passes & (self.scores >= np.float32(threshold))).sum())


def shortest(value: float) -> float:
    """The number with the fewest digits that is the same in float32: 0.163 and not 0.16300000250339508."""
    return float(str(np.float32(value)))


def shift_scores_of(
    directory: Path, recipe: Recipe, receipts: Sequence[Receipt], names: Sequence[str] | None = None
) -> tuple[ShiftScores, ...]:
    """The scores of every screened shift, or of those that are named, in the recipe's order; reads no image."""
    wanted = {s.name for s in recipe.all_shifts() if s.caption is not None and (names is None or s.name in names)}
    rows: dict[str, list[tuple[float, bool, bool, int, int, int]]] = {name: [] for name in wanted}
    failed = dict.fromkeys(wanted, 0)
    for at, receipt in enumerate(receipts):
        if wanted.isdisjoint(receipt.counts):
            continue
        for row in read_shard(directory, receipt, _COLUMNS, "candidates"):
            if row["shift"] not in wanted:
                continue
            if row["shift_score"] is None or row["object_score"] is None:
                failed[row["shift"]] += 1
                continue
            if not 0 <= row["label"] < len(recipe.classes) or row["index"] < 0:
                raise RunFailure(
                    f"{directory / receipt.path}: a candidate has a label that the recipe does not", _VERIFY
                )
            passes = row["object_threshold"] is None or row["object_score"] >= row["object_threshold"]
            kept = row["reason"] == ACCEPTED or keeps_image(row["reason"], recipe.screen.keep_rejected)
            rows[row["shift"]].append((row["shift_score"], passes, kept, row["label"], row["index"], at))
    return tuple(_sorted(shift, rows[shift.name], failed[shift.name]) for shift in _in_order(recipe, wanted))


def _in_order(recipe: Recipe, wanted: set[str]) -> Iterator[Shift]:
    return (shift for shift in recipe.all_shifts() if shift.name in wanted)


def _sorted(shift: Shift, rows: list[tuple[float, bool, bool, int, int, int]], failed: int) -> ShiftScores:
    rows.sort(key=lambda row: (row[0], row[3], row[4]))
    columns = list(zip(*rows, strict=True)) or [()] * 6
    types = (np.float32, bool, bool, np.int64, np.int64, np.int64)
    return ShiftScores(shift, *(np.array(c, t) for c, t in zip(columns, types, strict=True)), failed=failed)
