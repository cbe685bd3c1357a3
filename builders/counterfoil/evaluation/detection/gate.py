"""A gate for detectors: lines such as `drop(fog, AP50) <= 5`, answered pass, fail or undecided as for classifiers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from counterfoil.detection_stats import Drawn, combined, ratio, simultaneous_intervals
from counterfoil.errors import UserError
from counterfoil.evaluation.dataset import OpenDataset
from counterfoil.evaluation.detection.measures import NAMES, category_facts
from counterfoil.evaluation.gate import (
    DROPS,
    LINE_HINT,
    GateLine,
    GateResult,
    Judged,
    check_names,
    indices_of_groups,
    labels_named,
)
from counterfoil.evaluation.scored_models import is_stored
from counterfoil.report.results import ClassFacts

LINE_FORMS = (
    f"A line is one of: AP(GROUP) >= PERCENT, drop(SHIFT) <= POINTS (of AP), drop(SHIFT, AP50) <= POINTS, {LINE_HINT}"
    f" Measures are {', '.join(NAMES)}."
)


def check_detection_gate(lines: Sequence[GateLine], dataset: OpenDataset, categories: Sequence[str]) -> None:
    """Raise UserError with every line that names a missing group or category, or that detections cannot answer."""
    problems = []
    for line in lines:
        if line.class_name and line.share != "AP":
            problems.append(f"gate: {line.text}: only AP is measured by category")
        if is_stored(line.other_model):
            problems.append(f"gate: {line.text}: {line.other_model} has no boxes, so AP cannot be compared with it")
    if problems:
        raise UserError(problems, "Compare with another detector or its file, as in worse_than(predictions:FILE, any).")
    check_names(lines, dataset, category_facts(categories))


class DrawnModel(Protocol):
    """The numbers of a model. All models use the same resamples of images.

    guesses: why the model's drops mean nothing, for all labels or for one; empty if they do mean something. share: a
    measure in a group, for all labels or for one. of_drop: whether to measure it as drops do.
    """

    @property
    def name(self) -> str: ...

    def guesses(self, label: int | None) -> str: ...

    def share(self, group: int, measure: str, label: int | None, of_drop: bool) -> Drawn: ...


def judge_drawn_gate(
    dataset: OpenDataset,
    classes: Sequence[ClassFacts],
    measured_models: Sequence[DrawnModel],
    lines: Sequence[GateLine],
    judged_models: Sequence[str],
    allow_undecided: bool,
) -> GateResult:
    """Judge every line for each of these models, with intervals that hold for all comparisons at once.

    classes: the classes that a line can name, in the order of label numbers.
    """
    models = {model.name: model for model in measured_models}
    comparisons = [
        comparison
        for line in lines
        for name in judged_models
        for comparison in _comparisons(dataset, classes, line, models[name], models.get(line.other_model))
    ]
    numbers = [number for _, number in comparisons if number is not None]
    estimates = iter(simultaneous_intervals(numbers))
    outcomes = tuple(
        judged if number is None else judged.measured(next(estimates), number.images) for judged, number in comparisons
    )
    return GateResult(dataset.name, tuple(judged_models), outcomes, allow_undecided)


def _comparisons(
    dataset: OpenDataset, classes: Sequence[ClassFacts], line: GateLine, model: DrawnModel, other: DrawnModel | None
) -> Iterator[tuple[Judged, Drawn | None]]:
    """Yield the line once for each of its groups, still undecided, with the number to judge, or None without one."""
    drop = line.measure in DROPS
    indices = range(int(drop), len(dataset.groups)) if line.every else [indices_of_groups(dataset)[line.group]]
    if not indices:
        yield Judged(line, model.name, line.group, "undecided", reason="the dataset has no shift"), None
    label = labels_named(line.class_name, classes)[0] if line.class_name else None

    def share(of_model: DrawnModel, group: int) -> Drawn:
        return of_model.share(group, line.share, label, drop)

    for index in indices:
        number = share(model, index)
        reason = ""
        if drop or other is not None:
            first, first_group = (model, 0) if other is None else (other, index)
            number = combined([(1.0, share(first, first_group)), (-1.0, number)])
            guessing = [each for each in (first, model) if each.guesses(label)]
            if guessing and (drop or guessing != [model]):
                reason = f"{guessing[0].name} {guessing[0].guesses(label)}"
            if line.measure == "relative_drop":
                number = replace(ratio(number, share(model, 0)), signed=True)
        group = dataset.groups[index]
        judged = Judged(line, model.name, group.name, "undecided", reason=reason, level=group.level)
        if math.isfinite(number.value):
            yield judged, number
        else:
            reason = reason or f"no image shows {line.share} here"
            yield replace(judged, reason=reason), None
