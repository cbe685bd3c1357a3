"""A measure as a table of text, a row a group and a column a model: the same for terminal, page and card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from counterfoil.report.results import MeasureFacts, Results
from counterfoil.report.words import NOTHING, between, number, percent, points, spoken
from counterfoil.stats import Estimate


@dataclass(frozen=True)
class MeasureTable:
    """What a measure says of itself, its columns, and rows of as many cells; a cell has a number and its interval."""

    measure: MeasureFacts
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]


def measure_tables(results: Results, place: Literal["terminal", "report", "card"]) -> list[MeasureTable]:
    """The tables of the measures that are shown there and have numbers of models and groups, or of either."""
    found = []
    for measure in results.measures:
        own = [one for one in results.rows.where(measure.name, class_id="", against="", at="") if one.value is not None]
        if place not in measure.shown or not own:
            continue
        short = {model.name: model.short_name for model in results.models}
        models = list(dict.fromkeys(one.model for one in own))
        groups = list(dict.fromkeys(one.group for one in own))
        cells = {(one.model, one.group): _cell(measure, one.estimate) for one in own}
        rows = [
            (spoken(group) or "all", tuple(cells.get((model, group), (NOTHING, "")) for model in models))
            for group in groups
        ]
        columns = tuple(short.get(model, model) or "all models" for model in models)
        found.append(MeasureTable(measure, columns, tuple(rows)))
    return found


def _cell(measure: MeasureFacts, estimate: Estimate | None) -> tuple[str, str]:
    """The number in the measure's unit, and its interval."""
    if estimate is None:
        return NOTHING, ""
    if measure.unit == "plain":
        ends = (
            ""
            if estimate.low is None or estimate.high is None
            else f"{number(estimate.low)} to {number(estimate.high)}"
        )
        return number(estimate.value), ends
    told = f"{points(estimate.value)} points" if measure.unit == "points" else percent(estimate.value)
    return told, between(estimate)
