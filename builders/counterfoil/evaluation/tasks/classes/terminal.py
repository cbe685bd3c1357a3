"""Print results of classifiers of one class an image: drops or accuracies, measures, and
sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from counterfoil.report.headline import headline_of
from counterfoil.report.reference import VALIDATION, VALIDATION_GAP, everyone, model_sentences
from counterfoil.report.results import DROP_BASE, NESTED, ModelFacts, Results, section_order
from counterfoil.report.words import (
    MOST_TERMINAL_ROWS,
    NOTHING,
    Table,
    TableCell,
    TableColumn,
    TableRow,
    format_count,
    format_interval,
    format_list,
    format_percent,
    format_points,
    measure_tables,
    text_cell,
)
from counterfoil.stats import Estimate

MOST_MODELS = 12  # wider tables wrap; the report shows every model


def terminal_lines(results: Results) -> Iterator[str | Table]:
    """Yield the tables and sentences, of `MOST_MODELS` models at most."""
    shown = results.models[:MOST_MODELS]
    if results.base is None:
        yield (
            f"{results.dataset}: accuracy over all images (95 % confidence interval), and"
            " averaged over classes"
        )
        yield accuracies_table(results, shown)
    else:
        yield drops_table(results, shown)
    for measure, table in measure_tables(results, "terminal"):
        captioned = replace(table, caption=f"{measure.title}: {measure.reading}")
        yield captioned.first(MOST_TERMINAL_ROWS, "rows", "measures.csv")
    for group in results.groups if results.base is None else ():
        if few := [cls.name for cls in group.left_out]:
            classes = group.classes + len(few)
            yield (
                f"{group.name}: no image of {len(few):,} of"
                f" {format_count(classes, 'class', 'classes')}: {format_list(few)}"
            )
    if len(results.models) > len(shown):
        yield f"and {len(results.models) - len(shown)} more models, listed in the report"
    yield from filter(None, (headline_of(results), *model_sentences(results)))
    for name in section_order():
        if name not in NESTED:
            continue
        where = NESTED[name].file or "measures.csv"
        for line in NESTED[name].terminal(results, MOST_MODELS):
            if isinstance(line, Table):
                yield line.first(MOST_TERMINAL_ROWS, "rows", where)
            else:
                yield line


def accuracies_table(results: Results, shown: Sequence[ModelFacts]) -> Table:
    rows = []
    for group in results.groups:
        cells = []
        for model in shown:
            key = {"model": model.name, "group": group.name}
            top1 = _number(results.rows.estimate("top1", **key), " %")
            average = format_percent(results.rows.value("accuracy", **key))
            cells.append(_with(top1, f"class average {average}"))
        rows.append((group.name, *cells))
    return Table.of("", [TableColumn("group", "shift"), *map(_heading, shown)], rows)


def drops_table(results: Results, shown: Sequence[ModelFacts]) -> Table:
    """Return the base and the gap to it, then the drops in points."""
    number = results.rows
    # Of one model, the average over models would say its drop again.
    several = len(results.models) > 1
    sloped = any(row.value is not None for row in number.where("slope"))
    averages = ["relative drop"]
    if several:
        averages.insert(0, everyone(results))
    if sloped:
        averages.append("slope")
    columns = [TableColumn("shift", "shift"), *map(_heading, shown), *averages]
    empty = [text_cell("")] * len(averages)
    beside = {"base": [_number(results.base_number(model.name), " %") for model in shown]}
    if number.where(VALIDATION_GAP):
        validation = []
        gaps = []
        for model in shown:
            validation.append(_number(number.estimate(VALIDATION, model=model.name), " %"))
            gaps.append(_number(number.estimate(VALIDATION_GAP, model=model.name)))
        beside = {"validation": validation, **beside, "validation → base": gaps}
    rows = []
    for name, cells in beside.items():
        rows.append(TableRow((text_cell(name), *cells, *empty), "base"))
    for shift in results.shifts:
        cells = [text_cell(shift.name)]
        for model in shown:
            key = {"model": model.name, "group": shift.name}
            drop = _number(number.estimate("drop", **key))
            base = number.one(DROP_BASE, **key)
            if base and base.note:
                drop = _with(drop, f"of {format_percent(base.value)}", base.note)
            cells.append(drop)
        if several:
            cells.append(_number(number.estimate("impact", group=shift.name)))
        cells.append(TableCell(format_percent(results.averaged("relative_drop", group=shift.name))))
        if sloped:
            slope = number.value("slope", group=shift.name)
            cells.append(TableCell(NOTHING if slope is None else f"{slope:.2f}"))
        rows.append(TableRow(tuple(cells)))
    caption = f"{results.dataset}: accuracy drop from the base (95 % confidence interval)"
    return Table.of(caption, columns, rows)


def _heading(model: ModelFacts) -> TableColumn:
    return TableColumn(model.short_name, note=model.note)


def _number(estimate: Estimate | None, unit: str = " points") -> TableCell:
    if estimate is None:
        return TableCell(NOTHING)
    return TableCell(f"{format_points(estimate.value)}{unit}", format_interval(estimate))


def _with(cell: TableCell, *lines: str) -> TableCell:
    """Return a cell with more lines of small print."""
    return replace(cell, below="\n".join(filter(None, (cell.below, *lines))))
