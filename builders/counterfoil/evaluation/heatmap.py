"""The report's table of drops by class and shift: which rows it shows, and what each cell says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from counterfoil.report.reference import averaged
from counterfoil.report.results import ClassNumbers, Results, classes_of
from counterfoil.report.words import between, percent, points, spoken

MOST_ROWS = 40
# Every cell carries every model's drop for the page's choice of model, which more models would bloat.
MOST_MODELS_TO_CHOOSE = 40


@dataclass(frozen=True)
class ClassCell:
    """A class under a shift: its drop averaged over the sound models, None where it has too few images; in words."""

    numbers: ClassNumbers
    drop: float | None
    words: str


@dataclass(frozen=True)
class ClassRow:
    """A class: its name made unique, its drop averaged over shifts and models, and a cell a shown shift.

    `average` is over the shifts that measure the class, None where none does; `cells` hold None where the
    shift does not ask for the class. `drops` are the averages over shifts for each model, `base` each model's accuracy
    on its base images, with their average. `floor` has a letter a model, 1 where that accuracy is near its chance.
    """

    class_id: str
    name: str
    average: float | None
    drops: tuple[float, ...]
    base: tuple[float, ...]
    average_base: float | None
    floor: str
    near_chance: bool
    cells: tuple[ClassCell | None, ...]


def class_rows(results: Results, shifts: Sequence[str]) -> tuple[list[ClassRow], int]:
    """The classes that drop most, worst first and `MOST_ROWS` at most, over `shifts`; and how many there are."""
    by_class: dict[str, dict[str, ClassNumbers]] = {}
    for shift in results.shifts if results.base is not None else ():
        for one in classes_of(results, shift.name):
            by_class.setdefault(one.class_id, {})[one.shift] = one
    rows = [_row(results, class_id, found, shifts) for class_id, found in by_class.items()]
    # Classes that no shift measures come last, the others by their drop, equals in the recipe's order.
    rows.sort(key=lambda row: (row.average is None, -(row.average or 0.0)))
    repeated = {name for name, count in Counter(row.name for row in rows).items() if count > 1}
    named = [
        replace(row, name=f"{row.name} ({row.class_id})") if row.name in repeated else row for row in rows[:MOST_ROWS]
    ]
    return named, len(rows)


def _row(results: Results, class_id: str, found: dict[str, ClassNumbers], shifts: Sequence[str]) -> ClassRow:
    first = next(iter(found.values()))
    measured = [one for one in found.values() if one.impact is not None]
    models = len(measured[0].drops) if measured else 0
    drops = tuple(sum(one.drops[place] for one in measured) / len(measured) for place in range(models))
    told = next((one for one in found.values() if one.accuracy), first)
    return ClassRow(
        class_id=class_id,
        name=first.name,
        average=results.mean_of_sound(drops) if models else None,
        drops=drops,
        base=told.base_accuracy,
        average_base=results.mean_of_sound(told.base_accuracy) if told.base_accuracy else None,
        floor="".join("1" if near else "0" for near in told.near_chance),
        near_chance=told.class_near_chance,
        cells=tuple(_cell(results, found[shift]) if shift in found else None for shift in shifts),
    )


def _cell(results: Results, one: ClassNumbers) -> ClassCell:
    counts = f"{one.shift_images} shifted and {one.base_images} base images"
    where = f"{one.name}, {spoken(one.shift)}"
    if not one.accuracy:
        return ClassCell(one, None, f"{where}: too few images, {counts}")
    base, shifted, drop = (results.mean_of_sound(side) for side in (one.base_accuracy, one.accuracy, one.drops))
    if drop is None:
        return ClassCell(one, None, f"{where}: every model is near chance; {counts}")
    interval = f" ({between(one.impact)})" if one.impact else ""
    words = averaged(results)
    near = ", near chance on the base" if one.class_near_chance else ""
    return ClassCell(
        one,
        drop,
        f"{where}: base {percent(base)}, shifted {percent(shifted)}, drop {points(drop)} points{interval}"
        f"{f', {words}' if words else ''}{near}; {counts}",
    )
