"""How much accuracy a shift takes: of each model, over pairs, over all shifts and models (impact), relative; the slope.

The ID/OOD slope is that of the line of shifted on base accuracy over models (Vendrow 2023, section 6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from counterfoil import accuracy_stats
from counterfoil.accuracy_stats import Drops, Slope, accuracy_per_class
from counterfoil.evaluation.scores import AllAnswers, Measure
from counterfoil.report.results import ResultRow, row
from counterfoil.stats import Estimate, percentile_interval


def _found(answered: AllAnswers) -> Iterator[tuple[int, str, Drops]]:
    """Yield the shifts that measure a class: place, name and drops."""
    if answered.subject.base:
        for shift in answered.shifts:
            if (found := answered.drops(shift)) is not None:
                yield shift, answered.group(shift).name, found


def _drop(answered: AllAnswers) -> Iterator[ResultRow]:
    for place, group, found in _found(answered):
        images = sum(one.counts[1] for one in answered.kept(place))
        for model, name in enumerate(answered.models):
            yield row("drop", found.interval(model), model=name, group=group, n=images)
    for place in answered.shifts if answered.subject.base else ():
        for one in answered.enough(place):
            base = accuracy_per_class(one.base_present, one.base_correct)
            lost = (base - accuracy_per_class(one.shift_present, one.shift_correct)).tolist()
            for name, value in zip(answered.models, lost, strict=True):
                yield row(
                    "drop",
                    value,
                    model=name,
                    group=answered.group(place).name,
                    class_id=one.class_id,
                    n=one.counts[1],
                )


def _pairs_drop(answered: AllAnswers) -> Iterator[ResultRow]:
    for place, group, _ in _found(answered):
        found = answered.pairs_drops(place)
        pairs = sum(one.counts[1] for one in answered.pairs(place))
        if found is not None:
            for model, name in enumerate(answered.models):
                yield row("pairs_drop", found.interval(model), model=name, group=group, n=pairs)


def _average_drop(answered: AllAnswers) -> Iterator[ResultRow]:
    drops = [found.drop for _, _, found in _found(answered)]
    if drops:
        for model, name in enumerate(answered.models):
            own = [float(drop[model]) for drop in drops]
            yield row("average_drop", float(np.mean(own)), model=name, n=len(own))


def _impact(answered: AllAnswers) -> Iterator[ResultRow]:
    models = int(answered.sound.sum())
    for place, group, found in _found(answered):
        if (whole := found.impact()) is not None:
            yield row("impact", whole, group=group, n=models)
        images = {one.class_id: one.counts[1] for one in answered.kept(place)}
        for class_id, own in found.classes.items():
            if own is not None:
                yield row("impact", own, group=group, class_id=class_id, n=images[class_id])


def relative_drop(found: Drops, model: int) -> Estimate | None:
    """Return drop over base accuracy, with the percentile interval of the ratio; None for a base accuracy of 0.

    No interval if a draw has a base accuracy of 0. What every draw gives the same is opened as the drop's interval is.
    """
    base = float(found.base_accuracy[model])
    if base == 0:
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        replicates = found.replicates[:, model] / found.base_replicates[:, model]
    value = float(found.drop[model]) / base
    if (found.base_replicates[:, model] == 0).any():
        return Estimate(value)
    agreed = float(found.agreed[0][model]) / base, float(found.agreed[1][model]) / base
    return percentile_interval(value, replicates, agreed, least=-np.inf)


def _relative_drop(answered: AllAnswers) -> Iterator[ResultRow]:
    for _, group, found in _found(answered):
        for model, name in enumerate(answered.models):
            if (own := relative_drop(found, model)) is not None:
                yield row("relative_drop", own, model=name, group=group)


def _images(answered: AllAnswers, place: int) -> tuple[int, int]:
    """Return how many base and shifted images the drops of a shift are over."""
    base, shifted = (sum(one.counts[side] for one in answered.kept(place)) for side in (0, 1))
    return base, shifted


def _of_line(
    name: str, number: Callable[[Slope], Estimate | float], probit: bool = False
) -> Callable[[AllAnswers], Iterator[ResultRow]]:
    def rows(answered: AllAnswers) -> Iterator[ResultRow]:
        sound = answered.sound
        for place, group, found in _found(answered):
            images = _images(answered, place) if probit else None
            line = accuracy_stats.slope(found.base_accuracy[sound].tolist(), found.accuracy[sound].tolist(), images)
            if line is not None:
                yield row(name, number(line), group=group, n=line.n_models)

    return rows


def _slope(line: Slope) -> Estimate:
    # Where all models are equal under the shift, nothing shows how far the line may be off.
    return Estimate(line.slope, line.low, line.high) if math.isfinite(line.low) else Estimate(line.slope)


def _effective_robustness(answered: AllAnswers) -> Iterator[ResultRow]:
    for place, group, found in _found(answered):
        images = _images(answered, place)
        for model, own in accuracy_stats.effective_robustness_intervals(found, images).items():
            yield row("effective_robustness", own, model=answered.models[model], group=group, n=images[1])


MEASURES: dict[str, Measure] = {
    "drop": Measure(
        _drop,
        "Drop in accuracy",
        "points",
        "Points of accuracy lost from base to shift, averaged over classes, with a bootstrap interval.",
        shown=(),
    ),
    "relative_drop": Measure(
        _relative_drop, "Relative drop", "share", "The share of its accuracy on the base that a model loses.", shown=()
    ),
    "pairs_drop": Measure(
        _pairs_drop,
        "Drop over pairs",
        "points",
        "The drop over the `n` pairs whose base and shifted image were both accepted, which removes the effect of the"
        " screen's selection.",
        shown=(),
    ),
    "average_drop": Measure(
        _average_drop, "Average drop", "points", "The drop averaged over the measured shifts.", shown=()
    ),
    "impact": Measure(
        _impact,
        "Impact",
        "points",
        "The drop averaged over the `n` models that are not near chance on the base; the interval resamples images,"
        " with the models held fixed.",
        shown=(),
    ),
    "slope": Measure(
        _of_line("slope", _slope),
        "ID/OOD slope",
        "plain",
        "The slope of the line of accuracy under the shift on accuracy on the base, one point per model, without models"
        " near chance.",
        shown=(),
    ),
    "intercept": Measure(
        _of_line("intercept", lambda line: line.intercept),
        "Intercept",
        "points",
        "The value of that line at a base accuracy of 0.",
        shown=(),
    ),
    "r_squared": Measure(
        _of_line("r_squared", lambda line: line.r_squared),
        "R²",
        "plain",
        "How much of the variation between models that line explains.",
        shown=(),
    ),
    "probit_slope": Measure(
        _of_line("probit_slope", _slope, probit=True),
        "Probit slope",
        "plain",
        "The slope of the same line with both accuracies on the probit scale (Miller 2021).",
        shown=(),
    ),
    "probit_r_squared": Measure(
        _of_line("probit_r_squared", lambda line: line.r_squared, probit=True),
        "Probit R²",
        "plain",
        "How much of the variation between models the line on the probit scale explains.",
        shown=(),
    ),
    "effective_robustness": Measure(
        _effective_robustness,
        "Effective robustness",
        "points",
        "Accuracy under the shift minus what the probit line through the other models, at least five that are not near"
        " chance, expects at the model's base accuracy (Taori 2020). The interval resamples images, with the models"
        " held fixed.",
        shown=("report",),
    ),
}
