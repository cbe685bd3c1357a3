"""A gate: the requirements that a model has to meet, one a line, each answered pass, fail or undecided.

A line passes if its whole interval meets the limit, and fails if no part of it does; otherwise it is undecided. A line
is also undecided if its images cannot answer it: a shift with unchecked labels, or a drop of a model that guesses. The
intervals hold for all comparisons of a gate at once, advisory lines included, so that a long gate rejects a good model
no more often than a short one. A name that the dataset lacks is an error of the gate.

An accuracy here is averaged over all classes with an image, as everywhere. A drop leaves out the classes on which the
judged model itself is near chance on the base, and says how many remain and from which accuracy it is. The drops of
other tables leave out the classes on which all models together are near chance; the answer of a gate must not depend on
other models.

The result is a table, one sentence, Markdown for a pull request, and JUnit XML. The names of groups come from the
dataset and are not trusted: each output shows them as plain text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import numpy as np

from counterfoil.accuracy_stats import ClassAverage, class_average_interval, difference_of
from counterfoil.dataset.card.markdown import inline, markdown_table
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.scored_models import StoredAnswers, is_stored, short_names
from counterfoil.evaluation.tasks.classes.answers import AllAnswers
from counterfoil.evaluation.tasks.classes.measures.comparison import drawn_averages
from counterfoil.evaluation.tasks.classes.measures.findings import judges_among
from counterfoil.recipe.layering import text_of
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.prompts import BASE, RecipeClass
from counterfoil.recipe.strict_yaml import LocatedList, read_yaml
from counterfoil.report.labels import LabelChecks, label_note, lost_to_labels
from counterfoil.report.results import ClassFacts
from counterfoil.report.words import (
    Table,
    TableCell,
    TableColumn,
    TableRow,
    counted,
    listed,
    over_classes,
    percent,
    points,
    points_cell,
)
from counterfoil.stats import Estimate, simultaneous_reach

ANY = "any"
# Exit codes of a command; 1 is a failed run, 2 a user's mistake.
FAILED, UNDECIDED = 3, 4
MOST_LINES = 500
# Do not advise more images per class than this.
MOST_NEEDED = 100_000

Answer = Literal["pass", "fail", "undecided"]
# The shares that a line of a gate for classifiers can name. Gates for detectors name other measures.
ACCURACY = ("accuracy",)
# Each measure that compares two shares, with the number of names in its parentheses. A line with such a measure is
# written with <=. A line with a single share is written with >=.
COMPARISONS = {"drop": 1, "relative_drop": 1, "worse_than": 2}
DROPS = ("drop", "relative_drop")
LINE_HINT = (
    "relative_drop(SHIFT) <= PERCENT%,"
    " worse_than(MODEL, GROUP) <= POINTS. GROUP is base, a shift or any"
    ' ("any" in quotes is a group of that name). `, class=NAME` behind it asks for one class. `advisory:` before a line'
    " reports it without failing. A name with spaces goes in double quotes. A number below 1 needs its unit: 0.5 % or"
    " 0.5 points."
)
_HINT = (
    f"A line is one of: accuracy(GROUP) >= PERCENT, drop(SHIFT) <= POINTS, {LINE_HINT}"
    " MODEL may be the results.json of an earlier evaluation."
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
    """A parsed line.

    group: its name; with `every`, the line is for all groups. limit: a fraction. other_model: what `worse_than`
    compares with: a model, or the results.json of an earlier evaluation. class_name: a class's name or id; empty for
    all classes. advisory: whether the line is reported but never fails. share: what is measured or compared.
    """

    text: str
    measure: str
    group: str
    limit: float
    other_model: str = ""
    every: bool = False
    class_name: str = ""
    advisory: bool = False
    share: str = "accuracy"

    @property
    def above(self) -> bool:
        """Whether a model meets the line above the limit rather than below it."""
        return self.measure not in COMPARISONS


@dataclass(frozen=True, slots=True)
class Judged:
    """A line of the gate for one model and one group.

    estimate: fractions, with an interval that holds for all comparisons of the gate at once; None if nothing was
    measured. images: the smaller side's images per class (harmonic mean); for a detector, its images with an object.
    needed: the number of images per class with which the same value would decide the line; None if the line is decided,
    or if no number would decide it. reason: why the line is undecided, if not because of its interval. classes:
    measured classes and classes of the group; zeros for a detector. level: the level of a graded shift. base: of a
    drop over some of the classes, what it is from.
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
    base: float | None = None

    def measured(self, estimate: Estimate, images: float, excused: float = 0.0, doubt: str = "") -> Judged:
        """Return this line with an estimate and its verdict. A line that has a reason stays undecided.

        excused: what wrong labels may cost; a line that fails by no more is undecided, with `doubt` as its reason.
        """
        judged = replace(self, estimate=estimate, images=images)
        if self.reason:
            return judged
        value, low, high, limit = estimate.value, estimate.low, estimate.high, self.line.limit
        if low is None or high is None:
            return replace(judged, reason="there are too few images for an interval")
        if not self.line.above:
            value, low, high, limit = -value, -high, -low, -limit
        if low >= limit:
            return replace(judged, verdict="pass")
        if high + excused < limit:
            return replace(judged, verdict="fail")
        if high < limit:
            return replace(judged, reason=doubt)
        # An interval narrows with the square root of the number of images.
        distance = value - limit
        open_end = value - low if distance > 0 else high - value
        needed = math.ceil(images * (open_end / distance) ** 2) if distance else MOST_NEEDED + 1
        return replace(judged, needed=needed if needed <= MOST_NEEDED else None)


class GateFailure(RunFailure):
    """A model does not meet its gate; `exit_code` is the command's."""


@dataclass(frozen=True)
class GateResult:
    """Every comparison of a gate, for a dataset by its name and the judged models."""

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
        failing = ("fail",) if self.allow_undecided else ("fail", "undecided")
        problems = []
        for judged in self.judged:
            if judged.verdict in failing and not judged.line.advisory:
                reason = f", {judged.reason}" if judged.reason else ""
                problems.append(f"{judged.line.text} for {judged.model} on {judged.group}: {judged.verdict}{reason}")
        failure = GateFailure(problems)
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


# ---- Reading


def read_gate(
    gate: str | Path | Sequence[str] | None,
    problems_of: Callable[[GateLine], Iterable[str]],
    shares: Sequence[str] = ACCURACY,
    hint: str = _HINT,
) -> tuple[list[GateLine], list[CounterfoilError]]:
    """Return the lines of a file (a YAML list of texts) or of texts, and an error if one is wrong, with every problem.

    Lines that cannot be parsed are left out. Raise UserError for a file without a list.

    problems_of: what the images cannot answer of a line. shares: what a line can measure. A comparison that names no
    share uses the first one.
    """
    if gate is None:
        return [], []
    if isinstance(gate, str) and _LINE.fullmatch(gate):
        gate = [gate]
    texts: Any = read_yaml(text_of(Path(gate)), str(gate)) if isinstance(gate, str | Path) else list(gate)
    source = str(gate) if isinstance(gate, str | Path) else "gate"
    if not isinstance(texts, list) or not texts:
        raise UserError(f"{source}: expected a list of lines, as in: - drop(at_night) <= 10", hint)
    if len(texts) > MOST_LINES:
        raise UserError(f"{source}: has {len(texts):,} lines, expected at most {MOST_LINES}")
    origins = texts.origins if isinstance(texts, LocatedList) else [f"gate, line {n}" for n in range(1, len(texts) + 1)]
    lines: list[GateLine] = []
    problems: list[str] = []
    written: dict[GateLine, str] = {}  # comparison → its first line
    unread = False
    for origin, text in zip(origins, texts, strict=True):
        if isinstance(text, dict):  # YAML reads `advisory: drop(fog) <= 10` as a mapping
            text = ", ".join(f"{key}: {value}" for key, value in text.items())
        where = f"{origin}: {text if isinstance(text, str) and text.isprintable() else repr(text)}"[:200]
        line = _parsed(text, shares)
        if isinstance(line, str):
            problems.append(f"{where}: {line}")
            unread = True
            continue
        comparison = replace(line, text="", limit=0.0)
        if comparison in written:
            problems.append(f"{where}: has the same comparison as {written[comparison]}")
            continue
        written[comparison] = where
        lines.append(line)
        problems += [f"{where}: {problem}" for problem in problems_of(line)]
    return lines, [UserError(problems, hint if unread else None)] if problems else []


def _parsed(text: Any, shares: Sequence[str]) -> GateLine | str:
    """Return the line, or what is wrong with it."""
    if not isinstance(text, str):
        return "expected text, MEASURE(NAME) <= NUMBER"
    advice, colon, rest = text.partition(":")
    advisory = bool(colon) and advice.strip() == _ADVISORY
    match = _LINE.fullmatch(rest if advisory else text) if len(text) <= 1000 else None
    if match is None:
        return f"expected MEASURE(NAME) <= NUMBER{did_you_mean(advice, (_ADVISORY,)) if colon and not advisory else ''}"
    measure = match["measure"]
    if measure not in (*shares, *COMPARISONS):
        return f"there is no measure {measure[:40]!r}{did_you_mean(measure, (*shares, *COMPARISONS))}"
    sign, least, share = ("<=", -100.0, shares[0]) if measure in COMPARISONS else (">=", 0.0, measure)
    count = COMPARISONS.get(measure, 1)
    written = re.findall(_NAME, match["names"])
    of_class = re.match(_OF_CLASS, written[-1])
    class_name = written.pop()[of_class.end() :].strip('"') if of_class else None
    if measure in COMPARISONS and len(shares) > 1 and len(written) == count + 1:
        share = written.pop()
        if share not in shares:
            return f"there is no measure {share[:40]!r}{did_you_mean(share, shares)}"
    names = [name.strip('"') for name in written]
    if len(names) != count or not all(names) or class_name == "":
        return f"{measure} takes {'a model and a group' if count == 2 else 'one group'}, and perhaps class=NAME"
    if match["sign"].translate(_AS_TYPED) != sign:
        return f"{measure} takes {sign}, not {match['sign']}"
    number, unit = match["limit"].translate(_AS_TYPED), match["unit"]
    if not _NUMBER.fullmatch(number) or not least <= (limit := float(number)) <= 100:
        return f"the limit is {match['limit'][:40]!r}: expected a number such as 2.5, from {least:g} to 100"
    number, in_points = number[:40], measure in ("drop", "worse_than")
    if unit == "%" and in_points:
        return f"{measure} takes points: write {number} points, or relative_drop for a share of the base"
    if unit not in (None, "%") and not in_points:
        return f"{measure} takes percent: write {number} %"
    if unit is None and 0 < abs(limit) < 1:
        unit, whole = "points" if in_points else "%", f"{100 * limit:.10g}"
        return f"{number} would be {number} {unit}: write {whole} for {whole} {unit}, or {number} {unit} if you mean it"
    group = names[-1]
    if measure in DROPS and group == BASE:
        return "the base has no drop"
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
    )


def models_of(gate: Sequence[GateLine]) -> tuple[str, ...]:
    """Return the scored models that lines compare with."""
    others = [line.other_model for line in gate if line.other_model and not is_stored(line.other_model)]
    return tuple(dict.fromkeys(others))


def judged_models(gate: Sequence[GateLine], names: Sequence[str]) -> tuple[str, ...]:
    """Return the models to judge: all but those that the gate compares with. Raise UserError if there are none."""
    others = models_of(gate)
    judged = tuple(name for name in names if name not in others)
    if not judged:
        raise UserError(
            "the gate judges no model: every model is one that a line compares with", "Name another with --models."
        )
    return judged


NamedClasses = Sequence[RecipeClass] | Sequence[ClassFacts]


def name_problems(line: GateLine, subject: Subject, classes: NamedClasses) -> Iterator[str]:
    """Yield which names of a line the images lack, and whether they have no base for its drop."""
    group_indices = indices_of_groups(subject)
    if line.measure in DROPS and not subject.base:
        yield "the images have no base; name it with --base GROUP"
    elif not line.every and line.group not in group_indices:
        hint = did_you_mean(line.group, [*group_indices, ANY]) or f"; groups are {listed(list(group_indices), 20)}"
        yield f"{subject.name} has no shift or group {line.group!r}{hint}"
    elif line.measure in DROPS and not line.every and group_indices[line.group] == 0:
        yield f"{line.group!r} is the base, which has no drop"
    if line.class_name:
        count = len(labels_named(line.class_name, classes))
        if count > 1:
            yield f"{count} classes are called {line.class_name!r}; give an id"
        elif not count:
            names = [cls.name for cls in classes]
            hint = did_you_mean(line.class_name, names) or f"; classes are {listed(names, 20)}"
            yield f"{subject.name} has no class {line.class_name!r}{hint}"


def indices_of_groups(subject: Subject) -> dict[str, int]:
    """Return the index of each group by every name that a line may use: fog@3 is another name of fog_3."""
    indices = {group.name: index for index, group in enumerate(subject.groups)}
    if subject.base:
        indices.setdefault(BASE, 0)
    for index, group in enumerate(subject.groups):
        if not group.top:
            indices.setdefault(f"{group.of}@{group.name.removeprefix(f'{group.of}_')}", index)
    return indices


def labels_named(name: str, classes: NamedClasses) -> list[int]:
    """Return the labels of the classes with this name or, if there are none, with this id.

    Images without a recipe have ids such as 0002, which may be the name of another class.
    """
    by_name = [label for label, cls in enumerate(classes) if cls.name == name]
    return by_name or [label for label, cls in enumerate(classes) if cls.id == name]


# ---- Judging classifiers

_Accuracy = tuple[int, str, tuple[int, ...]]  # the average over these labels, in a group, of a model


def judge_gate(
    answered: AllAnswers,
    gate: Sequence[GateLine],
    models: Sequence[str],
    checks: LabelChecks | None,
    allow_undecided: bool = False,
    stored: Mapping[tuple[str, str], StoredAnswers] | None = None,
) -> GateResult:
    """Judge every line for each of these models.

    checks: the label checks of a built dataset; None if the images came with labels. stored: (file, model) → the
    answers of an earlier evaluation that a line compares with.
    """
    stored, subject = stored or {}, answered.subject
    comparisons = [
        comparison
        for line in gate
        for model in models
        for comparison in _comparisons(answered, line, model, stored.get((line.other_model, model)), checks)
    ]
    right = {name: answered.answers.correct[:, index] for index, name in enumerate(answered.models)}
    right |= {answers.name: answers.right for answers in stored.values()}
    # Several lines may need the same accuracy: draw it once. Draw all accuracies together, so that they share draws.
    sides = {}
    for group, model, labels in dict.fromkeys(accuracy for _, accuracies in comparisons for accuracy in accuracies):
        rows = answered.rows(group)
        sides[group, model, labels] = rows[np.isin(subject.labels[rows], labels)], right[model]
    averages: dict[_Accuracy, ClassAverage] = {}
    if sides:
        draws = drawn_averages(subject, list(sides.values()), answered.seed)
        for (accuracy, (rows, model_right)), drawn in zip(sides.items(), draws.T, strict=True):
            averages[accuracy] = ClassAverage.of(subject.labels[rows], model_right[rows], drawn)
    pairs = [[averages[accuracy] for accuracy in accuracies] for _, accuracies in comparisons]
    relative = [judged.line.measure == "relative_drop" for judged, _ in comparisons]
    differences = [difference_of(*pair, relative=share) for pair, share in zip(pairs, relative, strict=True) if pair]
    reach = 0.0
    if differences:
        values, drawn_values = zip(*differences, strict=True)
        reach = simultaneous_reach(np.array(values), np.stack(drawn_values, axis=1))
    outcomes = []
    for (judged, _), pair, share in zip(comparisons, pairs, relative, strict=True):
        if pair:
            estimate = class_average_interval(*pair, reach=reach, relative=share)
            if judged.line.measure in DROPS:
                judged = replace(judged, base=pair[0].value)
            # Two models share their wrong labels. Of one model, the last accuracy is that under the shift.
            shift = judged.group if not judged.line.other_model else ""
            excused = lost_to_labels(checks, shift, pair[-1].value) / (pair[0].value if share else 1.0)
            doubt = label_note(checks, shift)
            judged = judged.measured(estimate, min(average.images for average in pair), excused, doubt)
        outcomes.append(judged)
    return GateResult(subject.name, tuple(models), tuple(outcomes), allow_undecided)


def _comparisons(
    answered: AllAnswers, line: GateLine, model: str, stored: StoredAnswers | None, checks: LabelChecks | None
) -> Iterator[tuple[Judged, tuple[_Accuracy, ...]]]:
    """Yield a line for each of its groups, still undecided, with the accuracy that it judges.

    A line with two accuracies judges the first minus the second. A line with none measures nothing.
    """
    subject, drop = answered.subject, line.measure in DROPS
    line_labels = labels_named(line.class_name, subject.classes) if line.class_name else range(len(subject.classes))
    indices: Sequence[int] = (indices_of_groups(subject)[line.group],) if not line.every else ()
    if line.every:
        indices = answered.shifts if drop else answered.places
    if line.every and line.class_name:
        indices = [index for index in indices if line_labels[0] in answered.group(index).class_labels]
    if not indices:
        reason = "the dataset has no shift" + (f" with images of {line.class_name}" if line.class_name else "")
        yield Judged(line, model, line.group, "undecided", reason=reason), ()
    for index in indices:
        group = answered.group(index)
        class_ids = {cls.class_id for cls in answered.enough(index)}
        if drop:
            cells, column = answered.near_chance.cells, answered.models.index(model)
            class_ids -= {class_id for class_id, near_chance in cells.items() if near_chance[column]}
        labels = tuple(label for label in line_labels if subject.classes[label].id in class_ids)
        counts = len(labels), len(set(group.class_labels) & set(line_labels))
        reason = _reason_undecided(answered, line, model, stored, index, counts, checks)
        if not drop and not line.class_name:
            class_ids = {cls.class_id for cls in answered.seen(index)}
            labels = tuple(label for label in line_labels if subject.classes[label].id in class_ids)
            counts = len(labels), counts[1]
        accuracies: tuple[_Accuracy, ...] = ()
        if labels:
            accuracies = ((index, model, labels),)
            if drop:
                accuracies = ((0, model, labels), *accuracies)
            elif line.other_model:
                accuracies = ((index, stored.name if stored else line.other_model, labels), *accuracies)
        if line.measure == "relative_drop" and accuracies:
            base_rows = answered.rows(0)
            base_rows = base_rows[np.isin(subject.labels[base_rows], labels)]
            if not answered.answers.correct[base_rows, answered.models.index(model)].any():
                accuracies, reason = (), reason or f"{model} is right on no image of the base"
        yield Judged(line, model, group.name, "undecided", reason=reason, classes=counts, level=group.level), accuracies


def _reason_undecided(
    answered: AllAnswers,
    line: GateLine,
    model: str,
    stored: StoredAnswers | None,
    group: int,
    classes: tuple[int, int],
    checks: LabelChecks | None,
) -> str:
    """Return why no number of images would decide the line; empty if enough images would.

    classes: classes with enough images and, for a drop, above chance; and classes of the group.
    """
    subject, drop = answered.subject, line.measure in DROPS
    if not classes[0] and line.class_name:
        near_chance = " or is near chance on the base" if drop else ""
        return f"{line.class_name} has fewer than {answered.min_images} images{near_chance}"
    if not classes[0]:
        above = " and is above chance on the base" if drop else ""
        return f"no class has {answered.min_images} images{above}"
    if 2 * classes[0] < classes[1]:
        return f"only {classes[0]} of {classes[1]} classes are measured"
    names = {answered.models.index(name): name for name in (model, line.other_model) if name in answered.models}
    for shift in subject.judged.shifts:
        if shift.index == group:
            for judge in judges_among(answered.scored, shift.judges, subject.pins).keys() & names.keys():
                return f"its images were chosen because {names[judge]} gets them wrong"
            if stored and stored.sha256 in {subject.pins.get(judge, {}).get("sha256") for judge in shift.judges}:
                return f"its images were chosen because {stored.name} gets them wrong"
    near_chance_names = [name for index, name in names.items() if answered.near_chance.models[index]]
    if stored:
        if stored.near_chance:
            near_chance_names.append(stored.name)
        if unreadable := int(np.count_nonzero(stored.unreadable[answered.rows(group)])):
            return f"{stored.name} could not read {unreadable:,} of its images"
    if near_chance_names and (drop or near_chance_names != [model]):
        return f"{near_chance_names[-1]} is near chance on {'the base' if subject.base else 'these images'}"
    if checks is None or checks.own:
        return ""
    # Images from elsewhere, scored beside a dataset, have their own labels.
    own_groups = subject.parts[1].first if len(subject.parts) > 1 else len(subject.groups)
    if group < own_groups and not checks.of(answered.group(group).name).checked:
        return "nobody checked its labels"
    if drop and not checks.of(answered.group(0).name).checked:
        return "nobody checked the labels of the base"
    return ""


# ---- Outputs

MARKDOWN, JUNIT = "gate.md", "gate.xml"
_BARE = re.compile(r"(?<![\\`])(`+)(?!`).+?(?<!`)\1(?!`)|(?<=[@#])(?=\w)|(?<=:)(?=[\w/])|(?<=www)(?=\.)")
_COLUMNS = (
    TableColumn("line", "name"),
    TableColumn("group", "shift"),
    TableColumn("measured"),
    TableColumn("answer", "text"),
    TableColumn("why", "text"),
)


def gate_table(result: GateResult) -> Table:
    """Return one row per comparison, with a column for the model if several are judged."""
    short = short_names(result.models)
    order = ("fail", "undecided", "pass")

    def rank(judged: Judged) -> tuple[bool, int]:
        return judged.line.advisory, order.index(judged.verdict)

    rows = [
        TableRow(
            (
                *([TableCell(short[judged.model])] if len(short) > 1 else []),
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
    columns = (*([TableColumn("model", "name")] if len(short) > 1 else []), *_COLUMNS)
    return Table("The gate: 95 % intervals that hold for all lines at once", columns, tuple(rows))


def why(judged: Judged) -> str:
    """Return what a verdict rests on, or what would decide it."""
    if judged.reason:
        return judged.reason
    measured, planned = judged.classes
    unit = "images per class" if planned else "images"
    limit = points(judged.line.limit) + (" %" if judged.line.measure == "relative_drop" else "")
    if judged.verdict == "pass":
        reason = f"the whole interval is {'at least' if judged.line.above else 'at most'} {limit}"
    elif judged.verdict == "fail":
        reason = f"the whole interval is {'below' if judged.line.above else 'above'} {limit}"
    elif judged.needed is None:
        reason = f"too close to {limit}: even {MOST_NEEDED:,} {unit} would not decide it"
    else:
        value = points(None if judged.estimate is None else judged.estimate.value)
        reason = f"about {judged.needed:,} {unit} would decide it if {value} is right; it has {judged.images:,.0f}"
    over = over_classes(measured, planned)
    base = f", from {percent(judged.base)}" if over and judged.base is not None else ""
    return reason + (f"; {over}{base}" if over else "")


def gate_sentence(result: GateResult) -> str:
    """Return the verdict in one sentence."""
    sentences = []
    for advisory, what in ((False, "comparison"), (True, "advisory comparison")):
        counts = Counter(judged.verdict for judged in result.judged if judged.line.advisory == advisory)
        parts = [f"{counts[verdict]} {verdict}" for verdict in ("pass", "fail", "undecided") if counts[verdict]]
        if parts:
            sentences.append(f"{counted(counts.total(), what)}: {', '.join(parts)}")
    models = listed(list(short_names(result.models).values()), 3)
    return f"The gate says {result.verdict} for {models} ({'; '.join(sentences)})."


def gate_markdown(result: GateResult) -> str:
    """Return Markdown for a comment in a pull request; no name in it becomes a link, a mention or HTML."""
    title, dataset = inline(gate_sentence(result)), inline(result.dataset)
    text = "\n\n".join([f"### {title}", markdown_table(gate_table(result)), f"Dataset: {dataset}\n"])
    # GitHub makes addresses, people, issues and emoji of bare words. A comment between letters, which nobody copies,
    # prevents that; code, such as a line of the gate, needs none.
    return _printable(_BARE.sub(lambda match: match[0] or "<!-- -->", text), "\n")


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


def gate_files(result: GateResult) -> dict[str, tuple[str, str]]:
    """Return the files of a gate: short name → (file name, text)."""
    return {"gate": (MARKDOWN, gate_markdown(result)), "junit": (JUNIT, gate_junit(result))}


def _printable(text: str, kept: str = "") -> str:
    """Return text with a space for each character that XML 1.0 cannot hold or that is invisible."""
    return "".join(letter if letter.isprintable() or letter in kept else " " for letter in text)
