"""Pictures of what classifiers get wrong: the failure browser, and the flipped pairs that the report shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.arrays import Ints
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.failures import base_partners, choose_failures, failures_data, failures_html, write_browser
from counterfoil.evaluation.figures import MOST_SHIFTS, thumbnails
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, answer_names
from counterfoil.report.results import Results, classes_of

if TYPE_CHECKING:
    from PIL.Image import Image


def write_failures(results: Results, answered: AllAnswers, folder: Path) -> Path:
    """Write the failure browser; return its page in `folder`. Only the images that it shows are read again."""
    subject, answers = answered.subject, answered.answers
    built = [index for index, group in enumerate(subject.groups) if index and group.candidates is not None]
    partners = failure_partners(answered, built)
    chosen = choose_failures(answers.correct, answers.readable, subject.labels, subject.shifts, partners)
    levels = {names[-1]: names for curve in results.severity if (names := [level.group for level in curve.levels])}
    order = [name for shift in results.by_impact for name in levels.get(shift.name, [shift.name])]
    order += [results.base] if results.base is not None else []
    near = "near chance on the base" if subject.base else "near chance"
    models = [
        (model.name, answer_names(subject.classes, class_map), near if model.near_chance else "")
        for model, class_map in zip(results.models, answered.maps, strict=True)
    ]
    data = failures_data(subject, answers, answered.confidence, chosen, models, order)
    paired = any(subject.groups[index].paired for index in built)
    changed = results.label_checks is not None and results.label_checks.own
    html = failures_html(results.dataset, data, chosen, len(subject.keys), paired, changed, results.preview_sentence)
    pictures = _pictures(subject, frozenset(subject.keys[row] for row in chosen.images))
    return write_browser(folder, html, pictures, len(chosen.images))


def _pictures(subject: Subject, keys: frozenset[str]) -> Iterator[Image | None]:
    for part in subject.parts:
        part_keys = frozenset(key.removeprefix(part.prefix) for key in keys if key.startswith(part.prefix))
        if part_keys:
            yield from (part.images.decoded(encoded) for _, encoded in part.images.images(part_keys))


def failure_partners(answered: AllAnswers, shifts: Sequence[int]) -> Ints:
    subject, readable = answered.subject, answered.answers.readable
    shifts = shifts if subject.base else ()
    return base_partners(subject.labels, subject.shifts, subject.indices, readable, shifts)


CLASSES_A_SHIFT = 3
PAIRS_A_CLASS = 2


@dataclass(frozen=True)
class FlippedPair:
    """A base image and its shifted partner; `flipped` models were right on the base image and wrong on the other.

    `answer` is the most frequent answer of those models to the shifted image; `answered` of them gave it.
    """

    base_key: str
    shift_key: str
    base_image: str
    shift_image: str
    flipped: int
    answer: str
    answered: int


# `ClassExamples` is a class with a large drop: its name, its drop averaged over models, and flipped pairs.
ClassExamples = tuple[str, float, list[FlippedPair]]


def pick_examples(answered: AllAnswers, results: Results) -> list[tuple[str, list[ClassExamples]]]:
    """Return the classes that drop most, for shifts of the largest impact, with the pairs that most models flip."""
    subject, classes = answered.subject, answered.subject.classes
    # Images that were not built form no pairs.
    built = [shift.name for shift in results.shifts if shift.candidates is not None]
    impacts = {name: results.rows.value("impact", group=name) for name in built}
    worst = sorted((-value, index) for index, value in enumerate(impacts.values()) if value is not None)[:MOST_SHIFTS]
    index_of = {group.name: index for index, group in enumerate(subject.groups)}
    partners = failure_partners(answered, [index_of[name] for name in built])
    chosen: list[tuple[str, int, float, list[_Flipped]]] = []
    for _, at in worst:
        drops = {
            facts.class_id: facts.impact.value for facts in classes_of(results, built[at]) if facts.impact is not None
        }
        number = 0
        for cls in sorted(classes, key=lambda cls: (-drops.get(cls.id, 0.0), cls.label)):
            if drops.get(cls.id, 0.0) <= 0 or number == CLASSES_A_SHIFT:
                break
            if pairs := _flipped(answered, partners, index_of[built[at]], cls.label):
                chosen.append((built[at], cls.label, drops[cls.id], pairs))
                number += 1
    shown = frozenset(subject.keys[row] for *_, pairs in chosen for base, row, _ in pairs for row in (base, row))
    pictures = thumbnails(subject, shown)  # only readable rows are chosen
    called = [answer_names(classes, class_map) for class_map in answered.maps]
    examples: dict[str, list[ClassExamples]] = {}
    for shift, label, drop, pairs in chosen:
        flipped = []
        for base, row, models in pairs:
            counts = Counter(called[model](int(answered.answers.prediction[row, model])) for model in models)
            most = min(counts, key=lambda name: (-counts[name], name))
            keys = subject.keys[base], subject.keys[row]
            flipped.append(FlippedPair(*keys, pictures[keys[0]], pictures[keys[1]], len(models), most, counts[most]))
        examples.setdefault(shift, []).append((classes[label].name, drop, flipped))
    return list(examples.items())


# Rows of a base image and of its shifted partner, and the models that flipped.
_Flipped = tuple[int, int, Ints]


def _flipped(answered: AllAnswers, partners: Ints, shift: int, label: int) -> list[_Flipped]:
    subject, correct = answered.subject, answered.answers.correct
    rows = np.flatnonzero((subject.labels == label) & (subject.shifts == shift) & (partners >= 0))
    pairs = []
    for row, partner in zip(rows.tolist(), partners[rows].tolist(), strict=True):
        models = np.flatnonzero(correct[partner] & ~correct[row])
        if models.size:
            pairs.append((partner, row, models))
    return sorted(pairs, key=lambda pair: (-pair[2].size, pair[1]))[:PAIRS_A_CLASS]
