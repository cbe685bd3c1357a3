"""The report's table of drops by class and shift: which rows it shows, and what each cell says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from counterfoil.evaluation.results import ClassScore, Evaluation

MOST_ROWS = 40
# Every cell carries every model's drop for the page's choice of model, which more models would bloat.
MOST_MODELS_TO_CHOOSE = 40


@dataclass(frozen=True)
class ClassRow:
    """A class: its name made unique, its drop averaged over shifts and models, and a score a shown shift.

    `average` is over the shifts that measure the class, None where none does; `cells` hold None where the
    shift does not ask for the class. `drops` are the averages over shifts for each model.
    """

    class_id: str
    name: str
    average: float | None
    drops: tuple[float, ...]
    cells: tuple[ClassScore | None, ...]


def class_rows(evaluation: Evaluation, shifts: Sequence[str]) -> tuple[list[ClassRow], int]:
    """The classes that drop most, worst first and `MOST_ROWS` at most, over `shifts`; and how many there are."""
    by_class: dict[str, dict[str, ClassScore]] = {}
    for score in evaluation.class_scores:
        by_class.setdefault(score.class_id, {})[score.shift] = score
    rows = [_row(evaluation, class_id, found, shifts) for class_id, found in by_class.items()]
    # Classes that no shift measures come last, the others by their drop, equals in the recipe's order.
    rows.sort(key=lambda row: (row.average is None, -(row.average or 0.0)))
    repeated = {name for name, count in Counter(row.name for row in rows).items() if count > 1}
    named = [
        ClassRow(row.class_id, f"{row.name} ({row.class_id})", row.average, row.drops, row.cells)
        if row.name in repeated
        else row
        for row in rows[:MOST_ROWS]
    ]
    return named, len(rows)


def _row(evaluation: Evaluation, class_id: str, found: dict[str, ClassScore], shifts: Sequence[str]) -> ClassRow:
    name = next(iter(found.values())).name
    measured = [one for one in found.values() if one.impact is not None]
    models = len(measured[0].drops) if measured else 0
    drops = tuple(sum(one.drops[place] for one in measured) / len(measured) for place in range(models))
    average = evaluation.averaged(drops) if models else None
    return ClassRow(class_id, name, average, drops, tuple(found.get(shift) for shift in shifts))
