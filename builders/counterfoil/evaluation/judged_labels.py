"""Whether the labels of a built dataset are true, by what its rows record of the second judge (`screen.judge`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from counterfoil.errors import RunFailure
from counterfoil.keep.misclassified import RIGHT, judge_column
from counterfoil.label_checks import checks_of_dataset
from counterfoil.recipe import Recipe
from counterfoil.recipe.names import without_folders
from counterfoil.report.labels import LabelChecks
from counterfoil.store import Receipt
from counterfoil.store.layout import LOCK
from counterfoil.store.reading import shard_batches
from counterfoil.store.rows import TableForm


def read_judged_labels(
    directory: Path, recipe: Recipe, receipts: Sequence[Receipt], inputs: Mapping[str, Any]
) -> LabelChecks:
    """The checks of every shift by the accepted rows; nothing is read where the recipe names no second judge.

    `inputs` are those of the lock. RunFailure for a table that is damaged, and for a lock that does not pin the judge
    as a build does: both may have come from anybody. Rows must have been compared with the recipe before.
    """
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    if recipe.screen.judge is not None:
        right, form = judge_column(recipe.screen.judge, RIGHT), TableForm.of(recipe)
        for receipt in receipts:
            for batch in shard_batches(directory, receipt, ["shift", "label", right], "data", form):
                for shift, label, said in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    if said is not None:
                        cell = (shift, recipe.classes[label].id)
                        images, disagreed = counts.get(cell, (0, 0))
                        counts[cell] = (images + 1, disagreed + (not said))
    try:
        return checks_of_dataset(recipe, inputs, counts)
    except ValueError as error:
        raise RunFailure(
            f"{directory / LOCK} is not one that a build wrote: {error}",
            "`counterfoil verify` names what is damaged, and how it is repaired.",
        ) from error


def with_scored_judge(
    checks: LabelChecks | None, inputs: Mapping[str, Any], models: Sequence[tuple[str, str | None]]
) -> LabelChecks | None:
    """The checks with those of the models (name, sha256 of the weights) that are the second judge itself.

    `inputs` are those of the lock. Weights tell; the name does where they are not known of both.
    """
    if checks is None or checks.judge is None:
        return checks
    pins = inputs.get("judges")
    pin = pins.get(checks.judge) if isinstance(pins, Mapping) else None
    pinned = pin.get("sha256") if isinstance(pin, Mapping) else None
    same = tuple(
        name
        for name, sha256 in models
        if (sha256 == pinned if sha256 and pinned else without_folders(name) == checks.judge)
    )
    return replace(checks, also_scored=same)
