"""What a shift costs a detector: average precision and F1 of every group, and their drops, by size
and category.

Intervals come from resamples of the images. In each resample, an image has the same weight under
the base and every shift. Values are fractions, as in every document.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterfoil.arrays import Floats
from counterfoil.detection_stats import (
    COCO_MEASURES,
    Detections,
    DetectorScores,
    Matches,
    best_f1_score,
    bootstrap_scores,
    image_f1,
    match_detections,
)
from counterfoil.evaluation.compared_images import ComparedImages
from counterfoil.evaluation.task import ResampledModel
from counterfoil.evaluation.tasks.classes.measures.severity import (
    level_row,
    severity_levels,
    shifts_with_levels,
)
from counterfoil.evaluation.tasks.objects.curves import CURVE as PRECISION
from counterfoil.evaluation.tasks.objects.curves import curve_points
from counterfoil.evaluation.tasks.objects.detections import ModelDetections
from counterfoil.evaluation.tasks.objects.error_kinds import ErrorKinds, error_kinds
from counterfoil.evaluation.tasks.objects.subject import DetectionSubject
from counterfoil.progress import report_progress
from counterfoil.report import severity
from counterfoil.report.results import DIFFERENCE, DROP, MeasureFacts, ResultRow, estimate_row
from counterfoil.resampled_stats import Drawn, resampled_ratio, weighted_sum
from counterfoil.trajectory_stats import rising_reaches

REPLICATES = 1000
F1 = "F1"
NAMES = (*COCO_MEASURES, F1)
MPC = "mPC"
RPC = "rPC"
BY_CATEGORY = "category_AP"
CURVE = "severity_AP"
# The number of objects of a category, of errors of a kind, and of objects of a category that are
# taken for another.
OBJECTS = "objects"
ERRORS = "errors"
TAKEN_FOR = "taken_for"
_TEN_POINTS = 0.1


@dataclass(frozen=True)
class MeasuredModel(ResampledModel):
    """The numbers of one model."""

    detections: ModelDetections
    """Its detections on all images."""
    answers: tuple[Detections, ...]
    """Its detections on the images of each group, the base first."""
    matches: tuple[Matches, ...]
    """These detections, matched with the objects."""
    score: float
    """The score from which on a detection counts for F1, chosen on the base."""
    scores: tuple[DetectorScores, ...]
    """The measures, each with its resamples."""
    f1: Floats
    """(groups, images), the F1 of each image."""
    errors: tuple[ErrorKinds, ...]
    """The errors from that score on."""

    @property
    def near_chance(self) -> bool:
        """Whether the model finds next to nothing on the base, so that no shift can cost it
        anything."""
        return self.scores[0].near_chance

    def drop_problem(self, label: int | None) -> str:
        return "finds next to nothing on the base" if self.near_chance else ""

    def share(
        self,
        group: int,
        measure: str,
        label: int | None = None,
        of_drop: bool = False,
    ) -> Drawn:
        """Return a measure of one group, or the AP of category `label`. Here `of_drop` changes
        nothing."""
        scores = self.scores[group]
        return scores.measures[measure] if label is None else scores.categories[label]


def measure_model(
    subject: DetectionSubject,
    detections: ModelDetections,
    seed: int,
) -> MeasuredModel:
    """Match a model's detections with the objects in every group, and resample the images of all
    groups together."""
    groups = len(subject.rows)
    truth = subject.truth
    categories = len(subject.categories)
    answers = []
    matches = []
    for group in range(groups):
        answer = detections.of_group(subject, group)
        answers.append(answer)
        matches.append(match_detections(truth, answer, subject.images, categories))
    score = best_f1_score(matches[0])
    scores = []
    f1 = []
    errors = []
    for group, of_group in enumerate(matches):
        report_progress(f"measuring {detections.name}", group, groups)
        scores.append(bootstrap_scores(of_group, score, seed, REPLICATES, subject.units))
        f1.append(image_f1(of_group, score))
        errors.append(error_kinds(truth, answers[group], of_group, score))
    return MeasuredModel(
        name=detections.name,
        detections=detections,
        answers=tuple(answers),
        matches=tuple(matches),
        score=score,
        scores=tuple(scores),
        f1=np.stack(f1),
        errors=tuple(errors),
    )


def detector_rows(
    subject: DetectionSubject, models: Sequence[MeasuredModel]
) -> Iterator[ResultRow]:
    """Yield every number of an evaluation of detectors; intervals of drops hold for all shifts at
    once."""
    truth = subject.truth
    groups = subject.dataset.groups
    for category, name in enumerate(subject.categories):
        of_category = (truth.category == category) & ~truth.crowd
        if of_category.any():
            images = len(np.unique(truth.image[of_category]))
            yield estimate_row(OBJECTS, float(of_category.sum()), class_id=name, n=images)
    for model in models:
        for name in NAMES:
            yield from model.rows(name, groups, subject.images, subject.units)
        yield from mean_corruption_rows(subject, model)
        yield from error_rows(subject, model)
        for category, name in enumerate(subject.categories):
            key: dict[str, Any] = {"model": model.name, "class_id": name}
            for index, group in enumerate(groups):
                number = model.share(index, "AP", category)
                if not math.isfinite(number.value):
                    continue
                key["group"] = group.name
                key["n"] = number.images
                yield estimate_row(BY_CATEGORY, number.interval(), **key)
                if index:
                    drop = model.drop(index, "AP", category)
                    yield estimate_row(DROP, drop.interval(), at=BY_CATEGORY, **key)


def error_rows(subject: DetectionSubject, model: MeasuredModel) -> Iterator[ResultRow]:
    """Yield how many errors of each kind a model makes in each group, its confusions, and precision
    at some recalls."""
    categories = subject.categories
    of_groups = zip(subject.dataset.groups, model.matches, model.errors, strict=True)
    for group, matches, errors in of_groups:
        key = {
            "model": model.name,
            "group": group.name,
            "n": subject.images,
        }
        for kind, count in errors.counts().items():
            yield estimate_row(ERRORS, float(count), at=kind, **key)
        table = errors.confusions(subject.truth, matches)
        for true, taken in np.argwhere(table).tolist():
            times = float(table[true, taken])
            yield estimate_row(
                TAKEN_FOR,
                times,
                class_id=categories[true],
                against=categories[taken],
                **key,
            )
        for recall, precision in curve_points(matches):
            if math.isfinite(precision):
                yield estimate_row(PRECISION, precision, at=recall, **key)


def mean_corruption_rows(subject: DetectionSubject, model: MeasuredModel) -> Iterator[ResultRow]:
    """Yield mPC and rPC (Michaelis 2019). mPC is the mean over shifts, of a graded shift the mean
    over its levels.

    rPC is mPC divided by the value on the base. A detector that finds next to nothing on the base
    has no rPC.
    """
    by_shift: dict[str, list[int]] = {}
    for index, group in enumerate(subject.dataset.groups[1:], start=1):
        of_shift = by_shift.setdefault(group.of or group.name, [])
        of_shift.append(index)
    if not by_shift:
        return
    for name in ("AP", "AP50", "AP75"):
        parts = []
        for indices in by_shift.values():
            weight = 1 / len(by_shift) / len(indices)
            for index in indices:
                parts.append((weight, model.share(index, name)))
        mean = weighted_sum(parts)
        if not math.isfinite(mean.value):
            continue
        key = {"model": model.name, "at": name, "n": subject.images}
        yield estimate_row(MPC, mean.interval(), **key)
        share = resampled_ratio(mean, model.share(0, name))
        if math.isfinite(share.value) and not model.near_chance:
            yield estimate_row(RPC, share.interval(), **key)


def measure_levels(
    subject: ComparedImages,
    models: Sequence[ResampledModel],
    measure: str,
    curve: str,
    classes: int,
) -> tuple[tuple[severity.Severity, ...], list[ResultRow]]:
    """Return the graded shifts and their rows: a measure and its drop by level, and the level where
    the drop is ten points.

    curve: what rows of the measure at a level are called. classes: how many each group has.
    """
    facts = []
    rows = []
    dataset = subject.dataset
    images = subject.images
    for shift, indices in shifts_with_levels(dataset).items():
        facts_of_levels = severity_levels(dataset, indices, [0] * len(indices))
        first_group = dataset.groups[indices[0]]
        of_shift = severity.Severity(
            shift=shift,
            realised=first_group.realised,
            levels=facts_of_levels,
            classes=classes,
            left_out=(),
            trajectories=images,
            complete=images,
        )
        facts.append(of_shift)
        levels = np.array([level.level for level in facts_of_levels])
        weights = np.ones(len(levels))
        for model in models:
            key: dict[str, Any] = {"model": model.name, "group": shift, "n": images}
            for at, index in zip(of_shift.ats, [0, *indices], strict=True):
                value = model.share(index, measure).interval()
                rows.append(estimate_row(curve, value, at=at, **key))
            drops = []
            for at, index in zip(of_shift.ats[1:], indices, strict=True):
                drop = model.drop(index, measure).interval()
                drops.append(drop)
                rows.append(estimate_row(severity.DROP, drop, at=at, **key))
            ten = rising_reaches(drops, levels, weights, _TEN_POINTS)
            rows.append(level_row(severity.TEN_POINTS, ten, **key))
    return tuple(facts), rows


def level_facts(measure: str, curve: str) -> tuple[MeasureFacts, ...]:
    """Return what the rows of `measure_levels` are."""
    at_level = f"{measure} at a level of a shift, which `at` names; 0 is the base"
    dropped = f"{measure} on the base less {measure} at a level"
    ten_points = f"the level where {measure} has dropped ten points"
    return (
        MeasureFacts(curve, f"{measure} by level", "percent", at_level),
        MeasureFacts(severity.DROP, "drop by level", "points", dropped),
        MeasureFacts(severity.TEN_POINTS, "level of ten points", "plain", ten_points),
    )


FACTS: tuple[MeasureFacts, ...] = (
    MeasureFacts(
        "AP",
        "AP",
        "percent",
        "mean over IoU thresholds from .50 to .95, and over categories, as COCO's",
    ),
    MeasureFacts("AP50", "AP50", "percent", "average precision at IoU .50"),
    MeasureFacts("AP75", "AP75", "percent", "average precision at IoU .75"),
    MeasureFacts("AP_small", "AP, small", "percent", "objects of less than 32² pixels"),
    MeasureFacts("AP_medium", "AP, medium", "percent", "objects of 32² to 96² pixels"),
    MeasureFacts("AP_large", "AP, large", "percent", "objects of more than 96² pixels"),
    MeasureFacts(
        "recall",
        "recall",
        "percent",
        "share of objects found by at most 100 detections an image, over IoU",
    ),
    MeasureFacts(
        F1, "F1", "percent", "mean over images at IoU .50, at the score that is best on the base"
    ),
    MeasureFacts(DROP, "drop", "points", "base less shift, of the measure that `at` names"),
    MeasureFacts(MPC, "mPC", "percent", "mean over shifts"),
    MeasureFacts(RPC, "rPC", "share", "mPC as a share of the base"),
    MeasureFacts(
        DIFFERENCE, "drop less another detector's", "points", "drop of AP less that of `against`"
    ),
    *level_facts("AP", CURVE),
    MeasureFacts(BY_CATEGORY, "AP by category", "percent", "AP of one category"),
    MeasureFacts(
        OBJECTS, "objects", "plain", "objects of one category in each group, without crowds"
    ),
    MeasureFacts(
        ERRORS, "errors", "plain", "errors of the kind that `at` names, as TIDE names them"
    ),
    MeasureFacts(
        TAKEN_FOR,
        "taken for",
        "plain",
        "objects of a category that are taken for that of `against`",
    ),
    MeasureFacts(
        PRECISION,
        "precision",
        "percent",
        "precision at IoU .50 and the recall of `at`, over categories",
    ),
)
