"""What a shift costs a detector: average precision and F1 of every group, drops with intervals, by size and category.

Images are resampled, base and shift together, with the same weights. Values are fractions, as in every document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from counterfoil.detection_stats import MEASURES, Detections, Matches, average_precision, best_f1_score, image_f1, match
from counterfoil.evaluation.detection.detections import ModelDetections
from counterfoil.evaluation.detection.subject import DetectionSubject
from counterfoil.progress import report
from counterfoil.report.results import MeasureFacts, ResultRow, row
from counterfoil.stats import Estimate, seeded, simultaneous_reach

REPLICATES = 1000
F1 = "F1"
NAMES = (*MEASURES, F1)
MPC, RPC, DROP, BY_CATEGORY = "mPC", "rPC", "drop", "category_AP"
# A detector that finds next to nothing on the base has nothing to lose.
NEAR_NOTHING = 0.01


@dataclass(frozen=True)
class Numbers:
    """A measure of one group: its value, and its value in each resample, (r,)."""

    value: float
    draws: NDArray[np.float64]


@dataclass(frozen=True)
class MeasuredModel:
    """A model's numbers: groups × `NAMES`, and average precision by category, (groups, k), with draws (groups, k, r).

    answers, matches: of each group. score: from which detections count for F1, chosen on the base.
    """

    detections: ModelDetections
    answers: tuple[Detections, ...]
    matches: tuple[Matches, ...]
    score: float
    numbers: Mapping[tuple[int, str], Numbers]
    by_category: NDArray[np.float64]
    category_draws: NDArray[np.float64]
    f1: NDArray[np.float64]

    @property
    def name(self) -> str:
        return self.detections.name

    @property
    def near_nothing(self) -> bool:
        """Whether it finds next to nothing on the base."""
        value = self.numbers[0, "AP"].value
        return not value >= NEAR_NOTHING

    def drops(self, measure: str) -> dict[int, Estimate]:
        """Return what each shift takes of a measure: shift → drop, with intervals that hold for all shifts at once."""
        base = self.numbers[0, measure]
        groups = [place for place in range(1, len(self.matches)) if np.isfinite(self.numbers[place, measure].value)]
        if not groups or not np.isfinite(base.value):
            return {}
        values = np.array([base.value - self.numbers[place, measure].value for place in groups])
        draws = np.stack([base.draws - self.numbers[place, measure].draws for place in groups], axis=1)
        return dict(zip(groups, intervals(values, draws), strict=True))

    def interval(self, place: int, measure: str) -> Estimate | None:
        """Return a measure of one group with its own interval; None where nothing shows it."""
        own = self.numbers[place, measure]
        if not np.isfinite(own.value):
            return None
        return intervals(np.array([own.value]), own.draws[:, None], low=0.0)[0]


def measure_model(subject: DetectionSubject, detections: ModelDetections, seed: int) -> MeasuredModel:
    """Match a model's detections in every group, and resample the images."""
    groups, categories = len(subject.dataset.groups), len(subject.categories)
    weights = seeded(seed, "detection").multinomial(
        subject.images, np.full(subject.images, 1 / subject.images), size=REPLICATES
    )
    answers = tuple(detections.of_group(subject, place) for place in range(groups))
    matches = tuple(match(subject.truth, own, subject.images, categories) for own in answers)
    score = best_f1_score(matches[0])
    numbers: dict[tuple[int, str], Numbers] = {}
    by_category = np.full((groups, categories), np.nan)
    category_draws = np.full((groups, categories, REPLICATES), np.nan)
    f1 = np.stack([image_f1(one, score) for one in matches])
    for place, one in enumerate(matches):
        whole, drawn = average_precision(one), average_precision(one, weights)
        for name in MEASURES:
            numbers[place, name] = Numbers(float(whole.measure(name)), drawn.measure(name))
        numbers[place, F1] = Numbers(float(f1[place].mean()), weights @ f1[place] / subject.images)
        by_category[place], category_draws[place] = whole.by_category(), drawn.by_category()
        report(f"measuring {detections.name}", place + 1, groups)
    return MeasuredModel(detections, answers, matches, score, numbers, by_category, category_draws, f1)


def intervals(
    values: NDArray[np.float64], draws: NDArray[np.float64], low: float = -1.0, high: float = 1.0
) -> list[Estimate]:
    """Return an interval of each value, (m,), from its draws (r, m), that hold together; none of no width."""
    spread = np.nanstd(draws, axis=0)
    varying = spread > 1e-9  # sums of floats differ by less
    ends = np.full(len(values), np.nan)
    if varying.any():
        reach = simultaneous_reach(values[varying], draws[:, varying])
        ends[varying] = reach * spread[varying]
    return [
        Estimate(value, max(low, value - end), min(high, value + end)) if np.isfinite(end) else Estimate(value)
        for value, end in zip(values.tolist(), ends.tolist(), strict=True)
    ]


def rows_of(subject: DetectionSubject, models: Sequence[MeasuredModel]) -> Iterator[ResultRow]:
    """Yield every number of an evaluation of detectors."""
    groups = [group.name for group in subject.dataset.groups]
    for model in models:
        for name in NAMES:
            for place, group in enumerate(groups):
                yield row(name, model.interval(place, name), model=model.name, group=group, n=subject.images)
            for place, drop in model.drops(name).items():
                yield row(DROP, drop, model=model.name, group=groups[place], at=name, n=subject.images)
        yield from corruption_rows(subject, model)
        for category, name in enumerate(subject.categories):
            for place, group in enumerate(groups):
                value = model.by_category[place, category]
                if not np.isfinite(value):
                    continue
                own = {"model": model.name, "group": group, "class_id": name}
                draws = model.category_draws[place, category]
                yield row(BY_CATEGORY, intervals(np.array([value]), draws[:, None], low=0.0)[0], **own)
                if place and np.isfinite(model.by_category[0, category]):
                    drop = model.by_category[0, category] - value
                    lost = model.category_draws[0, category] - draws
                    yield row(DROP, intervals(np.array([drop]), lost[:, None])[0], at=BY_CATEGORY, **own)


def corruption_rows(subject: DetectionSubject, model: MeasuredModel) -> Iterator[ResultRow]:
    """Yield mPC, the mean over shifts (of their levels' mean), and rPC, its share of the base (Michaelis 2019)."""
    by_shift: dict[str, list[int]] = {}
    for place, group in enumerate(subject.dataset.groups[1:], start=1):
        by_shift.setdefault(group.of or group.name, []).append(place)
    if not by_shift:
        return
    for name in ("AP", "AP50", "AP75"):
        value, draws = _mean_of_shifts(model, name, by_shift)
        base = model.numbers[0, name]
        if np.isfinite(value):
            found = intervals(np.array([value]), draws[:, None], low=0.0)[0]
            yield row(MPC, found, model=model.name, at=name, n=subject.images)
        if np.isfinite(value) and base.value > 0:
            with np.errstate(invalid="ignore", divide="ignore"):
                share = np.where(base.draws > 0, draws / base.draws, np.nan)
            found = intervals(np.array([value / base.value]), share[:, None], low=0.0, high=np.inf)[0]
            yield row(RPC, found, model=model.name, at=name, n=subject.images)


def _mean_of_shifts(
    model: MeasuredModel, name: str, by_shift: Mapping[str, Sequence[int]]
) -> tuple[float, NDArray[np.float64]]:
    numbers = [[model.numbers[place, name] for place in places] for places in by_shift.values()]
    value = np.mean([np.mean([one.value for one in own]) for own in numbers])
    draws = np.mean([np.mean([one.draws for one in own], axis=0) for own in numbers], axis=0)
    return float(value), draws


FACTS: tuple[MeasureFacts, ...] = (
    MeasureFacts("AP", "AP", "percent", "mean over IoU thresholds from .50 to .95, and over categories, as COCO's"),
    MeasureFacts("AP50", "AP50", "percent", "average precision at IoU .50"),
    MeasureFacts("AP75", "AP75", "percent", "average precision at IoU .75"),
    MeasureFacts("AP_small", "AP, small", "percent", "objects of less than 32² pixels"),
    MeasureFacts("AP_medium", "AP, medium", "percent", "objects of 32² to 96² pixels"),
    MeasureFacts("AP_large", "AP, large", "percent", "objects of more than 96² pixels"),
    MeasureFacts("recall", "recall", "percent", "share of objects found by at most 100 detections an image, over IoU"),
    MeasureFacts(F1, "F1", "percent", "mean over images at IoU .50, at the score that is best on the base"),
    MeasureFacts(DROP, "drop", "points", "base less shift, of the measure that `at` names"),
    MeasureFacts(MPC, "mPC", "percent", "mean over shifts"),
    MeasureFacts(RPC, "rPC", "share", "mPC as a share of the base"),
    MeasureFacts(BY_CATEGORY, "AP by category", "percent", "AP of one category"),
)


@dataclass(frozen=True)
class DetectionAnswers:
    """What an evaluation of detectors knows: the dataset, and the numbers of every model."""

    subject: DetectionSubject
    models: tuple[MeasuredModel, ...]

    @cached_property
    def rows(self) -> tuple[ResultRow, ...]:
        return tuple(rows_of(self.subject, self.models))
