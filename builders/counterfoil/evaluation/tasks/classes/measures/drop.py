"""The drop in accuracy under a shift: by model, over pairs, relative, and averaged over shifts or
models (impact).

The ID/OOD slope is also here: the slope of a line that is fitted over models, shifted accuracy
against base accuracy (Vendrow 2023, section 6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from counterfoil import accuracy_stats
from counterfoil.accuracy_stats import Drops, Slope
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, Measure
from counterfoil.report.results import DROP_BASE, ResultRow, estimate_row
from counterfoil.resampled_stats import interval_of_draws
from counterfoil.stats import Estimate


@dataclass(frozen=True)
class _ShiftDrops:
    """The drops under a shift with at least one measured class."""

    shift: int
    group: str
    drops: Drops
    base_images: int
    """How many base images the drops use."""
    images: int
    """How many shifted images they use."""
    note: str
    """Over how many classes they are; empty for all."""

    @property
    def key(self) -> dict[str, str]:
        """The key of rows about the drops, and their note."""
        return {"group": self.group, "note": self.note}


def _measured(answered: AllAnswers) -> Iterator[_ShiftDrops]:
    """Yield the shifts that have drops."""
    for shift in answered.shifts if answered.subject.base else ():
        drops = answered.drops(shift)
        if drops is not None:
            kept = answered.kept(shift)
            base_images, images = accuracy_stats.image_counts(kept)
            yield _ShiftDrops(
                shift=shift,
                group=answered.group(shift).name,
                drops=drops,
                base_images=base_images,
                images=images,
                note=answered.over(kept),
            )


def _drop(answered: AllAnswers) -> Iterator[ResultRow]:
    for measured in _measured(answered):
        drops = measured.drops
        intervals = map(drops.interval, range(len(answered.models)))
        yield from answered.model_rows(
            "drop",
            intervals,
            n=measured.images,
            units=drops.units,
            **measured.key,
        )
    for shift in answered.shifts if answered.subject.base else ():
        group = answered.group(shift).name
        for cls in answered.enough(shift):
            lost = cls.base_accuracy - cls.shift_accuracy
            _, images = cls.counts
            yield from answered.model_rows(
                "drop",
                lost.tolist(),
                group=group,
                class_id=cls.class_id,
                n=images,
            )


def _drop_base(answered: AllAnswers) -> Iterator[ResultRow]:
    for measured in _measured(answered):
        bases = measured.drops.base_accuracy.tolist()
        images = measured.base_images
        yield from answered.model_rows(DROP_BASE, bases, n=images, **measured.key)


def _pairs_drop(answered: AllAnswers) -> Iterator[ResultRow]:
    for measured in _measured(answered):
        classes = answered.pairs(measured.shift)
        drops = answered.drops_over(measured.shift, classes)
        if drops is not None:
            pairs, _ = accuracy_stats.image_counts(classes)
            key = {"group": measured.group, "note": answered.over(classes)}
            intervals = map(drops.interval, range(len(answered.models)))
            yield from answered.model_rows("pairs_drop", intervals, n=pairs, **key)


def _average_drop(answered: AllAnswers) -> Iterator[ResultRow]:
    measured = list(_measured(answered))
    for model, name in enumerate(answered.models):
        drops = []
        for of_shift in measured:
            if answered.able(of_shift.shift)[model]:
                drops.append(of_shift.drops.drop[model])
        count = len(drops)
        if count:
            average = float(sum(drops) / count)
            yield estimate_row("average_drop", average, model=name, n=count)


def _impact(answered: AllAnswers) -> Iterator[ResultRow]:
    for measured in _measured(answered):
        whole = measured.drops.impact()
        if whole is not None:
            averaged = answered.averaged(measured.shift)
            models = int(averaged.sum())
            yield estimate_row("impact", whole, n=models, **measured.key)
        for cls in answered.kept(measured.shift):
            impact = measured.drops.classes[cls.class_id]
            if impact is not None:
                _, images = cls.counts
                yield estimate_row(
                    "impact",
                    impact,
                    group=measured.group,
                    class_id=cls.class_id,
                    n=images,
                )


def relative_drop(drops: Drops, model: int) -> Estimate | None:
    """Return the drop divided by base accuracy, with the percentile interval of the ratio; None if
    base accuracy is 0.

    There is no interval if a draw has a base accuracy of 0. A class whose images all agree widens
    this interval as it widens the interval of the drop.
    """
    base = float(drops.base_accuracy[model])
    if base == 0:
        return None
    value = float(drops.drop[model]) / base
    base_replicates = drops.base_replicates[:, model]
    if (base_replicates <= 0).any():
        return Estimate(value)
    replicates = drops.replicates[:, model] / base_replicates
    below, above = (side[model] / base for side in drops.agreed)
    return interval_of_draws(
        value,
        replicates,
        (below, above),
        -np.inf,
        drops.units,
    )


def _relative_drop(answered: AllAnswers) -> Iterator[ResultRow]:
    for measured in _measured(answered):
        models = range(len(answered.models))
        ratios = [relative_drop(measured.drops, model) for model in models]
        yield from answered.model_rows("relative_drop", ratios, **measured.key)


def _of_line(
    name: str,
    number: Callable[[Slope], Estimate | float],
    probit: bool = False,
) -> Callable[[AllAnswers], Iterator[ResultRow]]:
    def rows(answered: AllAnswers) -> Iterator[ResultRow]:
        for measured in _measured(answered):
            sound = answered.averaged(measured.shift)
            images = None
            if probit:
                images = measured.base_images, measured.images
            base = measured.drops.base_accuracy[sound].tolist()
            shifted = measured.drops.accuracy[sound].tolist()
            line = accuracy_stats.accuracy_slope(base, shifted, images)
            if line is None:
                continue
            estimate = number(line)
            group = measured.group
            yield estimate_row(name, estimate, group=group, n=line.n_models)

    return rows


def _slope(line: Slope) -> Estimate:
    if not math.isfinite(line.low):
        # If all models are equal under the shift, the line has no estimable error.
        return Estimate(line.slope)
    return Estimate(line.slope, line.low, line.high)


def _effective_robustness(answered: AllAnswers) -> Iterator[ResultRow]:
    for measured in _measured(answered):
        images = measured.base_images, measured.images
        intervals = accuracy_stats.effective_robustness_intervals(measured.drops, images)
        for model, estimate in intervals.items():
            key = answered.key(model, measured.shift)
            yield estimate_row("effective_robustness", estimate, n=measured.images, **key)


MEASURES: dict[str, Measure] = {
    "drop": Measure(
        _drop,
        "Drop in accuracy",
        "points",
        "Points of accuracy lost from base to shift, averaged over the classes that have enough"
        " images on both sides and are not near chance on the base, with a bootstrap interval."
        " `note` says how many these are.",
    ),
    DROP_BASE: Measure(
        _drop_base,
        "Base of the drop",
        "percent",
        "Accuracy on the base over the classes of the drop: the drop is from this number.",
    ),
    "relative_drop": Measure(
        _relative_drop,
        "Relative drop",
        "share",
        "The share of its accuracy on the base that a model loses.",
    ),
    "pairs_drop": Measure(
        _pairs_drop,
        "Drop over pairs",
        "points",
        "The drop over the `n` pairs whose base and shifted image were both accepted, which removes"
        " the effect of the screen's selection.",
    ),
    "average_drop": Measure(
        _average_drop,
        "Average drop",
        "points",
        "The drop averaged over the measured shifts.",
    ),
    "impact": Measure(
        _impact,
        "Impact",
        "points",
        "The drop averaged over the `n` models that are not near chance on the base; the interval"
        " resamples images, with the models held fixed.",
    ),
    "slope": Measure(
        _of_line("slope", _slope),
        "ID/OOD slope",
        "plain",
        "The slope of the line of accuracy under the shift on accuracy on the base, one point per"
        " model, without models near chance.",
    ),
    "intercept": Measure(
        _of_line("intercept", lambda line: line.intercept),
        "Intercept",
        "points",
        "The value of that line at a base accuracy of 0.",
    ),
    "r_squared": Measure(
        _of_line("r_squared", lambda line: line.r_squared),
        "R²",
        "plain",
        "How much of the variation between models that line explains.",
    ),
    "probit_slope": Measure(
        _of_line("probit_slope", _slope, probit=True),
        "Probit slope",
        "plain",
        "The slope of the same line with both accuracies on the probit scale (Miller 2021).",
    ),
    "probit_r_squared": Measure(
        _of_line("probit_r_squared", lambda line: line.r_squared, probit=True),
        "Probit R²",
        "plain",
        "How much of the variation between models the line on the probit scale explains.",
    ),
    "effective_robustness": Measure(
        _effective_robustness,
        "Effective robustness",
        "points",
        "Accuracy under the shift minus what the probit line through the other models, at least"
        " five that are not near chance, expects at the model's base accuracy (Taori 2020). The"
        " interval resamples images, with the models held fixed.",
        shown=("report",),
    ),
}
