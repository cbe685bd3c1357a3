"""Accuracies that timm publishes on real test sets of ImageNet: facts, tables, words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from counterfoil.documents import Count, Strict
from counterfoil.report.sections import MeasureFacts, ReportSection, Shown
from counterfoil.report.words import (
    Table,
    TableColumn,
    TableRow,
    count_cell,
    format_count,
    format_number,
    points_cell,
    text_cell,
)
from counterfoil.report.words import TableCell as Cell

if TYPE_CHECKING:
    from counterfoil.report.results import Results

ACCURACY = "published_accuracy"
MEASURE_FACTS = (
    MeasureFacts(
        ACCURACY,
        "Published accuracy",
        "percent",
        "Top-1 accuracy that timm publishes on the test set `at`.",
    ),
)
# Column of the published table -> what people call it.
SETS = {
    "imagenet": "ImageNet",
    "real": "ReaL labels",
    "v2": "V2",
    "sketch": "Sketch",
    "r": "R",
    "r_clean": "ImageNet, classes of R",
    "a": "A",
    "a_clean": "ImageNet, classes of A",
}


@dataclass(frozen=True, slots=True)
class PublishedLine(Strict):
    """Two lines over timm's models: accuracy on a test set on accuracy on ImageNet, of the same
    classes (`clean`).
    """

    shifted: str
    clean: str
    models: Count
    """The points, each a model at an image size."""
    low: float
    high: float
    """Their least and largest clean accuracy, fractions."""
    slope: float
    r_squared: float
    probit_slope: float
    probit_intercept: float
    probit_r_squared: float


@dataclass(frozen=True, slots=True)
class PublishedResults(Strict):
    """The lines, at a commit of timm's repository, and its names for the scored models that it
    knows."""

    commit: str
    lines: tuple[PublishedLine, ...]
    models: Mapping[str, str]
    """Model → timm's name and image size."""
    several: bool = False
    """Whether a class of the dataset is several of ImageNet's."""


def worth(results: Results) -> str:
    """Return what the comparison is worth."""
    images = "These images"
    if results.groups[0].candidates is not None:
        images = "Generated or changed images"
    several = ""
    if results.published and results.published.several:
        several = ", a class may be several of ImageNet's"
    return (
        f"{images} of {format_count(len(results.classes), 'class', 'classes')} are not ImageNet's"
        f" validation set{several}: accuracy on this base is not accuracy there. The lines show how"
        " much models lose on real test sets that are harder; they do not say what your models"
        " would reach on these."
    )


def lines_table(published: PublishedResults) -> Table:
    columns = (
        TableColumn("test set", "text"),
        TableColumn("against", "text"),
        "models",
        "slope",
        "R²",
        "probit slope",
        "probit R²",
    )
    rows = []
    for line in published.lines:
        values = (line.slope, line.r_squared, line.probit_slope, line.probit_r_squared)
        cells = [Cell(format_number(value, 3), sort=value) for value in values]
        rows.append((SETS[line.shifted], SETS[line.clean], count_cell(line.models), *cells))
    return Table.of("Lines over timm's models, a point a model and image size", columns, rows)


def models_table(results: Results) -> Table | None:
    """Return timm's accuracies of the scored models that it knows by name; None if it knows
    none."""
    published = results.published
    if published is None or not published.models:
        return None
    columns = (
        TableColumn("model", "name"),
        TableColumn("published as", "text"),
        "base here",
        *SETS.values(),
    )
    rows = []
    for model in results.models:
        if model.name in published.models:
            names = (text_cell(model.short_name), text_cell(published.models[model.name]))
            base = points_cell(results.base_number(model.name))
            cells = [
                points_cell(results.rows.value(ACCURACY, model=model.name, at=column))
                for column in SETS
            ]
            rows.append(TableRow((*names, base, *cells), "quiet" if model.near_chance else ""))
    return Table.of(
        "Top-1 accuracy in percent, as timm publishes it", columns, rows
    ).without_empty()


def _section(results: Results, drawn: Sequence[Any]) -> ReportSection | None:
    if results.published is None:
        return None
    return ReportSection(
        title="Beside published models",
        short="Published models",
        fold="Beside published models",
        sentences=[worth(results)],
        tables=[lines_table(results.published), *filter(None, [models_table(results)])],
        figures=[figure for figure in drawn if figure],
        template="report-published.html.j2",
    )


SHOWN = Shown(
    "figures",
    _section,
    measures=MEASURE_FACTS,
    public=lambda facts, called: replace(
        facts, models={called(name): shown for name, shown in facts.models.items()}
    ),
)
