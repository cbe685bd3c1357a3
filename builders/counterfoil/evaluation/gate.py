"""A gate: the requirements that a model has to meet, one a line, each answered pass, fail or
undecided.

A line passes if its whole interval meets the limit, and fails if no part of it does; otherwise it
is undecided. A line is also undecided if its images cannot answer it: a shift with unchecked
labels, or a drop of a model that guesses. The intervals hold for all comparisons of a gate at once,
advisory lines included, so that a long gate rejects a good model no more often than a short one. A
name that the dataset lacks is an error of the gate.

A line may name any measure of the task. A model meets it above the limit if more of the measure is
better, and below it if less is better; a drop is what is lost, so that of an error is how much it
grows.

The result is a table, one sentence, Markdown for a pull request, and JUnit XML. The names of groups
come from the dataset and are not trusted: each output shows them as plain text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol
from xml.etree import ElementTree

import numpy as np

from counterfoil.dataset.card.markdown import inline, markdown_table
from counterfoil.errors import CounterfoilError, ProblemLine, RunFailure, UserError
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.gate_changes import GroupChange
from counterfoil.evaluation.messages import message, refusal
from counterfoil.evaluation.scored_models import is_stored, short_names
from counterfoil.recipe.layering import text_of
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.prompts import BASE, RecipeClass
from counterfoil.recipe.strict_yaml import LocatedList, read_yaml
from counterfoil.report.results import ClassFacts
from counterfoil.report.sections import MeasureFacts
from counterfoil.report.terminal_tables import table_text
from counterfoil.report.words import (
    MOST_TERMINAL_ROWS,
    Table,
    TableColumn,
    format_count,
    format_list,
    format_percent,
    format_points,
    over_classes,
    points_cell,
)
from counterfoil.resampled_stats import (
    STILL,
    Drawn,
    Number,
    joint_reach,
    resampled_ratio,
    weighted_sum,
)
from counterfoil.stats import Estimate

ANY = "any"
# Exit codes of a command; 1 is a failed run, 2 a user's mistake.
FAILED = 3
UNDECIDED = 4
MOST_LINES = 500
# Do not advise more images per class than this.
MOST_NEEDED = 100_000

Answer = Literal["pass", "fail", "undecided"]
# Each measure that compares two numbers, with the number of names in its parentheses. A line with
# such a measure is written with <=.
COMPARISONS = {"drop": 1, "relative_drop": 1, "worse_than": 2, "differs": 2}
DROPS = ("drop", "relative_drop")
DIFFERS = "differs"


def _hint(measures: Mapping[str, MeasureFacts]) -> str:
    """Return which lines there are. A comparison that names no measure is of the first one."""
    first, *others = measures
    least = [name for name, facts in measures.items() if facts.lower_is_better]
    most = [name for name in measures if name not in least]
    singles = [f"{first}(GROUP) >= PERCENT", *(f"{name}(GROUP) <= PERCENT" for name in least)]
    drops = [
        f"drop(SHIFT) <= POINTS (of {first})",
        *(f"drop(SHIFT, {name}) <= POINTS" for name in others[:1]),
    ]
    return (
        f"A line is one of: {', '.join([*singles, *drops])}, relative_drop(SHIFT) <= PERCENT%,"
        " worse_than(MODEL, GROUP) <= POINTS, differs(MODEL, GROUP) <= PERCENT% (of the images;"
        " classifiers only). GROUP is base, a shift or any"
        ' ("any" in quotes is a group of that name). `, class=NAME` (or label=NAME) behind it asks'
        " for one class."
        " `advisory:` before a line reports it without failing. A name with spaces goes in double"
        " quotes. A number"
        f" below 1 needs its unit: 0.5 % or 0.5 points. Measures are {', '.join(most + least)}."
    )


_OF_CLASS = r"(?:class|label)\s*=\s*"  # multi-label classifiers say "label"
_NAME = rf'(?:{_OF_CLASS})?(?:"[^"]*"|[^\s,()"\']+)'
_LINE = re.compile(
    rf"\s*(?P<measure>\w+)\s*\(\s*(?P<names>{_NAME}(?:\s*,\s*{_NAME})*)\s*\)"
    r"\s*(?P<sign>[<>=!≤≥]+)\s*(?P<limit>[^\s<>=!≤≥].*?)\s*(?P<unit>%|points?)?\s*"
)
_NUMBER = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
_AS_TYPED = str.maketrans({"≤": "<=", "≥": ">=", "−": "-"})
_ADVISORY = "advisory"


@dataclass(frozen=True, slots=True)
class GateLine:
    """A parsed line."""

    text: str
    """The line as it is written."""
    measure: str
    """The word before the parentheses: a measure, or a comparison of one."""
    group: str
    """Its name; with `every`, the line is for all groups."""
    limit: float
    """A fraction."""
    other_model: str = ""
    """The other side of a comparison: a model or, for `worse_than`, the results.json of an earlier
    evaluation."""
    every: bool = False
    """Whether the line is for all groups."""
    class_name: str = ""
    """A class's name or id; empty for all classes."""
    advisory: bool = False
    """Whether the line is reported but never fails."""
    share: str = "accuracy"
    """The measure that is named or compared."""
    lower_is_better: bool = False
    """Whether less of the measure is better."""

    @property
    def above(self) -> bool:
        """Whether a model meets the line above the limit rather than below it."""
        return self.measure not in COMPARISONS and not self.lower_is_better


@dataclass(frozen=True, slots=True)
class Judged:
    """A line of the gate for one model and one group."""

    line: GateLine
    """The parsed line."""
    model: str
    """The name of the judged model."""
    group: str
    """The name of the group."""
    verdict: Answer = "undecided"
    """The answer."""
    estimate: Estimate | None = None
    """Fractions, with an interval that holds for all comparisons of the gate at once; None if
    nothing was measured."""
    images: float = 0.0
    """How many are measured of what `counted` says, on the smaller side."""
    needed: int | None = None
    """How many of these would decide the line with the same value; None if the line is decided, or
    if no number would decide it."""
    reason: str = ""
    """Why the line has its answer, if not because of its interval."""
    classes: tuple[int, int] = (0, 0)
    """Measured classes and classes of the group; zeros for a detector and for `differs`."""
    level: float | None = None
    """The level of a graded shift."""
    base: float | None = None
    """Of a drop over some of the classes, what it is from."""
    counted: str = "images"
    """Images per class (their harmonic mean), images, or units: what an interval depends on."""

    def measured(
        self,
        number: Number,
        reach: float,
        excused: float = 0.0,
        doubt: str = "",
    ) -> Judged:
        """Return this line with an interval of so many standard errors and its verdict.

        A line that has a reason stays undecided. excused: what wrong labels may cost; a line that
        fails by no more is undecided, with `doubt` as its reason.
        """
        estimate = number.interval(reach)
        images = number.images
        judged = replace(self, estimate=estimate, images=images, counted=number.counted)
        if self.reason:
            return judged
        value = estimate.value
        low = estimate.low
        high = estimate.high
        limit = self.line.limit
        if low is None or high is None:
            return replace(judged, reason="there are too few images for an interval")
        if not self.line.above:  # below the limit is above its negative
            value = -value
            low, high = -high, -low
            limit = -limit
        if low >= limit:
            return replace(judged, verdict="pass")
        if high + excused < limit:
            return replace(judged, verdict="fail")
        if high < limit:
            return replace(judged, reason=doubt)
        distance = value - limit
        if not distance:
            return judged
        open_end = value - low if distance > 0 else high - value
        times = open_end / abs(distance)
        if np.nanstd(number.drawn) > STILL:
            # An interval narrows with the square root of the number of images.
            needed = math.ceil(images * times**2)
        else:
            # The distance from 0 or 1 to the far end of Wilson's interval is
            # reach² / (images + reach²).
            needed = math.ceil(images * times + reach**2 * (times - 1))
        if needed > MOST_NEEDED:
            return judged
        return replace(judged, needed=needed)


class GateFailure(RunFailure):
    """A model does not meet its gate; `exit_code` is the command's."""


@dataclass(frozen=True)
class GateResult:
    """Every comparison of a gate, for a dataset by its name and the judged models."""

    dataset: str
    models: tuple[str, ...]
    judged: tuple[Judged, ...]
    allow_undecided: bool = False

    def __str__(self) -> str:
        """Return the table and the sentence that the command prints."""
        return table_text(terminal_table(self)) + gate_sentence(self)

    @property
    def verdict(self) -> Answer:
        """Fail if any line fails, else undecided if any is undecided, else pass; advisory lines do
        not count."""
        verdicts = {judged.verdict for judged in self.judged if not judged.line.advisory}
        if "fail" in verdicts:
            return "fail"
        return "undecided" if "undecided" in verdicts else "pass"

    @property
    def exit_code(self) -> int:
        """The command's exit code: 0, FAILED or UNDECIDED."""
        if self.verdict == "fail":
            return FAILED
        if self.verdict == "undecided" and not self.allow_undecided:
            return UNDECIDED
        return 0

    def raise_if_failed(self) -> None:
        """Raise GateFailure with each line that does not pass, unless the exit code is 0."""
        if not self.exit_code:
            return
        passing = ("pass", "undecided") if self.allow_undecided else ("pass",)
        problems = []
        for judged in self.judged:
            if judged.line.advisory or judged.verdict in passing:
                continue
            comparison = f"{judged.line.text} for {judged.model} on {judged.group}"
            reason = ""
            if judged.reason:
                reason = f", {judged.reason}"
            verdict = f"{judged.verdict}{reason}"
            problems.append(message("gate-failed", comparison, verdict))
        failed = GateFailure(problems)
        failed.exit_code = self.exit_code
        raise failed

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; fractions, as in results.json."""
        lines = []
        for judged in self.judged:
            line = judged.line
            estimate = judged.estimate
            document = {
                "line": line.text,
                "model": judged.model,
                "group": judged.group,
                "class": line.class_name or None,
                "advisory": line.advisory,
                "verdict": judged.verdict,
                "limit": line.limit,
                "value": estimate and estimate.value,
                "low": estimate and estimate.low,
                "high": estimate and estimate.high,
                "classes": judged.classes[0],
                "classes_planned": judged.classes[1],
                "images_per_class": judged.images,
                "images_per_class_needed": judged.needed,
                "reason": judged.reason,
            }
            lines.append(document)
        return {"verdict": self.verdict, "models": list(self.models), "lines": lines}


# ---- Reading


def read_gate(
    gate: str | Path | Sequence[str] | None,
    problems_of: Callable[[GateLine], Iterable[str]],
    measures: Mapping[str, MeasureFacts],
) -> tuple[list[GateLine], list[CounterfoilError]]:
    """Return the lines of a file (a YAML list of texts) or of texts, and an error if one is wrong,
    with every problem.

    Lines that cannot be parsed are left out. Raise UserError for a file without a list.

    problems_of: what the images cannot answer of a line. measures: what a line can measure. A
    comparison that names no measure uses the first one.
    """
    if gate is None:
        return [], []
    if isinstance(gate, str) and _LINE.fullmatch(gate):
        gate = [gate]
    if isinstance(gate, str | Path):
        source = str(gate)
        texts: Any = read_yaml(text_of(Path(gate)), source)
    else:
        source = "gate"
        texts = list(gate)
    if not isinstance(texts, list) or not texts:
        raise UserError(message("invalid-gate.list", source), _hint(measures))
    if len(texts) > MOST_LINES:
        raise refusal("invalid-gate.many", source, len(texts), MOST_LINES)
    origins = [f"gate, line {number}" for number in range(1, len(texts) + 1)]
    if isinstance(texts, LocatedList):
        origins = texts.origins
    lines: list[GateLine] = []
    problems: list[ProblemLine] = []
    written: dict[GateLine, str] = {}  # comparison → its first line
    unread = False
    for origin, text in zip(origins, texts, strict=True):
        if isinstance(text, dict):  # YAML reads `advisory: drop(fog) <= 10` as a mapping
            text = ", ".join(f"{key}: {value}" for key, value in text.items())
        shown = text if isinstance(text, str) and text.isprintable() else repr(text)
        where = f"{origin}: {shown}"[:200]
        line = _parsed(text, measures)
        if isinstance(line, ProblemLine):
            problems.append(line.at(where))
            unread = True
            continue
        comparison = replace(line, text="", limit=0.0)
        if comparison in written:
            problems.append(message("invalid-gate.twice", where, written[comparison]))
            continue
        written[comparison] = where
        lines.append(line)
        problems += [ProblemLine.of(problem).at(where) for problem in problems_of(line)]
    hint = _hint(measures) if unread else None
    return lines, [UserError(problems, hint)] if problems else []


def _parsed(text: Any, measures: Mapping[str, MeasureFacts]) -> GateLine | ProblemLine:
    """Return the line, or what is wrong with it."""
    if not isinstance(text, str):
        return message("invalid-gate.text")
    advice, colon, rest = text.partition(":")
    advisory = bool(colon) and advice.strip() == _ADVISORY
    line = rest if advisory else text
    match = _LINE.fullmatch(line) if len(text) <= 1000 else None
    if match is None:
        hint = ""
        if colon and not advisory:
            hint = did_you_mean(advice, (_ADVISORY,))
        return message("invalid-gate.line", hint=hint)
    measure = match["measure"]
    known = (*measures, *COMPARISONS)
    if measure not in known:
        return message("invalid-gate.measure", None, measure, known)
    compares = measure in COMPARISONS
    share = measure
    if compares:
        share = next(iter(measures))
    count = COMPARISONS.get(measure, 1)
    written = re.findall(_NAME, match["names"])
    of_class = re.match(_OF_CLASS, written[-1])
    class_name = None
    if of_class:
        class_name = written.pop()[of_class.end() :].strip('"')
    what = "one group"
    if count == 2:
        what = "a model and a group"
    takes = f"{measure} takes {what}, and perhaps class=NAME"
    # `differs` compares answers; other comparisons may name the measure that they compare.
    compares_measure = compares and measure != DIFFERS
    if compares_measure and len(measures) > 1 and len(written) == count + 1:
        share = written.pop()
        if share not in measures:
            return message("invalid-gate.compared", None, share, measures, takes=takes)
    facts = measures[share]
    sign = ">="
    if compares or facts.lower_is_better:
        sign = "<="
    least = -100.0 if compares_measure else 0.0
    names = [name.strip('"') for name in written]
    if len(names) != count or not all(names) or class_name == "":
        return message("invalid-gate.names", takes=takes)
    if match["sign"].translate(_AS_TYPED) != sign:
        return message("invalid-gate.sign", None, match["sign"], sign, measure=measure)
    number = match["limit"].translate(_AS_TYPED)
    unit = match["unit"]
    if not _NUMBER.fullmatch(number) or not least <= (limit := float(number)) <= 100:
        return message("invalid-gate.limit", None, match["limit"], least=least)
    number = number[:40]
    in_points = measure in ("drop", "worse_than") or (measure == share and facts.unit == "points")
    if unit == "%" and in_points:
        instead = ", or relative_drop for a share of the base"
        if measure == share:
            instead = ""
        return message("invalid-gate.points", None, number, measure=measure, instead=instead)
    if unit not in (None, "%") and not in_points:
        return message("invalid-gate.percent", None, number, measure=measure)
    if unit is None and 0 < abs(limit) < 1:
        unit = "points" if in_points else "%"
        whole = f"{100 * limit:.10g}"
        return message("invalid-gate.unit", None, number, unit=unit, whole=whole)
    group = names[-1]
    if measure in DROPS and group == BASE:
        return message("unfit-line.base")
    return GateLine(
        " ".join(text.split()),
        measure,
        group,
        limit / 100,
        other_model=names[0] if count == 2 else "",
        every=written[-1] == ANY,
        class_name=class_name or "",
        advisory=advisory,
        share=share,
        lower_is_better=facts.lower_is_better,
    )


def models_of(gate: Sequence[GateLine]) -> tuple[str, ...]:
    """Return the scored models that lines compare with."""
    others = dict.fromkeys(line.other_model for line in gate if line.other_model)
    return tuple(name for name in others if not is_stored(name))


def judged_models(gate: Sequence[GateLine], names: Sequence[str]) -> tuple[str, ...]:
    """Return the models to judge: all but those that the gate compares with. Raise UserError if
    there are none."""
    others = models_of(gate)
    judged = tuple(name for name in names if name not in others)
    if not judged:
        raise refusal("missing-model.judged")
    return judged


NamedClasses = Sequence[RecipeClass] | Sequence[ClassFacts]


def name_problems(line: GateLine, subject: Subject, classes: NamedClasses) -> Iterator[str]:
    """Yield which names of a line the images lack, and whether they have no base for its drop."""
    group_indices = indices_of_groups(subject)
    if line.measure in DROPS and not subject.base:
        yield message("unfit-line.no-base")
    elif not line.every and line.group not in group_indices:
        known = list(group_indices)
        hint = did_you_mean(line.group, [*known, ANY]) or f"; groups are {format_list(known, 20)}"
        yield message("unmeasured-group.line", None, line.group, hint=hint, images=subject.name)
    elif line.measure in DROPS and not line.every and group_indices[line.group] == 0:
        yield message("unfit-line.base-group", None, line.group)
    if line.class_name:
        count = len(labels_named(line.class_name, classes))
        if count > 1:
            yield message("unmeasured-group.classes", None, line.class_name, count=count)
        elif not count:
            names = [cls.name for cls in classes]
            hint = did_you_mean(line.class_name, names) or f"; classes are {format_list(names, 20)}"
            yield message(
                "unmeasured-group.class", None, line.class_name, hint=hint, images=subject.name
            )


def indices_of_groups(subject: Subject) -> dict[str, int]:
    """Return the index of each group by every name that a line may use: fog@3 is another name of
    fog_3."""
    indices = {group.name: index for index, group in enumerate(subject.groups)}
    if subject.base:
        indices.setdefault(BASE, 0)
    for index, group in enumerate(subject.groups):
        if not group.top:
            level = group.name.removeprefix(f"{group.of}_")
            indices.setdefault(f"{group.of}@{level}", index)
    return indices


def labels_named(name: str, classes: NamedClasses) -> list[int]:
    """Return the labels of the classes with this name or, if there are none, with this id.

    Images without a recipe have ids such as 0002, which may be the name of another class.
    """
    by_name = [label for label, cls in enumerate(classes) if cls.name == name]
    return by_name or [label for label, cls in enumerate(classes) if cls.id == name]


# ---- Judging


class Comparing(Protocol):
    """The numbers of some models on some images, which answer lines."""

    @property
    def subject(self) -> Subject: ...

    def comparisons(self, line: GateLine, model: str) -> Iterable[tuple[Judged, Any]]:
        """Yield a line once for each of its groups, still undecided, with what to measure; None for
        nothing."""
        ...

    def numbers(self, questions: Sequence[Any]) -> Sequence[Number]:
        """Return a number for each thing to measure. All are resampled together."""
        ...

    def judged(self, judged: Judged, number: Number, reach: float) -> Judged:
        """Return the line with its verdict."""
        ...

    def changes(self, earlier: str, model: str) -> Iterable[GroupChange]:
        """Yield how a model differs in each group from one that lines compare with."""
        ...


def line_number(line: GateLine, sides: Sequence[Drawn]) -> Drawn:
    """Return what a line measures: the number of its only side, or how much worse the last side is
    than the first."""
    if len(sides) == 1:
        return sides[0]
    worse = -1.0 if line.lower_is_better else 1.0
    lost = weighted_sum([(worse, sides[0]), (-worse, sides[1])])
    if line.measure == "relative_drop":
        return replace(resampled_ratio(lost, sides[0]), signed=True)
    return lost


def judge_gate(
    comparing: Comparing,
    gate: Sequence[GateLine],
    models: Sequence[str],
    allow_undecided: bool = False,
) -> GateResult:
    """Judge every line for each of these models, with intervals that hold for all comparisons at
    once."""
    comparisons: list[tuple[Judged, Any]] = []
    for line in gate:
        for model in models:
            comparisons += comparing.comparisons(line, model)
    numbers = comparing.numbers([question for _, question in comparisons if question is not None])
    reach = joint_reach(numbers)
    left = iter(numbers)
    outcomes = []
    for judged, question in comparisons:
        if question is not None:
            judged = comparing.judged(judged, next(left), reach)
        outcomes.append(judged)
    return GateResult(comparing.subject.name, tuple(models), tuple(outcomes), allow_undecided)


# ---- Outputs

MARKDOWN = "gate.md"
JUNIT = "gate.xml"
FOLDER = "gate"
# GitHub takes 65,536 in a comment, and a job adds some to the paths of pictures.
MOST_CHARACTERS = 60_000
# GitLab makes references of ! % & too.
_BARE = re.compile(
    r"(?<![\\`])(`+)(?!`).+?(?<!`)\1(?!`)|(?<=[@#!%&])(?=\w)|(?<=:)(?=[\w/+]|-\d)|(?<=www)(?=\.)"
    r"|(?<=\b[Gg][Hh])(?=-\d)"
)
_COLUMNS = (
    TableColumn("line", "name"),
    TableColumn("group", "shift"),
    "measured",
    TableColumn("answer", "text"),
    TableColumn("why", "text"),
)


def gate_table(result: GateResult) -> Table:
    """Return one row per comparison, with a column for the model if several are judged."""
    short = short_names(result.models)
    order = ("fail", "undecided", "pass")

    def rank(judged: Judged) -> tuple[bool, int]:
        return judged.line.advisory, order.index(judged.verdict)

    rows = []
    for judged in sorted(result.judged, key=rank):
        group = judged.group
        if judged.level is not None:
            group += f", level {judged.level:g}"
        verdict = judged.verdict
        if verdict == "fail" and not judged.line.advisory:
            verdict = "FAIL"
        measured = points_cell(judged.estimate)
        cells: tuple[Any, ...] = (
            judged.line.text,
            group,
            measured,
            verdict,
            verdict_reason(judged),
        )
        if len(short) > 1:
            cells = (short[judged.model], *cells)
        rows.append(cells)
    columns: Sequence[TableColumn | str] = _COLUMNS
    if len(short) > 1:
        columns = (TableColumn("model", "name"), *_COLUMNS)
    return Table.of("The gate: 95 % intervals that hold for all lines at once", columns, rows)


def terminal_table(result: GateResult) -> Table:
    """Return the table as a terminal shows it, with the first rows."""
    return gate_table(result).first(MOST_TERMINAL_ROWS, "rows", "gate.md")


def verdict_reason(judged: Judged) -> str:
    """Return what a verdict rests on, or what would decide it."""
    if judged.reason:
        return judged.reason
    measured, planned = judged.classes
    unit = judged.counted
    # A limit is shown with the digits that it is written with.
    _, _, digits = f"{100 * judged.line.limit:.10g}".partition(".")
    limit = format_points(judged.line.limit, decimals=max(1, len(digits)))
    if judged.line.measure == "relative_drop":
        limit += " %"
    if judged.verdict == "pass":
        side = "at most"
        if judged.line.above:
            side = "at least"
        reason = f"the whole interval is {side} {limit}"
    elif judged.verdict == "fail":
        side = "above"
        if judged.line.above:
            side = "below"
        reason = f"the whole interval is {side} {limit}"
    elif judged.needed is None:
        reason = f"too close to {limit}: even {MOST_NEEDED:,} {unit} would not decide it"
    else:
        value = format_points(None if judged.estimate is None else judged.estimate.value)
        reason = (
            f"about {judged.needed:,} {unit} would decide it if {value} is right; it has"
            f" {judged.images:,.0f}"
        )
    over = over_classes(measured, planned)
    if over:
        reason += f"; {over}"
        if judged.base is not None:
            reason += f", from {format_percent(judged.base)}"
    return reason


def gate_sentence(result: GateResult) -> str:
    """Return the verdict in one sentence."""
    sentences = []
    for advisory, what in ((False, "comparison"), (True, "advisory comparison")):
        judged_lines = [judged for judged in result.judged if judged.line.advisory == advisory]
        counts = Counter(judged.verdict for judged in judged_lines)
        parts = [
            f"{counts[verdict]} {verdict}"
            for verdict in ("pass", "fail", "undecided")
            if counts[verdict]
        ]
        if parts:
            sentences.append(f"{format_count(len(judged_lines), what)}: {', '.join(parts)}")
    models = format_list(list(short_names(result.models).values()), 3)
    return f"The gate says {result.verdict} for {models} ({'; '.join(sentences)})."


def gate_markdown(result: GateResult, further: Sequence[str] = ()) -> str:
    """Return Markdown for a comment in a pull request; no name in it becomes a link, a mention or
    HTML.

    further: parts that stand below the table, as far as the comment has room. A table that is too
    long loses rows, those of lines that pass first.
    """
    title = inline(gate_sentence(result))
    whole = gate_table(result)
    rows = len(whole.rows)
    text = ""
    while rows and (not text or len(text) > MOST_CHARACTERS):
        table = markdown_table(whole.first(rows, "rows", JUNIT))
        text = unlinked(f"### {title}\n\n{table}\n\nDataset: {inline(result.dataset)}")
        rows //= 2
    left_out = 0
    for part in further:
        if len(text) + len(part) < MOST_CHARACTERS:
            text += f"\n\n{part}"
        else:
            left_out += 1
    if left_out:
        text += f"\n\n{format_count(left_out, 'part')} left out: a comment has a limited length."
    return f"{text}\n"


def unlinked(text: str) -> str:
    """Return Markdown whose bare words become no addresses, people, issues or emoji.

    An HTML comment between letters prevents that. Code, such as a line of the gate, needs none, so
    that it can be copied.
    """
    return _printable(_BARE.sub(lambda match: match[0] or "<!-- -->", text), "\n")


def gate_junit(result: GateResult) -> str:
    """Return JUnit XML, one test per comparison. Undecided is an error, or skipped if undecided is
    allowed.

    An advisory line that does not pass is skipped, with its verdict in the message.
    """
    undecided = "error"
    if result.allow_undecided:
        undecided = "skipped"
    ways = {"pass": "", "fail": "failure", "undecided": undecided}
    kinds = []
    for judged in result.judged:
        kind = ways[judged.verdict]
        kinds.append("skipped" if kind and judged.line.advisory else kind)
    counts = Counter(kinds)
    suite = ElementTree.Element(
        "testsuite",
        name=_printable(f"gate: {result.dataset}"),
        tests=str(len(result.judged)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
    )
    for judged, kind in zip(result.judged, kinds, strict=True):
        model = _printable(judged.model)
        name = _printable(f"{judged.line.text} [{judged.group}]")
        case = ElementTree.SubElement(suite, "testcase", classname=model, name=name)
        if kind:
            cell = points_cell(judged.estimate)
            message = verdict_reason(judged)
            if cell.below:
                message = f"{cell.text} ({cell.below}): {message}"
            if judged.line.advisory:
                message = f"advisory, {judged.verdict}: {message}"
            ElementTree.SubElement(case, kind, message=_printable(message))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str, kept: str = "") -> str:
    """Return text with a space for each character that XML 1.0 cannot hold or that is invisible."""
    strange = {letter for letter in text if not letter.isprintable()} - {*kept}
    return text.translate(dict.fromkeys(map(ord, strange), " "))
