"""What measures are computed from: every model's answers, grouped into classes, shifts and pairs, and their drops.

No file is read or written here. `correct` is (images, models), in the dataset's order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from counterfoil.evaluation import statistics
from counterfoil.evaluation.floor import BaseFloor, find_floor
from counterfoil.evaluation.statistics import Averages, ClassUnits, Drops
from counterfoil.evaluation.subject import Group, Subject
from counterfoil.prediction.class_map import ClassMap
from counterfoil.report.results import GroupFacts, LeftOut

Made = TypeVar("Made")


@dataclass(frozen=True)
class ModelAnswers:
    """What all models answered to all images: (images, models) each, and (images,) readable."""

    readable: NDArray[np.bool_]
    prediction: NDArray[np.int32]
    correct: NDArray[np.bool_]
    correct_top_k: NDArray[np.bool_]


def base_floor(subject: Subject, answers: ModelAnswers, chances: NDArray[np.float64], min_images: int) -> BaseFloor:
    """Which models and classes with enough images are near chance on the base; `chances` (labels, models)."""
    kept = statistics.surviving(class_units(subject, answers, 0), min_images)
    if not kept:
        return BaseFloor(np.zeros(chances.shape[1], dtype=bool))
    label_of = {one.id: label for label, one in enumerate(subject.classes)}
    accuracy = np.stack([statistics.accuracy_per_class(one.base_present, one.base_correct) for one in kept])
    own = chances[[label_of[one.class_id] for one in kept]]
    found = find_floor(accuracy, np.array([one.counts[0] for one in kept]), own)
    return BaseFloor(
        found.models,
        {kept[place].class_id: float(found.averaged[place]) for place in np.flatnonzero(found.classes)},
        {one.class_id: found.cells[place] for place, one in enumerate(kept)},
        {kept[place].class_id: float(found.chances[place]) for place in np.flatnonzero(found.classes)},
    )


def class_units(subject: Subject, answers: ModelAnswers, shift: int, base: int = 0) -> list[ClassUnits]:
    """The planned classes of a shift, each with its base and shifted images aligned by candidate index."""
    planned = subject.groups[shift].class_labels
    sides = [_positions_by_label(subject, answers.readable, place) for place in (base, shift)]
    return [
        _units(subject, answers, subject.classes[label].id, *(side.get(label, _NONE) for side in sides))
        for label in planned
    ]


_NONE = np.empty(0, dtype=np.int64)


def _positions_by_label(subject: Subject, readable: NDArray[np.bool_], shift: int) -> dict[int, NDArray[np.int64]]:
    rows = np.flatnonzero((subject.shifts == shift) & readable)
    order = rows[np.argsort(subject.labels[rows], kind="stable")]
    labels, starts = np.unique(subject.labels[order], return_index=True)
    return dict(zip(labels.tolist(), np.split(order, starts[1:]), strict=True)) if order.size else {}


def _units(
    subject: Subject, answers: ModelAnswers, class_id: str, base: NDArray[np.int64], shift: NDArray[np.int64]
) -> ClassUnits:
    indices = np.union1d(subject.indices[base], subject.indices[shift])
    models = answers.correct.shape[1]

    def side(rows: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        present = np.zeros(len(indices), dtype=bool)
        correct = np.zeros((len(indices), models), dtype=bool)
        at = np.searchsorted(indices, subject.indices[rows])
        present[at] = True
        correct[at] = answers.correct[rows]
        return present, correct

    return ClassUnits(class_id, *side(base), *side(shift))


@dataclass(frozen=True)
class AllAnswers:
    """What a measure is computed from: the images, what all models answered, and the drops that many measures share.

    models: names; maps: how each model's outputs mean the classes; confidence: (images, models) of the top answer. What
    is near chance by the `floor` is in no average: neither classes, nor, where models are averaged, models. Groups are
    numbered as the subject has them, the base first where there is one.
    """

    subject: Subject
    answers: ModelAnswers
    models: tuple[str, ...]
    maps: tuple[ClassMap, ...]
    confidence: NDArray[np.float32]
    floor: BaseFloor
    min_images: int
    seed: int
    made: dict[tuple[Any, ...], Any] = field(default_factory=dict, repr=False)

    @property
    def sound(self) -> NDArray[np.bool_]:
        """(models,) which are not near chance on the base."""
        return ~self.floor.models

    @property
    def shifts(self) -> range:
        """The groups that are compared with the base; all groups, where none is one."""
        return range(1 if self.subject.base else 0, len(self.subject.groups))

    def group(self, place: int) -> Group:
        """A group of the subject."""
        return self.subject.groups[place]

    def rows(self, place: int) -> NDArray[np.int64]:
        """The readable images of a group."""
        return self.once(
            ("rows", place), lambda: np.flatnonzero((self.subject.shifts == place) & self.answers.readable)
        )

    def units(self, place: int) -> list[ClassUnits]:
        """The planned classes of a group with their base images; without a base, with their own on both sides."""
        base = 0 if self.subject.base else place
        return self.once(("units", place), lambda: class_units(self.subject, self.answers, place, base))

    def enough(self, place: int) -> list[ClassUnits]:
        """The classes with enough images on both sides."""
        return statistics.surviving(self.units(place), self.min_images)

    def kept(self, place: int) -> list[ClassUnits]:
        """The classes that averages are over: with enough images, and not near chance on the base."""
        return [one for one in self.enough(place) if one.class_id not in self.floor.classes]

    def drops(self, place: int) -> Drops | None:
        """What a shift does to all models over its measured classes; None where no class is measured."""
        return self.once(("drops", place), lambda: self._drops(place, self.kept(place)))

    def pairs(self, place: int) -> list[ClassUnits]:
        """The measured classes with the indices that were accepted on both sides; none where noise is not paired."""
        if not self.group(place).paired:
            return []
        return [one.pairs() for one in self.kept(place) if (one.base_present & one.shift_present).any()]

    def pairs_drops(self, place: int) -> Drops | None:
        """The drops over pairs alone."""
        return self.once(("pairs", place), lambda: self._drops(place, self.pairs(place)))

    def averages(self) -> Averages | None:
        """Every model's accuracy on the base, averaged over its measured classes."""
        kept = self.kept(0)
        salt = self.group(0).name
        return self.once(("averages",), lambda: statistics.averages(kept, seed=self.seed, salt=salt) if kept else None)

    def once(self, key: tuple[Any, ...], make: Callable[[], Made]) -> Made:
        """What `make` makes, made once for this key."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def _drops(self, place: int, kept: Sequence[ClassUnits]) -> Drops | None:
        group = self.group(place)
        if not kept:
            return None
        return statistics.drops(kept, paired=group.paired, seed=self.seed, salt=group.name, averaged=self.sound)

    def facts(self, place: int) -> GroupFacts:
        """A group's yield, and the classes and images that its averages are over."""
        described, kept = self.group(place), self.kept(place)
        here = self.subject.shifts == place
        base, own = (sum(one.counts[side] for one in kept) for side in (0, 1))
        return GroupFacts(
            name=described.name,
            kind=described.kind,
            prompt=described.prompt,
            group=described.group,
            candidates=described.candidates,
            accepted=int(here.sum()),
            unreadable=int((here & ~self.answers.readable).sum()),
            classes=len(kept),
            left_out=self._left_out(place, {one.class_id for one in kept}),
            images=own,
            base_images=base if self.subject.base else 0,
        )

    def _left_out(self, place: int, measured: set[str]) -> tuple[LeftOut, ...]:
        names = {one.id: one.name for one in self.subject.classes}
        found = []
        for one in self.units(place):
            if one.class_id in measured:
                continue
            counts = one.class_id, names[one.class_id], *one.counts
            if min(one.counts) < self.min_images:
                found.append(LeftOut(*counts))
            else:
                found.append(LeftOut(*counts, "near chance", self.floor.classes[one.class_id]))
        return tuple(found)
