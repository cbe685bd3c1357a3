"""The card's section "What fails": models and shifts of stored results, as bounded tables with their intervals."""

from __future__ import annotations

from dataclasses import dataclass, replace

from counterfoil.report.reference import (
    NEAR_CHANCE,
    VALIDATION,
    VALIDATION_GAP,
    near_chance_sentences,
    reference_warnings,
)
from counterfoil.report.results import GroupFacts, ModelFacts, ResultRow, Results
from counterfoil.report.tables import Table, TableCell, TableColumn, TableRow, table_of, text_cell
from counterfoil.report.words import NOTHING, between, number, percent, points
from counterfoil.stats import Estimate

# What a person reads; all of it is in evaluation/robustness.csv.
MOST_MODELS = 20
MOST_COLUMNS = 6
MOST_SHIFTS = 40


@dataclass(frozen=True, slots=True)
class Robustness:
    """What the section shows. warnings: sentences on a base that is not like the validation images; floor: on what is
    near chance there."""

    models: Table
    shifts: Table
    warnings: tuple[str, ...]
    floor: tuple[str, ...]


def robustness_of(results: Results) -> Robustness:
    """The section: the best models and the largest drops first; what was not measured comes last."""

    def by_base(model: ModelFacts) -> tuple[bool, float, str]:
        base = results.base_number(model.name)
        return (base is None, 0.0 if base is None else -base.value, model.name)

    models = sorted(results.models, key=by_base)
    columns = [
        TableColumn("model", "name"),
        *map(TableColumn, ("validation", "gap to base", "accuracy on base", "mean drop")),
        TableColumn("weights (sha256)", "name"),
    ]
    rows = [_model_row(results, model) for model in models]
    shown = models[:MOST_COLUMNS]
    heads = [TableColumn(model.name, note=NEAR_CHANCE if model.near_chance else "", named=True) for model in shown]
    by_shift = table_of(
        "Drops in accuracy from the base",
        [TableColumn("shift", "name"), *map(TableColumn, ("all models", "relative drop", "slope", "classes")), *heads],
        [_shift_row(results, shift, shown) for shift in results.by_impact],
    ).first(MOST_SHIFTS, "shifts", "robustness.csv")
    if len(models) > MOST_COLUMNS:
        more = f"{len(models) - MOST_COLUMNS:,} more models, in robustness.csv"
        by_shift = replace(by_shift, more=f"{by_shift.more}; and {more}" if by_shift.more else f"and {more}")
    return Robustness(
        table_of("Models", columns, rows).first(MOST_MODELS, "models", "results.csv"),
        by_shift,
        reference_warnings(results, short=False),
        near_chance_sentences(results, short=False),
    )


def _model_row(results: Results, model: ModelFacts) -> TableRow:
    validation, gap = (results.rows.estimate(name, model=model.name) for name in (VALIDATION, VALIDATION_GAP))
    drop = results.rows.value("average_drop", model=model.name)
    return TableRow(
        (
            TableCell(model.name, NEAR_CHANCE if model.near_chance else "", model.name),
            TableCell(percent(validation.value if validation else None)),
            _cell(gap, " points"),
            _cell(results.base_number(model.name), " %"),
            TableCell(NOTHING if drop is None else f"{points(drop)} points"),
            TableCell(model.sha256[:12]),
        )
    )


def _shift_row(results: Results, shift: GroupFacts, models: list[ModelFacts]) -> TableRow:
    slope, left_out = results.rows.one("slope", group=shift.name), len(shift.left_out)
    classes = f"{shift.classes:,}" + (f" of {shift.classes + left_out:,}" if left_out else "")
    drops = []
    for model in models:
        key = {"model": model.name, "group": shift.name}
        drop, base = results.rows.estimate("drop", **key), results.rows.value("base_accuracy", **key)
        # A drop in points, beside the base accuracy that it is from.
        drops.append(_cell(drop if base is not None else None, f" points of {percent(base)}"))
    return TableRow(
        (
            text_cell(shift.name),
            _cell(results.rows.estimate("impact", group=shift.name), " points"),
            TableCell(percent(results.averaged("relative_drop", group=shift.name))),
            _slope_cell(slope),
            TableCell(classes),
            *drops,
        )
    )


def _cell(estimate: Estimate | None, unit: str) -> TableCell:
    return TableCell(NOTHING) if estimate is None else TableCell(f"{points(estimate.value)}{unit}", between(estimate))


def _slope_cell(line: ResultRow | None) -> TableCell:
    if line is None or line.value is None:
        return TableCell(NOTHING)
    ends = "" if line.low is None else f"{number(line.low)} to {number(line.high)}"
    return TableCell(number(line.value), ends)
