"""Pick pictures that show a drop: pairs that models get right on the base and wrong under the shift."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.evaluation.answer_names import answer_names
from counterfoil.evaluation.scores import AllAnswers, ModelAnswers
from counterfoil.evaluation.subject import Subject
from counterfoil.prediction.class_map import ClassMap
from counterfoil.report.results import ClassNumbers, Results, classes_of
from counterfoil.store.decoding import rgb_image

# A report is one file: these bound its size (about 1 MB of thumbnails for 24 shifts).
MOST_SHIFTS = 24
CLASSES_A_SHIFT = 3
PAIRS_A_CLASS = 2
THUMBNAIL = 96


@dataclass(frozen=True)
class FlippedPair:
    """A base image and its shifted partner; `flipped` models were right on one and wrong on the other.

    `answer` is what most of those models say of the shifted image, `answered` how many of them.
    """

    base_key: str
    shift_key: str
    base_image: str
    shift_image: str
    flipped: int
    answer: str
    answered: int


@dataclass(frozen=True)
class ClassExamples:
    """A class that drops far under a shift (averaged over models), with pairs that flipped."""

    class_name: str
    drop: float
    pairs: tuple[FlippedPair, ...]


@dataclass(frozen=True)
class ShiftExamples:
    """The worst classes of one shift; none where no pair flipped."""

    shift: str
    classes: tuple[ClassExamples, ...]


@dataclass(frozen=True)
class _Choice:
    """A pair before its pictures are read: positions in the dataset and the models that flipped."""

    base: int
    shift: int
    models: NDArray[np.int64]


def pick_examples(answered: AllAnswers, results: Results) -> tuple[ShiftExamples, ...]:
    """For the shifts of the largest impact, the classes that drop most and pairs that flip for most models.

    Reads only the images shown.
    """
    subject, answers, maps = answered.subject, answered.answers, answered.maps
    # Images that were not built come in no pairs.
    built = [shift.name for shift in results.shifts if shift.candidates is not None]
    impacts = {name: results.rows.value("impact", group=name) for name in built}
    measured = {name: value for name, value in impacts.items() if value is not None}
    worst = sorted(measured, key=lambda name: -measured[name])[:MOST_SHIFTS]
    place = {shift.name: position for position, shift in enumerate(subject.groups)}
    chosen = {name: _choose(subject, answers, place[name], classes_of(results, name)) for name in worst}
    shown = [choice for classes in chosen.values() for _, _, choices in classes for choice in choices]
    wanted = frozenset(subject.keys[row] for choice in shown for row in (choice.base, choice.shift))
    pictures = {key: _thumbnail(encoded) for key, encoded in subject.images(wanted)} if wanted else {}
    common_answer = _common_answer(subject, answers, maps)
    answers_of = {choice.shift: common_answer(choice) for choice in shown}
    examples = []
    for name, classes in chosen.items():
        found = []
        for label, drop, choices in classes:
            pairs = tuple(
                FlippedPair(
                    base_key=subject.keys[one.base],
                    shift_key=subject.keys[one.shift],
                    base_image=pictures[subject.keys[one.base]],
                    shift_image=pictures[subject.keys[one.shift]],
                    flipped=len(one.models),
                    answer=answers_of[one.shift][0],
                    answered=answers_of[one.shift][1],
                )
                for one in choices
            )
            found.append(ClassExamples(subject.classes[label].name, drop, pairs))
        if found:
            examples.append(ShiftExamples(name, tuple(found)))
    return tuple(examples)


def _choose(
    subject: Subject, answers: ModelAnswers, shift: int, scores: Sequence[ClassNumbers]
) -> list[tuple[int, float, list[_Choice]]]:
    """(label, drop averaged over models, pairs) of the classes that drop most and have a flipped pair."""
    labels = {one.id: one.label for one in subject.classes}
    drops = {one.class_id: one.impact.value for one in scores if one.impact is not None}
    chosen = []
    for class_id in sorted(drops, key=lambda one: (-drops[one], labels[one])):
        if drops[class_id] <= 0 or len(chosen) == CLASSES_A_SHIFT:
            break
        choices = _flipped(subject, answers, shift, labels[class_id])
        if choices:
            chosen.append((labels[class_id], drops[class_id], choices))
    return chosen


def _flipped(subject: Subject, answers: ModelAnswers, shift: int, label: int) -> list[_Choice]:
    here = (subject.labels == label) & answers.readable
    base = {int(subject.indices[row]): int(row) for row in np.flatnonzero(here & (subject.shifts == 0))}
    choices = []
    for row in np.flatnonzero(here & (subject.shifts == shift)):
        partner = base.get(int(subject.indices[row]))
        if partner is not None:
            models = np.flatnonzero(answers.correct[partner] & ~answers.correct[row])
            if models.size:
                choices.append(_Choice(partner, int(row), models))
    choices.sort(key=lambda one: (-one.models.size, one.shift))
    return choices[:PAIRS_A_CLASS]


def _common_answer(
    subject: Subject, answers: ModelAnswers, maps: Sequence[ClassMap]
) -> Callable[[_Choice], tuple[str, int]]:
    """A function from a choice to the wrong answer that most of its flipped models give, and how many do."""
    called = [answer_names(subject.classes, own) for own in maps]

    def answer(choice: _Choice) -> tuple[str, int]:
        counts = Counter(called[model](int(answers.prediction[choice.shift, model])) for model in choice.models)
        name_of_most = min(counts, key=lambda one: (-counts[one], one))
        return name_of_most, counts[name_of_most]

    return answer


def _thumbnail(encoded: bytes | None) -> str:
    """A small picture as a data URI; the image is known to be readable."""
    image = rgb_image(encoded)  # only readable rows are chosen
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=88, method=4)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()
