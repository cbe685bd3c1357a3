"""Make the sections of the page of detectors, and its notes."""

from __future__ import annotations

from collections.abc import Iterator

from counterfoil.detection_stats import MEASURES
from counterfoil.evaluation.figures import lines_of_models
from counterfoil.evaluation.resampled_page import (
    caption_of_model,
    compared_section,
    group_table,
    severity_section,
    worst_cells,
    worst_drop,
)
from counterfoil.evaluation.tasks.objects.curves import curve_figure
from counterfoil.evaluation.tasks.objects.error_kinds import KINDS, MISSED
from counterfoil.evaluation.tasks.objects.measures import (
    BY_CATEGORY,
    CURVE,
    ERRORS,
    F1,
    MPC,
    OBJECTS,
    RPC,
    TAKEN_FOR,
)
from counterfoil.report.results import ModelFacts, Results
from counterfoil.report.sections import ReportSection
from counterfoil.report.words import (
    NOTHING,
    Table,
    TableCell,
    TableColumn,
    TableRow,
    count_cell,
    format_count,
    in_words,
    points_cell,
    text_cell,
)

SIZES = ("AP_small", "AP_medium", "AP_large")
_MOST_CATEGORIES = 40
_MOST_CONFUSIONS = 20
_FEW_IMAGES = 50


def _mean_table(results: Results) -> Table:
    """Return one row for each detector: AP on the base, mPC and rPC."""
    rows = []
    for model in results.models:
        cells: list[TableCell | str] = [model.short_name]
        cells.append(points_cell(results.base_number(model.name)))
        for name in (MPC, RPC):
            cells.append(points_cell(results.rows.estimate(name, model=model.name, at="AP")))
        rows.append(cells)
    columns = (
        TableColumn("detector", "name"),
        "AP on the base (%)",
        "mPC: mean AP over shifts (%)",
        "rPC: share of the base (%)",
    )
    return Table.of("Over all shifts", columns, rows)


def _category_table(results: Results, model: ModelFacts) -> Table:
    """Return the table of categories. The category with the largest drop of AP under any shift is
    first."""
    rows = []
    for cls in results.classes:
        key = {"model": model.name, "class_id": cls.id}
        base = results.rows.estimate(BY_CATEGORY, group=results.base or "", **key)
        if base is None:
            continue
        objects = int(results.rows.value(OBJECTS, class_id=cls.id) or 0)
        cells = [text_cell(cls.name), count_cell(objects), points_cell(base)]
        worst = worst_drop(results, BY_CATEGORY, key)
        if worst is None:
            cells += [points_cell(None)] * 2
        else:
            cells += worst_cells(results, worst)
        rows.append(TableRow(tuple(cells)))
    rows.sort(key=lambda row: -float(row.cells[4].sort or -1.0))
    columns = (
        TableColumn("category", "name"),
        "objects",
        "AP on the base (%)",
        TableColumn("loses most under", "text"),
        "drop of AP (points)",
    )
    table = Table.of(caption_of_model(results, model, "by category"), columns, rows)
    return table.first(_MOST_CATEGORIES, "categories", "measures.csv")


def _error_table(results: Results, model: ModelFacts) -> Table:
    """Return one row for each group: how many errors of each kind."""
    rows = []
    for group in results.groups:
        key = {"model": model.name, "group": group.name}
        counts = []
        for kind in (*KINDS, MISSED):
            count = results.rows.value(ERRORS, at=kind, **key)
            counts.append(count_cell(int(count or 0)))
        rows.append((group.name, *counts))
    columns = (TableColumn("group", "shift"), *KINDS, MISSED)
    return Table.of(caption_of_model(results, model, "kinds of errors"), columns, rows)


def _confusion_table(results: Results, model: ModelFacts) -> Table:
    """Return a row for each pair of categories, the most frequent under any shift first."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for taken in results.rows.where(TAKEN_FOR, model=model.name):
        by_group = counts.setdefault((taken.class_id, taken.against), {})
        by_group[taken.group] = int(taken.value or 0)
    rows = []
    for (true, detected), by_group in counts.items():
        objects = int(results.rows.value(OBJECTS, class_id=true) or 0)
        shifts = [group.name for group in results.shifts]
        worst = max(shifts, key=lambda name: by_group.get(name, 0), default="")
        cells = [text_cell(true), text_cell(detected), count_cell(objects)]
        cells.append(count_cell(by_group.get(results.base or "", 0)))
        cells.append(text_cell(in_words(worst) if shifts else NOTHING))
        cells.append(count_cell(by_group.get(worst, 0)))
        rows.append(TableRow(tuple(cells)))
    rows.sort(key=lambda row: -max(float(row.cells[3].sort), float(row.cells[5].sort)))
    columns = (
        TableColumn("category", "name"),
        TableColumn("taken for", "name"),
        "objects",
        "times on the base",
        TableColumn("most under", "text"),
        "times",
    )
    table = Table.of(caption_of_model(results, model, "confusions"), columns, rows)
    return table.first(_MOST_CONFUSIONS, "pairs of categories", "measures.csv")


def _error_sections(results: Results) -> Iterator[ReportSection]:
    """Yield precision against recall, the kinds of errors, and the confusions if there are any."""
    shown = [model for model in results.best_first if not model.near_chance]
    figure = curve_figure(results, shown)
    if figure is not None:
        yield ReportSection(
            title="Precision and recall",
            figures=[figure],
            legend=lines_of_models(shown),
            note="At IoU .50, the mean over categories; the mean of a curve is AP50. Dashed: the"
            " base. Shifts that cost most AP50 come first.",
        )
    yield ReportSection(
        title="Kinds of errors",
        tables=[_error_table(results, model) for model in results.models],
        note="Counted among the boxes from the score on that is best on the base, as F1 is. Kinds"
        " are those of TIDE (Bolya and others 2020), at an overlap (IoU) of .5 and .1. Class: right"
        " place, wrong category. Place: right category, overlap of .1 to .5. Both: wrong category"
        " and an overlap of .1 to .5. Double: a second box of an object. Background: a box where no"
        " object is. Missed: an object that no box finds, and no error of class or place is about.",
    )
    confusions = [_confusion_table(results, model) for model in results.models]
    confusions = [table for table in confusions if table.rows]
    if confusions:
        yield ReportSection(
            title="Confusions between categories",
            short="Confusions",
            tables=confusions,
            note="Errors of class: a box on an object of one category that names another. The shift"
            " is the one with most.",
        )


def detection_sections(results: Results) -> Iterator[ReportSection]:
    """Yield the parts of the page that have something to show."""
    measures = [name for name in (*MEASURES, F1) if name not in SIZES]
    models = results.models
    yield ReportSection(
        title="Every group",
        tables=[group_table(results, model, measures, ("AP", "AP50", F1)) for model in models],
    )
    yield from severity_section(results, CURVE)
    yield from compared_section(
        results, "detector", "Detectors that find next to nothing on the base are left out."
    )
    yield ReportSection(title="Over all shifts", tables=[_mean_table(results)])
    yield from _error_sections(results)
    yield ReportSection(
        title="By size of object",
        short="Sizes",
        tables=[group_table(results, model, SIZES, ()) for model in models],
        note="Small objects have less than 32² pixels of the stored image, large ones more than"
        " 96². A dash: no such object.",
    )
    yield ReportSection(
        title="By category",
        short="Categories",
        tables=[_category_table(results, model) for model in models],
        note="Categories without an object are left out; AP of few objects says little. The shift"
        f" of each category is the worst of {len(results.shifts)}, chosen after the fact, and its"
        " interval is of that drop alone.",
    )


def detection_notes(results: Results) -> Iterator[str]:
    """Yield the notes that a reader needs to understand the numbers."""
    for model in results.models:
        if model.matched:
            yield f"{model.short_name}: {model.matched}."
        if model.near_chance:
            yield (
                f"{model.short_name} may have an AP50 under 10 % on the base: its drops mean"
                " little, and it has no rPC and is compared with no other detector."
            )
    images = results.groups[0].images
    if images < _FEW_IMAGES:
        yield (
            f"The dataset has only {format_count(images, 'image')} in each group: intervals of so few"
            " say little."
        )
