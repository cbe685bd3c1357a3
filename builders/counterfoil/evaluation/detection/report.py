"""The report of an evaluation of detectors: its sentences, tables and sections."""

from __future__ import annotations

from collections.abc import Iterator

from counterfoil.detection_stats import MEASURES
from counterfoil.evaluation.detection.measures import (
    BY_CATEGORY,
    CURVE,
    F1,
    MPC,
    RPC,
)
from counterfoil.evaluation.figures import LINES, severity_figure
from counterfoil.evaluation.shift_report import (
    DROP,
    PageSection,
    ShiftReport,
    compared_section,
    group_table,
    headings,
)
from counterfoil.report.results import ModelFacts, Results
from counterfoil.report.severity import severity_words, ten_points_table
from counterfoil.report.words import (
    NOTHING,
    Table,
    TableCell,
    TableColumn,
    TableRow,
    counted,
    in_words,
    percent,
    points_cell,
    text_cell,
)
from counterfoil.stats import Estimate

SIZES = ("AP_small", "AP_medium", "AP_large")
_MOST_CATEGORIES = 40
_FEW_IMAGES = 50


def _mean_table(results: Results) -> Table:
    """Return one row for each detector: AP on the base, mPC and rPC."""
    rows = []
    for model in results.models:
        means = [points_cell(results.rows.estimate(name, model=model.name, at="AP")) for name in (MPC, RPC)]
        rows.append(TableRow((text_cell(model.short_name), points_cell(results.base_number(model.name)), *means)))
    names = ("AP on the base (%)", "mPC: mean AP over shifts (%)", "rPC: share of the base (%)")
    return Table("Over all shifts", (TableColumn("detector", "name"), *map(TableColumn, names)), tuple(rows))


def _category_table(results: Results, model: ModelFacts) -> Table:
    """Return the table of categories. The category with the largest drop of AP under any shift is first."""
    rows = []
    for cls in results.classes:
        key = {"model": model.name, "class_id": cls.id}
        base = results.rows.estimate(BY_CATEGORY, group=results.base or "", **key)
        if base is None:
            continue
        drops = results.rows.where(DROP, at=BY_CATEGORY, **key)
        worst = max(drops, key=lambda drop: drop.value or 0.0, default=None)
        cells = TableCell(NOTHING), points_cell(None)
        if worst is not None:
            cells = text_cell(in_words(worst.group)), points_cell(worst.estimate)
        rows.append(TableRow((text_cell(cls.name), points_cell(base), *cells)))
    rows.sort(key=lambda row: -float(row.cells[3].sort or -1.0))
    columns = (
        TableColumn("category", "name"),
        TableColumn("AP on the base (%)"),
        TableColumn("loses most under", "text"),
        TableColumn("drop of AP (points)"),
    )
    return Table("By category", columns, tuple(rows)).first(_MOST_CATEGORIES, "categories", "measures.csv")


def _sections(results: Results) -> Iterator[PageSection]:
    """Yield the parts of the page that have something to show."""
    measures = [name for name in (*MEASURES, F1) if name not in SIZES]
    models, drops = headings(results), ("AP", "AP50")
    yield PageSection(
        "Every group", [(heading, group_table(results, model, measures, drops)) for heading, model in models]
    )
    if results.severity:
        sound = [model for model in results.best_first if not model.near_chance]
        yield PageSection(
            "How much is too much",
            [((ten := ten_points_table(results, results.models)).caption, ten)],
            "The drop of AP is made to rise with the level and is linear between levels. The interval is where the ends"
            " of the drop’s intervals reach ten points. Level 0 is the base, 1 the whole shift.",
            severity_words(results),
            severity_figure(results, sound, CURVE, "AP"),
            list(zip(sound, LINES, strict=False)),
        )
    yield from compared_section(results, "detector", "Detectors that find next to nothing on the base are left out.")
    yield PageSection("Over all shifts", [("", _mean_table(results))])
    yield PageSection(
        "By size of object",
        [(heading, group_table(results, model, SIZES, ())) for heading, model in models],
        "Small objects have less than 32² pixels of the stored image, large ones more than 96². A dash: no such"
        " object.",
    )
    yield PageSection(
        "By category",
        [(heading, _category_table(results, model)) for heading, model in models],
        f"The shift of each category is the worst of {len(results.shifts)}, chosen after the fact, and its interval is"
        " of that drop alone.",
    )


def detection_notes(results: Results) -> Iterator[str]:
    """Yield the notes that a reader needs to understand the numbers."""
    for model in results.models:
        if model.matched:
            yield f"{model.short_name}: {model.matched}."
        if model.near_chance:
            yield (
                f"{model.short_name} may have an AP50 under 10 % on the base: its drops mean little, and it has no rPC"
                " and is compared with no other detector."
            )
    images = results.groups[0].images
    if images < _FEW_IMAGES:
        yield f"The dataset has only {counted(images, 'image')} in each group: intervals of so few say little."


def _near_chance(results: Results, model: ModelFacts) -> str:
    base = percent((results.base_number(model.name) or Estimate(0.0)).value)
    return f"finds next to nothing on the base (AP {base})"


def _words(results: Results) -> dict[str, str]:
    categories = counted(len(results.classes), "category", "categories")
    return {
        "task": "Robustness of detectors",
        "model": "detector",
        "lead": f"{categories} of objects. AP is the mean over IoU thresholds from .50 to .95 and over categories, as"
        " COCO has it.",
        "failures": "Failures, image by image",
        "method": "Boxes are those of the source, scaled with their images and not cut at the edge.",
        "files": "measures.csv and detection.csv in this folder hold every number, predictions.parquet what became of"
        " each image",
    }


REPORT = ShiftReport(
    "AP", _words, _near_chance, detection_notes, _sections, (("AP", "AP50", "AP75", F1), ("AP", F1)), F1
)
