"""The card's section of whether labels are true: what the second judge says of the accepted images, shift by shift."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.errors import RunFailure
from counterfoil.label_checks import CheckedShare, JudgedLabels, checks_of_dataset, worst_classes
from counterfoil.store.layout import LOCK
from counterfoil.store.rows import unique_names

if TYPE_CHECKING:
    from counterfoil.card.tally import Tally
    from counterfoil.recipe import Recipe

WORST = 3


@dataclass(frozen=True, slots=True)
class LabelRow:
    """A shift, as text: what the judge disagrees with, what that says of its labels, and the classes in most doubt."""

    name: str
    images: int
    disagreement: str
    label_error: str
    worst: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LabelsShown:
    """What the section shows: rows of the first of `all_shifts`. judge: None where none was asked, `validated_on` None
    where its own errors are not known. picked: whether a keep rule chose images by this judge's own failures."""

    judge: str | None
    validated_on: int | None
    rows: tuple[LabelRow, ...]
    all_shifts: int
    picked: bool


def labels_of(recipe: Recipe, inputs: Mapping[str, Any], tally: Tally, most_rows: int) -> LabelsShown:
    """The section. `inputs` are those of lock.json. RunFailure where these do not pin the judge as a build does."""
    try:
        checks = checks_of_dataset(recipe, inputs, tally.judged)
    except ValueError as error:
        raise RunFailure(f"{LOCK} is not one that a build wrote: {error}", "Restore it from a copy.") from error
    names = unique_names([(cls.id, cls.name) for cls in recipe.classes])
    spoken = {cls.id: names[cls.label] for cls in recipe.classes}
    rows = []
    for shift in checks.shifts[:most_rows] if checks.judge is not None else ():
        worst = tuple(f"{spoken[name]} {_doubt(one)}" for name, one in worst_classes(shift, WORST))
        one = shift.judge
        if one is None:
            rows.append(LabelRow(shift.shift, 0, "–", "unchecked", worst))
            continue
        error = "plain disagreement" if one.label_error is None else _percent(one.label_error)
        rows.append(LabelRow(shift.shift, one.images, _percent(one.disagreement), error, worst))
    picked = any(recipe.screen.judge in rule.judges() for shift in recipe.all_shifts() for rule in shift.keep)
    return LabelsShown(checks.judge, checks.validated_on, tuple(rows), len(checks.shifts), picked)


def _percent(share: CheckedShare) -> str:
    return f"{100 * share.value:.1f} ({100 * share.low:.1f} to {100 * share.high:.1f})"


def _doubt(one: JudgedLabels) -> str:
    """A class's estimate, or how often it is disagreed with."""
    if one.label_error is None:
        return f"{one.disagreed} of {one.images} disagreed with"
    return f"{_percent(one.label_error)}, of {one.images}"
