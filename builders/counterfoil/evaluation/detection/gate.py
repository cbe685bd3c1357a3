"""A gate for detectors: lines such as `drop(fog, AP50) <= 5`, answered pass, fail or undecided as for classifiers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from counterfoil.detection_stats import Drawn, simultaneous_intervals
from counterfoil.errors import UserError
from counterfoil.evaluation.detection.measures import DROP, NAMES, DetectionAnswers, MeasuredModel
from counterfoil.evaluation.gate import ANY, MOST_LINES, GateLine, GateResult, Judged
from counterfoil.recipe.layering import text_of
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.prompts import BASE
from counterfoil.recipe.strict_yaml import read_yaml

_HINT = (
    "A line is one of: AP(GROUP) >= PERCENT, drop(SHIFT) <= POINTS (of AP), drop(SHIFT, AP50) <= POINTS. Measures are"
    f' {", ".join(NAMES)}. GROUP is base, a shift or any; "any" in quotes is a group of that name.'
)
_NAME = r'(?:"[^"]*"|[^\s,()"\']+)'
_LINE = re.compile(
    rf"\s*(?P<measure>\w+)\s*\(\s*(?P<group>{_NAME})\s*(?:,\s*(?P<of>\w+)\s*)?\)\s*(?P<sign>[<>=!]+)\s*(?P<limit>\S+)\s*"
)
_NUMBER = re.compile(r"-?[0-9]{1,3}(?:\.[0-9]{1,6})?")


@dataclass(frozen=True, slots=True)
class DetectionLine(GateLine):
    """A line for detectors; `of` is what a drop is of."""

    of: str = "AP"

    @property
    def above(self) -> bool:
        return self.measure != DROP


def read_detection_gate(gate: str | Path | Sequence[str]) -> tuple[DetectionLine, ...]:
    """Read the lines of a file (a YAML list of texts), or of texts. Raise UserError with every invalid line."""
    source = str(gate) if isinstance(gate, str | Path) else "gate"
    texts = read_yaml(text_of(Path(gate)), source) if isinstance(gate, str | Path) else list(gate)
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise UserError(f"{source}: expected a list of lines, as in: - drop(fog, AP50) <= 5", _HINT)
    if len(texts) > MOST_LINES:
        raise UserError(f"{source}: has {len(texts):,} lines, expected at most {MOST_LINES}")
    lines: list[DetectionLine] = []
    problems: list[str] = []
    for number, text in enumerate(texts, start=1):
        line = _parsed(text)
        if isinstance(line, DetectionLine):
            lines.append(line)
        else:
            problems.append(f"{source}: line {number}, {text[:120]!r}: {line}")
    if problems:
        raise UserError(problems, _HINT)
    return tuple(lines)


def _parsed(text: str) -> DetectionLine | str:
    """Return the line, or what is wrong with it."""
    match = _LINE.fullmatch(text) if len(text) <= 1000 else None
    if match is None:
        return "expected MEASURE(GROUP) >= NUMBER, or drop(SHIFT) <= NUMBER"
    measure, of, number = match["measure"], match["of"], match["limit"]
    if measure not in (DROP, *NAMES):
        return f"there is no measure {measure[:40]!r}{did_you_mean(measure, (DROP, *NAMES))}"
    if of is not None and measure != DROP:
        return f"{measure} takes one group"
    if of is not None and of not in NAMES:
        return f"there is no measure {of[:40]!r}{did_you_mean(of, NAMES)}"
    sign, least = ("<=", -100.0) if measure == DROP else (">=", 0.0)
    if match["sign"] != sign:
        return f"{measure} takes {sign}, not {match['sign']}"
    if not _NUMBER.fullmatch(number) or not least <= float(number) <= 100:
        return f"the limit is {number[:40]!r}: expected a number from {least:g} to 100"
    group = match["group"].strip('"')
    if measure == DROP and group == BASE:
        return "the base has no drop"
    every = match["group"] == ANY
    return DetectionLine(" ".join(text.split()), measure, group, float(number) / 100, every=every, of=of or "AP")


def judge_detection_gate(
    answered: DetectionAnswers, lines: Sequence[DetectionLine], allow_undecided: bool = False
) -> GateResult:
    """Judge every line for every model, with intervals that hold for all comparisons at once."""
    comparisons = [
        comparison for line in lines for model in answered.models for comparison in _comparisons(answered, line, model)
    ]
    numbers = [number for _, number in comparisons if number is not None]
    estimates = iter(simultaneous_intervals(numbers) if numbers else ())
    judged = []
    for outcome, number in comparisons:
        if number is not None:
            outcome = replace(outcome, estimate=next(estimates))
            outcome = outcome if outcome.reason else _verdict(outcome)
        judged.append(outcome)
    models = tuple(model.name for model in answered.models)
    return GateResult(answered.subject.dataset.name, models, tuple(judged), allow_undecided)


def _comparisons(
    answered: DetectionAnswers, line: DetectionLine, model: MeasuredModel
) -> Iterator[tuple[Judged, Drawn | None]]:
    """Yield each comparison of a line for a model, and the number that it is of, if there is one."""
    groups = answered.subject.dataset.groups
    place_of = {group.name: index for index, group in enumerate(groups)}
    for index, group in enumerate(groups):
        if not group.top:  # fog@3 is another name of fog_3
            place_of.setdefault(f"{group.of}@{group.name.removeprefix(f'{group.of}_')}", index)
    drop = line.measure == DROP
    places = range(int(drop), len(groups)) if line.every else [place_of[line.group]] if line.group in place_of else []
    if not places:
        reason = f"the dataset has no such group{did_you_mean(line.group, place_of)}"
        yield Judged(line, model.name, line.group, "undecided", reason=reason), None
    for index in places:
        number = model.drop(index, line.of) if drop else model.number(index, line.measure)
        judged = Judged(line, model.name, groups[index].name, "undecided", level=groups[index].level)
        if not math.isfinite(number.value):
            yield replace(judged, reason=f"no object shows {line.of if drop else line.measure} here"), None
        elif drop and model.near_chance:
            yield replace(judged, reason="it finds next to nothing on the base"), number
        else:
            yield judged, number


def _verdict(judged: Judged) -> Judged:
    assert judged.estimate is not None
    low, high = judged.estimate.low, judged.estimate.high
    if low is None or high is None:
        return replace(judged, reason="there are too few images for an interval")
    limit = judged.line.limit
    if not judged.line.above:
        low, high, limit = -high, -low, -limit
    if low >= limit:
        return replace(judged, verdict="pass")
    if high < limit:
        return replace(judged, verdict="fail")
    return replace(judged, reason="the interval holds the limit: more images would narrow it")
