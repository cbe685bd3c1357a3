"""Show what each shift costs models whose images are resampled: the page, and the text of the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations

from counterfoil import __version__
from counterfoil.report.headline import loss_sentence
from counterfoil.report.results import DROP_BASE, GroupFacts, ModelFacts, ResultRows, Results
from counterfoil.report.severity import severity_words
from counterfoil.report.templates import template_environment
from counterfoil.report.words import (
    Table,
    TableCell,
    TableColumn,
    TableRow,
    between,
    counted,
    in_words,
    listed,
    loss_in_words,
    percent,
    points,
    points_cell,
    sign,
    text_cell,
)
from counterfoil.stats import Estimate

TEMPLATE = "shift-report.html.j2"
# The names of drops, and of a drop less another model's, in rows; `at` names the measure that drops.
DROP, DIFFERENCE = "drop", "drop_difference"
_MOST_DIFFERENCES = 60


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


@dataclass(frozen=True)
class ShiftReport:
    """How one kind of model is shown.

    measure: what people see first. words: the page's own words, with the model's noun in `model`. near_chance: what a
    model near chance on the base does, of results and model. notes: what a reader needs to understand the numbers.
    terminal: the measures and the drops of its table there. beside: a measure whose loss stands beside the first one's.
    """

    measure: str
    words: Callable[[Results], Mapping[str, str]]
    near_chance: Callable[[Results, ModelFacts], str]
    notes: Callable[[Results], Iterator[str]]
    sections: Callable[[Results], Iterator[PageSection]]
    terminal: tuple[Sequence[str], Sequence[str]]
    beside: str = ""

    def sentences(self, results: Results) -> list[str]:
        """Return a sentence for each model: under which shift it loses most, and how much."""
        sentences, noun = [], self.words(results)["model"]
        for model in results.models:
            who = f"Your {noun}" if len(results.models) == 1 else model.short_name
            drops = results.rows.where(DROP, model=model.name, class_id="", at=self.measure)
            if model.near_chance:
                sentences.append(f"{who} {self.near_chance(results, model)}, so drops say nothing.")
            elif not drops:
                sentences.append(f"{who} has no drop: the dataset has no shift.")
            else:
                beside = self._loss_beside(results, model)
                sentences.append(loss_sentence(results, who, self.measure, drops, beside))
        return sentences

    def _loss_beside(self, results: Results, model: ModelFacts) -> str:
        """Return how much of `beside` a model loses under its worst shift, and under the worst for `beside`."""
        drops = sorted_drops(results, model, self.beside) if self.beside else []
        if not drops:
            return ""
        most_group, most = drops[0]
        worst_group, worst_drop = sorted_drops(results, model, self.measure)[0]
        if most.value <= 0:
            return f", and no {self.beside} under any shift"
        if worst_drop.value <= 0:
            return f", but {loss_in_words(most, self.beside)} under {in_words(most_group.name)}"
        under_worst = next((drop for group, drop in drops if group.name == worst_group.name), None)
        text = "" if under_worst is None else f" and {loss_in_words(under_worst, self.beside)}"
        if most_group.name != worst_group.name:
            text += f"; it loses most {self.beside} under {in_words(most_group.name)}: {points(most.value)} points"
        return text

    def compared(self, results: Results) -> list[str]:
        """Return sentences on pairs of models, and on levels of shifts."""
        return [*compared_sentences(results), *severity_words(results)]

    def tables(self, results: Results) -> list[Table]:
        """Return the terminal's table of each model."""
        return [group_table(results, model, *self.terminal) for model in results.models]

    def html(self, results: Results, notes: Sequence[str], first: Sequence[PageSection] = ()) -> str:
        """Return the page as text; equal results give equal bytes. first: sections before those of its own."""
        filters = {"points": points, "between": between, "in_words": in_words, "counted": counted}
        environment = template_environment(TEMPLATE, filters)
        bars = _drop_bars([sorted_drops(results, model, self.measure) for model in results.models])
        return environment.get_template(TEMPLATE).render(
            results=results,
            words=self.words(results),
            sentences=self.sentences(results),
            notes=notes,
            bars=list(zip((model.short_name for model in results.models), bars, strict=True)),
            sections=[*first, *self.sections(results)],
            readings=[(facts.title, facts.reading) for facts in results.measures],
            version=__version__,
        )


def headings(results: Results) -> list[tuple[str, ModelFacts]]:
    """Return each model with the heading of its tables, which is empty for a single model."""
    return [(model.short_name if len(results.models) > 1 else "", model) for model in results.models]


def sorted_drops(results: Results, model: ModelFacts, measure: str) -> list[tuple[GroupFacts, Estimate]]:
    """Return each shift with its drop of a measure, the largest first."""
    drops = [
        (group, drop)
        for group in results.shifts
        if (drop := results.rows.estimate(DROP, model=model.name, group=group.name, at=measure)) is not None
    ]
    return sorted(drops, key=lambda entry: -entry[1].value)


def _drop_bars(drops_of_models: Sequence[Sequence[tuple[GroupFacts, Estimate]]]) -> list[list[Bar]]:
    """Return the bars of each model, all on one scale."""
    ends = [0.0]
    for _, drop in chain(*drops_of_models):
        ends += [drop.value, *(end for end in (drop.low, drop.high) if end is not None)]
    least, most = min(ends), max(ends)
    scale = 100 / (most - least) if most > least else 0.0

    def at(value: float) -> float:
        return (value - least) * scale

    return [
        [
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
        for drops in drops_of_models
    ]


def group_table(results: Results, model: ModelFacts, measures: Sequence[str], drops: Sequence[str]) -> Table:
    """Return one row for each group: the measures in percent, and the drops of the measures in `drops` in points."""
    titles = {measure.name: measure.title for measure in results.measures}
    rows = []
    for group in results.groups:
        key = {"model": model.name, "group": group.name}
        cells = [points_cell(results.rows.estimate(name, **key)) for name in measures]
        cells += [_drop_cell(results.rows, {**key, "at": name}) for name in drops]
        rows.append(TableRow((text_cell(group.name), *cells)))
    columns = [TableColumn("group", "shift"), *(TableColumn(f"{titles[name]} (%)") for name in measures)]
    columns += [TableColumn(f"drop of {name} (points)") for name in drops]
    return Table(f"{model.short_name}: 95 % intervals below", tuple(columns), tuple(rows))


def _drop_cell(rows: ResultRows, key: Mapping[str, str]) -> TableCell:
    """Return a drop with its interval and, if it is over some of the classes, how many and from which number."""
    drop, base = rows.one(DROP, **key), rows.value(DROP_BASE, **key)
    cell = points_cell(None if drop is None else drop.estimate)
    if drop is None or not drop.note or base is None:
        return cell
    return replace(cell, below=", ".join(filter(None, (cell.below, f"of {percent(base)}", drop.note))))


def compared_sentences(results: Results) -> list[str]:
    """Return a sentence for each pair of models: under which shifts one clearly loses more of the lead measure."""
    sentences = []
    for first, second in combinations(results.models, 2):
        rows = results.rows.where(DIFFERENCE, model=first.name, against=second.name)
        more = [in_words(row.group) for row in rows if sign(row) > 0]
        less = [in_words(row.group) for row in rows if sign(row) < 0]
        for names, loser, other in ((more, first, second), (less, second, first)):
            if names:
                loss = f"{loser.short_name} clearly loses more {results.lead} than {other.short_name}"
                sentences.append(f"{loss} under {listed(names)}.")
        if rows and not more and not less:
            names = f"{first.short_name} or {second.short_name}"
            sentences.append(f"Under no shift does {names} clearly lose more {results.lead}.")
    return sentences


def compared_section(results: Results, noun: str, over: str) -> Iterator[PageSection]:
    """Yield the part of the page on pairs of models, if there are any: both drops, and their difference.

    over: a sentence on what is compared.
    """
    short = results.short_names
    rows = []
    for difference in results.rows.where(DIFFERENCE):
        drops = [
            _drop_cell(results.rows, {"model": name, "group": difference.group, "at": results.lead})
            for name in (difference.model, difference.against)
        ]
        more = points_cell(difference.estimate, signed=True)
        more = replace(more, below=", ".join(filter(None, (more.below, difference.note))))
        pair = text_cell(short[difference.model]), text_cell(short[difference.against]), text_cell(difference.group)
        rows.append(TableRow((*pair, *drops, more)))
    if not rows:
        return
    rows.sort(key=lambda row: -abs(float(row.cells[-1].sort or 0.0)))
    heads = (f"drop of {results.lead} (points)", "drop of the other (points)", "loses more by (points)")
    columns = (TableColumn(noun, "name"), TableColumn("against", "name"), TableColumn("group", "shift"))
    table = Table(f"Drops of {results.lead} compared", (*columns, *map(TableColumn, heads)), tuple(rows))
    yield PageSection(
        f"{noun.capitalize()}s compared",
        [("", table.first(_MOST_DIFFERENCES, "rows", "measures.csv"))],
        f"Images are resampled for both {noun}s together. Intervals of differences hold for all pairs and shifts at"
        f" once. {over}",
        compared_sentences(results),
    )
