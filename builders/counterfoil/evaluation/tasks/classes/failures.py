"""Pictures of what classifiers get wrong: the failure browser, and the flipped pairs that the
report shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from counterfoil.arrays import Ints
from counterfoil.evaluation.failures import base_partners, write_sheets
from counterfoil.evaluation.figures import MOST_SHIFTS
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, answer_names
from counterfoil.prediction.class_map import ClassMap
from counterfoil.recipe import RecipeClass
from counterfoil.report.results import Results, classes_of

_NOT_ASKED = -1


def write_failures(
    results: Results,
    answered: AllAnswers,
    folder: Path,
) -> Path:
    """Write the failure browser; return its page in `folder`."""
    subject = answered.subject
    answers = answered.answers
    built = []
    for index, group in enumerate(subject.groups):
        if index and group.candidates is not None:
            built.append(index)
    partners = failure_partners(answered, built)
    given = answered.given
    # Only an answer that was given, to an image that can be shown, is wrong.
    correct = answers.correct | ~given | ~answers.readable[:, None]
    prediction = np.where(given, answers.prediction, _NOT_ASKED)
    confidence = np.where(given, answered.confidence, np.float32(np.nan))
    levels = {}
    for curve in results.severity:
        names = [level.group for level in curve.levels]
        if names:
            levels[names[-1]] = names
    order = []
    for shift in results.by_impact:
        order += levels.get(shift.name, [shift.name])
    if results.base is not None:
        order.append(results.base)
    near = "near chance"
    if subject.base:
        near = "near chance on the base"
    models = []
    for model, class_map in zip(results.models, answered.maps, strict=True):
        note = ""
        if model.near_chance:
            note = near
        models.append((model.name, _shown_names(subject.classes, class_map), note))
    checks = results.label_checks
    return write_sheets(
        folder,
        "failures-of-classes.html.j2",
        results,
        subject,
        (prediction, correct, confidence),
        partners,
        models,
        order,
        images=len(subject.keys),
        paired=any(subject.groups[index].paired for index in built),
        changed=checks is not None and checks.own,
    )


def _shown_names(
    classes: Sequence[RecipeClass],
    class_map: ClassMap,
) -> Callable[[int], str]:
    called = answer_names(classes, class_map)
    return lambda output: "not asked" if output == _NOT_ASKED else called(output)


def failure_partners(answered: AllAnswers, shifts: Sequence[int]) -> Ints:
    subject = answered.subject
    return base_partners(
        subject.labels,
        subject.shifts,
        subject.indices,
        answered.answers.readable,
        shifts if subject.base else (),
    )


CLASSES_A_SHIFT = 3
PAIRS_A_CLASS = 2


@dataclass(frozen=True)
class FlippedPair:
    """A base image and its shifted partner, by their keys."""

    base_key: str
    shift_key: str
    flipped: int
    """How many models are right on the base image and wrong on the other."""
    answer: str
    """The most frequent answer of those models to the shifted image."""
    answered: int
    """How many of them give it."""


# `ClassExamples` is a class with a large drop: its name, its drop averaged over models, and flipped
# pairs.
ClassExamples = tuple[str, float, list[FlippedPair]]


def pick_examples(
    answered: AllAnswers,
    results: Results,
) -> dict[str, list[ClassExamples]]:
    """Return the classes that drop most, for shifts of the largest impact, with the pairs that most
    models flip."""
    subject = answered.subject
    # Images that were not built form no pairs.
    built = [shift.name for shift in results.by_impact if shift.candidates is not None]
    measured = []
    for name in built:
        if results.rows.value("impact", group=name) is not None:
            measured.append(name)
    index_of = {group.name: index for index, group in enumerate(subject.groups)}
    indices = [index_of[name] for name in built]
    partners = failure_partners(answered, indices)
    examples: dict[str, list[ClassExamples]] = {}
    for shift in measured[:MOST_SHIFTS]:
        dropping = []
        for facts in classes_of(results, shift):
            if facts.impact is not None and facts.impact.value > 0:
                label = answered.label_of[facts.class_id]
                dropping.append((-facts.impact.value, label))
        chosen: list[ClassExamples] = []
        for lost, label in sorted(dropping):
            if len(chosen) == CLASSES_A_SHIFT:
                break
            pairs = _flipped(answered, partners, index_of[shift], label)
            if pairs:
                name = subject.classes[label].name
                chosen.append((name, -lost, pairs))
        if chosen:
            examples[shift] = chosen
    return examples


def _flipped(
    answered: AllAnswers,
    partners: Ints,
    shift: int,
    label: int,
) -> list[FlippedPair]:
    """Return the pairs of a class under a shift that most models flip."""
    subject = answered.subject
    answers = answered.answers
    called = [answer_names(subject.classes, class_map) for class_map in answered.maps]
    of_class = (subject.labels == label) & (subject.shifts == shift)
    rows = np.flatnonzero(of_class & (partners >= 0))
    right_on_base = answers.correct[partners[rows]]
    flips = right_on_base & ~answers.correct[rows]
    flipped = flips.sum(axis=1)
    order = np.argsort(-flipped, kind="stable")
    pairs = []
    for index in order[:PAIRS_A_CLASS].tolist():
        models = np.flatnonzero(flips[index]).tolist()
        if not models:
            continue
        row = int(rows[index])
        counts: Counter[str] = Counter()
        for model in models:
            output = int(answers.prediction[row, model])
            counts[called[model](output)] += 1
        answer = min(counts, key=lambda name: (-counts[name], name))
        pair = FlippedPair(
            base_key=subject.keys[partners[row]],
            shift_key=subject.keys[row],
            flipped=len(models),
            answer=answer,
            answered=counts[answer],
        )
        pairs.append(pair)
    return pairs
