"""Findings: how often each model fails under the mined shifts, before any classifier's rule took its pick.

No file is read or written here. Where a shift's rules ask a classifier, its accepted images are what that one gets
wrong: over them a failure rate says nothing, so none is ever given. What is counted is every candidate that passed the
screen: by the models' answers where their images are stored, by what a judge is recorded to have answered where not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.evaluation import statistics
from counterfoil.evaluation.candidates import IS_RIGHT, NO_ANSWER, MinedShift, Unpicked
from counterfoil.evaluation.floor import BaseFloor
from counterfoil.evaluation.scores import ModelAnswers
from counterfoil.evaluation.statistics import ClassUnits, Drops
from counterfoil.evaluation.subject import Group, Subject
from counterfoil.evaluation.unpicked_answers import UnpickedAnswers
from counterfoil.label_checks import without_validation
from counterfoil.progress import track
from counterfoil.recipe.names import without_folders
from counterfoil.report.findings import BASE_RATE, DIFFERENCE, RATE, FindingModel, MinedShiftResult
from counterfoil.report.results import ResultRow, row
from counterfoil.stats import Estimate

_FILE = "cannot be measured: a file of predictions has no answers to candidates that were not accepted"
_NOT_SCORED = "as recorded in the build; it was not scored here, so its rate on the base is not known"
_RECORDED = "as recorded in the build"
_OPEN = "cannot be measured: the shift's threshold is open: nothing has passed the screen yet"
_NONE = "cannot be measured: no candidate passed the screen"


@dataclass(frozen=True)
class Answerer:
    """A scored model, with what tells whether it is a judge of the build, or the target of a finding."""

    name: str
    architecture: str
    sha256: str | None
    targets: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class _Side:
    """n images of a shift: labels, indices, present (n,), and whether each of some models is right (n, models)."""

    labels: NDArray[np.int64]
    indices: NDArray[np.int64]
    present: NDArray[np.bool_]
    correct: NDArray[np.bool_]


def measure_findings(
    subject: Subject,
    answers: ModelAnswers,
    unpicked: UnpickedAnswers,
    models: Sequence[Answerer],
    *,
    min_images: int,
    seed: int,
    floor: BaseFloor | None = None,
) -> tuple[tuple[MinedShiftResult, ...], list[ResultRow]]:
    """The mined shifts in the recipe's order, and their rows; `models` are those of `answers`, in their order.

    Classes with fewer than `min_images` of such candidates, or of base images, are left out on both sides; so are those
    near chance by the `floor`, of which models fail on nearly all base images, so that every difference is near 0.
    """
    measuring = _Measuring(subject, answers, unpicked, tuple(models), min_images, seed, floor)
    found = tuple(measuring.finding(shift) for shift in track(subject.mined.shifts, "findings"))
    return found, measuring.numbers


class _Measuring:
    """What all findings of a dataset share."""

    def __init__(
        self,
        subject: Subject,
        answers: ModelAnswers,
        unpicked: UnpickedAnswers,
        models: tuple[Answerer, ...],
        min_images: int,
        seed: int,
        floor: BaseFloor | None,
    ) -> None:
        self.subject, self.answers, self.unpicked, self.models = subject, answers, unpicked, models
        self.min_images, self.seed = min_images, seed
        self.floor = floor or BaseFloor(np.zeros(len(models), dtype=bool))
        self.numbers: list[ResultRow] = []
        self.base = self._accepted(0)
        self.rows = {key: row for row, key in enumerate(subject.keys)} if subject.mined.shifts else {}
        self.more = {key: row for row, key in enumerate(unpicked.keys)}

    def finding(self, shift: MinedShift) -> MinedShiftResult:
        group = self.subject.groups[shift.place]
        own = self._scores(shift, group)
        classes = [self.subject.classes[label] for label in group.class_labels]
        return MinedShiftResult(
            shift=group.name,
            words=shift.facts.words,
            role=shift.facts.role,
            target=shift.facts.target,
            class_ids=tuple(one.id for one in classes),
            class_names=tuple(one.name for one in classes),
            candidates=group.candidates or 0,
            screened=shift.screened,
            accepted=int((self.subject.shifts == shift.place).sum()),
            judges=shift.judges,
            quota=shift.quota,
            models=tuple(own),
            near_chance=tuple(one.name for one in classes if one.id in self.floor.classes),
        )

    def _scores(self, shift: MinedShift, group: Group) -> list[FindingModel]:
        if shift.open or not shift.screened:
            why = _OPEN if shift.open else _NONE
            return [self._unmeasured(model.name, _is_target(model, shift), shift, why) for model in self.models]
        own = shift.unpicked
        if own is None:
            return self._of_images(shift, group, self._accepted(shift.place), range(len(self.models)))
        judges = judges_among(self.models, shift.judges, self.subject.mined.pins)
        whole = bool(own.accepted.all())
        seen = [
            place
            for place in range(len(self.models))
            if whole or (self.subject.mined.complete and self.unpicked.answered[place])
        ]
        scores = self._of_images(shift, group, self._screened(own), seen) if seen else []
        by_place = dict(zip(seen, scores, strict=True))
        for place, model in enumerate(self.models):
            if place not in by_place:
                by_place[place] = (
                    self._of_record(shift, group, own, judges[place], place)
                    if place in judges
                    else self._unmeasured(model.name, _is_target(model, shift), shift, self._why(shift))
                )
        scored = set(judges.values())
        absent = [self._of_record(shift, group, own, judge, None) for judge in shift.judges if judge not in scored]
        return [*(by_place[place] for place in range(len(self.models))), *absent]

    def _why(self, shift: MinedShift) -> str:
        if self.subject.mined.complete:
            return _FILE
        names = " and ".join(shift.judges)
        return (
            f"cannot be measured: a rule that asks {names} kept failures only, and the images of the other candidates"
            " are not stored (screen.keep_rejected is false)"
        )

    def _of_images(self, shift: MinedShift, group: Group, side: _Side, places: Sequence[int]) -> list[FindingModel]:
        columns = list(places)
        units = self._units(group, self.base, side, columns)
        found = self._drops(group, units)
        return [
            self._score(self.models[place], shift, "images", units, found, column)
            for column, place in enumerate(columns)
        ]

    def _of_record(self, shift: MinedShift, group: Group, own: Unpicked, judge: str, place: int | None) -> FindingModel:
        """What a judge is recorded to have answered, against the base where it is a scored model."""
        said = own.recorded[judge]
        side = _Side(own.labels, own.indices, said != NO_ANSWER, (said == IS_RIGHT)[:, None])
        base = self.base
        base = _Side(base.labels, base.indices, base.present, base.correct[:, [0 if place is None else place]])
        units = self._units(group, base, side, [0])
        model = self.models[place] if place is not None else Answerer(self._own_name(judge), "", None, ())
        if place is not None:
            return self._score(model, shift, "recorded", units, self._drops(group, units), 0, _RECORDED)
        kept = self._kept(units)
        pin = self.subject.mined.pins.get(judge)
        target = _is_target(
            replace(model, name=judge, sha256=pin.get("sha256") if isinstance(pin, Mapping) else None), shift
        )
        if not kept:
            return self._unmeasured(model.name, target, shift, self._none_left(units))
        shares = [statistics.accuracy_per_class(one.shift_present, one.shift_correct)[0] for one in kept]
        self._tell(model.name, shift, kept, 1 - float(np.mean(shares)), _NOT_SCORED)
        return FindingModel(model.name, target, "recorded", len(kept), _failures(kept, 0)[0])

    def _own_name(self, judge: str) -> str:
        """A judge's name where no scored model, with other weights, has it."""
        return f"{judge} (of the build)" if judge in {without_folders(model.name) for model in self.models} else judge

    def _score(
        self,
        model: Answerer,
        shift: MinedShift,
        measured_on: Literal["images", "recorded"],
        units: Sequence[ClassUnits],
        found: Drops | None,
        column: int,
        note: str = "",
    ) -> FindingModel:
        target = _is_target(model, shift)
        if found is None:
            return self._unmeasured(model.name, target, shift, self._none_left(units))
        kept = self._kept(units)
        self._tell(
            model.name,
            shift,
            kept,
            1 - float(found.accuracy[column]),
            note,
            1 - float(found.base_accuracy[column]),
            found.interval(column),
        )
        return FindingModel(model.name, target, measured_on, len(kept), *_failures(kept, column))

    def _tell(
        self,
        model: str,
        shift: MinedShift,
        kept: Sequence[ClassUnits],
        rate: float,
        note: str,
        base_rate: float | None = None,
        difference: Estimate | None = None,
    ) -> None:
        key = {"model": model, "group": self.subject.groups[shift.place].name}
        images, base_images = (sum(one.counts[side] for one in kept) for side in (1, 0))
        self.numbers += [
            row(RATE, rate, n=images, note=note, **key),
            row(BASE_RATE, base_rate, n=base_images, **key),
            *([row(DIFFERENCE, difference, **key)] if difference is not None else []),
        ]

    def _unmeasured(self, model: str, target: bool, shift: MinedShift, why: str) -> FindingModel:
        self.numbers.append(row(RATE, None, model=model, group=self.subject.groups[shift.place].name, note=why))
        return FindingModel(model, target)

    def _kept(self, units: Sequence[ClassUnits]) -> list[ClassUnits]:
        enough = statistics.surviving(units, self.min_images)
        return [one for one in enough if one.class_id not in self.floor.classes]

    def _none_left(self, units: Sequence[ClassUnits]) -> str:
        """Why no class is measured."""
        if statistics.surviving(units, self.min_images):
            return "cannot be measured: every class with enough images is near chance on the base"
        return f"cannot be measured: no class has {self.min_images} such candidates and as many base images"

    def _drops(self, group: Group, units: Sequence[ClassUnits]) -> Drops | None:
        kept = self._kept(units)
        return statistics.drops(kept, paired=group.paired, seed=self.seed, salt=group.name) if kept else None

    def _accepted(self, place: int) -> _Side:
        """The images of the dataset under a shift, or its base."""
        rows = np.flatnonzero(self.subject.shifts == place)
        return _Side(
            self.subject.labels[rows],
            self.subject.indices[rows],
            self.answers.readable[rows],
            self.answers.correct[rows],
        )

    def _screened(self, own: Unpicked) -> _Side:
        """Every candidate that passed the screen, accepted or stored beside them."""
        present = np.zeros(len(own.keys), dtype=bool)
        correct = np.zeros((len(own.keys), len(self.models)), dtype=bool)
        for at, (key, accepted) in enumerate(zip(own.keys, own.accepted.tolist(), strict=True)):
            row = self.rows[key] if accepted else self.more.get(key)
            if row is not None:
                source = self.answers if accepted else self.unpicked
                present[at], correct[at] = source.readable[row], source.correct[row]
        return _Side(own.labels, own.indices, present, correct)

    def _units(self, group: Group, base: _Side, side: _Side, columns: Sequence[int]) -> list[ClassUnits]:
        """The shift's planned classes, both sides aligned by index; of the models, these columns."""
        sides = [(one, _rows_by_label(one)) for one in (base, side)]
        return [
            _class_units(
                self.subject.classes[label].id, [(one, rows.get(label, _NO_ROWS)) for one, rows in sides], columns
            )
            for label in group.class_labels
        ]


_NO_ROWS = np.empty(0, dtype=np.int64)


def _rows_by_label(side: _Side) -> dict[int, NDArray[np.int64]]:
    rows = np.flatnonzero(side.present)
    order = rows[np.argsort(side.labels[rows], kind="stable")]
    labels, starts = np.unique(side.labels[order], return_index=True)
    return dict(zip(labels.tolist(), np.split(order, starts[1:]), strict=True)) if order.size else {}


def _class_units(class_id: str, sides: Sequence[tuple[_Side, NDArray[np.int64]]], columns: Sequence[int]) -> ClassUnits:
    indices = np.unique(np.concatenate([side.indices[rows] for side, rows in sides]))
    parts: list[NDArray[np.bool_]] = []
    for side, rows in sides:
        at = np.searchsorted(indices, side.indices[rows])
        present, correct = np.zeros(len(indices), dtype=bool), np.zeros((len(indices), len(columns)), dtype=bool)
        present[at], correct[at] = True, side.correct[rows][:, columns]
        parts += [present, correct]
    return ClassUnits(class_id, *parts)


def _failures(kept: Sequence[ClassUnits], column: int) -> tuple[int, int]:
    """A model's failures under the shift and on the base, summed over classes."""
    shift = sum(int((one.shift_present & ~one.shift_correct[:, column]).sum()) for one in kept)
    return shift, sum(int((one.base_present & ~one.base_correct[:, column]).sum()) for one in kept)


def _is_target(model: Answerer, shift: MinedShift) -> bool:
    facts = shift.facts
    if facts.target_sha256 is not None:
        return facts.target_sha256 == model.sha256
    return facts.target is not None and facts.target == without_folders(model.name)


def judges_among(models: Sequence[Answerer], judges: Sequence[str], pins: Mapping[str, Any]) -> dict[int, str]:
    """Place of a model → the judge that it is: by weights and right answers as the lock pins them, not by its name."""
    found: dict[int, str] = {}
    pins = without_validation(pins)
    for place, model in enumerate(models):
        own = {"architecture": model.architecture, "sha256": model.sha256, "targets": [list(t) for t in model.targets]}
        judge = next((judge for judge in judges if pins.get(judge) == own), None)
        if model.sha256 and judge is not None:
            found[place] = judge
    return found
