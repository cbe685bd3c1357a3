"""The terminal's table of an evaluation: the base and the gap to it, then the drops in points."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from counterfoil.report.reference import NEAR_CHANCE, VALIDATION, VALIDATION_GAP, everyone
from counterfoil.report.results import DROP_BASE, ModelFacts, Results
from counterfoil.report.words import NOTHING, between, percent, points
from counterfoil.stats import Estimate


def accuracies_table(results: Results, shown: Sequence[ModelFacts]) -> Table:
    table = _table()
    table.add_column("group", no_wrap=True)
    for model in shown:
        table.add_column(_heading(model), justify="right", overflow="fold")
    for group in results.groups:
        cells = []
        for model in shown:
            key = {"model": model.name, "group": group.name}
            average = percent(results.rows.value("accuracy", **key))
            cells.append(f"{_accuracy(results.rows.estimate('top1', **key))}\n[dim]class average {average}[/dim]")
        table.add_row(escape(group.name), *cells)
    return table


def drops_table(results: Results, shown: Sequence[ModelFacts]) -> Table:
    number = results.rows
    table = _table(title=f"{escape(results.dataset)}: accuracy drop from the base (95 % confidence interval)")
    table.add_column("shift", no_wrap=True)
    for model in shown:
        table.add_column(_heading(model), justify="right", overflow="fold")
    # Of one model, the average over models would say its drop again.
    several, sloped = len(results.models) > 1, any(row.value is not None for row in number.where("slope"))
    heads = [*([everyone(results)] if several else []), "relative drop", *(["slope"] if sloped else [])]
    for name in heads:
        table.add_column(name, justify="right")
    gaps = bool(number.where(VALIDATION_GAP))
    if gaps:
        estimates = (number.estimate(VALIDATION, model=model.name) for model in shown)
        table.add_row("validation", *map(_accuracy, estimates), style="dim")
    table.add_row("base", *(_accuracy(results.base_number(model.name)) for model in shown), style="dim")
    if gaps:
        estimates = (number.estimate(VALIDATION_GAP, model=model.name) for model in shown)
        table.add_row("validation → base", *map(points_cell, estimates), style="dim")
    for shift in results.shifts:
        slope = number.value("slope", group=shift.name)
        drops = []
        for model in shown:
            drop = points_cell(number.estimate("drop", model=model.name, group=shift.name))
            base = number.one(DROP_BASE, model=model.name, group=shift.name)
            over = f"\n[dim]of {percent(base.value)}\n{base.note}[/dim]" if base and base.note else ""
            drops.append(drop + over)
        averages = [percent(results.averaged("relative_drop", group=shift.name))]
        if several:
            averages.insert(0, points_cell(number.estimate("impact", group=shift.name)))
        if sloped:
            averages.append(NOTHING if slope is None else f"{slope:.2f}")
        table.add_row(escape(shift.name), *drops, *averages)
    return table


def _heading(model: ModelFacts) -> str:
    return escape(model.short_name) + (f"\n[dim]{NEAR_CHANCE}[/dim]" if model.near_chance else "")


def _table(title: str | None = None) -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=title, title_justify="left", caption_justify="left")


def _accuracy(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    interval = between(estimate)
    return percent(estimate.value) + (f"\n[dim]{interval}[/dim]" if interval else "")


def points_cell(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    interval = between(estimate)
    return f"{points(estimate.value)} points" + (f"\n[dim]{interval}[/dim]" if interval else "")
