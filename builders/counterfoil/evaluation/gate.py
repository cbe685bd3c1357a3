"""A gate: what a model has to meet before a team takes it, a line each, answered pass, fail or undecided.

A line passes where the whole of its interval meets the limit, and fails where none of it does. Anything between is
undecided, and so is what says nothing: a shift that the dataset lacks, or whose labels nobody checked, a drop of who
guesses. The intervals hold for all comparisons of a gate at once, so that a long gate fails no good model by chance
more often than a short one.

An accuracy here is averaged over every class with enough images: one that a model has forgotten counts. A drop leaves
out the classes that are near chance on the base, as everywhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.accuracy_stats import ClassUnits
from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation.measures.comparison import Side, drawn_averages
from counterfoil.evaluation.measures.findings import judges_among
from counterfoil.evaluation.scores import AllAnswers
from counterfoil.recipe.layering import text_of
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.prompts import BASE
from counterfoil.recipe.strict_yaml import read_yaml
from counterfoil.report.labels import LabelChecks
from counterfoil.stats import Bounds, Estimate, distances_with_correlation, mover, simultaneous_reach, wilson_reach

ANY = "any"
# Exit codes of a command; 1 and 2 are those of a run that broke and of a mistake.
FAILED, UNDECIDED = 3, 4
MOST_LINES = 500
# More images a class than this are no advice.
MOST_NEEDED = 100_000

Answer = Literal["pass", "fail", "undecided"]
_HINT = (
    "A line is one of: accuracy(GROUP) >= PERCENT, drop(SHIFT) <= POINTS, worse_than(MODEL, GROUP) <= POINTS. GROUP is"
    ' base, a shift or any; "any" in quotes is a group of that name.'
)
_NAME = r'(?:"[^"]*"|[^\s,()"\']+)'
_LINE = re.compile(
    rf"\s*(?P<measure>\w+)\s*\(\s*(?P<names>{_NAME}(?:\s*,\s*{_NAME})*)\s*\)\s*(?P<sign>[<>=!]+)\s*(?P<limit>\S+)\s*"
)
_NUMBER = re.compile(r"-?[0-9]{1,3}(?:\.[0-9]{1,6})?")
# Measure → its sign, how many names it takes, and the least limit that means anything.
_MEASURES = {"accuracy": (">=", 1, 0.0), "drop": ("<=", 1, -100.0), "worse_than": ("<=", 2, -100.0)}


@dataclass(frozen=True, slots=True)
class GateLine:
    """A line as it was read. limit: a fraction. against: the model that others may not be worse than. every: whether it
    is of every group rather than of one, which may be called any."""

    text: str
    measure: str
    group: str
    limit: float
    against: str = ""
    every: bool = False

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
        """fail where any line fails, else undecided where any is, else pass."""
        found = {one.verdict for one in self.judged}
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
                if one.verdict in ("fail", *open_too)
            ]
        )
        failure.exit_code = self.exit_code
        raise failure

    def to_json(self) -> dict[str, Any]:
        """As JSON values; fractions, as in results.json."""
        lines = [
            {
                "line": one.line.text,
                "model": one.model,
                "group": one.group,
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
    """The lines of a file (a YAML list of texts), or the texts themselves. UserError with every line that is none."""
    if isinstance(gate, str | Path):
        place = str(gate)
        texts = read_yaml(text_of(Path(gate)), place)
    else:
        place, texts = "gate", list(gate)
    if not isinstance(texts, list) or not texts or not all(isinstance(one, str) for one in texts):
        raise UserError(f"{place}: expected a list of lines, as in: - drop(at_night) <= 10", _HINT)
    if len(texts) > MOST_LINES:
        raise UserError(f"{place}: has {len(texts):,} lines, expected at most {MOST_LINES}")
    problems: list[str] = []
    found: list[GateLine] = []
    for number, text in enumerate(texts, start=1):
        one = _parsed(text)
        if isinstance(one, GateLine) and (one.measure, one.against, one.group, one.every) in {
            (other.measure, other.against, other.group, other.every) for other in found
        }:
            one = "an earlier line has the same comparison"
        if isinstance(one, str):
            problems.append(f"{place}: line {number}, {text[:120]!r}: {one}")
        else:
            found.append(one)
    if problems:
        raise UserError(problems, _HINT)
    return tuple(found)


def _parsed(text: str) -> GateLine | str:
    """The line, or what is wrong with it."""
    match = _LINE.fullmatch(text) if len(text) <= 1000 else None
    if match is None:
        return "expected MEASURE(NAME) <= NUMBER"
    measure = match["measure"]
    if measure not in _MEASURES:
        return f"there is no measure {measure[:40]!r}{did_you_mean(measure, _MEASURES)}"
    sign, count, least = _MEASURES[measure]
    written = re.findall(_NAME, match["names"])
    names = [one.strip('"') for one in written]
    if len(names) != count or not all(names):
        return f"{measure} takes {'a model and a group' if count == 2 else 'one group'}"
    if match["sign"] != sign:
        return f"{measure} takes {sign}, not {match['sign']}"
    number = match["limit"]
    if not _NUMBER.fullmatch(number) or not least <= float(number) <= 100:
        return f"the limit is {number[:40]!r}: expected a number from {least:g} to 100"
    group = names[-1]
    if measure == "drop" and group == BASE:
        return "the base has no drop"
    against = names[0] if count == 2 else ""
    return GateLine(" ".join(text.split()), measure, group, float(number) / 100, against, written[-1] == ANY)


def models_of(gate: Sequence[GateLine]) -> tuple[str, ...]:
    """The models that lines compare with."""
    return tuple(dict.fromkeys(one.against for one in gate if one.against))


def judged_models(gate: Sequence[GateLine], names: Sequence[str]) -> tuple[str, ...]:
    """The scored models that a gate judges: all but those that it compares with. UserError where none is left."""
    others = models_of(gate)
    if problems := [f"gate: {name!r} is not a model that was scored" for name in others if name not in names]:
        raise UserError(problems, "Name a model as --models takes it.")
    found = tuple(name for name in names if name not in others)
    if not found:
        raise UserError(
            "the gate judges no model: every model is one that a line compares with", "Name another with --models."
        )
    return found


# ---- Judging


@dataclass(frozen=True)
class _Compared:
    """A line for one model and group as it stands before it is measured, and the averages that it is of.

    sides: the average that is judged, or two, of which the first less the second is; none where nothing is measured.
    """

    judged: Judged
    sides: tuple[int, ...] = ()


@dataclass
class _Sides:
    """The averages that comparisons are made of, each once: a model in a group, over some of its classes."""

    answered: AllAnswers
    places: dict[tuple[int, str, tuple[str, ...]], int] = field(default_factory=dict)
    sides: list[Side] = field(default_factory=list)

    def of(self, place: int, model: str, classes: Sequence[ClassUnits]) -> int:
        """The number of a model's accuracy in a group, averaged over these classes."""
        answered, subject = self.answered, self.answered.subject
        key = place, model, tuple(one.class_id for one in classes)
        if key not in self.places:
            self.places[key] = len(self.sides)
            ids = set(key[2])
            wanted = [label for label, one in enumerate(subject.classes) if one.id in ids]
            rows = answered.rows(place)
            right = answered.answers.correct[:, answered.models.index(model)]
            self.sides.append((rows[np.isin(subject.labels[rows], wanted)], right))
        return self.places[key]

    def averages(self) -> _Averages:
        """All of them, with their bootstrap; one at least."""
        labels, sides = self.answered.subject.labels, []
        draws = drawn_averages(self.answered.subject, self.sides, self.answered.seed)
        for (rows, right), drawn in zip(self.sides, draws.T, strict=True):
            _, label, count = np.unique(labels[rows], return_inverse=True, return_counts=True)
            share = np.bincount(label, weights=right[rows]) / count
            each = share * (1 - share) / np.maximum(count - 1, 1) / len(count) ** 2
            spread, squares = float(each.sum()), float((each**2 / np.maximum(count - 1, 1)).sum())
            images = len(count) / float((1 / count).sum())
            # A bootstrap of n images has n - 1 degrees of freedom.
            variance = max(spread, float(np.nanvar(drawn)) * images / max(images - 1, 1))
            freedom = spread**2 / squares if squares else math.inf
            sides.append(_Average(float(share.mean()), images, count, share, variance, freedom, drawn))
        return _Averages(tuple(sides))


@dataclass(frozen=True)
class _Average:
    """An average over classes. images: of a class, the harmonic mean. counts, shares (classes,): images, and how many
    of them are right. freedom: the degrees of freedom of the variance (Satterthwaite 1946). draws (R,): of the
    bootstrap."""

    value: float
    images: float
    counts: NDArray[np.int64]
    shares: NDArray[np.float64]
    variance: float
    freedom: float
    draws: NDArray[np.float64]

    def varying(self, reach: float) -> Bounds:
        """How far Wilson's ends are, on as many images as the variance says."""
        if self.variance == 0:
            return 0.0, 0.0
        images = self.value * (1 - self.value) / self.variance
        low, high = wilson_reach(self.value, images, reach, self.freedom)
        return self.value - low, high - self.value

    def agreeing(self, reach: float) -> Bounds:
        """What is open of classes whose images are all right, or all wrong, and which a bootstrap takes for certain:
        below and above, by Wilson's interval of each."""
        far = reach**2 / (self.counts + reach**2)
        below, above = (math.sqrt(float((far[self.shares == end] ** 2).sum())) for end in (1.0, 0.0))
        return below / len(far), above / len(far)


@dataclass(frozen=True)
class _Averages:
    """All averages, by their numbers, and what is made of one or of two: the first less the second."""

    sides: tuple[_Average, ...]

    def of(self, places: tuple[int, ...]) -> tuple[float, NDArray[np.float64]]:
        """The value of a comparison, and its draws."""
        first, *rest = (self.sides[place] for place in places)
        return (first.value - rest[0].value, first.draws - rest[0].draws) if rest else (first.value, first.draws)

    def images(self, places: tuple[int, ...]) -> float:
        """Images of a class on the side that has fewer."""
        return min(self.sides[place].images for place in places)

    def interval(self, places: tuple[int, ...], reach: float) -> Estimate:
        """Its interval, `reach` standard errors long: Wilson's, or of two such (Newcombe 1998, method 10)."""
        first, *rest = (self.sides[place] for place in places)
        varying, agreeing, least = first.varying(reach), [first.agreeing(reach)], 0.0
        if rest:
            other, least = rest[0], -1.0
            one, another = first.draws - np.nanmean(first.draws), other.draws - np.nanmean(other.draws)
            spread = math.sqrt(float(np.nanmean(one**2) * np.nanmean(another**2)))
            correlation = float(np.nanmean(one * another)) / spread if spread else 0.0
            varying = distances_with_correlation(varying, other.varying(reach), correlation)
            agreeing.append(other.agreeing(reach)[::-1])
            # Where no pair is judged differently, some may be all the same.
            floor = reach**2 / (min(side.images * len(side.counts) for side in (first, other)) + reach**2)
            varying = max(floor, varying[0]), max(floor, varying[1])
        below, above = mover(varying, *agreeing)
        value = self.of(places)[0]
        return Estimate(value, max(least, value - float(below)), min(1.0, value + float(above)))


def judge_gate(
    answered: AllAnswers,
    gate: Sequence[GateLine],
    models: Sequence[str],
    checks: LabelChecks | None,
    allow_undecided: bool = False,
) -> GateResult:
    """Every line for every one of these models. checks: of a built dataset's labels; None where labels are given."""
    sides = _Sides(answered)
    compared = [one for line in gate for model in models for one in _comparisons(answered, line, model, sides, checks)]
    found = [one for one in compared if one.sides]
    if not found:
        return GateResult(answered.subject.name, tuple(models), tuple(one.judged for one in compared), allow_undecided)
    averages = sides.averages()
    values, draws = zip(*(averages.of(one.sides) for one in found), strict=True)
    reach = simultaneous_reach(np.array(values), np.stack(draws, axis=1))
    judged = []
    for one in compared:
        own = one.judged
        if one.sides:
            estimate, images = averages.interval(one.sides, reach), averages.images(one.sides)
            own = replace(own, estimate=estimate, images=images)
            own = own if own.reason else _verdict(own)
        judged.append(own)
    return GateResult(answered.subject.name, tuple(models), tuple(judged), allow_undecided)


def _comparisons(
    answered: AllAnswers, line: GateLine, model: str, sides: _Sides, checks: LabelChecks | None
) -> Iterator[_Compared]:
    groups = {group.name: place for place, group in enumerate(answered.subject.groups)}
    if answered.subject.base:
        groups.setdefault(BASE, 0)
    for place, group in enumerate(answered.subject.groups):
        # fog@3 is another name of fog_3.
        if not group.top:
            groups.setdefault(f"{group.of}@{group.name.removeprefix(f'{group.of}_')}", place)
    if line.every:
        places = answered.shifts if line.measure == "drop" else answered.places
    else:
        places = (groups[line.group],) if line.group in groups else ()
    if not places:
        why = "the dataset has no such group" + did_you_mean(line.group, groups)
        why = "the dataset has no shift" if line.every else why
        yield _Compared(Judged(line, model, line.group, "undecided", reason=why))
    for place in places:
        drop, group = line.measure == "drop", answered.group(place)
        classes = answered.kept(place) if drop else answered.enough(place)
        planned, measured = len(group.class_labels), len(classes)
        reason = _undecided(answered, line, model, place, (measured, planned), checks)
        own = Judged(
            line, model, group.name, "undecided", reason=reason, classes=(measured, planned), level=group.level
        )
        compares = measured and not (drop and (place == 0 or not answered.subject.base))
        others = [(0, model)] if drop else [(place, line.against)] if line.against else []
        both = [*others, (place, model)] if compares else []
        yield _Compared(own, tuple(sides.of(each, name, classes) for each, name in both))


def _undecided(
    answered: AllAnswers,
    line: GateLine,
    model: str,
    place: int,
    classes: tuple[int, int],
    checks: LabelChecks | None,
) -> str:
    """Why nothing can be said, however many images there are; empty where something can."""
    subject, drop = answered.subject, line.measure == "drop"
    if drop and (place == 0 or not subject.base):
        return "the base has no drop" if subject.base else "the images have no base"
    if not classes[0]:
        above = " and is above chance on the base" if drop else ""
        return f"no class has {answered.min_images} images{above}"
    if 2 * classes[0] < classes[1]:
        return f"only {classes[0]} of {classes[1]} classes are measured"
    places = {answered.models.index(name): name for name in (model, line.against) if name}
    for chosen in subject.judged.shifts:
        if chosen.place == place:
            for judge in judges_among(answered.scored, chosen.judges, subject.pins).keys() & places.keys():
                return f"its images were chosen because {places[judge]} gets them wrong"
    near = [name for at, name in places.items() if answered.near_chance.models[at]]
    if near and (drop or near != [model]):
        return f"{near[-1]} is near chance on {'the base' if subject.base else 'these images'}"
    # Images from elsewhere that were scored beside a dataset bring labels of their own.
    last = subject.parts[1].first if len(subject.parts) > 1 else len(subject.groups)
    for each, whose in ((place, "its labels"), (0, "the labels of the base")) if drop else ((place, "its labels"),):
        unchecked = checks is not None and not checks.own and not checks.of(answered.group(each).name).checked
        if each < last and unchecked:
            return f"nobody checked {whose}"
    return ""


def _verdict(one: Judged) -> Judged:
    assert one.estimate is not None and one.estimate.low is not None and one.estimate.high is not None
    value, low, high, limit = one.estimate.value, one.estimate.low, one.estimate.high, one.line.limit
    if not one.line.above:
        value, low, high, limit = -value, -high, -low, -limit
    if low >= limit:
        return replace(one, verdict="pass")
    if high < limit:
        return replace(one, verdict="fail")
    # Intervals narrow with the root of the images.
    distance = value - limit
    open_end = value - low if distance > 0 else high - value
    needed = math.ceil(one.images * (open_end / distance) ** 2) if distance else MOST_NEEDED + 1
    return replace(one, needed=needed if needed <= MOST_NEEDED else None)
