"""Calibration: whether a model's confidence equals its accuracy (Guo 2017)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from counterfoil.accuracy_stats import BINS, confidence_bins
from counterfoil.arrays import AnyFloats, Bools, Floats
from counterfoil.evaluation.tasks.classes.answers import (
    AllAnswers,
    AnsweredGroup,
    Measure,
)
from counterfoil.evaluation.tasks.classes.resampling import Resample, resampled_numbers
from counterfoil.report.results import ResultRow, Results, estimate_row
from counterfoil.stats import REPLICATES

_MOST_LINES = 8
_DIGITS = 5  # confidences are rounded, because another batch size changes their last bits


class _Confidences(NamedTuple):
    """How sure a model is of its answers to the readable images of a group, and which are right."""

    model: int
    group: int
    confidence: AnyFloats
    right: Bools


def _groups(answered: AllAnswers) -> Iterator[_Confidences]:
    """Yield every model in every group, for models that have confidences."""
    for model in range(len(answered.models)):
        for index in answered.places:
            rows = answered.rows(index)
            confidence = answered.confidence[rows, model].astype(np.float64)
            # A rate over the images that a model is sure or unsure of would be over a choice.
            if len(rows) and not np.isnan(confidence).any():
                right = answered.answers.correct[rows, model]
                yield _Confidences(model, index, confidence.round(_DIGITS), right)


def _error(answered: AllAnswers) -> Iterator[ResultRow]:
    groups = list(_groups(answered))
    error_of = {}
    samples_of = defaultdict[int, list[Resample]](list)
    for model, index, *_ in groups:
        sample = Resample(_resampled_error, index, model, by_chance=_errors_by_chance)
        samples_of[index].append(sample)
    for index, samples in samples_of.items():
        numbers = resampled_numbers(answered, samples)
        for sample, number in zip(samples, numbers, strict=True):
            error_of[sample.model, index] = number.interval()
    for model, index, _, right in groups:
        error = error_of[model, index]
        key = answered.key(model, index)
        yield estimate_row("calibration_error", error, n=len(right), **key)


def _resampled_error(images: AnsweredGroup, weights: Floats) -> Floats:
    """Return the error in each resample; NaN for a model without confidences."""
    confidence = images.confidence.round(_DIGITS)
    if np.isnan(confidence).any():
        return np.full(len(weights), np.nan)
    bins = confidence_bins(confidence)
    distance = images.correct - confidence
    in_bin = bins[:, None] == np.unique(bins)
    apart = in_bin * distance[:, None]
    of_bins = np.abs(weights @ apart)
    return of_bins.sum(axis=1) / weights.sum(axis=1)


def _errors_by_chance(
    images: AnsweredGroup, images_a_unit: float, rng: np.random.Generator
) -> Floats:
    """Return errors of a model whose confidence equals its accuracy, (r,)."""
    confidence = images.confidence.round(_DIGITS)
    bins = confidence_bins(confidence)
    _, bin_of_image, counts = np.unique(bins, return_inverse=True, return_counts=True)
    sure = np.bincount(bin_of_image, confidence) / counts
    chances = sure.clip(0, 1)
    shape = REPLICATES, len(counts)
    right = rng.binomial(counts, chances, shape)
    expected = counts * sure
    apart = np.abs(right - expected)
    # So many images of a unit are right or wrong together.
    longer = math.sqrt(images_a_unit)
    return longer * apart.sum(axis=1) / len(bins)


def _bins(name: str) -> Callable[[AllAnswers], Iterator[ResultRow]]:
    """Return one row for each bin, named by its upper end: accuracy or mean confidence of the
    answers in the bin."""

    def rows_of(answered: AllAnswers) -> Iterator[ResultRow]:
        for model, index, confidence, right in _groups(answered):
            values = confidence
            if name == "calibration":
                values = right.astype(np.float64)
            bins = confidence_bins(confidence)
            key = answered.key(model, index)
            for number in np.unique(bins).tolist():
                in_bin = values[bins == number]
                mean = float(in_bin.mean())
                end = f"{(number + 1) / BINS:.4f}"
                yield estimate_row(
                    name,
                    mean,
                    at=end,
                    n=len(in_bin),
                    **key,
                )

    return rows_of


def reliability_figure(results: Results) -> str | None:
    """Draw accuracy against confidence on the base, or else the first group, one line for each
    model.

    Return None if no model has confidences.
    """
    from counterfoil.evaluation.figures import (
        INK,
        KIND_COLOURS,
        MUTED,
        RULE,
        as_svg,
        draw_diagonal,
        new_figure,
        short_shift_name,
    )

    if not results.groups:
        return None
    group = results.groups[0].name
    lines = []
    for model in results.models:
        key = {"model": model.name, "group": group}
        points = []
        for accuracy in results.rows.where("calibration", **key):
            at = accuracy.at
            confidence = results.rows.value("confidence", at=at, **key) or 0.0
            share = accuracy.value or 0.0
            point = 100 * confidence, 100 * share
            points.append(point)
        if points:
            lines.append((model, sorted(points)))
    if not lines:
        return None
    figure, axes = new_figure(5.2, 4.6)
    draw_diagonal(axes, 0, 100)
    colours = list(KIND_COLOURS.values())
    for index, (model, points) in enumerate(lines[:_MOST_LINES]):
        x, y = zip(*points, strict=True)
        colour = colours[index % len(colours)]
        axes.plot(
            x,
            y,
            color=colour,
            linewidth=1.4,
            zorder=2,
        )
        axes.scatter(
            x,
            y,
            s=18,
            color=colour,
            zorder=3,
            linewidths=0,
            clip_on=False,
        )
        axes.annotate(
            short_shift_name(model.short_name, 18),
            (x[-1], y[-1]),
            color=INK,
            xytext=(4, -3),
            textcoords="offset points",
            fontsize=8.5,
        )
    axes.set_xlim(0, 100)
    axes.set_ylim(0, 100)
    axes.set_aspect("equal")
    axes.grid(color=RULE, linewidth=0.6, zorder=0)
    axes.set_xlabel(f"confidence on {group.replace('_', ' ')} (%)", color=MUTED, parse_math=False)
    axes.set_ylabel("accuracy (%)", color=INK)
    return as_svg(figure, "reliability", "Accuracy of models against their confidence")


MEASURES: dict[str, Measure] = {
    "calibration_error": Measure(
        _error,
        "Expected calibration error",
        "points",
        "The mean distance between a model's confidence in its top answer and its accuracy, over"
        f" {BINS} bins of equal width. Chance makes it larger with few images: its interval says"
        " how small it may be.",
        shown=("report",),
        figure=reliability_figure,
        lower_is_better=True,
        resampled=_resampled_error,
        by_chance=_errors_by_chance,
    ),
    "calibration": Measure(
        _bins("calibration"),
        "Accuracy by confidence",
        "percent",
        "The accuracy of the answers whose confidence is in the bin that ends at `at`.",
    ),
    "confidence": Measure(
        _bins("confidence"),
        "Confidence",
        "percent",
        "The mean confidence of the answers in the bin that ends at `at`.",
    ),
}
