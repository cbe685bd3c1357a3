"""The output for people of classifiers of one class an image: the page, with tables, figures and
pictures, the lines of the terminal, and entries for the Hub."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from counterfoil.accuracy_stats import FEWEST_MODELS_FOR_A_SLOPE
from counterfoil.evaluation import figures
from counterfoil.evaluation.entries import NEAR_CHANCE, drop_words, interval_words
from counterfoil.evaluation.failures import group_names_in_words
from counterfoil.evaluation.page import HOTTEST, ReportPage, drop_bars
from counterfoil.evaluation.resampled_page import with_notes
from counterfoil.evaluation.tasks.classes.failures import ClassExamples
from counterfoil.evaluation.tasks.classes.measures import MEASURES, NESTED_MEASURES
from counterfoil.report.headline import headline_of
from counterfoil.report.labels import checked_shifts
from counterfoil.report.reference import (
    OVER_CLASSES,
    VALIDATION,
    VALIDATION_GAP,
    answer_warnings,
    averaged,
    everyone,
    model_sentences,
)
from counterfoil.report.results import (
    DROP_BASE,
    NESTED,
    ClassNumbers,
    GroupFacts,
    ModelFacts,
    Results,
    classes_of,
    section_order,
)
from counterfoil.report.sections import ReportSection
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
    over_classes,
    text_cell,
)
from counterfoil.stats import Estimate

# The classes with the lowest recall are shown, of the best models only; measures.csv has all.
_MOST_MODELS = 8
_MOST_CLASSES = 30
# What nine of ten readers do not need, under a summary.
_FOLDED = {
    "figures": "Do better models lose less? Kinds of shifts",
    "shifts": "The shifts: prompts, yield, images, classes",
    "measures": "Confused classes, calibration and other measures",
    "models": "The models: weights, input, how outputs are matched",
    "method": "How each number is computed",
}
_MOST_BARS = 40


def classes_page(
    results: Results,
    examples: Mapping[str, Sequence[ClassExamples]],
    thumbnails: Mapping[str, str],
    unreadable: Sequence[str],
    pictures: Mapping[str, Sequence[Any]],
) -> ReportPage:
    """Return what the page says.

    examples: for each shown shift, the classes that drop most, with flipped pairs. thumbnails:
    their pictures by key. unreadable: keys of images that could not be decoded. pictures: name of a
    nested measure → what it draws from images.
    """
    models = results.models
    names = [shift.name for shift in results.by_impact]
    heat_rows, heat_classes = class_rows(results, names)
    heat_names = {
        "shifts": group_names_in_words(names),
        "models": [model.name for model in models],
        "everyone": everyone(results),
    }
    images = 0
    classes = []
    for group in results.groups:
        images += group.accepted
        classes.append(group.classes + len(group.left_out))
    for severity in results.severity:
        # Of a shift with levels, only the highest is a group.
        for level in severity.levels[:-1]:
            images += level.accepted
    choose_model = 1 < len(models) <= MOST_MODELS_TO_CHOOSE
    sound = ["0"]
    if choose_model:
        sound = [str(index) for index, model in enumerate(models) if not model.near_chance]
    impact = None
    measured = figures.measured_shifts(results, "impact")
    impacts = [(shift, number) for shift, [number] in measured]
    if impacts:
        impact = drop_bars({"": impacts[:_MOST_BARS]})
    measure_figures = {}
    for name, measure in MEASURES.items():
        if measure.figure:
            measure_figures[name] = measure.figure(results)
    tables = [shown.file for shown in NESTED.values() if shown.csv(results) is not None]
    values = {
        "tables": tables,
        "checked": checked_shifts(results),
        "answer_warnings": answer_warnings(results),
        "model_sentences": list(model_sentences(results)),
        "unreadable": unreadable,
        "everyone": everyone(results),
        "averaged": averaged(results),
        "images": images,
        "classes": max(classes),
        "choose_model": choose_model,
        "sound": " ".join(sound),
        "heat_rows": heat_rows,
        "heat_classes": heat_classes,
        "heat_names": heat_names,
        "by_kind": _by_kind(results),
        "mistaken": _mistaken(results),
        "measure_tables": measure_tables(results, "report"),
        "measure_figures": measure_figures,
        "impact": impact,
        "lines": figures.line_figure(results),
        "slopes": figures.slope_figure(results),
        "examples": examples,
        "thumbnails": thumbnails,
        "hottest": HOTTEST,
        "most_bars": _MOST_BARS,
        "most_panels": figures.MOST_PANELS,
        "fewest": FEWEST_MODELS_FOR_A_SLOPE,
    }
    headline = headline_of(results)
    return ReportPage(
        template="report-of-classes.html.j2",
        sections=list(_sections(results, pictures)),
        messages=[headline] if headline else [],
        values=values,
    )


def _sections(
    results: Results,
    pictures: Mapping[str, Sequence[Any]],
) -> Iterator[ReportSection]:
    for name in section_order():
        if name not in NESTED:
            fold = _FOLDED.get(name, "")
            yield ReportSection(template=f"report-{name}.html.j2", fold=fold)
            continue
        drawn = list(NESTED_MEASURES[name].draw(results))
        drawn += pictures.get(name, ())
        section = NESTED[name].section(results, drawn)
        if section is not None:
            yield section


def _mistaken(results: Results) -> list[tuple[ModelFacts, list[dict[str, Any]]]]:
    """Return, for the best models, the classes of the first group that they find least.

    taken_for: the other classes with which the models confuse a class most often: name, share and
    images.
    """
    rows = results.rows
    names = {cls.id: cls.name for cls in results.classes}
    group = results.groups[0].name
    # (model, class) → name, share and images of each class that it is taken for.
    mistakes: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for confusion in rows.where("confusion", group=group):
        class_id = confusion.class_id
        if confusion.against != class_id:
            other = names.get(confusion.against, confusion.against)
            mistake = other, confusion.value or 0.0, confusion.n or 0
            mistakes[confusion.model, class_id].append(mistake)
    mistaken = []
    for model in results.best_first[:_MOST_MODELS]:
        key = {"model": model.name, "group": group}
        recalls = rows.where("recall", **key)
        recalls.sort(key=lambda recall: recall.value or 0.0)
        classes = []
        for recall in recalls[:_MOST_CLASSES]:
            class_id = recall.class_id
            taken_for = mistakes[model.name, class_id]
            taken_for.sort(key=lambda mistake: -mistake[2])
            facts = {
                "class_id": class_id,
                "name": names[class_id],
                "images": recall.n or 0,
                "recall": recall.estimate,
                "precision": rows.estimate("precision", class_id=class_id, **key),
                "taken_for": taken_for[:3],
            }
            classes.append(facts)
        if classes:
            mistaken.append((model, classes))
    return mistaken


def _by_kind(results: Results) -> list[dict[str, Any]]:
    """Return, for each kind of shift, the impacts and slopes of its shifts."""
    kinds = []
    for kind in figures.KINDS:
        of_kind: dict[str, Any] = {"kind": kind}
        for name, measure in (("impacts", "impact"), ("slopes", "slope")):
            values = []
            for shift in results.by_impact:
                value = results.rows.value(measure, group=shift.name)
                if value is not None and figures.kind_of_shift(shift) == kind:
                    values.append(value)
            of_kind[name] = values
        if of_kind["impacts"]:
            kinds.append(of_kind)
    return kinds


MOST_ROWS = 40
# The page lets a reader choose a model, so every cell carries every model's drop.
MOST_MODELS_TO_CHOOSE = 40


@dataclass(frozen=True)
class ClassRow:
    """A class, and its drops."""

    name: str
    """Its name, unique in the table."""
    average: float | None
    """The drop averaged over models, and over the shifts that measure the class."""
    drops: Sequence[float]
    """The drop of each model, averaged over these shifts."""
    known: ClassNumbers
    """The numbers under a shift that measures the class, if any does."""
    cells: Sequence[ClassNumbers | None]
    """The numbers under each shown shift; None if the shift does not ask for the class."""


def class_rows(
    results: Results,
    shifts: Sequence[str],
) -> tuple[list[ClassRow], int]:
    """Return the classes that drop most, worst first and `MOST_ROWS` at most, over `shifts`; and
    how many there are."""
    if results.base is None:
        return [], 0
    by_class: dict[str, dict[str, ClassNumbers]] = {}
    for shift in results.shifts:
        for numbers in classes_of(results, shift.name):
            by_class.setdefault(numbers.class_id, {})[numbers.shift] = numbers
    rows = []
    for by_shift in by_class.values():
        known, *_ = by_shift.values()
        measured = []
        for numbers in by_shift.values():
            if numbers.accuracy and not known.accuracy:
                known = numbers
            if numbers.impact is not None:
                measured.append(numbers.drops)
        by_model = zip(*measured, strict=True)
        drops = [sum(of_model) / len(of_model) for of_model in by_model]
        average = results.mean_of_sound(drops) if drops else None
        cells = [by_shift.get(shift) for shift in shifts]
        row = ClassRow(
            known.name,
            average,
            drops,
            known,
            cells,
        )
        rows.append(row)
    # Sort by drop, ties in the recipe's order; classes that no shift measures come last.
    rows.sort(key=lambda row: (row.average is None, -(row.average or 0.0)))
    names = Counter(row.name for row in rows)
    shown = rows[:MOST_ROWS]
    for index, row in enumerate(shown):
        if names[row.name] > 1:
            shown[index] = replace(row, name=f"{row.name} ({row.known.class_id})")
    return shown, len(rows)


MOST_MODELS = 12  # wider tables wrap; the report shows every model


def terminal_lines(results: Results) -> Iterator[str | Table]:
    """Yield the tables and sentences, of `MOST_MODELS` models at most."""
    shown = results.models[:MOST_MODELS]
    absent = []
    if results.base is None:
        yield (
            f"{results.dataset}: accuracy over all images (95 % confidence interval), and"
            " averaged over classes"
        )
        yield accuracies_table(results, shown)
        for group in results.groups:
            few = [cls.name for cls in group.left_out]
            if few:
                classes = format_count(group.classes + len(few), "class", "classes")
                absent.append(
                    f"{group.name}: no image of {len(few):,} of {classes}: {format_list(few)}"
                )
    else:
        yield drops_table(results, shown)
    for measure, table in measure_tables(results, "terminal"):
        captioned = replace(table, caption=f"{measure.title}: {measure.reading}")
        yield captioned.first(MOST_TERMINAL_ROWS, "rows", "measures.csv")
    yield from absent
    more = len(results.models) - len(shown)
    if more:
        yield f"and {more} more models, listed in the report"
    headline = headline_of(results)
    if headline:
        yield headline
    yield from model_sentences(results)
    for name in section_order():
        if name not in NESTED:
            continue
        where = NESTED[name].file or "measures.csv"
        for line in NESTED[name].terminal(results, MOST_MODELS):
            if isinstance(line, Table):
                line = line.first(MOST_TERMINAL_ROWS, "rows", where)
            yield line


def accuracies_table(results: Results, shown: Sequence[ModelFacts]) -> Table:
    rows = []
    for group in results.groups:
        cells = []
        for model in shown:
            key = {"model": model.name, "group": group.name}
            top1 = results.rows.estimate("top1", **key)
            average = format_percent(results.rows.value("accuracy", **key))
            cell = _number(top1, " %")
            cells.append(with_notes(cell, f"class average {average}", between="\n"))
        rows.append((group.name, *cells))
    columns = [TableColumn("group", "shift"), *map(_heading, shown)]
    return Table.of("", columns, rows)


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
    validation = []
    on_base = []
    gaps = []
    for model in shown:
        name = model.name
        accuracy = number.estimate(VALIDATION, model=name)
        gap = number.estimate(VALIDATION_GAP, model=name)
        validation.append(_number(accuracy, " %"))
        on_base.append(_number(results.base_number(name), " %"))
        gaps.append(_number(gap))
    beside = {
        "validation": validation,
        "base": on_base,
        "validation → base": gaps,
    }
    if not number.where(VALIDATION_GAP):
        beside = {"base": on_base}
    empty = [text_cell("")] * len(averages)
    rows = []
    for name, cells in beside.items():
        row = (text_cell(name), *cells, *empty)
        rows.append(TableRow(row, "base"))
    for shift in results.shifts:
        name = shift.name
        cells = [text_cell(name)]
        for model in shown:
            key = {"model": model.name, "group": name}
            drop = _number(number.estimate("drop", **key))
            base = number.one(DROP_BASE, **key)
            if base and base.note:
                of_base = f"of {format_percent(base.value)}"
                drop = with_notes(drop, of_base, base.note, between="\n")
            cells.append(drop)
        if several:
            impact = number.estimate("impact", group=name)
            cells.append(_number(impact))
        relative = results.averaged("relative_drop", group=name)
        cells.append(TableCell(format_percent(relative)))
        if sloped:
            slope = number.value("slope", group=name)
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


def class_entry(
    results: Results,
    model: ModelFacts,
    group: GroupFacts,
) -> tuple[float, str] | None:
    """Return the Hub's entry of a classifier: plain accuracy, every accepted image counting once,
    with notes on intervals, the class average, the drop and validation → base."""
    number = results.rows
    name = model.name
    key = {"model": name, "group": group.name}
    top1 = number.estimate("top1", **key)
    if top1 is None:
        return None
    notes = f"top-1 accuracy in percent; {interval_words(top1)}, {group.accepted} images"
    if results.outputs == "classes" and number.where(OVER_CLASSES, model=name):
        notes += "; answers over the dataset's classes alone"
    drop = number.estimate("drop", **key)
    if group is results.base_group:
        average = results.base_number(name)
        if average is not None:
            classes = format_count(group.classes, "class", "classes")
            notes += (
                f"; averaged over {classes} {100 * average.value:.1f}, {interval_words(average)}"
            )
        if model.near_chance:
            notes += NEAR_CHANCE
        gap = number.estimate(VALIDATION_GAP, model=name)
        validation = number.value(VALIDATION, model=name)
        if gap is not None and validation is not None:
            notes += (
                f"; {100 * validation:.1f} on validation images of the source: gap to the base"
                f" {100 * gap.value:z.1f} points, {interval_words(gap)}"
            )
    elif drop is not None:
        classes = group.classes
        over = over_classes(classes, classes + len(group.left_out))
        over = over or f"over {classes} classes"
        before = number.value(DROP_BASE, **key)
        notes += drop_words(drop, before, f" {over}")
    return top1.value, notes
