"""The report of an evaluation of detectors: its page, and sentences and tables that terminal and card show too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from counterfoil import __version__
from counterfoil.detection_stats import MEASURES
from counterfoil.evaluation.detection.measures import (
    BY_CATEGORY,
    CURVE,
    DIFFERENCE,
    DROP,
    F1,
    MPC,
    RPC,
)
from counterfoil.evaluation.figures import LINES, severity_figure
from counterfoil.report.results import GroupFacts, ModelFacts, Results
from counterfoil.report.severity import severity_words, ten_points_table
from counterfoil.report.templates import template_environment
from counterfoil.report.words import (
    NOTHING,
    Table,
    TableCell,
    TableColumn,
    TableRow,
    between,
    counted,
    in_words,
    listed,
    percent,
    points,
    points_cell,
    text_cell,
)
from counterfoil.stats import Estimate

TEMPLATE = "detection-report.html.j2"
SIZES = ("AP_small", "AP_medium", "AP_large")
_MOST_CATEGORIES = 40
_MOST_DIFFERENCES = 60
_FEW_IMAGES = 50


@dataclass(frozen=True)
class Bar:
    """The bar of a shift's drop. Its positions are fractions of the chart's width, from the left end of the chart."""

    name: str
    drop: Estimate
    start: float
    width: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class PageSection:
    """A part of the page: a heading, tables (each with the model that it is about), figures, and a closing sentence."""

    title: str
    tables: Sequence[tuple[str, Table]]
    note: str = ""
    sentences: Sequence[str] = ()
    figure: str | None = None
    lines: Sequence[tuple[ModelFacts, str]] = ()


def first_sentences(results: Results) -> list[str]:
    """Return a sentence for each model: under which shift it loses most average precision, and how much."""
    sentences = []
    for model in results.models:
        who = "Your detector" if len(results.models) == 1 else model.short_name
        drops = sorted_drops(results, model, "AP")
        if model.near_chance:
            base = percent((results.base_number(model.name) or Estimate(0.0)).value)
            sentences.append(f"{who} finds next to nothing on the base (AP {base}), so drops say nothing.")
            continue
        if not drops:
            sentences.append(f"{who} has no drop: the dataset has no shift.")
            continue
        sentences.append(loss_sentence(who, *drops[0], "AP"))
    return sentences


def loss_sentence(who: str, group: GroupFacts, drop: Estimate, measure: str) -> str:
    """Return under which shift a model loses most of a measure, and how much."""
    loss = f"{in_words(group.name)}: {points(drop.value)} points of {measure}"
    loss += f" ({between(drop)})" if drop.low is not None else ""
    if drop.value <= 0:
        return f"{who} loses no {measure} under any shift."
    if drop.low is not None and drop.low <= 0:
        return f"{who} may lose most under {loss}. The interval includes 0."
    return f"{who} loses most under {loss}."


def compared_sentences(results: Results) -> list[str]:
    """Return a sentence for each pair of detectors: under which shifts one clearly loses more AP than the other."""
    sentences = []
    for first, second in combinations(results.models, 2):
        rows = results.rows.where(DIFFERENCE, model=first.name, against=second.name)
        more = [in_words(row.group) for row in rows if row.low is not None and row.low > 0]
        less = [in_words(row.group) for row in rows if row.high is not None and row.high < 0]
        for names, loser, other in ((more, first, second), (less, second, first)):
            if names:
                sentences.append(
                    f"{loser.short_name} clearly loses more AP than {other.short_name} under {listed(names)}."
                )
        if rows and not more and not less:
            sentences.append(f"Under no shift does {first.short_name} or {second.short_name} clearly lose more AP.")
    return sentences


def sorted_drops(results: Results, model: ModelFacts, measure: str) -> list[tuple[GroupFacts, Estimate]]:
    """Return each shift with its drop of a measure, the largest first."""
    drops = [
        (group, drop)
        for group in results.shifts
        if (drop := results.rows.estimate(DROP, model=model.name, group=group.name, at=measure)) is not None
    ]
    return sorted(drops, key=lambda entry: -entry[1].value)


def _drop_bars(drops: Sequence[tuple[GroupFacts, Estimate]]) -> list[Bar]:
    ends = [0.0]
    for _, drop in drops:
        ends += [drop.value, *(end for end in (drop.low, drop.high) if end is not None)]
    least, most = min(ends), max(ends)
    scale = 100 / (most - least) if most > least else 0.0

    def at(value: float) -> float:
        return (value - least) * scale

    return [
        Bar(
            in_words(group.name),
            drop,
            min(at(0.0), at(drop.value)),
            abs(at(drop.value) - at(0.0)),
            None if drop.low is None else at(drop.low),
            None if drop.high is None else at(drop.high),
        )
        for group, drop in drops
    ]


# ---- Tables


def group_table(
    results: Results, model: ModelFacts, measures: Sequence[str], drops: Sequence[str] = ("AP", "AP50")
) -> Table:
    """Return one row for each group: the measures in percent, and the drops of the measures in `drops` in points."""
    titles = {measure.name: measure.title for measure in results.measures}
    rows = []
    for group in results.groups:
        key = {"model": model.name, "group": group.name}
        cells = [points_cell(results.rows.estimate(name, **key)) for name in measures]
        cells += [points_cell(results.rows.estimate(DROP, at=name, **key)) for name in drops]
        rows.append(TableRow((text_cell(group.name), *cells)))
    columns = [TableColumn("group", "shift"), *(TableColumn(f"{titles[name]} (%)") for name in measures)]
    columns += [TableColumn(f"drop of {name} (points)") for name in drops]
    return Table(f"{model.short_name}: 95 % intervals below", tuple(columns), tuple(rows))


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
        drops = {
            group.name: results.rows.estimate(DROP, group=group.name, at=BY_CATEGORY, **key) for group in results.shifts
        }
        measured = {name: drop for name, drop in drops.items() if drop is not None}
        worst = max(measured, key=lambda name: measured[name].value, default=None)
        cells = TableCell(NOTHING), points_cell(None)
        if worst is not None:
            cells = text_cell(in_words(worst)), points_cell(measured[worst])
        rows.append(TableRow((text_cell(cls.name), points_cell(base), *cells)))
    rows.sort(key=lambda row: -float(row.cells[3].sort or -1.0))
    columns = (
        TableColumn("category", "name"),
        TableColumn("AP on the base (%)"),
        TableColumn("loses most under", "text"),
        TableColumn("drop of AP (points)"),
    )
    return Table("By category", columns, tuple(rows)).first(_MOST_CATEGORIES, "categories", "measures.csv")


def difference_table(results: Results) -> Table:
    """Return one row for each pair of detectors and each shift: both drops of AP, and their difference."""
    short = {model.name: model.short_name for model in results.models}
    rows = []
    for difference in results.rows.where(DIFFERENCE):
        drops = [
            points_cell(results.rows.estimate(DROP, model=name, group=difference.group, at="AP"))
            for name in (difference.model, difference.against)
        ]
        pair = text_cell(short[difference.model]), text_cell(short[difference.against]), text_cell(difference.group)
        rows.append(TableRow((*pair, *drops, points_cell(difference.estimate, signed=True))))
    rows.sort(key=lambda row: -abs(float(row.cells[-1].sort or 0.0)))
    columns = (
        TableColumn("detector", "name"),
        TableColumn("against", "name"),
        TableColumn("group", "shift"),
        *map(TableColumn, ("drop of AP (points)", "drop of the other (points)", "loses more by (points)")),
    )
    return Table("Drops of AP compared", columns, tuple(rows)).first(_MOST_DIFFERENCES, "rows", "measures.csv")


def _sections(results: Results) -> Iterator[PageSection]:
    """Yield the parts of the page that have something to show."""
    measures = [name for name in (*MEASURES, F1) if name not in SIZES]
    models = results.models
    heading = {model.name: model.short_name if len(models) > 1 else "" for model in models}
    yield PageSection("Every group", [(heading[model.name], group_table(results, model, measures)) for model in models])
    if results.severity:
        sound = [model for model in results.best_first if not model.near_chance]
        yield PageSection(
            "How much is too much",
            [((ten := ten_points_table(results, models)).caption, ten)],
            "The drop of AP is made to rise with the level and is linear between levels. The interval is where the ends"
            " of the drop’s intervals reach ten points. Level 0 is the base, 1 the whole shift.",
            severity_words(results),
            severity_figure(results, sound, CURVE, "AP"),
            list(zip(sound, LINES, strict=False)),
        )
    if results.rows.where(DIFFERENCE):
        yield PageSection(
            "Detectors compared",
            [("", difference_table(results))],
            "Images are resampled for both detectors together. Intervals of differences hold for all pairs and shifts"
            " at once. Detectors that find next to nothing on the base are left out.",
            compared_sentences(results),
        )
    yield PageSection("Over all shifts", [("", _mean_table(results))])
    yield PageSection(
        "By size of object",
        [(heading[model.name], group_table(results, model, SIZES, ())) for model in models],
        "Small objects have less than 32² pixels of the stored image, large ones more than 96². A dash: no such"
        " object.",
    )
    yield PageSection(
        "By category",
        [(heading[model.name], _category_table(results, model)) for model in models],
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


def detection_report(results: Results, notes: Sequence[str]) -> str:
    """Return the page as text; equal results give equal bytes."""
    categories = counted(len(results.classes), "category", "categories")
    words = {
        "task": "Robustness of detectors",
        "model": "detector",
        "lead": f"{categories} of objects. AP is the mean over IoU thresholds from .50 to .95 and over categories, as"
        " COCO has it.",
        "failures": "Failures, image by image",
        "method": "Boxes are those of the source, cut and scaled with their images.",
        "files": "measures.csv and detection.csv in this folder hold every number, predictions.parquet what became of"
        " each image",
    }
    all_notes = [*notes, *detection_notes(results)]
    return shift_report(results, "AP", words, first_sentences(results), all_notes, _sections(results))


def shift_report(
    results: Results,
    measure: str,
    words: Mapping[str, str],
    sentences: Sequence[str],
    notes: Sequence[str],
    sections: Iterable[PageSection],
) -> str:
    """Return the page on what each shift costs, in points of a measure. words: the page's words for its task."""
    filters = {"points": points, "between": between, "in_words": in_words, "counted": counted}
    environment = template_environment(TEMPLATE, filters)
    return environment.get_template(TEMPLATE).render(
        results=results,
        words=words,
        sentences=sentences,
        notes=notes,
        bars=[(model.short_name, _drop_bars(sorted_drops(results, model, measure))) for model in results.models],
        sections=list(sections),
        readings=[(facts.title, facts.reading) for facts in results.measures],
        version=__version__,
    )
