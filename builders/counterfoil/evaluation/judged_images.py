"""Which images of a dataset are there because a classifier, a judge of its keep rules, was wrong about them.

A row of `data` tells every judge's answer, as it was recorded when the dataset was built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterfoil.keep.failure_names import TOP1
from counterfoil.keep.misclassified import FAILED, RIGHT, MisclassifiedRule, judge_column
from counterfoil.recipe import Recipe
from counterfoil.recipe.names import without_folders
from counterfoil.store import Receipt
from counterfoil.store.reading import shard_batches
from counterfoil.store.rows import TableForm


@dataclass(frozen=True)
class JudgedShift:
    """A shift that keeps what judges get wrong: its place among the groups, and how many of them must be wrong.

    failure: the rule that says what is wrong; decides: what of a judge's record says so.
    """

    place: int
    judges: tuple[str, ...]
    at_least: int
    failure: str = TOP1
    decides: str = RIGHT


@dataclass(frozen=True)
class JudgedImages:
    """The shifts that keep what judges get wrong, and by judge (n,) bool: kept, and recorded as wrong about it.

    Judges go by their names without folders; the n images are those of the dataset, in its order.
    """

    shifts: tuple[JudgedShift, ...] = ()
    wrong: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)


def judged_shifts(recipe: Recipe) -> tuple[JudgedShift, ...]:
    """The shifts of a recipe whose keep rules keep what classifiers get wrong."""
    return tuple(
        JudgedShift(place, tuple(map(without_folders, rule.judges())), rule.at_least, rule.failure, rule.decides)
        for place, shift in enumerate(recipe.all_shifts())
        for rule in shift.keep
        if isinstance(rule, MisclassifiedRule)
    )


def read_judged(
    directory: Path, recipe: Recipe, receipts: Sequence[Receipt], keys: Sequence[str], shifts: NDArray[np.int64]
) -> JudgedImages:
    """What `data` records of the judges; nothing is read where no rule asks any.

    keys, shifts (n,): of the dataset's images, read from the same files. RunFailure for a table that is damaged.
    """
    judged = judged_shifts(recipe)
    if not judged:
        return JudgedImages()
    every = recipe.all_shifts()
    groups = {every[one.place].group for one in judged}
    # By judge and by what of its record says whether it is wrong, the shifts that ask so.
    places: dict[tuple[str, str], list[int]] = {}
    for one in judged:
        for judge in one.judges:
            places.setdefault((judge, one.decides), []).append(one.place)
    row_of = {key: row for row, key in enumerate(keys)}
    wrong = {judge: np.zeros(len(keys), dtype=bool) for judge, _ in places}
    form = TableForm.of(recipe)
    columns = list(dict.fromkeys(judge_column(*each) for each in places))
    for receipt in receipts:
        if receipt.group not in groups:
            continue
        for batch in shard_batches(directory, receipt, ["key", *columns], "data", form):
            rows = np.array([row_of[key] for key in batch.column("key").to_pylist()], dtype=np.int64)
            for (judge, what), own in places.items():
                # A judge that was not asked about an image, or gave no answer, is not wrong.
                said = batch.column(judge_column(judge, what)).to_pylist()
                found = np.array([one is (what == FAILED) for one in said], dtype=bool)
                wrong[judge][rows] |= found & np.isin(shifts[rows], own)
    return JudgedImages(judged, wrong)
