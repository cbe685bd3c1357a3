"""The terminal's table of an evaluation: the base and the gap to it, then every drop in points beside its base."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from counterfoil.evaluation.results import Evaluation, ModelResult, Score
from counterfoil.evaluation.spoken_floor import NEAR_CHANCE, everyone
from counterfoil.evaluation.spoken_numbers import between, percent, points
from counterfoil.stats import Estimate


def accuracies_table(evaluation: Evaluation, shown: Sequence[ModelResult]) -> Table:
    """Plain accuracies: a row a group, a column a model."""
    table = _table()
    table.add_column("group", no_wrap=True)
    for model in shown:
        table.add_column(escape(model.short_name), justify="right", overflow="fold")
    for shift in evaluation.shifts:
        accuracies = [evaluation.score(model.name, shift.name).accuracy for model in shown]
        table.add_row(escape(shift.name), *map(percent, accuracies))
    return table


def drops_table(evaluation: Evaluation, shown: Sequence[ModelResult]) -> Table:
    """The base and the gap to it; then a row a shift: each model's drop beside its base accuracy, and all models'."""
    table = _table(title=f"{escape(evaluation.name)}: drop in accuracy (95 % interval), of the accuracy on the base")
    table.add_column("shift", no_wrap=True)
    for model in shown:
        name = escape(model.short_name) + (f"\n[dim]{NEAR_CHANCE}[/dim]" if model.near_chance else "")
        table.add_column(name, justify="right", overflow="fold")
    whose = everyone(evaluation) if len(evaluation.models) > 1 else "impact"
    for name in (whose, "relative drop", "slope"):
        table.add_column(name, justify="right")
    reference = evaluation.reference
    gaps = [reference.of(model.name) for model in shown] if reference is not None and reference.gaps else []
    if gaps:
        table.add_row("validation", *(_accuracy(one.validation if one else None) for one in gaps), style="dim")
    table.add_row("base", *(_accuracy(model.base) for model in shown), style="dim")
    if gaps:
        table.add_row("validation → base", *(points_cell(one.gap if one else None) for one in gaps), style="dim")
    for shift in evaluation.shifts:
        scores = [evaluation.score(model.name, shift.name) for model in shown]
        slope = f"{shift.slope.slope:.2f}" if shift.slope else "–"
        relative = [evaluation.score(model.name, shift.name).relative_drop for model in evaluation.sound_models]
        values = [one.value for one in relative if one is not None]
        lost = percent(sum(values) / len(values)) if values else "–"
        table.add_row(escape(shift.name), *map(_drop_of, scores), points_cell(shift.impact), lost, slope)
    return table


def _table(title: str | None = None) -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=title, title_justify="left", caption_justify="left")


def _drop_of(score: Score) -> str:
    """A drop, its interval, and the base accuracy over the same classes."""
    told = points_cell(score.drop)
    return told if score.base_accuracy is None else f"{told}\n[dim]of {percent(score.base_accuracy)}[/dim]"


def _accuracy(estimate: Estimate | None) -> str:
    """An accuracy in percent, with its interval below."""
    if estimate is None:
        return "–"
    interval = between(estimate)
    return percent(estimate.value) + (f"\n[dim]{interval}[/dim]" if interval else "")


def points_cell(estimate: Estimate | None) -> str:
    """A difference of accuracies in points, with its interval below."""
    if estimate is None:
        return "–"
    interval = between(estimate)
    return f"{points(estimate.value)} points" + (f"\n[dim]{interval}[/dim]" if interval else "")
