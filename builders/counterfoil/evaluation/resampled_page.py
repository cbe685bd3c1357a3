"""Sentences and tables on models whose images are resampled: what each shift costs, and which model
loses more."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from counterfoil.evaluation.figures import lines_of_models, severity_figure
from counterfoil.report.results import (
    DIFFERENCE,
    DROP,
    DROP_BASE,
    GroupFacts,
    ModelFacts,
    ResultRow,
    ResultRows,
    Results,
)
from counterfoil.report.sections import ReportSection
from counterfoil.report.severity import severity_words, ten_points_table
from counterfoil.report.words import (
    NOTHING,
    Table,
    TableCell,
    TableColumn,
    TableRow,
    csv_interval,
    format_list,
    format_percent,
    format_points,
    in_words,
    interval_sign,
    loss_in_words,
    points_cell,
    text_cell,
)
from counterfoil.stats import Estimate

_MOST_DIFFERENCES = 60


def csv_cells(
    results: Results,
) -> Iterator[tuple[GroupFacts, dict[str, str], dict[str, Any]]]:
    """Yield for each model and group: the group, the key of the numbers, and the first columns of a
    CSV row."""
    for model in results.models:
        for group in results.groups:
            key = {"model": model.name, "group": group.name}
            yield group, key, {"model": model.name, "shift": group.name}


def csv_numbers(
    results: Results,
    measures: Iterable[str],
    key: Mapping[str, str],
) -> dict[str, str]:
    """Return the columns of measures and of their drops, with intervals."""
    columns: dict[str, str] = {}
    for name in measures:
        columns |= csv_interval(name, results.rows.estimate(name, **key))
        drop = results.rows.estimate(DROP, at=name, **key)
        columns |= csv_interval(f"drop_{name}", drop)
    return columns


def severity_section(results: Results, curve: str) -> Iterator[ReportSection]:
    """Yield the part of the page on shifts with levels, if there are any. curve: what rows of the
    lead measure at a level are called."""
    if not results.severity:
        return
    sound = results.best_sound
    figure = severity_figure(results, sound, curve, results.lead)
    yield ReportSection(
        title="How much is too much",
        short="Severity",
        sentences=severity_words(results),
        figures=[figure] if figure else [],
        legend=lines_of_models(sound),
        tables=[ten_points_table(results, results.models)],
        note=f"The drop of {results.lead} is made to rise with the level and is linear between"
        " levels. The interval is where the ends of the drop’s intervals reach ten points. Level 0"
        " is the base, 1 the whole shift.",
    )


def loss_beside(results: Results, model: ModelFacts, measure: str) -> str:
    """Return how much of another measure a model loses under its worst shift, and under the worst
    for that measure."""
    drops = sorted_drops(results, model, measure)
    if not drops:
        return ""
    most_group, most = drops[0]
    where_most = in_words(most_group.name)
    worst_group, worst_drop = sorted_drops(results, model, results.lead)[0]
    titles = {facts.name: facts.title for facts in results.measures}
    title = titles[measure]
    if most.value <= 0:
        return f", and no {title} under any shift"
    if worst_drop.value <= 0:
        return f", but {loss_in_words(most, title)} under {where_most}"
    text = ""
    for group, drop in drops:
        if group.name == worst_group.name:
            text = f" and {loss_in_words(drop, title)}"
    if most_group.name != worst_group.name:
        text += f"; it loses most {title} under {where_most}: {format_points(most.value)} points"
    return text


def sorted_drops(
    results: Results,
    model: ModelFacts,
    measure: str,
) -> list[tuple[GroupFacts, Estimate]]:
    """Return each shift with its drop of a measure, the largest first."""
    drops = []
    for group in results.shifts:
        drop = results.rows.estimate(
            DROP,
            at=measure,
            model=model.name,
            group=group.name,
        )
        if drop is not None:
            drops.append((group, drop))
    return sorted(drops, key=lambda entry: -entry[1].value)


def worst_drop(results: Results, measure: str, key: Mapping[str, str]) -> ResultRow | None:
    """Return the largest drop of a measure under any shift; None without a drop."""
    drops = results.rows.where(DROP, at=measure, **key)
    return max(drops, key=lambda drop: drop.value or 0.0, default=None)


def worst_cells(results: Results, worst: ResultRow | None) -> tuple[TableCell, TableCell]:
    """Return the cells of the shift of the largest drop, and of this drop; without one, say why."""
    if worst is None:
        why = NOTHING
        if results.shifts:
            why = "near chance on the base"
        return text_cell(why), points_cell(None)
    shift = in_words(worst.group)
    return text_cell(shift), points_cell(worst.estimate)


def largest_drop_first(
    rows: list[TableRow],
    columns: Sequence[TableColumn | str],
    title: str,
) -> None:
    """Sort the rows of a table by its column of drops."""
    column = columns.index(title)

    def lost(row: TableRow) -> float:
        drop = row.cells[column].sort
        return -math.inf if drop == "" else float(drop)

    rows.sort(key=lost, reverse=True)


def caption_of_model(results: Results, model: ModelFacts, caption: str) -> str:
    """Return a table's caption, with the model's name if there are several."""
    return f"{model.short_name}: {caption}" if len(results.models) > 1 else caption


def group_section(
    results: Results,
    measures: Sequence[str],
    drops: Sequence[str],
    **parts: Any,
) -> ReportSection:
    """Return a section with `group_table` of each model."""
    tables = [group_table(results, model, measures, drops) for model in results.models]
    return ReportSection(tables=tables, **parts)


def group_table(
    results: Results,
    model: ModelFacts,
    measures: Sequence[str],
    drops: Sequence[str],
) -> Table:
    """Return one row for each group: the measures in percent, and the drops of the measures in
    `drops` in points."""
    titles = {measure.name: measure.title for measure in results.measures}
    rows = []
    for group in results.groups:
        key = {"model": model.name, "group": group.name}
        cells: list[TableCell | str] = [group.name]
        for name in measures:
            number = results.rows.estimate(name, **key)
            cells.append(points_cell(number))
        for name in drops:
            cells.append(_drop_cell(results.rows, at=name, **key))
        rows.append(cells)
    columns: list[TableColumn | str] = [TableColumn("group", "shift")]
    columns += [f"{titles[name]} (%)" for name in measures]
    columns += [f"drop of {titles[name]} (points)" for name in drops]
    return Table.of(f"{model.short_name}: 95 % intervals below", columns, rows)


def _drop_cell(rows: ResultRows, **key: str) -> TableCell:
    """Return a drop with its interval and, if it is over some of the classes, how many and from
    which number."""
    drop = rows.one(DROP, **key)
    base = rows.value(DROP_BASE, **key)
    cell = points_cell(None if drop is None else drop.estimate)
    if drop is None or not drop.note or base is None:
        return cell
    return with_notes(cell, f"of {format_percent(base)}", drop.note)


def with_notes(cell: TableCell, *notes: str, between: str = ", ") -> TableCell:
    """Return a cell with notes after what it says below."""
    below = filter(None, (cell.below, *notes))
    return replace(cell, below=between.join(below))


def compared_sentences(results: Results) -> list[str]:
    """Return a sentence for each pair of models: under which shifts one clearly loses more of the
    lead measure."""
    sentences = []
    lead = results.lead
    for first, second in combinations(results.models, 2):
        rows = results.rows.where(DIFFERENCE, model=first.name, against=second.name)
        a = first.short_name
        b = second.short_name
        more = []
        less = []
        for row in rows:
            sign = interval_sign(row)
            if sign:
                loses_more = less
                if sign > 0:
                    loses_more = more
                loses_more.append(in_words(row.group))
        for shifts, loser, other in ((more, a, b), (less, b, a)):
            if shifts:
                loss = f"{loser} clearly loses more {lead} than {other}"
                sentences.append(f"{loss} under {format_list(shifts)}.")
        if rows and not more and not less:
            sentences.append(f"Under no shift does {a} or {b} clearly lose more {lead}.")
    return sentences


def compared_section(results: Results, noun: str, over: str) -> Iterator[ReportSection]:
    """Yield the part of the page on pairs of models, if there are any: both drops, and their
    difference.

    over: a sentence on what is compared.
    """
    short = results.short_names
    rows = []
    for difference in results.rows.where(DIFFERENCE):
        key = {"group": difference.group, "at": results.lead}
        loses_more = points_cell(difference.estimate, signed=True)
        cells = (
            text_cell(short[difference.model]),
            text_cell(short[difference.against]),
            text_cell(difference.group),
            _drop_cell(results.rows, model=difference.model, **key),
            _drop_cell(results.rows, model=difference.against, **key),
            with_notes(loses_more, difference.note),
        )
        rows.append(TableRow(cells))
    if not rows:
        return

    def size(row: TableRow) -> float:
        difference = row.cells[-1].sort
        return abs(float(difference or 0.0))

    rows.sort(key=size, reverse=True)
    columns = (
        TableColumn(noun, "name"),
        TableColumn("against", "name"),
        TableColumn("group", "shift"),
        f"drop of {results.lead} (points)",
        "drop of the other (points)",
        "loses more by (points)",
    )
    table = Table.of(f"Drops of {results.lead} compared", columns, rows)
    yield ReportSection(
        title=f"{noun.capitalize()}s compared",
        sentences=compared_sentences(results),
        tables=[table.first(_MOST_DIFFERENCES, "rows", "measures.csv")],
        note=f"Images are resampled for both {noun}s together. Intervals of differences hold for"
        f" all pairs and shifts at once. {over}",
    )
