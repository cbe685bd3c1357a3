"""From predictions to results: group the images into classes, shifts and pairs, and measure each shift.

No file is read or written here. `correct` is (images, models), in the dataset's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.evaluation import statistics
from counterfoil.evaluation.floor import BaseFloor, find_floor
from counterfoil.evaluation.metrics import METRICS, ShiftMeasurement
from counterfoil.evaluation.results import ClassScore, LeftOut, Score, ShiftResult
from counterfoil.evaluation.statistics import Averages, ClassUnits, Drops
from counterfoil.evaluation.subject import Subject
from counterfoil.stats import Estimate, wilson_estimate


@dataclass(frozen=True)
class Answers:
    """What all models answered to all images: (images, models) each, and (images,) readable."""

    readable: NDArray[np.bool_]
    prediction: NDArray[np.int32]
    correct: NDArray[np.bool_]
    correct_top_k: NDArray[np.bool_]


def base_floor(subject: Subject, answers: Answers, chances: NDArray[np.float64], min_images: int) -> BaseFloor:
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


def class_units(subject: Subject, answers: Answers, shift: int, base: int = 0) -> list[ClassUnits]:
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
    subject: Subject, answers: Answers, class_id: str, base: NDArray[np.int64], shift: NDArray[np.int64]
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


def measure_shift(
    subject: Subject,
    answers: Answers,
    models: Sequence[str],
    shift: int,
    *,
    min_images: int,
    seed: int,
    floor: BaseFloor | None = None,
) -> tuple[ShiftResult, list[Score], list[ClassScore]]:
    """One shift's numbers: over all models, for each model, and for each class.

    What is near chance by the `floor` is in no average: neither classes, nor, where models are averaged, models.
    """
    floor = floor or BaseFloor(np.zeros(len(models), dtype=bool))
    described = subject.groups[shift]
    units = class_units(subject, answers, shift)
    kept = _measured(units, min_images, floor)
    paired, sound = described.paired, ~floor.models
    found = _drops(kept, paired, seed, described.name, sound)
    pairs = [one.pairs() for one in kept if (one.base_present & one.shift_present).any()] if paired else []
    pairs_found = _drops(pairs, paired, seed, described.name, sound)
    n_pairs = sum(one.counts[1] for one in pairs)
    base_images, images = (sum(one.counts[side] for one in kept) for side in (0, 1))
    rows = np.flatnonzero((subject.shifts == shift) & answers.readable)
    scores = [
        Score(
            model=name,
            shift=described.name,
            classes=len(kept),
            images=images,
            base_images=base_images,
            base_accuracy=float(found.base_accuracy[place]) if found else None,
            accuracy=float(found.accuracy[place]) if found else None,
            drop=found.interval(place) if found else None,
            pairs=n_pairs,
            pairs_drop=pairs_found.interval(place) if pairs_found else None,
            top1=share(answers.correct[rows, place]),
            top_k_accuracy=share(answers.correct_top_k[rows, place]),
            metrics=_metrics(found, place, answers.correct[rows, place]),
        )
        for place, name in enumerate(models)
    ]
    line = statistics.slope(found.base_accuracy[sound].tolist(), found.accuracy[sound].tolist()) if found else None
    result = ShiftResult(
        **_counts(subject, answers, shift),
        classes=len(kept),
        left_out=tuple(_left_out(subject, units, kept, min_images, floor)),
        images=images,
        base_images=base_images,
        impact=found.impact() if found else None,
        slope=line,
    )
    return result, scores, _class_scores(subject, described.name, units, found, min_images, floor)


def measure_base(
    subject: Subject, answers: Answers, min_images: int, *, seed: int, floor: BaseFloor
) -> tuple[ShiftResult, Averages | None]:
    """The base's own counts, and every model's accuracy averaged over its measured classes."""
    units = class_units(subject, answers, 0)
    kept = _measured(units, min_images, floor)
    images = sum(one.counts[0] for one in kept)
    result = ShiftResult(
        **_counts(subject, answers, 0),
        classes=len(kept),
        left_out=tuple(_left_out(subject, units, kept, min_images, floor)),
        images=images,
        base_images=images,
        impact=None,
        slope=None,
    )
    return result, statistics.averages(kept, seed=seed, salt=subject.groups[0].name) if kept else None


def measure_group(
    subject: Subject, answers: Answers, models: Sequence[str], group: int, *, min_images: int
) -> tuple[ShiftResult, list[Score]]:
    """A group's plain accuracies, where there is no base to compare it with."""
    kept = statistics.surviving(class_units(subject, answers, group, base=group), min_images)
    images = sum(one.counts[0] for one in kept)
    per_class = [statistics.accuracy_per_class(one.base_present, one.base_correct) for one in kept]
    accuracy = np.mean(per_class, axis=0) if per_class else None
    rows = np.flatnonzero((subject.shifts == group) & answers.readable)
    counts = _counts(subject, answers, group)
    scores = [
        Score(
            model=name,
            shift=counts["name"],
            classes=len(kept),
            images=images,
            base_images=0,
            base_accuracy=None,
            accuracy=None if accuracy is None else float(accuracy[place]),
            drop=None,
            pairs=0,
            pairs_drop=None,
            top1=share(answers.correct[rows, place]),
            top_k_accuracy=share(answers.correct_top_k[rows, place]),
            metrics=dict.fromkeys(METRICS),
        )
        for place, name in enumerate(models)
    ]
    units = class_units(subject, answers, group, base=group)
    left_out = tuple(_left_out(subject, units, kept, min_images))
    result = ShiftResult(
        **counts, classes=len(kept), left_out=left_out, images=images, base_images=0, impact=None, slope=None
    )
    return result, scores


def share(correct: NDArray[np.bool_]) -> Estimate | None:
    """The share of right answers with its Wilson interval; None for no image."""
    return wilson_estimate(int(correct.sum()), len(correct)) if len(correct) else None


def _measured(units: Sequence[ClassUnits], min_images: int, floor: BaseFloor) -> list[ClassUnits]:
    """The classes that averages are over: with enough images on both sides, and not near chance on the base."""
    return [one for one in statistics.surviving(units, min_images) if one.class_id not in floor.classes]


def _drops(kept: Sequence[ClassUnits], paired: bool, seed: int, salt: str, averaged: NDArray[np.bool_]) -> Drops | None:
    return statistics.drops(kept, paired=paired, seed=seed, salt=salt, averaged=averaged) if kept else None


def _metrics(found: Drops | None, place: int, right: NDArray[np.bool_]) -> dict[str, Estimate | None]:
    if found is None:
        return dict.fromkeys(METRICS)
    measured = ShiftMeasurement(
        float(found.base_accuracy[place]),
        float(found.drop[place]),
        found.base_replicates[:, place],
        found.replicates[:, place],
        np.array([one.base_accuracy[place] for one in found.classes.values()]),
        np.array([one.accuracy[place] for one in found.classes.values()]),
        right,
        (float(found.agreed[0][place]), float(found.agreed[1][place])),
    )
    return {name: metric(measured) for name, metric in METRICS.items()}


def _counts(subject: Subject, answers: Answers, shift: int) -> dict:
    described = subject.groups[shift]
    here = subject.shifts == shift
    return {
        "name": described.name,
        "kind": described.kind,
        "prompt": described.prompt,
        "group": described.group,
        "candidates": described.candidates,
        "accepted": int(here.sum()),
        "unreadable": int((here & ~answers.readable).sum()),
    }


def _class_scores(
    subject: Subject,
    shift: str,
    units: Sequence[ClassUnits],
    found: Drops | None,
    min_images: int,
    floor: BaseFloor,
) -> list[ClassScore]:
    names = {one.id: one.name for one in subject.classes}
    scores = []
    for one in units:
        enough = min(one.counts) >= min_images
        measured = found.classes.get(one.class_id) if found else None
        base, shifted = (
            (
                statistics.accuracy_per_class(one.base_present, one.base_correct),
                statistics.accuracy_per_class(one.shift_present, one.shift_correct),
            )
            if enough
            else (np.empty(0), np.empty(0))
        )
        scores.append(
            ClassScore(
                shift=shift,
                class_id=one.class_id,
                name=names[one.class_id],
                base_images=one.counts[0],
                shift_images=one.counts[1],
                base_accuracy=tuple(base.tolist()),
                accuracy=tuple(shifted.tolist()),
                impact=measured.impact if measured else None,
                near_chance=tuple(floor.cells[one.class_id].tolist()) if one.class_id in floor.cells else (),
                class_near_chance=one.class_id in floor.classes,
            )
        )
    return scores


def _left_out(
    subject: Subject,
    units: Sequence[ClassUnits],
    kept: Sequence[ClassUnits],
    min_images: int,
    floor: BaseFloor | None = None,
) -> list[LeftOut]:
    names = {one.id: one.name for one in subject.classes}
    measured = {one.class_id for one in kept}
    found = []
    for one in units:
        if one.class_id in measured:
            continue
        counts = one.class_id, names[one.class_id], *one.counts
        if floor is None or min(one.counts) < min_images:
            found.append(LeftOut(*counts))
        else:
            found.append(LeftOut(*counts, "near chance", floor.classes[one.class_id]))
    return found
