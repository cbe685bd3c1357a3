"""Findings as people read them: what each is called, and a sentence a model. Bounded; findings.csv holds all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from counterfoil.evaluation.figure_style import spoken
from counterfoil.evaluation.results import Evaluation
from counterfoil.evaluation.spoken_numbers import between, percent, points
from counterfoil.report.nested import FindingScore, MinedShiftResult

MOST_FINDINGS = 40
MOST_SENTENCES = 8
_MOST_NAMES = 5
_LONGEST_NAME = 80

# What mining writes beside each failure.
BESIDE = ("easy", "reference", "decoded", "class_name", "random_context")


@dataclass(frozen=True)
class SpokenFinding:
    """A finding's name, what was counted, and what of each model, the target first; `more` models are not told."""

    shift: str
    name: str
    counted: str
    sentences: tuple[str, ...]
    more: int


def spoken_findings(evaluation: Evaluation) -> tuple[SpokenFinding, ...]:
    """The findings of the largest difference, averaged over models; what cannot be measured comes last."""
    names = {model.name: model.short_name for model in evaluation.models}
    shown = by_difference(evaluation.findings)[:MOST_FINDINGS]
    return tuple(_spoken(finding, names) for finding in shown)


def by_difference(findings: Sequence[MinedShiftResult]) -> list[MinedShiftResult]:
    """Largest mean difference first, unmeasured ones last; equal ones as in the recipe."""
    return sorted(findings, key=_rank)


def found_failing(findings: Sequence[MinedShiftResult]) -> list[MinedShiftResult]:
    """Without the shifts that only stand beside what fails, for comparison; all, where there are no others."""
    found = [finding for finding in findings if finding.role not in BESIDE]
    return found or list(findings)


def finding_name(finding: MinedShiftResult) -> str:
    """Its words, or the shift's name where it has none, and whether it is one that was chosen for comparison."""
    name = finding.words or spoken(finding.shift)
    return f"{name} ({finding.role})" if finding.role and not name.endswith(spoken(finding.role)) else name


def _rank(finding: MinedShiftResult) -> float:
    measured = [score for score in finding.scores if score.difference is not None]
    sound = [score for score in measured if not score.near_chance] or measured
    found = [score.difference.value for score in sound if score.difference is not None]
    return -sum(found) / len(found) if found else math.inf


def _spoken(finding: MinedShiftResult, names: dict[str, str]) -> SpokenFinding:
    scores = sorted(finding.scores, key=lambda score: not score.target)
    shown = scores[:MOST_SENTENCES]
    told = [_sentence(score, names.get(score.model, score.model)) for score in shown if score.rate is not None]
    # What several models cannot be measured for is said once.
    reasons: dict[str, list[str]] = {}
    for score in shown:
        if score.rate is None:
            reasons.setdefault(score.note or "", []).append(_who(score, names.get(score.model, score.model)))
    told += [f"{', '.join(who)}: {note}." for note, who in reasons.items()]
    return SpokenFinding(finding.shift, finding_name(finding), _counted(finding), tuple(told), len(scores) - len(shown))


def _counted(finding: MinedShiftResult) -> str:
    classes = [_cut(name) for name in finding.class_names[:_MOST_NAMES]]
    rest = len(finding.class_names) - len(classes)
    of = ", ".join(classes) + (f" and {rest} more" if rest else "")
    text = f"{of}: {finding.screened:,} of {finding.candidates:,} candidates passed the screen"
    near = ""
    if finding.near_chance:
        left = [_cut(name) for name in finding.near_chance[:_MOST_NAMES]]
        more = f" and {len(finding.near_chance) - len(left)} more" if len(finding.near_chance) > len(left) else ""
        verb = "is" if len(finding.near_chance) == 1 else "are"
        near = f" Left out of every rate: {', '.join(left)}{more}, which {verb} near chance on the base."
    if not finding.judges:
        return f"{text}.{near}"
    judges = " and ".join(_cut(judge) for judge in finding.judges)
    until = f", drawn until {finding.quota:,} a class were kept" if finding.quota else ""
    return f"{text}{until}; of these a rule that asks {judges} kept failures only, {finding.accepted:,} images.{near}"


def _sentence(score: FindingScore, name: str) -> str:
    who = _who(score, name)
    counts = f"{score.failures:,} of {score.images:,}"
    text = f"{who}: {percent(score.rate)} wrong ({counts})"
    if score.difference is not None:
        base = f"{percent(score.base_rate)} of the base ({score.base_failures:,} of {score.base_images:,})"
        interval = between(score.difference)
        text += f", {base}; difference {points(score.difference.value)} points" + (f" ({interval})" if interval else "")
    return f"{text}; {score.note}." if score.note else f"{text}."


def _who(score: FindingScore, name: str) -> str:
    marks = [*(["the target"] if score.target else []), *(["near chance"] if score.near_chance else [])]
    return _cut(name) + (f" ({', '.join(marks)})" if marks else "")


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
