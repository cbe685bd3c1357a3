"""A gate: what a model has to meet before a team takes it, a line each, answered pass, fail or undecided.

A line passes where the whole of its interval meets the limit, and fails where none of it does. Anything between is
undecided, and so is what says nothing: a shift whose labels nobody checked, a drop of who guesses. The intervals hold
for all comparisons of a gate at once, advisory lines included, so that a long gate fails no good model by chance more
often than a short one. A name that the dataset lacks is a mistake of the gate.

An accuracy here is averaged over every class with enough images: one that a model has forgotten counts. A drop leaves
out the classes that are near chance on the base, as everywhere.

It is shown as a table, one sentence, Markdown for a pull request and JUnit's XML. Names of groups come from the
dataset, which may be anybody's: each output shows them as text and nothing else.
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
# Exit codes of a command; 1 and 2 are those of a run that broke and of a mistake.
FAILED, UNDECIDED = 3, 4
MOST_LINES = 500
# Where the base may be zero, the interval of a relative drop ends at this ratio of the shift to the base.
# More images a class than this are no advice.
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
# Measure → its sign, how many names it takes, and the least limit that means anything.
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
    """A line as it was read. limit: a fraction. against: the model, or the results.json of an earlier evaluation, that
    others may not be worse than. every: whether it is of every group rather than of one, which may be called any.
    class_name: a class's name or id; all classes if empty. advisory: whether it is reported and never fails."""

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

    estimate: fractions, with an interval that holds for all comparisons of the gate at once; None where nothing is
    measured. images: of a class, the harmonic mean, on the side that has fewer. needed: how many images a class would
    decide the line if the value stayed; None where it is decided, or no number would. reason: why it is undecided,
    where the interval does not say. classes: how many are measured, of how many that the group has. level: of a shift
    with levels, the one that is measured.
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
    """Every comparison of a gate. dataset: its name. models: those that were judged. allow_undecided: whether what is
    undecided stops nobody."""

    dataset: str
    models: tuple[str, ...]
    judged: tuple[Judged, ...]
    allow_undecided: bool = False

    @property
    def verdict(self) -> Answer:
        """fail where any line fails, else undecided where any is, else pass; advisory lines do not count."""
        found = {one.verdict for one in self.judged if not one.line.advisory}
        return "fail" if "fail" in found else "undecided" if "undecided" in found else "pass"

    @property
    def exit_code(self) -> int:
        """What the command ends with: 0, FAILED or UNDECIDED."""
        if self.verdict == "fail":
            return FAILED
        return UNDECIDED if self.verdict == "undecided" and not self.allow_undecided else 0

    def raise_if_failed(self) -> None:
        """Raise GateFailure, with each line that does not pass, where the command would not end with 0."""
        if not self.exit_code:
            return
        open_too = () if self.allow_undecided else ("undecided",)
        failure = GateFailure(
            [
                f"{one.line.text} for {one.model} on {one.group}: {one.verdict}"
                + (f", {one.reason}" if one.reason else "")
                for one in self.judged
                if one.verdict in ("fail", *open_too) and not one.line.advisory
            ]
        )
        failure.exit_code = self.exit_code
        raise failure

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; fractions, as in results.json."""
        lines = [
            {
                "line": one.line.text,
                "model": one.model,
                "group": one.group,
                "class": one.line.class_name or None,
                "advisory": one.line.advisory,
                "verdict": one.verdict,
                "limit": one.line.limit,
                **{end: getattr(one.estimate, end, None) for end in ("value", "low", "high")},
                "classes": one.classes[0],
                "classes_planned": one.classes[1],
                "images_per_class": one.images,
                "images_per_class_needed": one.needed,
                "reason": one.reason,
            }
            for one in self.judged
        ]
        return {"verdict": self.verdict, "models": list(self.models), "lines": lines}


def read_gate(gate: str | Path | Sequence[str]) -> tuple[GateLine, ...]:
    """Return the lines of a file (a YAML list of texts) or of texts. Raise UserError with every wrong line."""
    if isinstance(gate, str | Path):
        place = str(gate)
        texts = read_yaml(text_of(Path(gate)), place)
    else:
        place, texts = "gate", list(gate)
    if isinstance(texts, list):  # YAML reads `advisory: drop(fog) <= 10` as a mapping
        texts = [
            f"{_ADVISORY}: {one[_ADVISORY]}" if isinstance(one, dict) and list(one) == [_ADVISORY] else one
            for one in texts
        ]
    if not isinstance(texts, list) or not texts or not all(isinstance(one, str) for one in texts):
        raise UserError(f"{place}: expected a list of lines, as in: - drop(at_night) <= 10", _HINT)
    if len(texts) > MOST_LINES:
        raise UserError(f"{place}: has {len(texts):,} lines, expected at most {MOST_LINES}")
    problems: list[str] = []
    gate_lines: list[GateLine] = []
    for number, text in enumerate(texts, start=1):
        one = _parsed(text)
        if isinstance(one, GateLine) and replace(one, text="", limit=0.0) in {
            replace(other, text="", limit=0.0) for other in gate_lines
        }:
            one = "an earlier line has the same comparison"
        if isinstance(one, str):
            problems.append(f"{place}: line {number}, {text[:120]!r}: {one}")
        else:
            gate_lines.append(one)
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
    names = [one.strip('"') for one in written]
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
    """Return the models that lines compare with, and that are scored."""
    return tuple(dict.fromkeys(one.against for one in gate if one.against and not is_stored(one.against)))


def judged_models(gate: Sequence[GateLine], names: Sequence[str]) -> tuple[str, ...]:
    """Return the models that a gate judges: all but those that it compares with. Raise UserError without any."""
    others = models_of(gate)
    if problems := [f"gate: {name!r} is not a model that was scored" for name in others if name not in names]:
        raise UserError(problems, "Name a model as --models takes it.")
    found = tuple(name for name in names if name not in others)
    if not found:
        raise UserError(
            "the gate judges no model: every model is one that a line compares with", "Name another with --models."
        )
    return found


def check_names(gate: Sequence[GateLine], subject: Subject) -> None:
    """UserError with every line that names a shift or class that the images lack, or a drop where there is no base."""
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
    """The number of each group by the names that a line may give it: fog@3 is another name of fog_3."""
    places = {group.name: index for index, group in enumerate(subject.groups)}
    if subject.base:
        places.setdefault(BASE, 0)
    for place, group in enumerate(subject.groups):
        if not group.top:
            places.setdefault(f"{group.of}@{group.name.removeprefix(f'{group.of}_')}", place)
    return places


def _labels(subject: Subject, name: str) -> list[int]:
    """The labels of the classes of an id or, where none has it, of a name."""
    by_id = [label for label, cls in enumerate(subject.classes) if cls.id == name]
    return by_id or [label for label, cls in enumerate(subject.classes) if cls.name == name]


# ---- Judging


@dataclass(frozen=True)
class _Compared:
    """A line for one model and group as it stands before it is measured, and the averages that it is of.

    sides: the average that is judged, or two, of which the first less the second is; none where nothing is measured.
    relative: whether the difference is divided by the first.
    """

    judged: Judged
    sides: tuple[int, ...] = ()
    relative: bool = False


@dataclass
class _Sides:
    """The averages that comparisons are made of, each once: a model in a group, over some of its classes.

    right: (images,) which answers of each model, scored or stored, are right."""

    answered: AllAnswers
    right: Mapping[str, NDArray[np.bool_]]
    places: dict[tuple[int, str, tuple[str, ...]], int] = field(default_factory=dict)
    sides: list[Side] = field(default_factory=list)

    def of(self, place: int, model: str, classes: Sequence[ClassUnits]) -> int:
        """Return the number of a model's accuracy in a group, averaged over these classes."""
        answered, subject = self.answered, self.answered.subject
        key = place, model, tuple(cls.class_id for cls in classes)
        if key not in self.places:
            self.places[key] = len(self.sides)
            ids = set(key[2])
            wanted = [label for label, cls in enumerate(subject.classes) if cls.id in ids]
            rows = answered.rows(place)
            self.sides.append((rows[np.isin(subject.labels[rows], wanted)], self.right[model]))
        return self.places[key]

    def any_right(self, number: int) -> bool:
        """Check whether any answer of an average is right."""
        rows, right = self.sides[number]
        return bool(right[rows].any())

    def averages(self) -> list[ClassAverage]:
        """Return all of them, by their numbers, with their bootstrap; at least one must be there."""
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
    """Judge every line for every one of these models.

    checks: of a built dataset's labels; None where labels are given. stored: by file and model, the answers of earlier
    evaluations that lines compare with.
    """
    stored = stored or {}
    right = {name: answered.answers.correct[:, index] for index, name in enumerate(answered.models)}
    sides = _Sides(answered, right | {one.name: one.right for one in stored.values()})
    compared = [
        one
        for line in gate
        for model in models
        for one in _comparisons(answered, line, model, stored.get((line.against, model)), sides, checks)
    ]
    found = [one for one in compared if one.sides]
    if not found:
        return GateResult(answered.subject.name, tuple(models), tuple(one.judged for one in compared), allow_undecided)
    averages = sides.averages()
    measured = [tuple(averages[side] for side in one.sides) for one in found]
    differences = [difference_of(*sides, relative=one.relative) for one, sides in zip(found, measured, strict=True)]
    values, draws = zip(*differences, strict=True)
    reach = simultaneous_reach(np.array(values), np.stack(draws, axis=1))
    judged = []
    for one in compared:
        own = one.judged
        if one.sides:
            own_averages = [averages[side] for side in one.sides]
            images = min(average.images for average in own_averages)
            estimate = class_average_interval(*own_averages, reach=reach, relative=one.relative)
            own = replace(own, estimate=estimate, images=images)
            own = own if own.reason else _verdict(own)
        judged.append(own)
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
        places = [place for place in places if labels[0] in answered.group(place).class_labels]
    if not line.every:
        places = (_places(subject)[line.group],)
    if not places:
        why = "the dataset has no shift" + (f" with images of {line.class_name}" if line.class_name else "")
        yield _Compared(Judged(line, model, line.group, "undecided", reason=why))
    for place in places:
        group = answered.group(place)
        classes = [one for one in (answered.kept(place) if drop else answered.enough(place)) if one.class_id in ids]
        planned, measured = len(set(group.class_labels) & set(labels)), len(classes)
        reason = _undecided(answered, line, model, stored, place, (measured, planned), checks)
        against = stored.name if stored else line.against
        others = [(0, model)] if drop else [(place, against)] if against else []
        both = [*others, (place, model)] if measured else []
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
    place: int,
    classes: tuple[int, int],
    checks: LabelChecks | None,
) -> str:
    """Return why nothing can be said, however many images there are; empty where something can."""
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
        if chosen.place == place:
            for judge in judges_among(answered.scored, chosen.judges, subject.pins).keys() & places.keys():
                return f"its images were chosen because {places[judge]} gets them wrong"
            if stored and stored.sha256 in {subject.pins.get(judge, {}).get("sha256") for judge in chosen.judges}:
                return f"its images were chosen because {stored.name} gets them wrong"
    near = [name for at, name in places.items() if answered.near_chance.models[at]]
    if stored:
        near += [stored.name] if stored.near_chance else []
        if unreadable := int(np.count_nonzero(stored.unreadable[answered.rows(place)])):
            return f"{stored.name} could not read {unreadable:,} of its images"
    if near and (drop or near != [model]):
        return f"{near[-1]} is near chance on {'the base' if subject.base else 'these images'}"
    # Images from elsewhere that were scored beside a dataset bring labels of their own.
    last = subject.parts[1].first if len(subject.parts) > 1 else len(subject.groups)
    for each, whose in ((place, "its labels"), (0, "the labels of the base")) if drop else ((place, "its labels"),):
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
    # Intervals narrow with the root of the images.
    distance = value - limit
    open_end = value - low if distance > 0 else high - value
    needed = math.ceil(judged.images * (open_end / distance) ** 2) if distance else MOST_NEEDED + 1
    return replace(judged, needed=needed if needed <= MOST_NEEDED else None)


# ---- What people and programs read

MARKDOWN, JUNIT = "gate.md", "gate.xml"
_COLUMNS = (
    TableColumn("line", "name"),
    TableColumn("group", "shift"),
    TableColumn("measured"),
    TableColumn("answer", "text"),
    TableColumn("why", "text"),
)


def gate_table(result: GateResult) -> Table:
    """Return a row a comparison; the model has a column where several are judged."""
    several = len(result.models) > 1
    order = ("fail", "undecided", "pass")

    def rank(one: Judged) -> tuple[bool, int]:
        return one.line.advisory, order.index(one.verdict)

    rows = [
        TableRow(
            (
                *([TableCell(short_name(one.model))] if several else []),
                TableCell(one.line.text),
                TableCell(one.group if one.level is None else f"{one.group}, level {one.level:g}"),
                points_cell(one.estimate),
                TableCell(one.verdict.upper() if one.verdict == "fail" and not one.line.advisory else one.verdict),
                TableCell(why(one)),
            )
        )
        for one in sorted(result.judged, key=rank)
    ]
    columns = (*([TableColumn("model", "name")] if several else []), *_COLUMNS)
    return Table("The gate: 95 % intervals that hold for all lines at once", columns, tuple(rows))


def why(judged: Judged) -> str:
    """What an answer rests on, or what would decide it."""
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
    """Return the answer in one line."""
    told = []
    for advisory, what in ((False, "comparison"), (True, "advisory comparison")):
        counts = Counter(one.verdict for one in result.judged if one.line.advisory == advisory)
        parts = [f"{counts[verdict]} {verdict}" for verdict in ("pass", "fail", "undecided") if counts[verdict]]
        if parts:
            told.append(f"{counted(counts.total(), what)}: {', '.join(parts)}")
    models = listed([short_name(name) for name in result.models], 3)
    return f"The gate says {result.verdict} for {models} ({'; '.join(told)})."


def gate_markdown(result: GateResult) -> str:
    """For a comment in a pull request; nothing in it is a link, a mention or HTML that a name brought."""
    title, dataset = inline(gate_sentence(result)), inline(result.dataset)
    text = "\n\n".join([f"### {title}", markdown_table(gate_table(result)), f"Dataset: {dataset}\n"])
    # GitHub makes addresses, people, issues and emoji of bare words.
    return _printable(re.sub(r"(?<=[@#])(?=\w)|(?<=:)(?=[\w/])|(?<=www)(?=\.)", "\u200b", text), "\n\u200b")


def gate_junit(result: GateResult) -> str:
    """Return JUnit's XML: a test a comparison. What is undecided is an error, or skipped where that is allowed.

    An advisory line that does not pass is skipped, with what it says.
    """
    undecided = "skipped" if result.allow_undecided else "error"
    ways = {"pass": "", "fail": "failure", "undecided": undecided}
    kinds = ["skipped" if one.line.advisory and ways[one.verdict] else ways[one.verdict] for one in result.judged]
    counts = Counter(kinds)
    suite = ElementTree.Element(
        "testsuite",
        name=_printable(f"gate: {result.dataset}"),
        tests=str(len(result.judged)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
    )
    for one, kind in zip(result.judged, kinds, strict=True):
        name = f"{one.line.text} [{one.group}]"
        case = ElementTree.SubElement(suite, "testcase", classname=_printable(one.model), name=_printable(name))
        if kind:
            cell = points_cell(one.estimate)
            advice = f"advisory, {one.verdict}: " if one.line.advisory else ""
            measured = f"{cell.text} ({cell.below}): " if cell.below else ""
            ElementTree.SubElement(case, kind, message=_printable(f"{advice}{measured}{why(one)}"))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str, kept: str = "") -> str:
    """Return text without characters that XML 1.0 cannot hold, or that no reader sees."""
    return "".join(each if each.isprintable() or each in kept else " " for each in text)
