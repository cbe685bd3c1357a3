"""A measure that no table of its own tells, as one: a row a group and a column a model, for terminal, page and card."""

from __future__ import annotations

from typing import Literal

from counterfoil.report.results import MeasureFacts, Results
from counterfoil.report.table import Cell, Column, Row, Table, text_cell
from counterfoil.report.words import NOTHING, between, number, percent, points
from counterfoil.stats import Estimate


def measure_tables(results: Results, place: Literal["terminal", "report", "card"]) -> list[tuple[MeasureFacts, Table]]:
    """The measures that are shown there and have numbers of models and groups, or of either, each with its table."""
    found = []
    names = {model.name: model.short_name for model in results.models}
    for measure in results.measures:
        own = [one for one in results.rows.where(measure.name, class_id="", against="", at="") if one.value is not None]
        if place not in measure.shown or not own:
            continue
        models = list(dict.fromkeys(one.model for one in own))
        cells = {(one.model, one.group): _cell(measure, one.estimate) for one in own}
        rows = [
            Row((text_cell(group or "all"), *(cells.get((model, group), Cell(NOTHING)) for model in models)))
            for group in dict.fromkeys(one.group for one in own)
        ]
        columns = [Column(names.get(model, model) or "all models", named=True) for model in models]
        found.append((measure, Table(measure.title, (Column("group", "shift"), *columns), tuple(rows))))
    return found


def _cell(measure: MeasureFacts, estimate: Estimate | None) -> Cell:
    """The number in the measure's unit, its interval below."""
    if estimate is None:
        return Cell(NOTHING)
    if measure.unit == "plain":
        ends = [number(end) for end in (estimate.low, estimate.high) if end is not None]
        return Cell(number(estimate.value), " to ".join(ends), estimate.value)
    told = f"{points(estimate.value)} points" if measure.unit == "points" else percent(estimate.value)
    return Cell(told, between(estimate), estimate.value)
