"""Findings: how often each model fails under the mined shifts, before a classifier's rule selects
images.

Rates are over every candidate that passed the screen. If the images of these candidates are stored,
the models answer them; otherwise the recorded answers of a judge count. A class is left out on both
sides if it has too few such candidates, has too few base images, or is near chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from counterfoil import accuracy_stats
from counterfoil.accuracy_stats import ClassUnits
from counterfoil.evaluation.candidates import IS_RIGHT, NO_ANSWER, MinedShift, Unpicked
from counterfoil.evaluation.tasks.classes.answers import (
    AllAnswers,
    AnsweredImages,
    NestedMeasure,
    aligned_units,
)
from counterfoil.prediction.passes import Scored
from counterfoil.progress import track
from counterfoil.recipe.layering import without_folders
from counterfoil.report.findings import BASE_RATE, DIFFERENCE, RATE, FindingModel, MinedShiftResult
from counterfoil.report.results import ResultRow, estimate_row
from counterfoil.store.lock import without_validation

_FILE = (
    "cannot be measured: a file of predictions has no answers to candidates that were not accepted"
)
_NOT_SCORED = (
    "as recorded in the build; it was not scored here, so its rate on the base is not known"
)
_RECORDED = "as recorded in the build"
_OPEN = "cannot be measured: the shift's threshold is open: nothing has passed the screen yet"
_NONE = "cannot be measured: no candidate passed the screen"


def measure_findings(answered: AllAnswers) -> tuple[tuple[MinedShiftResult, ...], list[ResultRow]]:
    """Return the mined shifts in the recipe's order, and their rows. Raise the errors of
    `score_models`.

    A file of predictions gives no answers about candidates: a number in it would name another
    image.
    """
    mined = answered.subject.mined
    scored = answered.scored
    if not mined.shifts:
        return (), []
    names = []
    for scores in scored:
        if scores.classifier.recorded(()) is None:
            names.append(scores.classifier.name)
    stored: dict[str, Scored] = {}
    if mined.images is not None and names:
        folder = answered.subject.workplace / "predictions"
        stored = answered.asking.scored(mined.images, names, folder)
    measuring = _Measuring(answered, stored)
    results = []
    for shift in track(mined.shifts, "measuring findings"):
        results.append(measuring.finding(shift))
    return tuple(results), measuring.numbers


class _Measuring:
    """The data shared by all findings. stored: model → its answers to candidates that were not
    accepted."""

    def __init__(self, answered: AllAnswers, stored: Mapping[str, Scored]) -> None:
        self.answered = answered
        self.subject = answered.subject
        self.stored = stored
        self.base = AnsweredImages.of_group(answered.subject, answered.answers, 0)
        self.rows = {key: row for row, key in enumerate(self.subject.keys)}
        images = self.subject.mined.images
        self.more = {}
        if images is not None:
            self.more = {key: row for row, key in enumerate(images.keys)}
        self.numbers: list[ResultRow] = []

    def finding(self, shift: MinedShift) -> MinedShiftResult:
        group = self.subject.groups[shift.index]
        classes = [self.subject.classes[label] for label in group.class_labels]
        near_chance = self.answered.near_chance.classes
        names_near_chance = [cls.name for cls in classes if cls.id in near_chance]
        accepted = self.subject.shifts == shift.index
        return MinedShiftResult(
            shift=group.name,
            words=shift.facts.words,
            role=shift.facts.role,
            target=shift.facts.target,
            class_ids=tuple(cls.id for cls in classes),
            class_names=tuple(cls.name for cls in classes),
            candidates=group.candidates or 0,
            screened=shift.screened,
            accepted=int(accepted.sum()),
            judges=shift.judges,
            quota=shift.quota,
            models=tuple(self._models(shift)),
            near_chance=tuple(names_near_chance),
        )

    def _models(self, shift: MinedShift) -> list[FindingModel]:
        scored = self.answered.scored
        unpicked = shift.unpicked
        if shift.open or not shift.screened:
            why = _OPEN if shift.open else _NONE
            return [self._unmeasured(shift, scores, why) for scores in scored]
        every = list(range(len(scored)))
        if unpicked is None:
            side = AnsweredImages.of_group(self.subject, self.answered.answers, shift.index)
            return self._of_images(shift, side, every)
        judges = judges_among(scored, shift.judges, self.subject.mined.pins)
        complete = self.subject.mined.complete
        seen = every
        if not unpicked.accepted.all():
            stored = self.stored if complete else {}
            seen = [index for index in every if self.answered.models[index] in stored]
        facts_of: dict[int, FindingModel] = {}
        if seen:
            of_seen = self._of_images(shift, self._screened(unpicked), seen)
            facts_of = dict(zip(seen, of_seen, strict=True))
        for index, scores in enumerate(scored):
            if index in facts_of:
                continue
            if index in judges:
                # Compare the judge's recorded answers with its answers to the base.
                side = _recorded(unpicked, judges[index])
                [of_judge] = self._compared(shift, [index], side, "recorded", _RECORDED)
                facts_of[index] = of_judge
                continue
            reason = _FILE
            if not complete:
                reason = (
                    f"cannot be measured: a rule that asks {' and '.join(shift.judges)} kept"
                    " failures only, and the images of the other candidates are not stored"
                    " (screen.keep_rejected is false)"
                )
            facts_of[index] = self._unmeasured(shift, scores, reason)
        facts = [facts_of[index] for index in every]
        for judge in shift.judges:
            if judge not in judges.values():
                facts.append(self._of_absent(shift, unpicked, judge))
        return facts

    def _of_images(
        self,
        shift: MinedShift,
        side: AnsweredImages,
        places: Sequence[int],
    ) -> list[FindingModel]:
        side = replace(side, correct=side.correct[:, list(places)])
        return self._compared(shift, places, side, "images", "")

    def _of_absent(
        self,
        shift: MinedShift,
        unpicked: Unpicked,
        judge: str,
    ) -> FindingModel:
        """Return the recorded answers of a judge that is not scored here."""
        # Rename the judge if a scored model with other weights has its name.
        taken = judge in map(without_folders, self.answered.models)
        name = f"{judge} (of the build)" if taken else judge
        pin = self.subject.mined.pins.get(judge)
        sha256 = pin.get("sha256") if isinstance(pin, Mapping) else None
        target = _is_target(shift, judge, sha256)
        units = self._units(shift, _recorded(unpicked, judge), [0])
        kept = self._kept(units)
        if not kept:
            self._add_reason(shift, name, self._none_left(units))
            return FindingModel(name, target)
        accuracy = np.mean([cls.shift_accuracy[0] for cls in kept])
        self._add_rates(name, shift, kept, 1 - float(accuracy), _NOT_SCORED)
        failures, _ = _failures(kept, 0)
        return FindingModel(name, target, "recorded", len(kept), failures)

    def _compared(
        self,
        shift: MinedShift,
        places: Sequence[int],
        side: AnsweredImages,
        measured_on: Literal["images", "recorded"],
        note: str,
    ) -> list[FindingModel]:
        """Return the results of these models under the shift and on the base. Each model is a
        column of the answers in `side`."""
        group = self.subject.groups[shift.index]
        seed = self.answered.seed
        scored = [self.answered.scored[index] for index in places]
        units = self._units(shift, side, places)
        kept = self._kept(units)
        if not kept:
            why = self._none_left(units)
            return [self._unmeasured(shift, scores, why) for scores in scored]
        paired = group.paired
        drops = accuracy_stats.drops_of_classes(kept, paired=paired, seed=seed, salt=group.name)
        models = []
        for column, scores in enumerate(scored):
            name = scores.classifier.name
            target = _is_target(shift, name, scores.classifier.sha256)
            rate = 1 - float(drops.accuracy[column])
            base_rate = 1 - float(drops.base_accuracy[column])
            key = self._add_rates(
                name,
                shift,
                kept,
                rate,
                note,
                base_rate,
            )
            self.numbers.append(estimate_row(DIFFERENCE, drops.interval(column), **key))
            failures = _failures(kept, column)
            models.append(FindingModel(name, target, measured_on, len(kept), *failures))
        return models

    def _add_rates(
        self,
        model: str,
        shift: MinedShift,
        kept: Sequence[ClassUnits],
        rate: float,
        note: str,
        base_rate: float | None = None,
    ) -> dict[str, str]:
        """Add one row for the rate under the shift and one for the base rate; return the key of the
        rows."""
        key = {"model": model, "group": self.subject.groups[shift.index].name}
        base_images, images = accuracy_stats.image_counts(kept)
        of_shift = estimate_row(RATE, rate, n=images, note=note, **key)
        of_base = estimate_row(BASE_RATE, base_rate, n=base_images, **key)
        self.numbers += of_shift, of_base
        return key

    def _add_reason(
        self,
        shift: MinedShift,
        model: str,
        why: str,
    ) -> None:
        """Add a row that says why a model has no rate."""
        group = self.subject.groups[shift.index].name
        self.numbers.append(estimate_row(RATE, None, model=model, group=group, note=why))

    def _unmeasured(
        self,
        shift: MinedShift,
        scores: Scored,
        why: str,
    ) -> FindingModel:
        name = scores.classifier.name
        self._add_reason(shift, name, why)
        return FindingModel(name, _is_target(shift, name, scores.classifier.sha256))

    def _kept(self, units: Sequence[ClassUnits]) -> list[ClassUnits]:
        enough = accuracy_stats.classes_with_images(units, self.answered.min_images)
        return [cls for cls in enough if cls.class_id not in self.answered.near_chance.classes]

    def _none_left(self, units: Sequence[ClassUnits]) -> str:
        """Return the reason that no class is measured."""
        least = self.answered.min_images
        if accuracy_stats.classes_with_images(units, least):
            return "cannot be measured: every class with enough images is near chance on the base"
        return f"cannot be measured: no class has {least} such candidates and as many base images"

    def _screened(self, unpicked: Unpicked) -> AnsweredImages:
        """Return the images of all candidates that passed the screen: accepted ones, and others
        that are stored."""
        models = self.answered.models
        answers = self.answered.answers
        candidates = len(unpicked.keys)
        present = np.zeros(candidates, dtype=bool)
        correct = np.zeros((candidates, len(models)), dtype=bool)
        for index, key in enumerate(unpicked.keys):
            if unpicked.accepted[index]:
                position = self.rows[key]
                present[index] = answers.readable[position]
                correct[index] = answers.correct[position]
            elif self.stored and key in self.more:
                position = self.more[key]
                present[index] = True
                for column, name in enumerate(models):
                    if name in self.stored:
                        predictions = self.stored[name].predictions
                        present[index] &= predictions.readable[position]
                        correct[index, column] = predictions.correct[position]
        return AnsweredImages(unpicked.labels, unpicked.indices, present, correct)

    def _units(
        self,
        shift: MinedShift,
        side: AnsweredImages,
        places: Sequence[int],
    ) -> list[ClassUnits]:
        """Return the planned classes of the shift. In each, answers to candidates and to base
        images align by index."""
        base = replace(self.base, correct=self.base.correct[:, list(places)])
        planned = self.subject.groups[shift.index].class_labels
        return aligned_units(self.subject, planned, base, side)


def _recorded(unpicked: Unpicked, judge: str) -> AnsweredImages:
    answers = unpicked.recorded[judge]
    present = answers != NO_ANSWER
    right = answers == IS_RIGHT
    return AnsweredImages(unpicked.labels, unpicked.indices, present, right[:, None])


def _failures(kept: Sequence[ClassUnits], column: int) -> tuple[int, int]:
    """Return a model's failures under the shift and on the base, summed over classes."""
    shift = 0
    base = 0
    for cls in kept:
        shift_wrong = cls.shift_present & ~cls.shift_correct[:, column]
        base_wrong = cls.base_present & ~cls.base_correct[:, column]
        shift += int(shift_wrong.sum())
        base += int(base_wrong.sum())
    return shift, base


def _is_target(
    shift: MinedShift,
    name: str,
    sha256: Any,
) -> bool:
    facts = shift.facts
    if facts.target_sha256 is not None:
        return facts.target_sha256 == sha256
    return facts.target is not None and facts.target == without_folders(name)


def judges_among(
    scored: Sequence[Scored],
    judges: Sequence[str],
    pins: Mapping[str, Any],
) -> dict[int, str]:
    """Return model index → the judge that this model is. Models are compared with the lock's pins,
    not by name."""
    digests: dict[int, str] = {}
    pins = without_validation(pins)
    for index, scores in enumerate(scored):
        model = scores.classifier
        targets = [list(outputs) for outputs in scores.class_map.targets]
        identity = {
            "architecture": model.architecture,
            "sha256": model.sha256,
            "targets": targets,
        }
        for judge in judges:
            if model.sha256 and pins.get(judge) == identity:
                digests[index] = judge
                break
    return digests


MEASURE = NestedMeasure(measure_findings)
