"""Whether the labels of a built dataset are true, by what its rows record of the second judge (`screen.judge`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from counterfoil.errors import RunFailure
from counterfoil.keep.misclassified import RIGHT, judge_column
from counterfoil.label_checks import CheckedShare, LabelChecks, checks_of_dataset
from counterfoil.recipe import Recipe
from counterfoil.recipe.layering import without_folders
from counterfoil.store import Receipt
from counterfoil.store.layout import LOCK
from counterfoil.store.reading import shard_batches
from counterfoil.store.rows import TableForm

ALSO_SCORED = "this judge is also one of the models here: its own drop is part of this estimate"
_ASSUMED = (
    "it takes for granted that the judge errs here as on validation images: too high where it errs more under a shift,"
    " too low where it learned the source's shortcuts"
)


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


def spoken_labels(checks: LabelChecks) -> str:
    """What the second judge and people say of all labels, a line each: the base, and the shift in most doubt."""
    if checks.own and not checks.raters and checks.judge is None:
        return "labels: the input dataset's own; nobody has checked that changed images show them (counterfoil review)"
    lines = [line for line in (_spoken_judge(checks), _spoken_people(checks)) if line is not None]
    return "\n".join(lines) or "labels: unchecked by a second judge (screen.judge), and by people (counterfoil review)"


def _spoken_judge(checks: LabelChecks) -> str | None:
    if checks.judge is None:
        return None
    judged = {one.shift: one.judge for one in checks.shifts if one.judge is not None and not one.picked}
    errors = {shift: one.label_error for shift, one in judged.items() if one.label_error is not None}
    plain = {shift: one.disagreement for shift, one in judged.items()}
    if not plain:
        picked = any(one.picked for one in checks.shifts)
        but = ", but to those that a rule picked by its own failures" if picked else ""
        return f"labels: the second judge {checks.judge} answered to no accepted image{but}"
    what, found = ("estimated label error", errors) if errors else ("plain disagreement with labels", plain)
    base, shift = next(iter(found)), max(found, key=lambda name: found[name].value)
    parts = [f"{_percent(found[name])} under {name}" for name in dict.fromkeys([base, shift])]
    on = f" by {checks.validated_on:,} validation images" if errors else ", whose own errors are not known"
    told = f"labels: {what} {', at most '.join(parts)} (second judge {checks.judge}{on})"
    without = len(checks.shifts) - len(found)
    if without:
        none = "estimate" if errors else "answer that checks labels"
        told += f"; {without:,} of {len(checks.shifts):,} {'has' if without == 1 else 'have'} no {none}"
    told = f"{told}; {_ASSUMED}" if errors else told
    return f"{told}; {ALSO_SCORED}" if checks.also_scored else told


def _spoken_people(checks: LabelChecks) -> str | None:
    found = {one.shift: one.people.class_selected for one in checks.shifts if one.people is not None}
    known = {shift: share for shift, share in found.items() if share is not None}
    who = f"{checks.raters:,} {'person' if checks.raters == 1 else 'people'}"
    if not known:
        return f"labels: {who} looked at shifts alone, and not at classes" if found else None
    base, shift = next(iter(known)), min(known, key=lambda name: known[name].value)
    parts = [f"{_percent(known[name])} under {name}" for name in dict.fromkeys([base, shift])]
    return f"labels: images selected as their class {', at least '.join(parts)} ({who})"


def _percent(share: CheckedShare) -> str:
    return f"{100 * share.value:.1f} % ({100 * share.low:.1f} to {100 * share.high:.1f})"
