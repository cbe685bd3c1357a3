"""Pictures of what classifiers get wrong: the failure browser, and the flipped pairs that the
report shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.arrays import Ints
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.failures import (
    base_partners,
    browser_html,
    choose_failures,
    failures_data,
    write_sheets,
)
from counterfoil.evaluation.figures import MOST_SHIFTS
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, answer_names
from counterfoil.report.results import Results, classes_of

if TYPE_CHECKING:
    from PIL.Image import Image


def write_failures(results: Results, answered: AllAnswers, folder: Path) -> Path:
    """Write the failure browser; return its page in `folder`. Only the images that it shows are
    read again."""
    subject = answered.subject
    answers = answered.answers
    built = [
        index
        for index, group in enumerate(subject.groups)
        if index and group.candidates is not None
    ]
    partners = failure_partners(answered, built)
    chosen = choose_failures(
        answers.correct, answers.readable, subject.labels, subject.shifts, partners
    )
    levels = {}
    for curve in results.severity:
        names = [level.group for level in curve.levels]
        levels |= {names[-1]: names} if names else {}
    order = [name for shift in results.by_impact for name in levels.get(shift.name, [shift.name])]
    order += [results.base] if results.base is not None else []
    near = "near chance on the base" if subject.base else "near chance"
    models = []
    for model, class_map in zip(results.models, answered.maps, strict=True):
        note = near if model.near_chance else ""
        models.append((model.name, answer_names(subject.classes, class_map), note))
    data = failures_data(
        subject, answers.prediction, answers.correct, answered.confidence, chosen, models, order
    )
    html = browser_html(
        "failures-of-classes.html.j2",
        results.dataset,
        results.preview_sentence,
        data,
        found=chosen.count,
        shown=len(chosen.rows),
        images=len(subject.keys),
        paired=any(subject.groups[index].paired for index in built),
        changed=results.label_checks is not None and results.label_checks.own,
    )
    pictures = _pictures(subject, frozenset(subject.keys[row] for row in chosen.images))
    return write_sheets(folder, html, pictures, len(chosen.images))


def _pictures(subject: Subject, keys: frozenset[str]) -> Iterator[Image | None]:
    for part in subject.parts:
        part_keys = frozenset(
            key.removeprefix(part.prefix) for key in keys if key.startswith(part.prefix)
        )
        if part_keys:
            yield from (
                part.images.decoded(encoded) for _, encoded in part.images.images(part_keys)
            )


def failure_partners(answered: AllAnswers, shifts: Sequence[int]) -> Ints:
    subject = answered.subject
    readable = answered.answers.readable
    shifts = shifts if subject.base else ()
    return base_partners(subject.labels, subject.shifts, subject.indices, readable, shifts)


CLASSES_A_SHIFT = 3
PAIRS_A_CLASS = 2


@dataclass(frozen=True)
class FlippedPair:
    """Keys of a base image and its shifted partner; `flipped` models were right on the first and
    wrong on the other.

    `answer` is the most frequent answer of those models to the shifted image; `answered` of them
    gave it.
    """

    base_key: str
    shift_key: str
    flipped: int
    answer: str
    answered: int


# `ClassExamples` is a class with a large drop: its name, its drop averaged over models, and flipped
# pairs.
ClassExamples = tuple[str, float, list[FlippedPair]]


def pick_examples(answered: AllAnswers, results: Results) -> dict[str, list[ClassExamples]]:
    """Return the classes that drop most, for shifts of the largest impact, with the pairs that most
    models flip."""
    subject = answered.subject
    # Images that were not built form no pairs.
    built = [shift.name for shift in results.by_impact if shift.candidates is not None]
    measured = [name for name in built if results.rows.value("impact", group=name) is not None]
    index_of = {group.name: index for index, group in enumerate(subject.groups)}
    partners = failure_partners(answered, [index_of[name] for name in built])
    examples: dict[str, list[ClassExamples]] = {}
    for shift in measured[:MOST_SHIFTS]:
        of_classes = classes_of(results, shift)
        drops = {
            facts.class_id: facts.impact.value for facts in of_classes if facts.impact is not None
        }
        chosen: list[ClassExamples] = []
        for cls in sorted(subject.classes, key=lambda cls: (-drops.get(cls.id, 0.0), cls.label)):
            if drops.get(cls.id, 0.0) <= 0 or len(chosen) == CLASSES_A_SHIFT:
                break
            if pairs := _flipped(answered, partners, index_of[shift], cls.label):
                chosen.append((cls.name, drops[cls.id], pairs))
        if chosen:
            examples[shift] = chosen
    return examples


def _flipped(answered: AllAnswers, partners: Ints, shift: int, label: int) -> list[FlippedPair]:
    """Return the pairs of a class under a shift that most models flip."""
    subject = answered.subject
    answers = answered.answers
    called = [answer_names(subject.classes, class_map) for class_map in answered.maps]
    rows = np.flatnonzero((subject.labels == label) & (subject.shifts == shift) & (partners >= 0))
    flips = answers.correct[partners[rows]] & ~answers.correct[rows]
    pairs = []
    for at in np.argsort(-flips.sum(axis=1), kind="stable")[:PAIRS_A_CLASS].tolist():
        models = np.flatnonzero(flips[at]).tolist()
        row = int(rows[at])
        if models:
            counts = Counter(called[model](int(answers.prediction[row, model])) for model in models)
            answer = min(counts, key=lambda name: (-counts[name], name))
            keys = subject.keys[partners[row]], subject.keys[row]
            pairs.append(FlippedPair(*keys, len(models), answer, counts[answer]))
    return pairs
