"""Make the sections of the page of segmenters, and its notes."""

from __future__ import annotations

from collections.abc import Iterator

from counterfoil.evaluation.resampled_page import (
    caption_of_model,
    compared_section,
    group_section,
    severity_section,
    worst_cells,
    worst_drop,
)
from counterfoil.evaluation.tasks.masks.measures import CURVE, MEANS, OF_CLASS, SHARE
from counterfoil.mask_stats import IOU
from counterfoil.report.results import DROP, ModelFacts, Results
from counterfoil.report.sections import ReportSection
from counterfoil.report.words import (
    Table,
    TableColumn,
    TableRow,
    format_list,
    over_classes,
    points_cell,
    text_cell,
)

_MOST_CLASSES = 60
_MOST_NAMED = 12


def class_table(results: Results, model: ModelFacts) -> Table:
    """Return one row for each class: its numbers on the base, and the shift that costs it most. The
    class with the largest drop is first."""
    rows = []
    for share in results.rows.where(SHARE):
        key = {"model": model.name, "class_id": share.class_id}
        base = {"group": results.base or "", **key}
        cells = worst_cells(results, worst_drop(results, IOU, key))
        row = [text_cell(share.class_id), points_cell(share.estimate)]
        for name in OF_CLASS:
            row.append(points_cell(results.rows.estimate(name, **base)))
        rows.append(TableRow((*row, *cells)))
    rows.sort(key=lambda row: -float(row.cells[6].sort or -1.0))
    columns = (
        TableColumn("class", "name"),
        "share of pixels (%)",
        "IoU (%)",
        "recall (%)",
        "boundary F1 (%)",
        TableColumn("loses most under", "text"),
        "drop of IoU (points)",
    )
    table = Table.of(caption_of_model(results, model, "by class"), columns, rows)
    return table.first(_MOST_CLASSES, "classes", "segmentation.csv")


def mask_sections(results: Results) -> Iterator[ReportSection]:
    """Yield the parts of the page that have something to show."""
    models = results.models
    means = tuple(MEANS)
    yield group_section(results, means, means, title="Every group")
    yield from severity_section(results, CURVE)
    yield from compared_section(
        results,
        "segmenter",
        "Differences are over the classes that neither segmenter answers near chance on the base.",
    )
    yield ReportSection(
        title="Class by class",
        short="Classes",
        tables=[class_table(results, model) for model in models],
        note="IoU, recall and boundary F1 are on the base. Intervals of classes’ drops are for all"
        " classes and shifts at once.",
    )


def mask_notes(results: Results) -> Iterator[str]:
    """Yield the notes that a reader needs to understand the numbers."""
    measured = [share.class_id for share in results.rows.where(SHARE)]
    absent = [cls.name for cls in results.classes if cls.id not in measured]
    if absent:
        yield f"Not measured, because no pixel has them: {format_list(absent, _MOST_NAMED)}."
    for model in results.models:
        if model.matched:
            yield f"{model.short_name}: {model.matched}."
        drops = results.rows.where(DROP, model=model.name, at=IOU)
        sound = {drop.class_id for drop in drops}
        guessed = [name for name in measured if name not in sound]
        if results.shifts and guessed and not model.near_chance:
            over = over_classes(len(measured) - len(guessed), len(measured))
            yield (
                f"{model.short_name}: near chance on the base for {format_list(guessed, _MOST_NAMED)}."
                f" Mean drops are {over}."
            )
