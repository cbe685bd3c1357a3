"""The card's section of whether labels are true: what the second judge says of the accepted images, shift by shift."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from counterfoil.errors import RunFailure
from counterfoil.label_checks import checks_of_dataset
from counterfoil.report.labels import JudgedLabels, LabelChecks, labels_table, share_words, worst_classes
from counterfoil.report.tables import Table, TableCell, TableColumn
from counterfoil.report.words import NOTHING
from counterfoil.store.layout import LOCK
from counterfoil.store.rows import unique_names

if TYPE_CHECKING:
    from counterfoil.card.tally import Tally
    from counterfoil.recipe import Recipe

_WORST = 3


@dataclass(frozen=True, slots=True)
class LabelsShown:
    """What the section shows. picked: whether a keep rule chose images by this judge's own failures."""

    checks: LabelChecks
    table: Table
    picked: bool


def labels_of(recipe: Recipe, inputs: Mapping[str, Any], tally: Tally, most_rows: int) -> LabelsShown:
    """The section. `inputs` are those of lock.json. RunFailure where these do not pin the judge as a build does."""
    try:
        checks = checks_of_dataset(recipe, inputs, tally.judged)
    except ValueError as error:
        raise RunFailure(f"{LOCK} is not one that a build wrote: {error}", "Restore it from a copy.") from error
    names = unique_names([(cls.id, cls.name) for cls in recipe.classes])
    spoken = {cls.id: names[cls.label] for cls in recipe.classes}
    table = labels_table(checks, [shift.shift for shift in checks.shifts], people=False)
    worst = [
        "; ".join(f"{spoken[name]} {_doubt(one)}" for name, one in worst_classes(shift, _WORST))
        for shift in checks.shifts
    ]
    table = replace(
        table,
        columns=(*table.columns, TableColumn("classes in most doubt", "text")),
        rows=tuple(
            replace(row, cells=(*row.cells, TableCell(text or NOTHING)))
            for row, text in zip(table.rows, worst, strict=True)
        ),
    )
    picked = any(recipe.screen.judge in rule.judges() for shift in recipe.all_shifts() for rule in shift.keep)
    return LabelsShown(checks, table.first(most_rows, "shifts", "the columns of the rows"), picked)


def _doubt(one: JudgedLabels) -> str:
    """A class's estimate, or how often it is disagreed with."""
    if one.label_error is None:
        return f"{one.disagreed} of {one.images} disagreed with"
    return f"{share_words(one.label_error)}, of {one.images}"
