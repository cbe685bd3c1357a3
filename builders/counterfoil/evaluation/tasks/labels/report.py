"""Make the sections of the page of multi-label classifiers, and its notes."""

from __future__ import annotations

from collections.abc import Iterator

from counterfoil.evaluation.resampled_page import (
    compared_section,
    group_table,
    worst_cells,
    worst_drop,
)
from counterfoil.evaluation.tasks.labels.measures import MEANS, MISSED, WRONGLY_GIVEN, drop_labels
from counterfoil.multilabel_stats import ACCURACY, AUROC, PRECISION
from counterfoil.report.results import DROP_BASE, ClassFacts, ModelFacts, Results
from counterfoil.report.sections import ReportSection
from counterfoil.report.words import (
    Table,
    TableColumn,
    TableRow,
    count_cell,
    format_count,
    format_list,
    format_percent,
    points_cell,
    text_cell,
)

_OF_LABELS = (PRECISION, AUROC, ACCURACY, MISSED, WRONGLY_GIVEN)
_MOST_LABELS = 60
_MOST_NAMED = 12


def multilabel_notes(results: Results) -> Iterator[str]:
    """Yield the notes that a reader needs to understand the numbers."""
    base = results.groups[0]
    for model in results.models:
        if model.matched:
            yield f"{model.short_name}: outputs were matched {model.matched}."
        if model.read:
            yield f"{model.short_name}: {model.read}."
    if base.left_out:
        few = [label.name for label in base.left_out]
        yield (
            "Not measured and in no mean, because fewer than"
            f" {max(2, results.min_images_per_class)} images have the"
            f" label, or are known to lack it: {format_list(few, _MOST_NAMED)}."
        )
    partly = []
    for label in results.classes:
        images = _known_images(results, label)
        if images < base.images:
            partly.append(f"{label.name} ({format_count(images, 'image')})")
    if partly:
        yield (
            "Each label is measured on the images for which it is known. These labels are known for"
            f" fewer than {format_count(base.images, 'image')}: {format_list(partly, _MOST_NAMED)}."
        )
    yield from near_chance_notes(results)


def near_chance_notes(results: Results) -> Iterator[str]:
    """Yield a sentence for each model whose drops leave out labels: it names the labels and gives
    `drop_base`."""
    for model in results.models:
        of_drops = drop_labels(results, model.name)
        guessed = [label.name for label in results.classes if label not in of_drops]
        if results.shifts and guessed and not model.near_chance:
            key = {"model": model.name, "group": results.shifts[0].name}
            base = results.rows.value(DROP_BASE, at=results.lead, **key)
            of_all = results.base_number(model.name)
            all_percent = format_percent(of_all.value if of_all else None)
            left_out = "this label" if len(guessed) == 1 else "these labels"
            averaged = f"{len(of_drops)} of {len(results.classes)} labels"
            yield (
                f"{model.short_name}: near chance on the base for {format_list(guessed, _MOST_NAMED)}."
                f" Mean drops leave out {left_out}: they are over {averaged}. On the base,"
                f" {results.lead} is {format_percent(base)} over the labels of the drops, and"
                f" {all_percent} over all labels."
            )


def _known_images(results: Results, label: ClassFacts) -> int:
    model = results.models[0].name
    return _images(results, PRECISION, model=model, group=results.base or "", class_id=label.id)


def _images(results: Results, measure: str, **key: str) -> int:
    row = results.rows.one(measure, **key)
    if row is None or row.n is None:
        return 0
    return row.n


def label_table(results: Results, model: ModelFacts) -> Table:
    """Return one row for each label: its numbers on the base, and under the shift where its AP
    drops most."""
    rows = []
    for label in results.classes:
        key = {"model": model.name, "class_id": label.id}
        group = results.base or ""
        having = _images(results, MISSED, group=group, **key)
        cells = [text_cell(label.name), count_cell(_known_images(results, label))]
        cells.append(count_cell(having))
        for name in _OF_LABELS:
            cells.append(points_cell(results.rows.estimate(name, group=group, **key)))
        worst = worst_drop(results, PRECISION, key)
        cells += worst_cells(results, worst)
        for name in (MISSED, WRONGLY_GIVEN):
            there = worst and results.rows.estimate(name, group=worst.group, **key)
            cells.append(points_cell(there))
        rows.append(TableRow(tuple(cells)))
    columns = [
        TableColumn("label", "name"),
        "images that know it",
        "with it",
        "AP (%)",
        "AUROC (%)",
        "accuracy (%)",
        "missed (%)",
        "wrongly given (%)",
        TableColumn("AP drops most under", "text"),
        "drop of AP (points)",
        "missed there (%)",
        "wrongly given there (%)",
    ]
    drop_column = columns.index("drop of AP (points)")
    # Labels without a drop come last.
    rows.sort(key=lambda row: -float(row.cells[drop_column].sort or -1.0))
    caption = f"{model.short_name}: label by label"
    return Table.of(caption, columns, rows).first(_MOST_LABELS, "labels", "labels.csv")


def label_sections(results: Results) -> Iterator[ReportSection]:
    """Yield the parts of the page that have something to show."""
    measures = tuple(MEANS)
    yield ReportSection(
        title="Every group",
        tables=[group_table(results, model, measures, drops=measures) for model in results.models],
        note=" ".join(near_chance_notes(results)),
    )
    yield from compared_section(
        results,
        "classifier",
        "Differences are over the labels that neither classifier ranks near chance on the base.",
    )
    yield ReportSection(
        title="Label by label",
        tables=[label_table(results, model) for model in results.models],
        note="The columns from AP to wrongly given are on the base. Missed: share of the images with the label that are"
        " not given it. Wrongly given: share of the images without it that are given it. Intervals"
        " of labels’ drops are for all labels and shifts at once.",
    )
