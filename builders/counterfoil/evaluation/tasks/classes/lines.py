"""What a line of a gate asks of classifiers: accuracies averaged over classes, and any measure of
answered images.

An accuracy here is averaged over all classes with an image, as everywhere. A drop leaves out the
classes on which the judged model itself is near chance on the base, and says how many remain and
from which accuracy it is. The drops of other tables leave out the classes on which all models
together are near chance; the answer of a gate must not depend on other models.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from counterfoil.accuracy_stats import AverageComparison, ClassAverage
from counterfoil.arrays import Ints
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.gate import (
    DROPS,
    GateLine,
    Judged,
    indices_of_groups,
    labels_named,
    line_number,
)
from counterfoil.evaluation.scored_models import StoredAnswers
from counterfoil.evaluation.tasks.classes.answers import AllAnswers
from counterfoil.evaluation.tasks.classes.measures import MEASURES
from counterfoil.evaluation.tasks.classes.measures.findings import judges_among
from counterfoil.evaluation.tasks.classes.resampling import (
    Resample,
    drawn_averages,
    resampled_numbers,
)
from counterfoil.report.labels import LabelChecks, label_note, lost_to_labels, wrong_labels
from counterfoil.report.sections import MeasureFacts
from counterfoil.resampled_stats import Number

_ACCURACY = "accuracy"


def line_measures() -> dict[str, MeasureFacts]:
    """Return what a line can name: accuracy averaged over classes leads, and the others are
    resampled."""
    resampled = [name for name, measure in MEASURES.items() if measure.resampled is not None]
    return {name: MEASURES[name].facts(name) for name in (_ACCURACY, *resampled)}


@dataclass(frozen=True)
class LineQuestion:
    """What a line measures in one group: a model on its images of these labels, or the first model
    less the last.

    sides: group and model of each side.
    """

    line: GateLine
    sides: tuple[tuple[int, str], ...]
    labels: tuple[int, ...]


@dataclass(frozen=True)
class ClassLines:
    """Answers lines. checks: the label checks of a built dataset; None if the images came with
    labels.

    stored: (file, model) → the answers of an earlier evaluation that a line compares with.
    """

    answered: AllAnswers
    checks: LabelChecks | None = None
    stored: Mapping[tuple[str, str], StoredAnswers] = field(default_factory=dict)

    @property
    def subject(self) -> Subject:
        return self.answered.subject

    def comparisons(
        self, line: GateLine, model: str
    ) -> Iterator[tuple[Judged, LineQuestion | None]]:
        answered = self.answered
        subject = self.answered.subject
        drop = line.measure in DROPS
        stored = self.stored.get((line.other_model, model))
        line_labels = (
            labels_named(line.class_name, subject.classes)
            if line.class_name
            else range(len(subject.classes))
        )
        indices: Sequence[int] = (indices_of_groups(subject)[line.group],) if not line.every else ()
        if line.every:
            indices = answered.shifts if drop else answered.places
        if line.every and line.class_name:
            indices = [
                index for index in indices if line_labels[0] in answered.group(index).class_labels
            ]
        if not indices:
            reason = "the dataset has no shift" + (
                f" with images of {line.class_name}" if line.class_name else ""
            )
            yield Judged(line, model, line.group, "undecided", reason=reason), None
        for index in indices:
            group = answered.group(index)
            class_ids = {cls.class_id for cls in answered.enough(index)}
            if drop:
                cells = answered.near_chance.cells
                column = answered.models.index(model)
                class_ids -= {
                    class_id for class_id, near_chance in cells.items() if near_chance[column]
                }
            labels = tuple(label for label in line_labels if subject.classes[label].id in class_ids)
            counts = len(labels), len(set(group.class_labels) & set(line_labels))
            reason = self._reason_undecided(line, model, stored, index, counts)
            if not drop and not line.class_name:
                class_ids = {cls.class_id for cls in answered.seen(index)}
                labels = tuple(
                    label for label in line_labels if subject.classes[label].id in class_ids
                )
                counts = len(labels), counts[1]
            sides: tuple[tuple[int, str], ...] = ((index, model),)
            if drop:
                sides = ((0, model), *sides)
            elif line.other_model:
                sides = ((index, stored.name if stored else line.other_model), *sides)
            question = LineQuestion(line, sides, labels) if labels else None
            if (
                line.measure == "relative_drop"
                and line.share == _ACCURACY
                and question
                and not self._any_right(model, labels)
            ):
                question = None
                reason = reason or f"{model} is right on no image of the base"
            undecided = Judged(
                line,
                model,
                group.name,
                "undecided",
                reason=reason,
                classes=counts,
                level=group.level,
            )
            yield undecided, question

    def _any_right(self, model: str, labels: Sequence[int]) -> bool:
        """Return whether a model is right on a base image of these labels."""
        rows = self._rows(0, labels)
        return bool(self.answered.answers.correct[rows, self.answered.models.index(model)].any())

    def _rows(self, group: int, labels: Sequence[int]) -> Ints:
        rows = self.answered.rows(group)
        return rows[np.isin(self.subject.labels[rows], labels)]

    def numbers(self, questions: Sequence[LineQuestion]) -> Sequence[Number]:
        subject = self.subject
        answered = self.answered
        right = {
            name: answered.answers.correct[:, index] for index, name in enumerate(answered.models)
        }
        right |= {answers.name: answers.right for answers in self.stored.values()}
        # Several lines may need the same accuracy: it is drawn once, and all are drawn together.
        of_accuracy = [each for each in questions if each.line.share == _ACCURACY]
        sides = {}
        for group, model, labels in dict.fromkeys(
            (*side, each.labels) for each in of_accuracy for side in each.sides
        ):
            sides[group, model, labels] = self._rows(group, labels), right[model]
        averages: dict[tuple[int, str, tuple[int, ...]], ClassAverage] = {}
        if sides:
            draws = drawn_averages(answered, list(sides.values()))
            for (side, (rows, model_right)), drawn in zip(sides.items(), draws.T, strict=True):
                averages[side] = ClassAverage.of(
                    subject.labels[rows], model_right[rows], drawn, answered.unit_count(rows)
                )
        samples = {
            (each.line, side): self._sample(each, *side)
            for each in questions
            if each.line.share != _ACCURACY
            for side in each.sides
        }
        drawn = dict(zip(samples, resampled_numbers(answered, list(samples.values())), strict=True))
        numbers: list[Number] = []
        for each in questions:
            if each.line.share == _ACCURACY:
                of_sides = [averages[*side, each.labels] for side in each.sides]
                numbers.append(
                    AverageComparison(*of_sides, relative=each.line.measure == "relative_drop")
                )
            else:
                numbers.append(
                    line_number(each.line, [drawn[each.line, side] for side in each.sides])
                )
        return numbers

    def _sample(self, question: LineQuestion, group: int, model: str) -> Resample:
        value_of = MEASURES[question.line.share].resampled
        assert value_of is not None
        return Resample(value_of, group, self.answered.models.index(model), question.labels)

    def judged(self, judged: Judged, number: Number, reach: float) -> Judged:
        """Return the line with its verdict: wrong labels may excuse a line that fails."""
        # Two models share their wrong labels. Of one model, the last number is that under the
        # shift.
        shift = judged.group if not judged.line.other_model else ""
        if not isinstance(number, AverageComparison):
            if not math.isfinite(number.centre):
                return replace(
                    judged,
                    reason=judged.reason or f"{judged.model} gives no {judged.line.share} here",
                )
            wrong = wrong_labels(self.checks, shift)
            return judged.measured(
                number, reach, wrong.value if wrong else 0.0, label_note(self.checks, shift)
            )
        if judged.line.measure in DROPS:
            judged = replace(judged, base=number.first.value)
        excused = lost_to_labels(self.checks, shift, number.last.value)
        excused /= number.first.value if number.relative else 1.0
        return judged.measured(number, reach, excused, label_note(self.checks, shift))

    def _reason_undecided(
        self,
        line: GateLine,
        model: str,
        stored: StoredAnswers | None,
        group: int,
        classes: tuple[int, int],
    ) -> str:
        """Return why no number of images would decide the line; empty if enough images would.

        classes: classes with enough images and, for a drop, above chance; and classes of the group.
        """
        answered = self.answered
        subject = self.subject
        checks = self.checks
        drop = line.measure in DROPS
        if not classes[0] and line.class_name:
            near_chance = " or is near chance on the base" if drop else ""
            return f"{line.class_name} has fewer than {answered.min_images} images{near_chance}"
        if not classes[0]:
            above = " and is above chance on the base" if drop else ""
            return f"no class has {answered.min_images} images{above}"
        if 2 * classes[0] < classes[1]:
            return f"only {classes[0]} of {classes[1]} classes are measured"
        names = {
            answered.models.index(name): name
            for name in (model, line.other_model)
            if name in answered.models
        }
        for shift in subject.judged.shifts:
            if shift.index == group:
                for judge in (
                    judges_among(answered.scored, shift.judges, subject.pins).keys() & names.keys()
                ):
                    return f"its images were chosen because {names[judge]} gets them wrong"
                if stored and stored.sha256 in {
                    subject.pins.get(judge, {}).get("sha256") for judge in shift.judges
                }:
                    return f"its images were chosen because {stored.name} gets them wrong"
        near_chance_names = [
            name for index, name in names.items() if answered.near_chance.models[index]
        ]
        if stored:
            if stored.near_chance:
                near_chance_names.append(stored.name)
            if unreadable := int(np.count_nonzero(stored.unreadable[answered.rows(group)])):
                return f"{stored.name} could not read {unreadable:,} of its images"
        if near_chance_names and (drop or near_chance_names != [model]):
            return (
                f"{near_chance_names[-1]} is near chance on"
                f" {'the base' if subject.base else 'these images'}"
            )
        if checks is None or checks.own:
            return ""
        # Images from elsewhere, scored beside a dataset, have their own labels.
        own_groups = subject.parts[1].first if len(subject.parts) > 1 else len(subject.groups)
        if group < own_groups and not checks.of(answered.group(group).name).checked:
            return "nobody checked its labels"
        if drop and not checks.of(answered.group(0).name).checked:
            return "nobody checked the labels of the base"
        return ""
