"""The card's section on detectors: AP on the base, its mean over shifts, and what each shift costs."""

from __future__ import annotations

from dataclasses import dataclass

from counterfoil.report.reference import NEAR_CHANCE
from counterfoil.report.results import ModelFacts, Results
from counterfoil.report.words import NOTHING, Table, TableCell, TableColumn, TableRow, between, points, text_cell
from counterfoil.stats import Estimate

_LARGEST = 2
_MOST_MODELS, _MOST_SHIFTS = 6, 40


@dataclass(frozen=True, slots=True)
class Detected:
    """What the section shows: a row a detector, a row a shift, and sentences on detectors that find nothing."""

    summary: Table
    shifts: Table
    near_chance: tuple[str, ...]


def detected_of(results: Results) -> Detected:
    """Make the section: the best detectors and the largest drops first."""
    models = results.best_first
    heads = ("AP on base", "mean AP (mPC)", "largest drop", "second largest drop")
    rows = [_model_row(results, model) for model in models]
    summary = Table("Detectors", (TableColumn("detector", "name"), *map(TableColumn, heads)), tuple(rows))
    shown = models[:_MOST_MODELS]
    shifts = []
    for shift in results.shifts:
        drops = [results.rows.estimate("drop", model=model.name, group=shift.name, at="AP") for model in shown]
        shifts.append(TableRow((text_cell(shift.name), *(_cell(drop, " points") for drop in drops))))
    shifts.sort(key=lambda row: -float(row.cells[1].sort or 0.0))
    columns = (TableColumn("shift", "name"), *(TableColumn(model.name, named=True) for model in shown))
    by_shift = Table("Drops of AP from the base", columns, tuple(shifts)).first(_MOST_SHIFTS, "shifts", "detection.csv")
    near_chance = tuple(
        f"{model.name} finds next to nothing on the base, so its drops mean little."
        for model in models
        if model.near_chance
    )
    return Detected(summary.first(_MOST_MODELS, "detectors", "detection.csv"), by_shift, near_chance)


def _model_row(results: Results, model: ModelFacts) -> TableRow:
    drops = [row for row in results.rows.where("drop", model=model.name, at="AP") if row.value is not None]
    largest = sorted(drops, key=lambda row: (-(row.value or 0.0), row.group))[:_LARGEST]
    cells = [TableCell(f"{row.group}: {points(row.value)}", between(row.estimate)) for row in largest]
    cells += [TableCell(NOTHING)] * (_LARGEST - len(cells))
    name = TableCell(model.name, NEAR_CHANCE if model.near_chance else "", model.name)
    mean = results.rows.estimate("mPC", model=model.name, at="AP")
    return TableRow((name, _cell(results.base_number(model.name), " %"), _cell(mean, " %"), *cells))


def _cell(estimate: Estimate | None, unit: str) -> TableCell:
    if estimate is None:
        return TableCell(NOTHING)
    return TableCell(f"{points(estimate.value)}{unit}", between(estimate), estimate.value)
