"""A gate: the requirements that a model has to meet, one a line, each answered pass, fail or undecided.

A line passes if its whole interval meets the limit, and fails if no part of it does; otherwise it is undecided. A line
is also undecided if its images cannot answer it: a shift with unchecked labels, or a drop of a model that guesses. The
intervals hold for all comparisons of a gate at once, advisory lines included, so that a long gate rejects a good model
no more often than a short one. A name that the dataset lacks is an error of the gate.

An accuracy here is averaged over every class with enough images, including classes that a model has forgotten. A drop
leaves out the classes that are near chance on the base, as all drops do.

The result is a table, one sentence, Markdown for a pull request, and JUnit XML. The names of groups come from the
dataset and are not trusted: each output shows them as plain text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from counterfoil.accuracy_stats import ClassAverage, ClassUnits, Side, class_average_interval, difference_of
from counterfoil.dataset.card.markdown import inline, markdown_table
from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.measures.comparison import drawn_averages
from counterfoil.evaluation.measures.findings import judges_among
from counterfoil.evaluation.scored_models import short_name
from counterfoil.evaluation.scores import AllAnswers
from counterfoil.evaluation.stored_answers import StoredAnswers, is_stored
from counterfoil.recipe.layering import text_of
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.prompts import BASE
from counterfoil.recipe.strict_yaml import read_yaml
from counterfoil.report.labels import LabelChecks
from counterfoil.report.words import Table, TableCell, TableColumn, TableRow, counted, listed, points, points_cell
from counterfoil.stats import Estimate, simultaneous_reach

ANY = "any"
# Exit codes of a command; 1 is a failed run, 2 a user's mistake.
FAILED, UNDECIDED = 3, 4
MOST_LINES = 500
# Do not advise more images per class than this.
MOST_NEEDED = 100_000

Answer = Literal["pass", "fail", "undecided"]
_HINT = (
    "A line is one of: accuracy(GROUP) >= PERCENT, drop(SHIFT) <= POINTS, relative_drop(SHIFT) <= PERCENT%,"
    " worse_than(MODEL or results.json, GROUP) <= POINTS. GROUP is base, a shift or any"
    ' ("any" in quotes is a group of that name). `, class=NAME` behind it asks for one class. `advisory:` before a line'
    " reports it without failing."
)
_NAME = r'(?:class=)?(?:"[^"]*"|[^\s,()"\']+)'
_LINE = re.compile(
    rf"\s*(?P<measure>\w+)\s*\(\s*(?P<names>{_NAME}(?:\s*,\s*{_NAME})*)\s*\)\s*(?P<sign>[<>=!]+)\s*(?P<limit>\S+(?:\s+%)?)\s*"
)
_NUMBER = re.compile(r"-?[0-9]{1,3}(?:\.[0-9]{1,6})?")
# Measure → its sign, its number of names, and the lowest limit that is allowed.
_MEASURES = {
    "accuracy": (">=", 1, 0.0),
    "drop": ("<=", 1, -100.0),
    "relative_drop": ("<=", 1, -100.0),
    "worse_than": ("<=", 2, -100.0),
}
_DROPS = ("drop", "relative_drop")
_ADVISORY = "advisory"


@dataclass(frozen=True, slots=True)
class GateLine:
    """A parsed line.

    limit: a fraction. against: the model, or the results.json of an earlier evaluation, to compare with. every: whether
    the
    line is for every group (`any`) rather than one. class_name: a class's name or id; empty for all classes. advisory:
    whether the line is reported but never fails.
    """

    text: str
    measure: str
    group: str
    limit: float
    against: str = ""
    every: bool = False
    class_name: str = ""
    advisory: bool = False

    @property
    def above(self) -> bool:
        """Whether a model meets the line above the limit rather than below it."""
        return _MEASURES[self.measure][0] == ">="


@dataclass(frozen=True, slots=True)
class Judged:
    """A line of the gate for one model and one group.

    estimate: fractions, with an interval that holds for all comparisons of the gate at once; None if nothing was
    measured.
    images: per class (harmonic mean), on the side with fewer. needed: the images per class that would decide the line
    if
    the value stayed; None if it is decided, or no number would decide it. reason: why it is undecided, if the interval
    is
    not the reason. classes: how many are measured, of how many in the group. level: the level of a shift with levels.
    """

    line: GateLine
    model: str
    group: str
    verdict: Answer
    estimate: Estimate | None = None
    images: float = 0.0
    needed: int | None = None
    reason: str = ""
    classes: tuple[int, int] = (0, 0)
    level: float | None = None


class GateFailure(RunFailure):
    """A model does not meet its gate; `exit_code` is the command's."""


@dataclass(frozen=True)
class GateResult:
    """Every comparison of a gate. dataset: its name. models: those judged. allow_undecided: whether undecided lines
    pass.
    """

    dataset: str
    models: tuple[str, ...]
    judged: tuple[Judged, ...]
    allow_undecided: bool = False

    @property
    def verdict(self) -> Answer:
        """Fail if any line fails, else undecided if any is undecided, else pass; advisory lines do not count."""
        verdicts = {judged.verdict for judged in self.judged if not judged.line.advisory}
        return "fail" if "fail" in verdicts else "undecided" if "undecided" in verdicts else "pass"

    @property
    def exit_code(self) -> int:
        """The command's exit code: 0, FAILED or UNDECIDED."""
        if self.verdict == "fail":
            return FAILED
        return UNDECIDED if self.verdict == "undecided" and not self.allow_undecided else 0

    def raise_if_failed(self) -> None:
        """Raise GateFailure with each line that does not pass, unless the exit code is 0."""
        if not self.exit_code:
            return
        open_too = () if self.allow_undecided else ("undecided",)
        failure = GateFailure(
            [
                f"{judged.line.text} for {judged.model} on {judged.group}: {judged.verdict}"
                + (f", {judged.reason}" if judged.reason else "")
                for judged in self.judged
                if judged.verdict in ("fail", *open_too) and not judged.line.advisory
            ]
        )
        failure.exit_code = self.exit_code
        raise failure

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; fractions, as in results.json."""
        lines = [
            {
                "line": judged.line.text,
                "model": judged.model,
                "group": judged.group,
                "class": judged.line.class_name or None,
                "advisory": judged.line.advisory,
                "verdict": judged.verdict,
                "limit": judged.line.limit,
                **{end: getattr(judged.estimate, end, None) for end in ("value", "low", "high")},
                "classes": judged.classes[0],
                "classes_planned": judged.classes[1],
                "images_per_class": judged.images,
                "images_per_class_needed": judged.needed,
                "reason": judged.reason,
            }
            for judged in self.judged
        ]
        return {"verdict": self.verdict, "models": list(self.models), "lines": lines}


def read_gate(gate: str | Path | Sequence[str]) -> tuple[GateLine, ...]:
    """Return the lines of a file (a YAML list of texts) or of texts. Raise UserError with every wrong line."""
    if isinstance(gate, str | Path):
        source = str(gate)
        texts = read_yaml(text_of(Path(gate)), source)
    else:
        source, texts = "gate", list(gate)
    if isinstance(texts, list):  # YAML reads `advisory: drop(fog) <= 10` as a mapping
        texts = [
            f"{_ADVISORY}: {text[_ADVISORY]}" if isinstance(text, dict) and list(text) == [_ADVISORY] else text
            for text in texts
        ]
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise UserError(f"{source}: expected a list of lines, as in: - drop(at_night) <= 10", _HINT)
    if len(texts) > MOST_LINES:
        raise UserError(f"{source}: has {len(texts):,} lines, expected at most {MOST_LINES}")
    problems: list[str] = []
    gate_lines: list[GateLine] = []
    for number, text in enumerate(texts, start=1):
        parsed = _parsed(text)
        if isinstance(parsed, GateLine) and replace(parsed, text="", limit=0.0) in {
            replace(other, text="", limit=0.0) for other in gate_lines
        }:
            parsed = "an earlier line has the same comparison"
        if isinstance(parsed, str):
            problems.append(f"{source}: line {number}, {text[:120]!r}: {parsed}")
        else:
            gate_lines.append(parsed)
    if problems:
        raise UserError(problems, _HINT)
    return tuple(gate_lines)


def _parsed(text: str) -> GateLine | str:
    """Return the line, or what is wrong with it."""
    advice, colon, rest = text.partition(":")
    advisory = bool(colon) and advice.strip() == _ADVISORY
    match = _LINE.fullmatch(rest if advisory else text) if len(text) <= 1000 else None
    if match is None:
        return "expected MEASURE(NAME) <= NUMBER"
    measure = match["measure"]
    if measure not in _MEASURES:
        return f"there is no measure {measure[:40]!r}{did_you_mean(measure, _MEASURES)}"
    sign, count, least = _MEASURES[measure]
    written = re.findall(_NAME, match["names"])
    class_name = written.pop().removeprefix("class=").strip('"') if written[-1].startswith("class=") else None
    names = [name.strip('"') for name in written]
    if len(names) != count or not all(names) or class_name == "":
        return f"{measure} takes {'a model and a group' if count == 2 else 'one group'}, and perhaps class=NAME"
    if match["sign"] != sign:
        return f"{measure} takes {sign}, not {match['sign']}"
    number = match["limit"]
    if number.endswith("%"):
        number = number[:-1].rstrip()
        if measure in ("drop", "worse_than"):
            return f"{measure} takes points: write {number[:40]} without %, or relative_drop for a share of the base"
    if not _NUMBER.fullmatch(number) or not least <= float(number) <= 100:
        return f"the limit is {number[:40]!r}: expected a number from {least:g} to 100"
    group = names[-1]
    if measure in _DROPS and group == BASE:
        return "the base has no drop"
    return GateLine(
        " ".join(text.split()),
        measure,
        group,
        float(number) / 100,
        against=names[0] if count == 2 else "",
        every=written[-1] == ANY,
        class_name=class_name or "",
        advisory=advisory,
    )


def models_of(gate: Sequence[GateLine]) -> tuple[str, ...]:
    """Return the scored models that lines compare with."""
    return tuple(dict.fromkeys(line.against for line in gate if line.against and not is_stored(line.against)))


def judged_models(gate: Sequence[GateLine], names: Sequence[str]) -> tuple[str, ...]:
    """Return the models to judge: all but those that the gate compares with. Raise UserError if there are none."""
    others = models_of(gate)
    if problems := [f"gate: {name!r} is not a model that was scored" for name in others if name not in names]:
        raise UserError(problems, "Name a model as --models takes it.")
    judged = tuple(name for name in names if name not in others)
    if not judged:
        raise UserError(
            "the gate judges no model: every model is one that a line compares with", "Name another with --models."
        )
    return judged


def check_names(gate: Sequence[GateLine], subject: Subject) -> None:
    """Raise UserError with every line that names a missing shift or class, or asks for a drop without a base."""
    places = _places(subject)
    problems = []
    for line in gate:
        if line.measure in _DROPS and not subject.base:
            problems.append(f"gate: {line.text}: the images have no base; name it with --base GROUP")
        elif not line.every and line.group not in places:
            meant = did_you_mean(line.group, places)
            problems.append(f"gate: {line.text}: {subject.name} has no shift or group {line.group!r}{meant}")
        elif line.measure in _DROPS and not line.every and places[line.group] == 0:
            problems.append(f"gate: {line.text}: {line.group!r} is the base, which has no drop")
        if line.class_name:
            count = len(_labels(subject, line.class_name))
            if count > 1:
                problems.append(f"gate: {line.text}: {count} classes are called {line.class_name!r}; give an id")
            elif not count:
                meant = did_you_mean(line.class_name, [cls.name for cls in subject.classes])
                problems.append(f"gate: {line.text}: {subject.name} has no class {line.class_name!r}{meant}")
    if problems:
        raise UserError(problems, f"The groups are {listed(list(places), 20)}.")


def _places(subject: Subject) -> dict[str, int]:
    """Return the index of each group by every name that a line may use: fog@3 is another name of fog_3."""
    places = {group.name: index for index, group in enumerate(subject.groups)}
    if subject.base:
        places.setdefault(BASE, 0)
    for index, group in enumerate(subject.groups):
        if not group.top:
            places.setdefault(f"{group.of}@{group.name.removeprefix(f'{group.of}_')}", index)
    return places


def _labels(subject: Subject, name: str) -> list[int]:
    """Return the labels of the classes with this id or, if there are none, with this name."""
    by_id = [label for label, cls in enumerate(subject.classes) if cls.id == name]
    return by_id or [label for label, cls in enumerate(subject.classes) if cls.name == name]


# ---- Judging


@dataclass(frozen=True)
class _Compared:
    """A line for one model and group before it is measured.

    sides: the averages to judge: one, or two whose difference (first less second) is judged; empty if nothing is
    measured.
    relative: whether the difference is divided by the first.
    """

    judged: Judged
    sides: tuple[int, ...] = ()
    relative: bool = False


@dataclass
class _Sides:
    """The averages that comparisons use, each computed once: a model in a group, over some of its classes.

    right: by model, scored or stored, (images,) which answers are right.
    """

    answered: AllAnswers
    right: Mapping[str, NDArray[np.bool_]]
    places: dict[tuple[int, str, tuple[str, ...]], int] = field(default_factory=dict)
    sides: list[Side] = field(default_factory=list)

    def of(self, group: int, model: str, classes: Sequence[ClassUnits]) -> int:
        """Return the number of a model's accuracy in a group (by index), averaged over these classes."""
        answered, subject = self.answered, self.answered.subject
        key = group, model, tuple(cls.class_id for cls in classes)
        if key not in self.places:
            self.places[key] = len(self.sides)
            ids = set(key[2])
            wanted = [label for label, cls in enumerate(subject.classes) if cls.id in ids]
            rows = answered.rows(group)
            self.sides.append((rows[np.isin(subject.labels[rows], wanted)], self.right[model]))
        return self.places[key]

    def any_right(self, number: int) -> bool:
        """Check whether any answer behind an average is right."""
        rows, right = self.sides[number]
        return bool(right[rows].any())

    def averages(self) -> list[ClassAverage]:
        """Return all averages in the order of their numbers, with bootstrap draws; there must be at least one."""
        labels = self.answered.subject.labels
        draws = drawn_averages(self.answered.subject, self.sides, self.answered.seed)
        return [
            ClassAverage.of(labels[rows], right[rows], drawn)
            for (rows, right), drawn in zip(self.sides, draws.T, strict=True)
        ]


def judge_gate(
    answered: AllAnswers,
    gate: Sequence[GateLine],
    models: Sequence[str],
    checks: LabelChecks | None,
    allow_undecided: bool = False,
    stored: Mapping[tuple[str, str], StoredAnswers] | None = None,
) -> GateResult:
    """Judge every line for each of these models.

    checks: of a built dataset's labels; None if labels are given. stored: the answers of earlier evaluations that lines
    compare with, by file and model.
    """
    stored = stored or {}
    right = {name: answered.answers.correct[:, index] for index, name in enumerate(answered.models)}
    sides = _Sides(answered, right | {answers.name: answers.right for answers in stored.values()})
    compared = [
        comparison
        for line in gate
        for model in models
        for comparison in _comparisons(answered, line, model, stored.get((line.against, model)), sides, checks)
    ]
    measurable = [comparison for comparison in compared if comparison.sides]
    if not measurable:
        return GateResult(
            answered.subject.name, tuple(models), tuple(comparison.judged for comparison in compared), allow_undecided
        )
    averages = sides.averages()
    measured = [tuple(averages[side] for side in comparison.sides) for comparison in measurable]
    differences = [
        difference_of(*sides, relative=comparison.relative)
        for comparison, sides in zip(measurable, measured, strict=True)
    ]
    values, draws = zip(*differences, strict=True)
    reach = simultaneous_reach(np.array(values), np.stack(draws, axis=1))
    judged = []
    for comparison in compared:
        outcome = comparison.judged
        if comparison.sides:
            own_averages = [averages[side] for side in comparison.sides]
            images = min(average.images for average in own_averages)
            estimate = class_average_interval(*own_averages, reach=reach, relative=comparison.relative)
            outcome = replace(outcome, estimate=estimate, images=images)
            outcome = outcome if outcome.reason else _verdict(outcome)
        judged.append(outcome)
    return GateResult(answered.subject.name, tuple(models), tuple(judged), allow_undecided)


def _comparisons(
    answered: AllAnswers,
    line: GateLine,
    model: str,
    stored: StoredAnswers | None,
    sides: _Sides,
    checks: LabelChecks | None,
) -> Iterator[_Compared]:
    subject, drop = answered.subject, line.measure in _DROPS
    labels = _labels(subject, line.class_name) if line.class_name else range(len(subject.classes))
    ids = {subject.classes[label].id for label in labels}
    places: Sequence[int] = (answered.shifts if drop else answered.places) if line.every else ()
    if line.class_name:
        places = [index for index in places if labels[0] in answered.group(index).class_labels]
    if not line.every:
        places = (_places(subject)[line.group],)
    if not places:
        why = "the dataset has no shift" + (f" with images of {line.class_name}" if line.class_name else "")
        yield _Compared(Judged(line, model, line.group, "undecided", reason=why))
    for index in places:
        group = answered.group(index)
        classes = [cls for cls in (answered.kept(index) if drop else answered.enough(index)) if cls.class_id in ids]
        planned, measured = len(set(group.class_labels) & set(labels)), len(classes)
        reason = _undecided(answered, line, model, stored, index, (measured, planned), checks)
        against = stored.name if stored else line.against
        others = [(0, model)] if drop else [(index, against)] if against else []
        both = [*others, (index, model)] if measured else []
        numbers = tuple(sides.of(each, name, classes) for each, name in both)
        relative = line.measure == "relative_drop"
        if relative and numbers and not sides.any_right(numbers[0]):
            numbers, reason = (), reason or f"{model} is right on no image of the base"
        judged = Judged(
            line, model, group.name, "undecided", reason=reason, classes=(measured, planned), level=group.level
        )
        yield _Compared(judged, numbers, relative)


def _undecided(
    answered: AllAnswers,
    line: GateLine,
    model: str,
    stored: StoredAnswers | None,
    group: int,
    classes: tuple[int, int],
    checks: LabelChecks | None,
) -> str:
    """Return why no number of images would decide the line; empty if enough images would."""
    subject, drop = answered.subject, line.measure in _DROPS
    if not classes[0] and line.class_name:
        near_chance = " or is near chance on the base" if drop else ""
        return f"{line.class_name} has fewer than {answered.min_images} images{near_chance}"
    if not classes[0]:
        above = " and is above chance on the base" if drop else ""
        return f"no class has {answered.min_images} images{above}"
    if 2 * classes[0] < classes[1]:
        return f"only {classes[0]} of {classes[1]} classes are measured"
    places = {answered.models.index(name): name for name in (model, line.against) if name in answered.models}
    for chosen in subject.judged.shifts:
        if chosen.place == group:
            for judge in judges_among(answered.scored, chosen.judges, subject.pins).keys() & places.keys():
                return f"its images were chosen because {places[judge]} gets them wrong"
            if stored and stored.sha256 in {subject.pins.get(judge, {}).get("sha256") for judge in chosen.judges}:
                return f"its images were chosen because {stored.name} gets them wrong"
    near = [name for at, name in places.items() if answered.near_chance.models[at]]
    if stored:
        near += [stored.name] if stored.near_chance else []
        if unreadable := int(np.count_nonzero(stored.unreadable[answered.rows(group)])):
            return f"{stored.name} could not read {unreadable:,} of its images"
    if near and (drop or near != [model]):
        return f"{near[-1]} is near chance on {'the base' if subject.base else 'these images'}"
    # Images from elsewhere, scored beside a dataset, have their own labels.
    last = subject.parts[1].first if len(subject.parts) > 1 else len(subject.groups)
    for each, whose in ((group, "its labels"), (0, "the labels of the base")) if drop else ((group, "its labels"),):
        unchecked = checks is not None and not checks.own and not checks.of(answered.group(each).name).checked
        if each < last and unchecked:
            return f"nobody checked {whose}"
    return ""


def _verdict(judged: Judged) -> Judged:
    assert judged.estimate is not None and judged.estimate.low is not None and judged.estimate.high is not None
    value, low, high, limit = judged.estimate.value, judged.estimate.low, judged.estimate.high, judged.line.limit
    if not judged.line.above:
        value, low, high, limit = -value, -high, -low, -limit
    if low >= limit:
        return replace(judged, verdict="pass")
    if high < limit:
        return replace(judged, verdict="fail")
    # An interval narrows with the square root of the number of images.
    distance = value - limit
    open_end = value - low if distance > 0 else high - value
    needed = math.ceil(judged.images * (open_end / distance) ** 2) if distance else MOST_NEEDED + 1
    return replace(judged, needed=needed if needed <= MOST_NEEDED else None)


# ---- Outputs

MARKDOWN, JUNIT = "gate.md", "gate.xml"
_COLUMNS = (
    TableColumn("line", "name"),
    TableColumn("group", "shift"),
    TableColumn("measured"),
    TableColumn("answer", "text"),
    TableColumn("why", "text"),
)


def gate_table(result: GateResult) -> Table:
    """Return one row per comparison, with a column for the model if several are judged."""
    several = len(result.models) > 1
    order = ("fail", "undecided", "pass")

    def rank(judged: Judged) -> tuple[bool, int]:
        return judged.line.advisory, order.index(judged.verdict)

    rows = [
        TableRow(
            (
                *([TableCell(short_name(judged.model))] if several else []),
                TableCell(judged.line.text),
                TableCell(judged.group if judged.level is None else f"{judged.group}, level {judged.level:g}"),
                points_cell(judged.estimate),
                TableCell(
                    judged.verdict.upper() if judged.verdict == "fail" and not judged.line.advisory else judged.verdict
                ),
                TableCell(why(judged)),
            )
        )
        for judged in sorted(result.judged, key=rank)
    ]
    columns = (*([TableColumn("model", "name")] if several else []), *_COLUMNS)
    return Table("The gate: 95 % intervals that hold for all lines at once", columns, tuple(rows))


def why(judged: Judged) -> str:
    """Return what a verdict rests on, or what would decide it."""
    if judged.reason:
        return judged.reason
    measured, planned = judged.classes
    return _of_interval(judged) + (f"; of {planned} classes {measured} are measured" if measured < planned else "")


def _of_interval(judged: Judged) -> str:
    limit = points(judged.line.limit) + (" %" if judged.line.measure == "relative_drop" else "")
    if judged.verdict == "pass":
        return f"the whole interval is {'at least' if judged.line.above else 'at most'} {limit}"
    if judged.verdict == "fail":
        return f"the whole interval is {'below' if judged.line.above else 'above'} {limit}"
    if judged.needed is None:
        return f"too close to {limit}: even {MOST_NEEDED:,} images per class would not decide it"
    value = points(None if judged.estimate is None else judged.estimate.value)
    return f"about {judged.needed:,} images per class would decide it if {value} is right; it has {judged.images:,.0f}"


def gate_sentence(result: GateResult) -> str:
    """Return the verdict in one sentence."""
    sentences = []
    for advisory, what in ((False, "comparison"), (True, "advisory comparison")):
        counts = Counter(judged.verdict for judged in result.judged if judged.line.advisory == advisory)
        parts = [f"{counts[verdict]} {verdict}" for verdict in ("pass", "fail", "undecided") if counts[verdict]]
        if parts:
            sentences.append(f"{counted(counts.total(), what)}: {', '.join(parts)}")
    models = listed([short_name(name) for name in result.models], 3)
    return f"The gate says {result.verdict} for {models} ({'; '.join(sentences)})."


def gate_markdown(result: GateResult) -> str:
    """Return Markdown for a comment in a pull request; no name in it becomes a link, a mention or HTML."""
    title, dataset = inline(gate_sentence(result)), inline(result.dataset)
    text = "\n\n".join([f"### {title}", markdown_table(gate_table(result)), f"Dataset: {dataset}\n"])
    # GitHub makes addresses, people, issues and emoji of bare words.
    return _printable(re.sub(r"(?<=[@#])(?=\w)|(?<=:)(?=[\w/])|(?<=www)(?=\.)", "\u200b", text), "\n\u200b")


def gate_junit(result: GateResult) -> str:
    """Return JUnit XML, one test per comparison. Undecided is an error, or skipped if undecided is allowed.

    An advisory line that does not pass is skipped, with its verdict in the message.
    """
    undecided = "skipped" if result.allow_undecided else "error"
    ways = {"pass": "", "fail": "failure", "undecided": undecided}
    kinds = [
        "skipped" if judged.line.advisory and ways[judged.verdict] else ways[judged.verdict] for judged in result.judged
    ]
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
        name = f"{judged.line.text} [{judged.group}]"
        case = ElementTree.SubElement(suite, "testcase", classname=_printable(judged.model), name=_printable(name))
        if kind:
            cell = points_cell(judged.estimate)
            advice = f"advisory, {judged.verdict}: " if judged.line.advisory else ""
            measured = f"{cell.text} ({cell.below}): " if cell.below else ""
            ElementTree.SubElement(case, kind, message=_printable(f"{advice}{measured}{why(judged)}"))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str, kept: str = "") -> str:
    """Return text with a space for each character that XML 1.0 cannot hold or that is invisible."""
    return "".join(each if each.isprintable() or each in kept else " " for each in text)
