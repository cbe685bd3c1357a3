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
from counterfoil.report.results import ResultRow, row
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
    names = [scores.classifier.name for scores in scored if scores.classifier.recorded(()) is None]
    stored: dict[str, Scored] = {}
    if mined.images is not None and names:
        stored = answered.asking.scored(
            mined.images, names, answered.subject.workplace / "predictions"
        )
    measuring = _Measuring(answered, stored)
    return tuple(
        measuring.finding(shift) for shift in track(mined.shifts, "measuring findings")
    ), measuring.numbers


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
        self.more = {key: row for row, key in enumerate(() if images is None else images.keys)}
        self.numbers: list[ResultRow] = []

    def finding(self, shift: MinedShift) -> MinedShiftResult:
        group = self.subject.groups[shift.index]
        classes = [self.subject.classes[label] for label in group.class_labels]
        return MinedShiftResult(
            shift=group.name,
            words=shift.facts.words,
            role=shift.facts.role,
            target=shift.facts.target,
            class_ids=tuple(cls.id for cls in classes),
            class_names=tuple(cls.name for cls in classes),
            candidates=group.candidates or 0,
            screened=shift.screened,
            accepted=int((self.subject.shifts == shift.index).sum()),
            judges=shift.judges,
            quota=shift.quota,
            models=tuple(self._models(shift)),
            near_chance=tuple(
                cls.name for cls in classes if cls.id in self.answered.near_chance.classes
            ),
        )

    def _models(self, shift: MinedShift) -> list[FindingModel]:
        scored = self.answered.scored
        unpicked = shift.unpicked
        if shift.open or not shift.screened:
            why = _OPEN if shift.open else _NONE
            return [
                self._unmeasured(shift, scores.classifier.name, scores.classifier.sha256, why)
                for scores in scored
            ]
        every = list(range(len(scored)))
        if unpicked is None:
            side = AnsweredImages.of_group(self.subject, self.answered.answers, shift.index)
            return self._of_images(shift, side, every)
        judges = judges_among(scored, shift.judges, self.subject.mined.pins)
        complete = self.subject.mined.complete
        seen = [
            at
            for at in every
            if unpicked.accepted.all() or (complete and scored[at].classifier.name in self.stored)
        ]
        facts_of = (
            dict(zip(seen, self._of_images(shift, self._screened(unpicked), seen), strict=True))
            if seen
            else {}
        )
        for at, scores in enumerate(scored):
            if at in facts_of:
                continue
            if at in judges:
                # Compare the judge's recorded answers with its answers to the base.
                units = self._units(shift, _recorded(unpicked, judges[at]), [at])
                facts_of[at] = self._compared(shift, [at], units, "recorded", _RECORDED)[0]
                continue
            reason = _FILE
            if not complete:
                reason = (
                    f"cannot be measured: a rule that asks {' and '.join(shift.judges)} kept"
                    " failures only, and the"
                    " images of the other candidates are not stored (screen.keep_rejected is false)"
                )
            facts_of[at] = self._unmeasured(
                shift, scores.classifier.name, scores.classifier.sha256, reason
            )
        absent = [judge for judge in shift.judges if judge not in judges.values()]
        facts = [facts_of[at] for at in every]
        return facts + [self._of_absent(shift, unpicked, judge) for judge in absent]

    def _of_images(
        self, shift: MinedShift, side: AnsweredImages, places: Sequence[int]
    ) -> list[FindingModel]:
        side = replace(side, correct=side.correct[:, list(places)])
        return self._compared(shift, places, self._units(shift, side, places), "images", "")

    def _of_absent(self, shift: MinedShift, unpicked: Unpicked, judge: str) -> FindingModel:
        """Return the recorded answers of a judge that is not scored here."""
        # Rename the judge if a scored model with other weights has its name.
        taken = judge in {without_folders(name) for name in self.answered.models}
        name = f"{judge} (of the build)" if taken else judge
        pin = self.subject.mined.pins.get(judge)
        sha256 = pin.get("sha256") if isinstance(pin, Mapping) else None
        target = _is_target(shift, judge, sha256)
        units = self._units(shift, _recorded(unpicked, judge), [0])
        kept = self._kept(units)
        if not kept:
            return replace(
                self._unmeasured(shift, name, sha256, self._none_left(units)), target=target
            )
        shares = [
            accuracy_stats.accuracy_per_class(cls.shift_present, cls.shift_correct)[0]
            for cls in kept
        ]
        self._tell(name, shift, kept, 1 - float(np.mean(shares)), _NOT_SCORED)
        return FindingModel(name, target, "recorded", len(kept), _failures(kept, 0)[0])

    def _compared(
        self,
        shift: MinedShift,
        places: Sequence[int],
        units: Sequence[ClassUnits],
        measured_on: Literal["images", "recorded"],
        note: str,
    ) -> list[FindingModel]:
        """Return the results of these models under the shift and on the base. Each model is a
        column of `units`."""
        group = self.subject.groups[shift.index]
        kept = self._kept(units)
        drops = None
        if kept:
            drops = accuracy_stats.drops(
                kept, paired=group.paired, seed=self.answered.seed, salt=group.name
            )
        models = []
        for column, index in enumerate(places):
            classifier = self.answered.scored[index].classifier
            name = classifier.name
            target = _is_target(shift, classifier.name, classifier.sha256)
            if drops is None:
                models.append(
                    self._unmeasured(shift, name, classifier.sha256, self._none_left(units))
                )
                continue
            rate, base_rate = (
                1 - float(side[column]) for side in (drops.accuracy, drops.base_accuracy)
            )
            key = self._tell(name, shift, kept, rate, note, base_rate)
            self.numbers.append(row(DIFFERENCE, drops.interval(column), **key))
            models.append(
                FindingModel(name, target, measured_on, len(kept), *_failures(kept, column))
            )
        return models

    def _tell(
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
        base_images = sum(cls.counts[0] for cls in kept)
        images = sum(cls.counts[1] for cls in kept)
        self.numbers += [
            row(RATE, rate, n=images, note=note, **key),
            row(BASE_RATE, base_rate, n=base_images, **key),
        ]
        return key

    def _unmeasured(self, shift: MinedShift, model: str, sha256: Any, why: str) -> FindingModel:
        self.numbers.append(
            row(RATE, None, model=model, group=self.subject.groups[shift.index].name, note=why)
        )
        return FindingModel(model, _is_target(shift, model, sha256))

    def _kept(self, units: Sequence[ClassUnits]) -> list[ClassUnits]:
        enough = accuracy_stats.surviving(units, self.answered.min_images)
        return [cls for cls in enough if cls.class_id not in self.answered.near_chance.classes]

    def _none_left(self, units: Sequence[ClassUnits]) -> str:
        """Return the reason that no class is measured."""
        least = self.answered.min_images
        if accuracy_stats.surviving(units, least):
            return "cannot be measured: every class with enough images is near chance on the base"
        return f"cannot be measured: no class has {least} such candidates and as many base images"

    def _screened(self, unpicked: Unpicked) -> AnsweredImages:
        """Return the images of all candidates that passed the screen: accepted ones, and others
        that are stored."""
        models = self.answered.models
        present = np.zeros(len(unpicked.keys), dtype=bool)
        correct = np.zeros((len(unpicked.keys), len(models)), dtype=bool)
        answers = [self.stored[name].predictions for name in models if name in self.stored]
        columns = [index for index, name in enumerate(models) if name in self.stored]
        for at, (key, accepted) in enumerate(
            zip(unpicked.keys, unpicked.accepted.tolist(), strict=True)
        ):
            if accepted:
                position = self.rows[key]
                present[at], correct[at] = (
                    self.answered.answers.readable[position],
                    self.answered.answers.correct[position],
                )
            elif answers and key in self.more:
                position = self.more[key]
                present[at] = all(answer.readable[position] for answer in answers)
                correct[at, columns] = [answer.correct[position] for answer in answers]
        return AnsweredImages(unpicked.labels, unpicked.indices, present, correct)

    def _units(
        self, shift: MinedShift, side: AnsweredImages, places: Sequence[int]
    ) -> list[ClassUnits]:
        """Return the planned classes of the shift. In each, answers to candidates and to base
        images align by index."""
        base = replace(self.base, correct=self.base.correct[:, list(places)])
        return aligned_units(
            self.subject, self.subject.groups[shift.index].class_labels, base, side
        )


def _recorded(unpicked: Unpicked, judge: str) -> AnsweredImages:
    answers = unpicked.recorded[judge]
    return AnsweredImages(
        unpicked.labels, unpicked.indices, answers != NO_ANSWER, (answers == IS_RIGHT)[:, None]
    )


def _failures(kept: Sequence[ClassUnits], column: int) -> tuple[int, int]:
    """Return a model's failures under the shift and on the base, summed over classes."""
    shift = sum(int((cls.shift_present & ~cls.shift_correct[:, column]).sum()) for cls in kept)
    return shift, sum(int((cls.base_present & ~cls.base_correct[:, column]).sum()) for cls in kept)


def _is_target(shift: MinedShift, name: str, sha256: Any) -> bool:
    facts = shift.facts
    if facts.target_sha256 is not None:
        return facts.target_sha256 == sha256
    return facts.target is not None and facts.target == without_folders(name)


def judges_among(
    scored: Sequence[Scored], judges: Sequence[str], pins: Mapping[str, Any]
) -> dict[int, str]:
    """Return model index → the judge that this model is. Models are compared with the lock's pins,
    not by name."""
    digests: dict[int, str] = {}
    pins = without_validation(pins)
    for index, scores in enumerate(scored):
        model = scores.classifier
        targets = [list(outputs) for outputs in scores.class_map.targets]
        identity = {"architecture": model.architecture, "sha256": model.sha256, "targets": targets}
        judge = next((judge for judge in judges if pins.get(judge) == identity), None)
        if model.sha256 and judge is not None:
            digests[index] = judge
    return digests


MEASURE = NestedMeasure(measure_findings)
