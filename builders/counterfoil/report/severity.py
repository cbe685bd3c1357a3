"""How much of a shift is too much: facts, tables and words of shifts that have levels.

Rows are of a shift (`group`), at a level (`at`; "0" is the base) or of the whole curve (no `at`). A
level that is not reached has no value, and its row a note.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import TYPE_CHECKING, Any

from counterfoil.documents import Count, Strict
from counterfoil.report.labels import checked_shifts
from counterfoil.report.sections import CardSection, MeasureFacts, ReportSection, Shown
from counterfoil.report.words import (
    NOTHING,
    Table,
    TableCell,
    TableColumn,
    TableRow,
    count_cell,
    format_count,
    format_list,
    format_number,
    format_probability,
    format_range,
    in_words,
    interval_sign,
    points_cell,
    text_cell,
)

if TYPE_CHECKING:
    from counterfoil.report.results import ModelFacts, ResultRow, Results

ACCURACY = "severity_accuracy"
DROP = "severity_drop"
TEN_POINTS = "severity_ten_points"
FAILED = "severity_failed"
MEDIAN = "severity_median"
RECOVERED = "severity_recovered"
DIFFERENCE = "severity_difference"
RANK = "severity_rank"
FAILURE_DIFFERENCE = "severity_failure_difference"
LASTING = "_lasting"
IF_LOST_FAIL = "_if_lost_fail"
IF_LOST_HOLD = "_if_lost_hold"
COMPLETE = "_complete"
NOT_REACHED = "not reached"
END_NOT_REACHED = "upper end not reached"
SWAPS = "swaps within trajectories, Holm over pairs"
# What the ending of a name adds. CNS-Bench counts complete trajectories only.
_ENDINGS = {
    "": "",
    LASTING: ", wrong from there on",
    IF_LOST_FAIL: ", if rejected levels count as wrong",
    IF_LOST_HOLD: ", if rejected levels count as right",
    COMPLETE: ", over trajectories with every level",
}
_OF_DROPS = ("", COMPLETE)
_DROP = "Base accuracy less accuracy at `at`"
_TEN = "The level where the drop, made to rise, first reaches ten points"
_FAILED = "The share of trajectories right at the base that have failed by `at`"
_PAIR = "of the model less that of `against`"
MEASURE_FACTS = (
    MeasureFacts(
        ACCURACY,
        "Accuracy by level",
        "percent",
        "Accuracy at the level `at` (0: the base), over the curve's classes.",
    ),
    *(
        MeasureFacts(DROP + end, "Drop by level", "points", f"{_DROP}{_ENDINGS[end]}.")
        for end in _OF_DROPS
    ),
    *(
        MeasureFacts(TEN_POINTS + end, "Level of ten points", "plain", f"{_TEN}{_ENDINGS[end]}.")
        for end in _OF_DROPS
    ),
    *(
        MeasureFacts(FAILED + end, "Failed", "percent", f"{_FAILED}{note}.")
        for end, note in _ENDINGS.items()
    ),
    *(
        MeasureFacts(
            MEDIAN + end,
            "Median failure point",
            "plain",
            f"The level by which half have failed{note}.",
        )
        for end, note in _ENDINGS.items()
    ),
    MeasureFacts(
        RECOVERED,
        "Recovered",
        "percent",
        "The share of these trajectories that are right again after a failure.",
    ),
    MeasureFacts(
        DIFFERENCE,
        "Difference by level",
        "points",
        f"Accuracy {_PAIR}; the intervals hold for all pairs and levels.",
    ),
    MeasureFacts(
        RANK,
        "Rank by level",
        "plain",
        "Rank by accuracy at `at`, with the ranks that the intervals allow.",
    ),
    MeasureFacts(
        FAILURE_DIFFERENCE,
        "Difference of failure points",
        "plain",
        f"The mean level of failure {_PAIR}.",
    ),
)


@dataclass(frozen=True, slots=True)
class SeverityLevel(Strict):
    """A level, its group of images, and how many trajectories with a base image have none here."""

    level: float
    group: str
    accepted: Count
    lost: Count


@dataclass(frozen=True, slots=True)
class Severity(Strict):
    """A shift with levels, mildest first.

    realised: levels are shares of the gain that the screening CLIP measures, not raw scales.
    classes: how many the curve averages over; left_out: names of classes with too few images at a
    level. trajectories: those with a base image; complete: those with an image at every level too.
    """

    shift: str
    realised: bool
    levels: tuple[SeverityLevel, ...]
    classes: Count
    left_out: tuple[str, ...]
    trajectories: Count
    complete: Count

    @property
    def axis(self) -> str:
        """The quantity that the levels measure."""
        return "CLIP-realised level" if self.realised else "level"

    @property
    def ats(self) -> tuple[str, ...]:
        """The base and the levels as rows have them."""
        return ("0", *(at(level.level) for level in self.levels))


def at(level: float) -> str:
    return f"{level:g}"


_BEYOND = 2.0  # a table sorts a level that is not reached as this number
_MOST_NAMED = 3
# The best models on the base are compared pair by pair; others have only their curves.
MOST_COMPARED = 12
_MOST_CARD_MODELS = 6
_MOST_CARD_SHIFTS = 40
_MOST_CLASSES = 20  # of a table; all are in measures.csv


def level_words(result: ResultRow | None, severity: Severity) -> tuple[str, str]:
    """Return a row's level and its interval; "beyond" the top level if it is not reached."""
    if result is None:
        return NOTHING, ""
    beyond = f"beyond {severity.ats[-1]}"
    value = beyond if result.value is None else format_number(result.value)
    high = beyond if result.high is None else format_number(result.high)
    return value, "" if result.low is None else f"{format_number(result.low)} to {high}"


def _level_cell(result: ResultRow | None, severity: Severity) -> TableCell:
    return TableCell(
        *level_words(result, severity),
        _BEYOND if result is None or result.value is None else result.value,
    )


def ten_points_table(
    results: Results, models: Sequence[ModelFacts], *, short: bool = True
) -> Table:
    """Return the level at which the drop reaches ten points: one row per shift, one column per
    model."""
    return _levels_table(
        results, models, TEN_POINTS, f"The level where {results.lead} has dropped ten points", short
    )


def _levels_table(
    results: Results,
    models: Sequence[ModelFacts],
    measure: str,
    caption: str,
    short: bool,
) -> Table:
    columns = [TableColumn(model.called(short), note=model.note, named=True) for model in models]
    rows = []
    for severity in results.severity:
        results_of_shift = [
            results.rows.one(measure, model=model.name, group=severity.shift) for model in models
        ]
        rows.append((severity.shift, *(_level_cell(each, severity) for each in results_of_shift)))
    return Table.of(caption, (TableColumn("shift", "shift"), *columns), rows)


def _failures_table(severity: Severity, results: Results, models: Sequence[ModelFacts]) -> Table:
    """Return failure points of each model under one shift, by every definition."""
    rows = []
    for model in models:
        key = {"model": model.name, "group": severity.shift}
        first, fail, hold, lasting, complete = (
            results.rows.one(MEDIAN + ending, **key)
            for ending in ("", IF_LOST_FAIL, IF_LOST_HOLD, LASTING, COMPLETE)
        )
        right = 0 if first is None else first.n or 0
        bounds = dict.fromkeys(level_words(bound, severity)[0] for bound in (fail, hold))
        cells = (
            TableCell(model.short_name, model.note, model.name),
            TableCell(f"{right:,} of {severity.trajectories:,}", sort=right),
            _level_cell(first, severity),
            " to ".join(bounds),
            _level_cell(lasting, severity),
            _level_cell(complete, severity),
            points_cell(results.rows.estimate(RECOVERED, **key)),
        )
        rows.append(cells)
    columns = (
        TableColumn("model", "name"),
        "right at the base",
        "half have failed by",
        "bounds",
        "wrong from there on",
        f"complete trajectories only ({severity.complete:,})",
        "right again later (%)",
    )
    return Table.of(f"Failure points: {in_words(severity.shift)}", columns, rows).without_empty()


def _ranks_table(severity: Severity, results: Results) -> Table:
    """Return each compared model's rank at the base and at every level, with the possible ranks."""
    rows = []
    for model in results.models:
        ranks = [
            results.rows.one(RANK, model=model.name, group=severity.shift, at=at)
            for at in severity.ats
        ]
        cells = [text_cell(model.short_name)]
        for rank in filter(None, ranks):
            ends = "" if rank.low == rank.high else format_range(rank, 0)
            value = rank.value or 0.0
            cells.append(TableCell(format_number(value, 0), ends, value))
        if all(ranks):
            rows.append(TableRow(tuple(cells)))
    rows.sort(key=lambda table_row: float(table_row.cells[1].sort))
    columns = [
        TableColumn("model", "name"),
        TableColumn("base"),
        *map(TableColumn, severity.ats[1:]),
    ]
    return Table.of(f"Rank by accuracy: {in_words(severity.shift)}", columns, rows)


def _pairs_table(severity: Severity, results: Results) -> Table:
    """Return how much later one model fails than another, for each pair. The smallest p is
    first."""
    short = results.short_names
    differences = results.rows.where(FAILURE_DIFFERENCE, group=severity.shift)
    rows = []
    differences.sort(key=lambda difference: (difference.q or 0, difference.p or 0))
    for difference in differences:
        later = format_number(difference.value, signed=True)
        q = difference.q or 0.0
        cells = (
            short[difference.model],
            short[difference.against],
            count_cell(difference.n or 0),
            TableCell(later, format_range(difference), difference.value or 0.0),
            TableCell(format_probability(q).removeprefix("= "), sort=q),
        )
        rows.append(cells)
    numbers = map(TableColumn, ("trajectories", "fails later by (levels)", "adjusted p"))
    columns = (TableColumn("model", "name"), TableColumn("against", "name"), *numbers)
    return Table.of(f"Pairs of models: {in_words(severity.shift)}", columns, rows)


def _classes_table(severity: Severity, results: Results) -> Table:
    """Return each class's drop at every level, for the model of the film strips; largest drop
    first."""
    model = middle_model(severity, results)
    key = {"model": model.name if model else "", "group": severity.shift}
    drops_of_class: dict[str, list[ResultRow]] = {}
    for drop_row in results.rows.where(DROP, **key):
        if drop_row.class_id:
            # in the order of levels
            drops_of_class.setdefault(drop_row.class_id, []).append(drop_row)
    called = {cls.id: cls.name for cls in results.classes}
    rows = []

    def last_gain(class_id: str) -> float:
        return -(drops_of_class[class_id][-1].value or 0.0)

    for class_id in sorted(drops_of_class, key=last_gain):
        base = results.rows.estimate(ACCURACY, class_id=class_id, at="0", **key)
        cells = [points_cell(drop.estimate) for drop in drops_of_class[class_id]]
        rows.append((called[class_id], points_cell(base), *cells))
    columns = [TableColumn("class", "name"), "accuracy at the base (%)", *severity.ats[1:]]
    who = model.short_name if model else NOTHING
    caption = f"Drop by class (points), {who}: {in_words(severity.shift)}"
    return Table.of(caption, columns, rows).first(_MOST_CLASSES, "classes", "measures.csv")


def middle_model(severity: Severity, results: Results) -> ModelFacts | None:
    """Return the model with the middle median failure point. A model near chance counts only if
    there is no other."""
    models = results.sound_models or results.models
    medians = [results.rows.one(MEDIAN, model=model.name, group=severity.shift) for model in models]
    order = []
    for index, median in enumerate(medians):
        if median:
            order.append((_BEYOND if median.value is None else median.value, index))
    return models[median_low(order)[1]] if order else None


def earliest(
    results: Results, shifts: Sequence[Severity]
) -> tuple[Severity, ModelFacts, ResultRow] | None:
    """Return which of these shifts and which sound model lose ten points at the lowest level; None
    if none does."""
    crossings = [
        crossing for crossing in _crossings(results, shifts) if crossing[2].value is not None
    ]
    return min(crossings, key=lambda crossing: crossing[2].value or 0.0, default=None)


def _crossings(
    results: Results, shifts: Sequence[Severity]
) -> Iterator[tuple[Severity, ModelFacts, ResultRow]]:
    """Yield where each sound model loses ten points under each of these shifts."""
    for severity in shifts:
        for model in results.sound_models:
            if crossing := results.rows.one(TEN_POINTS, model=model.name, group=severity.shift):
                yield severity, model, crossing


def severity_words(results: Results) -> list[str]:
    """Return sentences: where ten points are lost first, and whether the ranking changes."""
    if not results.severity:
        return []
    first = earliest(results, results.severity)
    if not any(_crossings(results, results.severity)):
        return ["Too few images, or no model above chance: nothing can be said of the levels."]
    if first is None:
        shifts = format_count(len(results.severity), "shift with levels", "shifts with levels")
        sentences = [f"No model loses ten points under the {shifts}{_may_lose(results)}."]
    else:
        severity, model, crossing = first
        value, interval = level_words(crossing, severity)
        loses = "is the first to lose" if len(results.models) > 1 else "loses"
        where = f"at {severity.axis} {value} of “{in_words(severity.shift)}”"
        range_words = f" (95 % confidence interval {interval})" if interval else ""
        sentences = [f"{model.short_name} {loses} ten points: {where}{range_words}."]
    short = results.short_names
    changes = [
        f"{short[ahead]} falls behind {short[behind]} by level {level} of"
        f" “{in_words(severity.shift)}”"
        for severity in results.severity
        for ahead, behind, level in order_changes(severity, results)
    ]
    if changes:
        sentences.append(f"The ranking changes: {format_list(changes, _MOST_NAMED)}.")
    elif results.rows.where(RANK):
        sentences.append("No two models clearly change rank between the base and a level.")
    return sentences


def _may_lose(results: Results) -> str:
    """Return from which level on the intervals allow a loss of ten points; empty if they allow
    none."""
    crossings = [
        (crossing.low, in_words(severity.shift))
        for severity, _, crossing in _crossings(results, results.severity)
        if crossing.low is not None
    ]
    if not crossings:
        return ""
    level, shift = min(crossings)
    return f", but the intervals allow it from level {format_number(level)} of “{shift}” on"


def order_changes(severity: Severity, results: Results) -> list[tuple[str, str, str]]:
    """Return pairs that clearly change rank: the leader on the base, the model that overtakes it,
    and at which level.

    The simultaneous intervals of their differences exclude 0, on the base and at the level.
    """
    pairs: dict[tuple[str, str], dict[str, ResultRow]] = {}
    for difference in results.rows.where(DIFFERENCE, group=severity.shift):
        pairs.setdefault((difference.model, difference.against), {})[difference.at] = difference
    swaps = []
    for (model, against), by_level in pairs.items():
        base = interval_sign(by_level.get("0"))
        if base == 0:
            continue
        if base < 0:
            model, against = against, model
        for level in severity.ats[1:]:
            if interval_sign(by_level.get(level)) == -base:
                swaps.append((model, against, level))
                break
    return swaps


def _section(results: Results, drawn: Sequence[Any]) -> ReportSection | None:
    if not results.severity:
        return None
    models = results.best_first
    curves, legend, *strips = drawn
    median = "The level by which half of the trajectories have failed"
    shifts = []
    for severity in results.severity:
        of_models = [
            _failures_table(severity, results, models),
            _ranks_table(severity, results),
            _pairs_table(severity, results),
        ]
        shifts.append((severity, [_classes_table(severity, results), *of_models]))
    return ReportSection(
        title="How much is too much",
        short="Severity",
        sentences=severity_words(results),
        tables=[
            ten_points_table(results, models),
            _levels_table(results, models, MEDIAN, median, True),
        ],
        figures=[curves] if curves else [],
        legend=legend,
        tile=_first_to_lose(results),
        template="report-severity.html.j2",
        more={"shifts": shifts, "strips": strips, "most_compared": MOST_COMPARED},
    )


def _first_to_lose(results: Results) -> tuple[str, str, str] | None:
    """Return the headline: where a model first loses ten points, among shifts whose labels were
    checked."""
    checked = checked_shifts(results)
    first = earliest(
        results, [severity for severity in results.severity if severity.levels[-1].group in checked]
    )
    if first is None:
        return None
    severity, model, level = first
    value, interval = level_words(level, severity)
    if len(results.models) > 1:
        value = f"{model.short_name} at {value}"
    note = f"{in_words(severity.shift)}, {severity.axis}"
    if interval:
        note += f" ({interval})"
    return "first to lose ten points", value, note


def _terminal(results: Results, most_models: int) -> list[str | Table]:
    if not results.severity:
        return []
    return [ten_points_table(results, results.models[:most_models]), *severity_words(results)]


def _card(results: Results) -> CardSection | None:
    if not results.severity:
        return None
    table = ten_points_table(results, results.best_first[:_MOST_CARD_MODELS], short=False)
    shown = table.first(_MOST_CARD_SHIFTS, "shifts", "measures.csv")
    return CardSection(
        place="drops", template="dataset-card-severity.md.j2", tables=[("", shown, "")]
    )


SHOWN = Shown("drops", _section, _terminal, _card, measures=MEASURE_FACTS)
