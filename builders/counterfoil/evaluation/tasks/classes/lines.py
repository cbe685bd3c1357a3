"""What a line of a gate asks of classifiers: accuracies averaged over classes, and any measure of
answered images.

An accuracy here is averaged over all classes with an image, as everywhere. A drop leaves out the
classes on which the judged model itself is near chance on the base, and says how many remain and
from which accuracy it is. The drops of other tables leave out the classes on which all models
together are near chance; the answer of a gate must not depend on other models.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from counterfoil.accuracy_stats import AverageComparison, ClassAverage
from counterfoil.arrays import Bools, Ints
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.gate import (
    DIFFERS,
    DROPS,
    Answer,
    GateLine,
    Judged,
    indices_of_groups,
    labels_named,
    line_number,
)
from counterfoil.evaluation.gate_changes import Changed, GroupChange
from counterfoil.evaluation.scored_models import StoredAnswers
from counterfoil.evaluation.tasks.classes.agreement import (
    differing_answers,
    differing_share,
)
from counterfoil.evaluation.tasks.classes.answers import AllAnswers
from counterfoil.evaluation.tasks.classes.measures import MEASURES
from counterfoil.evaluation.tasks.classes.measures.findings import judges_among
from counterfoil.evaluation.tasks.classes.resampling import (
    Resample,
    drawn_averages,
    resampled_numbers,
)
from counterfoil.prediction.changes import OWN
from counterfoil.report.labels import (
    LabelChecks,
    label_note,
    lost_to_labels,
    wrong_labels,
)
from counterfoil.report.sections import MeasureFacts
from counterfoil.report.words import over_classes
from counterfoil.resampled_stats import Drawn, Number

_ACCURACY = "accuracy"


def line_measures() -> dict[str, MeasureFacts]:
    """Return what a line can name: accuracy averaged over classes leads, and the others are
    resampled."""
    named = {_ACCURACY: MEASURES[_ACCURACY].facts(_ACCURACY)}
    for name, measure in MEASURES.items():
        if measure.resampled is not None:
            named[name] = measure.facts(name)
    return named


# A group and a model, and for the base the computed shift whose images alone are compared, else 0.
_Side = tuple[int, str, int]


@dataclass(frozen=True)
class LineQuestion:
    """What a line measures in one group: a model on its images of these labels, or the first model
    less the last."""

    line: GateLine
    sides: tuple[_Side, ...]
    labels: tuple[int, ...]


@dataclass(frozen=True)
class ClassLines:
    """Answers lines."""

    answered: AllAnswers
    checks: LabelChecks | None = None
    """The label checks of a built dataset; None if the images came with labels."""
    stored: Mapping[tuple[str, str], StoredAnswers] = field(default_factory=dict)
    """(file, model) → the answers of an earlier evaluation that a line compares with."""
    own_ways: Collection[tuple[str, str]] = ()
    """Models, each with a computed shift that is how the model prepares images anyway."""

    @property
    def subject(self) -> Subject:
        return self.answered.subject

    def comparisons(
        self, line: GateLine, model: str
    ) -> Iterator[tuple[Judged, LineQuestion | None]]:
        drop = line.measure in DROPS
        indices, nothing = self._groups_of(line)
        if not indices:
            if drop and not line.every and (model, line.group) in self.own_ways:
                yield self._own_way(line, model, line.group), None
            else:
                yield Judged(line, model, line.group, reason=nothing), None
        for index in indices:
            group = self.subject.groups[index].name
            own_way = (model, group) in self.own_ways
            # The answers are those to the base: a drop is 0, and lines ask the base itself.
            if own_way and drop:
                yield self._own_way(line, model, group), None
            elif not (own_way and line.every):
                yield self._comparison(line, model, index)

    def _groups_of(self, line: GateLine) -> tuple[Sequence[int], str]:
        """Return the indices of a line's groups, and what to say if there are none."""
        if not line.every:
            # A computed shift that every model refuses, or takes anyway, is gone.
            known = indices_of_groups(self.subject)
            indices = [known[line.group]] if line.group in known else []
            return indices, f"no model can be asked under {line.group}"
        answered = self.answered
        nothing = "the dataset has no shift"
        places = answered.shifts if line.measure in DROPS else answered.places
        if not line.class_name:
            return places, nothing
        label, *_ = labels_named(line.class_name, self.subject.classes)
        groups = self.subject.groups
        with_class = [index for index in places if label in groups[index].class_labels]
        return with_class, f"{nothing} with images of {line.class_name}"

    def _comparison(
        self,
        line: GateLine,
        model: str,
        index: int,
    ) -> tuple[Judged, LineQuestion | None]:
        """Return a line in one of its groups, and what to measure."""
        answered = self.answered
        classes = self.subject.classes
        group = self.subject.groups[index]
        drop = line.measure in DROPS
        differs = line.measure == DIFFERS
        stored = self.stored.get((line.other_model, model))
        column = answered.models.index(model)
        line_labels: Sequence[int] = range(len(classes))
        if line.class_name:
            line_labels = labels_named(line.class_name, classes)
        class_ids = {cls.class_id for cls in answered.enough(index)}
        if drop:
            class_ids -= self._guessed(column)
        labels = self._labels(line_labels, class_ids)
        planned = set(group.class_labels) & set(line_labels)
        counts = len(labels), len(planned)
        # A shift may lack classes of the base. If no build made a group, no classes were planned.
        classes_asked = len(planned)
        if drop or not group.prompt:
            classes_asked = len(line_labels)
        reason = self._reason_undecided(line, model, stored, index, counts)
        if differs or not (drop or line.class_name):
            class_ids = {cls.class_id for cls in answered.seen(index)}
            labels = self._labels(line_labels, class_ids)
        computed = index if group.change is not None else 0
        sides: tuple[_Side, ...] = ((index, model, 0),)
        if drop:
            sides = ((0, model, computed), *sides)
        elif line.other_model and not differs:
            other = stored.name if stored else line.other_model
            sides = ((index, other, 0), *sides)
        question = None
        rows = answered.rows(index)
        absent = stored is not None and stored.unreadable[rows].all()
        if labels and not absent and not self._unable(line, model, index):
            question = LineQuestion(line, sides, labels)
        if question and line.measure == "relative_drop" and line.share == _ACCURACY:
            on_base = answered.rows_of_labels(0, labels, computed)
            if not answered.answers.correct[on_base, column].any():
                question = None
                reason = reason or f"{model} is right on no image of the base"
        undecided = Judged(
            line,
            model,
            group.name,
            reason=reason,
            # A line on differing answers counts images, not classes.
            classes=(0, 0) if differs else (len(labels), classes_asked),
            level=group.level,
        )
        return undecided, question

    @staticmethod
    def _own_way(line: GateLine, model: str, group: str) -> Judged:
        """Judge a drop under a change that is how the model prepares images anyway: it is 0."""
        verdict: Answer = "pass" if line.limit >= 0 else "fail"
        return Judged(line, model, group, verdict, reason=OWN)

    def changes(
        self,
        earlier: str,
        model: str,
    ) -> Iterator[GroupChange]:
        """Yield how a model differs in each group from another, or from an earlier evaluation.

        Images that either could not read are left out. A drop is over the classes with enough
        images on which neither model is near chance on the base.
        """
        answered = self.answered
        classes = len(self.subject.classes)
        columns = [answered.models.index(model)]
        now = answered.answers.correct[:, columns[0]]
        stored = self.stored.get((earlier, model))
        read = answered.answers.readable
        if stored is not None:
            before = stored.right
            read = read & ~stored.unreadable
        elif earlier in answered.models:
            columns.append(answered.models.index(earlier))
            before = answered.answers.correct[:, columns[1]]
        else:
            return
        guessed: set[str] = set()
        for column in columns:
            guessed |= self._guessed(column)
        guessing = answered.near_chance.models[columns].any()
        if stored is not None:
            guessing |= stored.near_chance
        groups: list[tuple[int, list[Ints], str]] = []
        sides: list[tuple[Ints, Bools]] = []
        for index in answered.places:
            rows = answered.rows(index)
            rows = rows[read[rows]]
            if not len(rows) or not answered.able(index)[columns].all():
                continue
            of_group = [rows]
            over = ""
            class_ids = {cls.class_id for cls in answered.enough(index)}
            kept = self._labels(range(classes), class_ids - guessed)
            if self.subject.base and index and kept and not guessing:
                over = over_classes(len(kept), classes)
                for group, computed in ((0, index), (index, 0)):
                    side = answered.rows_of_labels(group, kept, computed)
                    of_group.append(side[read[side]])
            if all(map(len, of_group)):
                groups.append((index, of_group, over))
                for rows in of_group:
                    sides += [(rows, before), (rows, now)]
        averages = iter(self._averages(sides))
        newly_wrong = before & ~now
        newly_right = now & ~before
        for index, (rows, *of_drop), over in groups:
            share_before = next(averages)
            share = next(averages)
            difference = AverageComparison(share, share_before)
            drop = None
            if of_drop:
                drop = _changed_drop(*islice(averages, 4))
            yield GroupChange(
                answered.group(index).name,
                Changed(share_before.value, share.value, difference),
                drop,
                images=len(rows),
                newly_wrong=int(newly_wrong[rows].sum()),
                newly_right=int(newly_right[rows].sum()),
                over=over,
            )

    def _averages(
        self,
        sides: Sequence[tuple[Ints, Bools]],
    ) -> list[ClassAverage]:
        """Return an accuracy for each side (rows, and which images are right), all drawn
        together."""
        if not sides:
            return []
        averages = []
        draws = drawn_averages(self.answered, sides)
        for side, (rows, right) in enumerate(sides):
            labels = self.subject.labels[rows]
            units = self.answered.unit_count(rows)
            average = ClassAverage.of(labels, right[rows], draws[:, side], units)
            averages.append(average)
        return averages

    def _guessed(self, model: int) -> set[str]:
        """Return the classes on which a model is near chance on the base."""
        cells = self.answered.near_chance.cells
        return {class_id for class_id, near_chance in cells.items() if near_chance[model]}

    def _labels(
        self,
        labels: Sequence[int],
        class_ids: set[str],
    ) -> tuple[int, ...]:
        """Return those of these labels whose class is among `class_ids`."""
        classes = self.subject.classes
        return tuple(label for label in labels if classes[label].id in class_ids)

    def numbers(self, questions: Sequence[LineQuestion]) -> Sequence[Number]:
        answered = self.answered
        correct = answered.answers.correct
        right = dict(zip(answered.models, correct.T, strict=True))
        for answers in self.stored.values():
            right[answers.name] = answers.right
        # Several lines may need the same accuracy: it is drawn once, and all are drawn together.
        sides: dict[tuple[_Side, tuple[int, ...]], tuple[Ints, Bools]] = {}
        samples: dict[tuple[GateLine, _Side], Resample] = {}
        for question in questions:
            line = question.line
            labels = question.labels
            if line.measure == DIFFERS:
                continue
            for side in question.sides:
                group, model, computed = side
                if line.share == _ACCURACY:
                    rows = answered.rows_of_labels(group, labels, computed)
                    sides[side, labels] = rows, right[model]
                else:
                    measure = MEASURES[line.share]
                    assert measure.resampled is not None
                    column = answered.models.index(model)
                    samples[line, side] = Resample(
                        measure.resampled,
                        group,
                        column,
                        labels,
                        computed,
                        measure.by_chance,
                    )
        every_average = self._averages(list(sides.values()))
        averages = dict(zip(sides, every_average, strict=True))
        resampled = resampled_numbers(answered, list(samples.values()))
        number_of = dict(zip(samples, resampled, strict=True))
        numbers: list[Number] = []
        for question in questions:
            line = question.line
            if line.measure == DIFFERS:
                ((group, model, _),) = question.sides
                index = answered.models.index
                differs = differing_answers(answered, index(model), index(line.other_model))
                rows = answered.rows_of_labels(group, question.labels)
                numbers.append(differing_share(answered, rows, differs))
            elif line.share == _ACCURACY:
                of_sides = [averages[side, question.labels] for side in question.sides]
                relative = line.measure == "relative_drop"
                numbers.append(AverageComparison(*of_sides, relative=relative))
            else:
                drawn_sides = [number_of[line, side] for side in question.sides]
                numbers.append(line_number(line, drawn_sides))
        return numbers

    def judged(
        self,
        judged: Judged,
        number: Number,
        reach: float,
    ) -> Judged:
        """Return the line with its verdict: wrong labels may excuse a line that fails."""
        line = judged.line
        # Two models share their wrong labels. Of one model, the last number is that under the
        # shift.
        shift = "" if line.other_model else judged.group
        if isinstance(number, AverageComparison):
            if line.measure in DROPS:
                judged = replace(judged, base=number.first.value)
            excused = lost_to_labels(self.checks, shift, number.last.value)
            if number.relative:
                excused /= number.first.value
        elif math.isfinite(number.centre):
            wrong = wrong_labels(self.checks, shift)
            excused = wrong.value if wrong else 0.0
        else:
            reason = judged.reason or f"{judged.model} gives no {line.share} here"
            return replace(judged, reason=reason)
        doubt = label_note(self.checks, shift)
        return judged.measured(number, reach, excused, doubt)

    def _unable(
        self,
        line: GateLine,
        model: str,
        group: int,
    ) -> str:
        """Return which model of a line cannot take a computed shift, or an empty text."""
        unable = self.answered.unable(group)
        for name in (model, line.other_model):
            if name in unable:
                return name
        return ""

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
        least = answered.min_images
        drop = line.measure in DROPS
        shift = answered.group(group).name
        unable = self._unable(line, model, group)
        if unable:
            return f"{unable} cannot be asked under {shift}"
        rows = answered.rows(group)
        if line.measure == DIFFERS:
            return "" if len(rows) else "it has no image that can be read"
        measured, present = classes
        if not measured and line.class_name:
            near_chance = ""
            if drop:
                near_chance = " or is near chance on the base"
            return f"{line.class_name} has fewer than {least} images{near_chance}"
        if not measured:
            above = ""
            if drop:
                above = " and is above chance on the base"
            return f"no class has {least} images{above}"
        if 2 * measured < present:
            return f"only {measured} of {present} classes are measured"
        names = {}
        for name in (model, line.other_model):
            if name in answered.models:
                names[answered.models.index(name)] = name
        for judged in subject.judged.shifts:
            if judged.index != group:
                continue
            judges = judges_among(answered.scored, judged.judges, subject.pins)
            chosen_by = [names[index] for index in judges if index in names]
            if stored:
                for judge in judged.judges:
                    pin = subject.pins.get(judge, {})
                    if pin.get("sha256") == stored.sha256:
                        chosen_by.append(stored.name)
            if chosen_by:
                return f"its images were chosen because {chosen_by[0]} gets them wrong"
        near = answered.near_chance.models
        guessing = [name for index, name in names.items() if near[index]]
        if stored:
            if stored.near_chance:
                guessing.append(stored.name)
            unreadable = int(stored.unreadable[rows].sum())
            if unreadable == len(rows):
                return f"{stored.name} has no answers under {shift}"
            if unreadable:
                return f"{stored.name} could not read {unreadable:,} of its images"
        if guessing and (drop or guessing != [model]):
            where = "these images"
            if subject.base:
                where = "the base"
            return f"{guessing[-1]} is near chance on {where}"
        if checks is None or checks.own:
            return ""
        # Images from elsewhere, scored beside a dataset, have their own labels.
        if group < subject.own_groups and not checks.of(shift).checked:
            return "nobody checked its labels"
        if drop and not checks.of(answered.group(0).name).checked:
            return "nobody checked the labels of the base"
        return ""


def _changed_drop(
    base_before: ClassAverage,
    base_now: ClassAverage,
    before: ClassAverage,
    now: ClassAverage,
) -> Changed:
    """Return a drop before and now, from the accuracies of both sides."""
    earlier = AverageComparison(base_before, before)
    drop = AverageComparison(base_now, now)
    units = []
    images = []
    for side in (base_now, now):
        images.append(int(side.counts.sum()))
        if side.units is not None:
            units.append(side.units)
    difference = Drawn(
        value=drop.centre - earlier.centre,
        drawn=drop.drawn - earlier.drawn,
        bias=0.0,
        unseen=(0.0, 0.0),
        images=min(units or images),
        signed=True,
        by_units=bool(units),
    )
    return Changed(earlier.centre, drop.centre, difference)
