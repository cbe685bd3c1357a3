"""Findings: how often each model fails under the mined shifts, before a classifier's rule selects
images.

Rates are over every candidate that passed the screen. If the images of these candidates are stored,
the models answer them; otherwise the recorded answers of a judge count. A class is left out on both
sides if it has too few such candidates, has too few base images, or is near chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

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
from counterfoil.report.findings import (
    BASE_RATE,
    DIFFERENCE,
    RATE,
    FindingModel,
    MinedShiftResult,
)
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


def measure_findings(
    answered: AllAnswers,
) -> tuple[tuple[MinedShiftResult, ...], list[ResultRow]]:
    """Return the mined shifts in the recipe's order, and their rows. Raise the errors of
    `score_models`.

    A file of predictions gives no answers about candidates: a number in it would name another
    image.
    """
    mined = answered.subject.mined
    if not mined.shifts:
        return (), []
    classifiers = [scores.classifier for scores in answered.scored]
    names = [model.name for model in classifiers if model.recorded(()) is None]
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
        self.more: dict[str, int] = {}
        if images is not None:
            self.more = {key: row for row, key in enumerate(images.keys)}
        self.numbers: list[ResultRow] = []

    def finding(self, shift: MinedShift) -> MinedShiftResult:
        group = self.subject.groups[shift.index]
        classes = [self.subject.classes[label] for label in group.class_labels]
        class_ids = [cls.id for cls in classes]
        class_names = [cls.name for cls in classes]
        near_chance = self.answered.near_chance.classes
        names_near_chance = [cls.name for cls in classes if cls.id in near_chance]
        accepted = self.subject.shifts == shift.index
        facts = shift.facts
        return MinedShiftResult(
            shift=group.name,
            words=facts.words,
            role=facts.role,
            target=facts.target,
            class_ids=tuple(class_ids),
            class_names=tuple(class_names),
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
        mined = self.subject.mined
        unpicked = shift.unpicked
        models = []
        for scores in scored:
            classifier = scores.classifier
            target = _is_target(shift, classifier.name, classifier.sha256)
            models.append(FindingModel(classifier.name, target))
        every = list(range(len(models)))
        if shift.open or not shift.screened:
            why = _OPEN if shift.open else _NONE
            return self._unmeasured(shift, models, why)
        if unpicked is None:
            side = AnsweredImages.of_group(self.subject, self.answered.answers, shift.index)
            return self._measured(shift, models, every, side)
        judges = judges_among(scored, shift.judges, mined.pins)
        seen = every
        if not unpicked.accepted.all():
            stored = self.stored if mined.complete else {}
            seen = [index for index in every if models[index].name in stored]
        facts_of: dict[int, FindingModel] = {}
        if seen:
            side = self._screened(unpicked).of_models(seen)
            models_seen = [models[index] for index in seen]
            of_seen = self._measured(shift, models_seen, seen, side)
            facts_of = dict(zip(seen, of_seen, strict=True))
        reason = _FILE
        if not mined.complete:
            reason = (
                f"cannot be measured: a rule that asks {' and '.join(shift.judges)} kept failures"
                " only, and the images of the other candidates are not stored"
                " (screen.keep_rejected is false)"
            )
        facts = []
        for index, model in enumerate(models):
            if index in facts_of:
                facts.append(facts_of[index])
            elif index in judges:
                # Compare the judge's recorded answers with its answers to the base.
                side = _recorded(unpicked, judges[index])
                facts += self._measured(
                    shift,
                    [model],
                    [index],
                    side,
                    _RECORDED,
                )
            else:
                facts += self._unmeasured(shift, [model], reason)
        for judge in shift.judges:
            if judge in judges.values():
                continue
            # Rename the judge if a scored model with other weights has its name.
            taken = judge in map(without_folders, self.answered.models)
            pin = mined.pins.get(judge)
            sha256 = pin.get("sha256") if isinstance(pin, Mapping) else None
            name = judge
            if taken:
                name = f"{judge} (of the build)"
            model = FindingModel(name, _is_target(shift, judge, sha256))
            side = _recorded(unpicked, judge)
            facts += self._measured(
                shift,
                [model],
                [0],
                side,
                _NOT_SCORED,
            )
        return facts

    def _measured(
        self,
        shift: MinedShift,
        models: Sequence[FindingModel],
        places: Sequence[int],
        side: AnsweredImages,
        note: str = "",
    ) -> list[FindingModel]:
        """Return the results of these models under the shift and on the base.

        places: their indices among the scored models. side: their answers, a column for each. note:
        where these are from, if the models did not answer images.
        """
        group = self.subject.groups[shift.index]
        # In each planned class, answers to candidates and to base images align by index.
        base = self.base.of_models(places)
        units = aligned_units(self.subject, group.class_labels, base, side)
        least = self.answered.min_images
        near_chance = self.answered.near_chance.classes
        enough = accuracy_stats.classes_with_images(units, least)
        kept = [cls for cls in enough if cls.class_id not in near_chance]
        if not kept:
            why = f"no class has {least} such candidates and as many base images"
            if enough:
                why = "every class with enough images is near chance on the base"
            return self._unmeasured(shift, models, f"cannot be measured: {why}")
        drops = accuracy_stats.drops_of_classes(
            kept,
            paired=group.paired,
            seed=self.answered.seed,
            salt=group.name,
        )
        base_images, images = accuracy_stats.image_counts(kept)
        measured = []
        for column, model in enumerate(models):
            key = {"model": model.name, "group": group.name}
            rate = 1 - float(drops.accuracy[column])
            base_rate = 1 - float(drops.base_accuracy[column])
            failures, base_failures = _failures(kept, column)
            of_shift = estimate_row(
                RATE,
                rate,
                n=images,
                note=note,
                **key,
            )
            on_base = estimate_row(BASE_RATE, base_rate, n=base_images, **key)
            difference = estimate_row(DIFFERENCE, drops.interval(column), **key)
            of_model = replace(
                model,
                measured_on="recorded" if note else "images",
                classes=len(kept),
                failures=failures,
                base_failures=base_failures,
            )
            if note == _NOT_SCORED:
                of_model = replace(of_model, base_failures=None)
                self.numbers += [of_shift, replace(on_base, value=None)]
            else:
                self.numbers += [of_shift, on_base, difference]
            measured.append(of_model)
        return measured

    def _unmeasured(
        self,
        shift: MinedShift,
        models: Sequence[FindingModel],
        why: str,
    ) -> list[FindingModel]:
        """Add a row for each model that says why it has no rate."""
        group = self.subject.groups[shift.index].name
        for model in models:
            unknown = estimate_row(
                RATE,
                None,
                model=model.name,
                group=group,
                note=why,
            )
            self.numbers.append(unknown)
        return list(models)

    def _screened(self, unpicked: Unpicked) -> AnsweredImages:
        """Return the images of all candidates that passed the screen: accepted ones, and others
        that are stored."""
        models = self.answered.models
        answers = self.answered.answers
        shape = len(unpicked.keys), len(models)
        correct = np.zeros(shape, bool)
        present = np.zeros(len(correct), bool)
        for index, key in enumerate(unpicked.keys):
            if unpicked.accepted[index]:
                row = self.rows[key]
                present[index] = answers.readable[row]
                correct[index] = answers.correct[row]
            elif self.stored and key in self.more:
                row = self.more[key]
                present[index] = True
                for column, name in enumerate(models):
                    if name in self.stored:
                        predictions = self.stored[name].predictions
                        present[index] &= predictions.readable[row]
                        correct[index, column] = predictions.correct[row]
        return AnsweredImages(unpicked.labels, unpicked.indices, present, correct)


def _recorded(unpicked: Unpicked, judge: str) -> AnsweredImages:
    answers = unpicked.recorded[judge]
    return AnsweredImages(
        labels=unpicked.labels,
        indices=unpicked.indices,
        present=answers != NO_ANSWER,
        correct=answers[:, None] == IS_RIGHT,
    )


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


def _is_target(shift: MinedShift, name: str, sha256: Any) -> bool:
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
    judge_of: dict[int, str] = {}
    pins = without_validation(pins)
    for index, scores in enumerate(scored):
        model = scores.classifier
        if not model.sha256:
            continue
        targets = scores.class_map.targets
        identity = {
            "architecture": model.architecture,
            "sha256": model.sha256,
            "targets": list(map(list, targets)),
        }
        for judge in judges:
            if pins.get(judge) == identity:
                judge_of.setdefault(index, judge)
    return judge_of


MEASURE = NestedMeasure(measure_findings)
