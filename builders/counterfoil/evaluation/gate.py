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

from counterfoil.errors import UserError
from counterfoil.evaluation.measures.comparison import Side, drawn_averages
from counterfoil.evaluation.scores import AllAnswers
from counterfoil.evaluation.statistics import ClassUnits
from counterfoil.recipe.layering import text_of
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.prompts import BASE
from counterfoil.recipe.strict_yaml import read_yaml
from counterfoil.report.labels import LabelChecks
from counterfoil.stats import Estimate, distances_with_correlation, simultaneous_reach, wilson_reach

ANY = "any"
# Exit codes of a command; 1 and 2 are those of a run that broke and of a mistake.
FAILED, UNDECIDED = 3, 4
MOST_LINES = 500
# More images a class than this are no advice.
MOST_NEEDED = 100_000

Answer = Literal["pass", "fail", "undecided"]
_HINT = (
    "A line is one of: accuracy(GROUP) >= PERCENT, drop(SHIFT) <= POINTS, worse_than(MODEL, GROUP) <= POINTS. GROUP is"
    " base, a shift or any."
)
_NAME = r'(?:"[^"]*"|[^\s,()"]+)'
_LINE = re.compile(
    rf"\s*(?P<measure>\w+)\s*\(\s*(?P<names>{_NAME}(?:\s*,\s*{_NAME})*)\s*\)\s*(?P<sign>[<>=!]+)\s*(?P<limit>\S+)\s*"
)
_NUMBER = re.compile(r"-?\d{1,3}(?:\.\d{1,6})?")
# Measure → its sign, how many names it takes, and the least limit that means anything.
_MEASURES = {"accuracy": (">=", 1, 0.0), "drop": ("<=", 1, -100.0), "worse_than": ("<=", 2, -100.0)}


@dataclass(frozen=True, slots=True)
class GateLine:
    """A line as it was read. limit: a fraction. against: the model that others may not be worse than."""

    text: str
    measure: str
    group: str
    limit: float
    against: str = ""

    @property
    def above(self) -> bool:
        """Whether a model meets the line above the limit rather than below it."""
        return _MEASURES[self.measure][0] == ">="


@dataclass(frozen=True, slots=True)
class Judged:
    """A line of the gate for one model and one group.

    estimate: fractions, with an interval that holds for all comparisons of the gate at once; None where nothing is
    measured. images: of a class, the harmonic mean. needed: how many images a class would decide the line if the value
    stayed; None where it is decided, or no number would. reason: why it is undecided, where the interval does not say.
    """

    line: GateLine
    model: str
    group: str
    verdict: Answer
    estimate: Estimate | None = None
    images: float = 0.0
    needed: int | None = None
    reason: str = ""


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
        if isinstance(one, GateLine) and (one.measure, one.against, one.group) in {
            (other.measure, other.against, other.group) for other in found
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
    names = [one.strip('"') for one in re.findall(_NAME, match["names"])]
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
    return GateLine(" ".join(text.split()), measure, group, float(number) / 100, names[0] if count == 2 else "")


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
    """What is measured of a line for one model and group, or why nothing is.

    sides: the average that is judged, or two: a difference is the first less the second.
    """

    line: GateLine
    model: str
    group: str
    sides: tuple[int, ...] = ()
    reason: str = ""


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
            wanted = [label for label, one in enumerate(subject.classes) if one.id in key[2]]
            rows = answered.rows(place)
            right = answered.answers.correct[:, answered.models.index(model)]
            self.sides.append((rows[np.isin(subject.labels[rows], wanted)], right))
        return self.places[key]

    def averages(self) -> _Averages:
        """All of them, with their bootstrap."""
        subject = self.answered.subject
        values, images, classes, errors = [], [], [], []
        draws = drawn_averages(subject, self.sides, self.answered.seed) if self.sides else np.empty((0, 0))
        for rows, right in self.sides:
            _, label, count = np.unique(subject.labels[rows], return_inverse=True, return_counts=True)
            hits = np.bincount(label, weights=right[rows])
            values.append(float((hits / count).mean()))
            # An image beside, as right as all are: a class whose images agree is not certain.
            smoothed = (hits + values[-1]) / (count + 1)
            images.append(len(count) / float((1 / count).sum()))
            classes.append(len(count))
            errors.append(float((smoothed * (1 - smoothed) / count).sum()) / len(count) ** 2)
        n = np.array(images)
        # A bootstrap of n images has n - 1 degrees of freedom.
        drawn = np.nanvar(draws, axis=0) if self.sides else n
        variance = np.maximum(drawn * n / np.maximum(n - 1, 1), errors)
        return _Averages(np.array(values), n, n * np.array(classes), variance, draws)


@dataclass(frozen=True)
class _Averages:
    """Averages over classes, (k,) each: images of a class (harmonic mean), images in all, variance; draws (R, k)."""

    values: NDArray[np.float64]
    images: NDArray[np.float64]
    total: NDArray[np.float64]
    variance: NDArray[np.float64]
    draws: NDArray[np.float64]

    def of(self, sides: tuple[int, ...]) -> tuple[float, NDArray[np.float64]]:
        """The value of a comparison, and its draws."""
        first, *rest = sides
        value, draws = float(self.values[first]), self.draws[:, first]
        return (value - float(self.values[rest[0]]), draws - self.draws[:, rest[0]]) if rest else (value, draws)

    def interval(self, sides: tuple[int, ...], reach: float) -> Estimate:
        """Its interval, `reach` standard errors long: Wilson's, or of two such (Newcombe 1998, method 10)."""
        value, _ = self.of(sides)
        own = [self._distances(side, reach) for side in sides]
        if len(sides) == 1:
            (below, above), least = own[0], 0.0
        else:
            # Where no pair is judged differently, some may be all the same.
            least, floor = -1.0, reach**2 / (float(self.total[list(sides)].min()) + reach**2)
            ends = distances_with_correlation(own[0], own[1], self._correlation(*sides))
            below, above = (max(floor, end) for end in ends)
        return Estimate(value, max(least, value - below), min(1.0, value + above))

    def _distances(self, side: int, reach: float) -> tuple[float, float]:
        share = float(self.values[side])
        # As many independent images as its variance says (Korn and Graubard 1998).
        whole = share * (1 - share) / float(self.variance[side]) if 0 < share < 1 else float(self.total[side])
        low, high = wilson_reach(share, whole, reach)
        return share - low, high - share

    def _correlation(self, first: int, second: int) -> float:
        one, other = (self.draws[:, side] - np.nanmean(self.draws[:, side]) for side in (first, second))
        spread = math.sqrt(float(np.nanmean(one**2) * np.nanmean(other**2)))
        return float(np.nanmean(one * other)) / spread if spread else 0.0


def judge_gate(
    answered: AllAnswers,
    gate: Sequence[GateLine],
    models: Sequence[str],
    checks: LabelChecks | None,
    allow_undecided: bool = False,
) -> GateResult:
    """Every line for every one of these models. checks: of a built dataset's labels; None where labels are given."""
    sides = _Sides(answered)
    compared = [one for line in gate for model in models for one in _comparisons(answered, line, model, sides)]
    measured = [one for one in compared if one.sides]
    averages = sides.averages()
    found = [averages.of(one.sides) for one in measured]
    reach = simultaneous_reach(np.array([value for value, _ in found]), [each for _, each in found])
    judged = []
    for one in compared:
        own = Judged(one.line, one.model, one.group, "undecided", reason=one.reason)
        if one.sides:
            images = float(averages.images[one.sides[-1]])
            own = replace(own, estimate=averages.interval(one.sides, reach), images=images)
            if not own.reason and checks is not None and not (checks.own or checks.of(one.group).checked):
                own = replace(own, reason="nobody checked its labels")
            own = own if own.reason else _verdict(own)
        judged.append(own)
    return GateResult(answered.subject.name, tuple(models), tuple(judged), allow_undecided)


def _comparisons(answered: AllAnswers, line: GateLine, model: str, sides: _Sides) -> Iterator[_Compared]:
    groups = {group.name: place for place, group in enumerate(answered.subject.groups)}
    if answered.subject.base:
        groups[BASE] = 0
    places: Sequence[int]
    if line.group == ANY:
        places = answered.shifts if line.measure == "drop" else answered.places
    elif line.group in groups:
        places = [groups[line.group]]
    else:
        places = []
    if not places:
        why = "the dataset has no such group" + did_you_mean(line.group, groups)
        yield _Compared(line, model, line.group, reason="the dataset has no shift" if line.group == ANY else why)
    for place in places:
        yield _comparison(answered, line, model, place, sides)


def _comparison(answered: AllAnswers, line: GateLine, model: str, place: int, sides: _Sides) -> _Compared:
    one = _Compared(line, model, answered.group(place).name)
    near = {name for name, is_near in zip(answered.models, answered.near_chance.models, strict=True) if is_near}
    if line.measure == "drop":
        kept = answered.kept(place)
        if not answered.subject.base:
            return replace(one, reason="the images have no base")
        if not kept:
            return replace(one, reason="no class has enough images and is above chance on the base")
        reason = "the model is near chance on the base, so it has little to lose" if model in near else ""
        return replace(one, sides=(sides.of(0, model, kept), sides.of(place, model, kept)), reason=reason)
    enough = answered.enough(place)
    if not enough:
        return replace(one, reason=f"no class has {answered.min_images} images")
    own = sides.of(place, model, enough)
    if line.measure == "accuracy":
        return replace(one, sides=(own,))
    reason = "the other model is near chance on the base" if line.against in near else ""
    return replace(one, sides=(sides.of(place, line.against, enough), own), reason=reason)


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
