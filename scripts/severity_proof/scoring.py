"""What graded pictures keep, and how near the curves of models on them come to the truth, on three
axes.

An axis says how strong a level is: as it is asked for (*raw*), by the share of the gain in CLIP's
shift score or in the oracle's probability that it has (*CLIP*, *oracle*). A level is compared with
the true strength of equal share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from counterfoil.arrays import Bools, Floats
from counterfoil.evaluation import evaluate
from counterfoil.report.severity import ACCURACY, COMPLETE, DROP, FAILED, MEDIAN, TEN_POINTS, at
from counterfoil.stats import Estimate
from counterfoil.trajectory_stats import failed_curve, failure_runs, rising_reaches
from proof_files import CLASSIFIERS
from severity_proof.seen import LEVELS, SHIFTS, Seen

AXES = ("raw", "CLIP", "oracle")
# A smaller fall of the oracle's probability does not count: what is surely there, or surely not,
# moves by less.
STILL = 0.02
FAR = 1e9  # a level that is not reached, as JSON takes it


def monotone(seen: Seen, still: float = STILL) -> Floats:
    """Return (shift,) the share of whole trajectories along which the oracle's probability of the
    shift never falls."""
    whole = seen.present.all(axis=1)
    highest = np.maximum.accumulate(seen.sure, axis=1)
    rises = np.asarray((seen.sure[:, 1:] >= highest[:, :-1] - still).all(axis=1))
    return np.array([rises[shift][whole[shift]].mean() for shift in range(len(SHIFTS))])


def kept(seen: Seen, what: NDArray[np.int8], side: int) -> Floats:
    """Return (shift,) in what share of pairs with the base the oracle reads the same; NaN for a
    shifted colour."""
    pairs = seen.present[:, 0] & seen.present[:, side]
    same = what[:, 0] == what[:, side]
    shares = np.array([same[shift][pairs[shift]].mean() for shift in range(len(SHIFTS))])
    if what is seen.colour:
        shares[SHIFTS.index("red")] = math.nan
    return shares


def gains(seen: Seen, axis: str) -> Floats:
    """Return (shift, side) the share of its gain that an axis has by each side: 0 at the base, 1 at
    the top, rising."""
    if axis == "raw":
        return np.tile([0.0, *seen.strengths], (len(SHIFTS), 1))
    values = np.where(seen.present, seen.shift_score if axis == "CLIP" else seen.sure, np.nan)
    mean = np.nanmean(values, axis=(2, 3))
    share = (mean - mean[:, :1]) / (mean[:, -1:] - mean[:, :1])
    return np.maximum.accumulate(share.clip(0, 1), axis=1)


def strengths_of(drawn: Seen, truth: Seen, axis: str) -> Floats:
    """Return (shift, 1 + levels) the true strength that each level represents, 0 at the base."""
    drawn_gains = gains(drawn, axis)
    right = gains(truth, axis)
    steps = np.array([0.0, *truth.strengths])
    true_strengths = []
    for shift in range(len(SHIFTS)):
        # Where a gain does not rise, take the weakest strength that has it.
        rising = np.concatenate([[True], np.diff(right[shift]) > 1e-9])
        true_strengths.append(np.interp(drawn_gains[shift], right[shift][rising], steps[rising]))
    return np.stack(true_strengths)


def told_by(directory: Path, out: Path) -> dict[str, Any]:
    """Return what `evaluate` says of a dataset, by shift and model: value, low and high of the drop
    at each level and of the level of ten points, median failure points, shares that have failed by
    each level; and the classes of the curves."""
    rows = evaluate(directory, out=out, reference=False, workers=1, device="cpu").results.rows
    models = [f"lab:{name}" for name in CLASSIFIERS]
    drops = []
    ten = {"": [], COMPLETE: []}
    median = []
    failed = []
    classes = []
    for shift in SHIFTS:
        key = [{"model": model, "group": shift} for model in models]
        ats = [at(level) for level in LEVELS]
        drops.append(
            [[_three(rows.one(DROP, at=level, **curve)) for level in ats] for curve in key]
        )
        for ending, reached in ten.items():
            reached.append([_three(rows.one(TEN_POINTS + ending, **curve)) for curve in key])
        median.append([_three(rows.one(MEDIAN, **curve))[0] for curve in key])
        failed.append(
            [[rows.value(FAILED, at=level, **curve) or 0.0 for level in ats] for curve in key]
        )
        classes.append(
            sorted({int(row.class_id) for row in rows.where(ACCURACY, group=shift) if row.class_id})
        )
    return {"drops": drops, "ten": ten, "median": median, "failed": failed, "classes": classes}


def _three(row: Any) -> list[float]:
    """Return value and ends of a row; a level that is not reached is far away."""
    assert row is not None
    return [FAR if number is None else number for number in (row.value, row.low, row.high)]


def true_drops(truth: Seen, shift: int, classes: Sequence[int]) -> Floats:
    """Return (1 + strengths, model) base accuracy less accuracy, averaged over classes."""
    accuracy = truth.right[shift][:, list(classes)].mean(axis=2).mean(axis=1)
    return accuracy[:1] - accuracy


def ten_points(drops: Floats, steps: Floats) -> list[float]:
    """Return by model the first strength where the rising drop is ten points; far away if it is not
    reached."""
    curves = [[Estimate(value, None, None) for value in model_drops] for model_drops in drops[1:].T]
    return [
        min(rising_reaches(curve, steps, np.ones(len(steps)), 0.1).value, FAR) for curve in curves
    ]


def true_failures(
    truth: Seen, shift: int, classes: Sequence[int]
) -> tuple[list[float], list[list[float]]]:
    """Return by model the median failure point, and the share that has failed by each of the
    levels."""
    sides = [0, *(1 + truth.strengths.tolist().index(level) for level in LEVELS)]
    right = truth.right[shift][sides][:, list(classes)].reshape(len(sides), -1, len(CLASSIFIERS))
    first, last = failure_runs(
        np.ones((right.shape[1], len(LEVELS)), bool), right[1:].transpose(1, 0, 2)
    )
    medians = []
    failed = []
    for model in range(len(CLASSIFIERS)):
        right_on_base = right[0, :, model]
        curve = failed_curve(
            first[right_on_base, model],
            last[right_on_base, model],
            len(LEVELS),
            np.random.default_rng(0),
        )
        medians.append(
            min(rising_reaches(curve, np.array(LEVELS), np.ones(len(LEVELS)), 0.5).value, FAR)
        )
        failed.append([share.value for share in curve])
    return medians, failed


def lasted(failed: Sequence[float]) -> float:
    """Return the mean level of failure, up to the top, of shares that have failed by each level."""
    ends = np.array([0.0, *LEVELS])
    shares = np.array([0.0, *failed])
    return float((np.diff(ends) * (1 - (shares[1:] + shares[:-1]) / 2)).sum())


def against_truth(evaluated: Mapping[str, Any], drawn: Seen, truth: Seen) -> dict[str, Any]:
    """Return by axis errors of `curve` and `ten`, how often both or neither reach ten points, and
    coverage."""
    errors_by_axis: dict[str, Any] = {}
    steps = np.array([0.0, *truth.strengths])
    for axis in AXES:
        strengths = strengths_of(drawn, truth, axis)
        errors, signed, covered, tens, reached, ten_covered, complete = ([] for _ in range(7))
        for shift in range(len(SHIFTS)):
            right = true_drops(truth, shift, evaluated["classes"][shift])
            levels = ten_points(right, steps[1:])
            for model in range(len(CLASSIFIERS)):
                value, low, high = np.array(evaluated["drops"][shift][model]).T
                true = np.interp(strengths[shift, 1:], steps, right[:, model])
                errors.append(np.abs(value - true))
                signed.append(value - true)
                covered.append((low <= true) & (true <= high))
                reached_at = [
                    _on(level, strengths[shift]) for level in evaluated["ten"][""][shift][model]
                ]
                without = _on(evaluated["ten"][COMPLETE][shift][model][0], strengths[shift])
                level = levels[model]
                reached.append((reached_at[0] <= 1) == (level <= 1))
                ten_covered.append(reached_at[1] <= level <= reached_at[2])
                if reached_at[0] <= 1 and level <= 1:
                    tens.append(abs(reached_at[0] - level))
                if without <= 1 and level <= 1:
                    complete.append(abs(without - level))
        errors_by_axis[axis] = {
            "curve": float(np.mean(errors)), "signed": float(np.mean(signed)), "covered": float(np.mean(covered)),
            "ten": float(np.mean(tens)), "ten complete": float(np.mean(complete)), "both reach": len(tens),
            "reached": float(np.mean(reached)), "ten covered": float(np.mean(ten_covered)),
            "by shift": np.mean(np.reshape(errors, (len(SHIFTS), -1)), axis=1).tolist(),
        }  # fmt: skip
    return errors_by_axis


def _on(level: float, strengths: Floats) -> float:
    """Return a level as a true strength; a level that is not reached stays far away."""
    return level if level > 1 else float(np.interp(level, [0.0, *LEVELS], strengths))


def ranked(evaluated: Mapping[str, Any], truth: Seen) -> dict[str, Any]:
    """Return by shift, and over `all`, the rank correlation over models of mean failure levels; and
    how many models have a median failure point, truly and by the evaluation (`medians`)."""
    drawn = []
    right = []
    medians = np.zeros((len(SHIFTS), 2), dtype=int)
    for shift in range(len(SHIFTS)):
        true, failed = true_failures(truth, shift, evaluated["classes"][shift])
        medians[shift] = [
            sum(point <= 1 for point in points) for points in (true, evaluated["median"][shift])
        ]
        drawn.append([lasted(shares) for shares in evaluated["failed"][shift]])
        right.append([lasted(shares) for shares in failed])
    pairs = [*zip(drawn, right, strict=True), (np.mean(drawn, axis=0), np.mean(right, axis=0))]
    correlations: list[Any] = [spearmanr(*pair) for pair in pairs]
    return {
        "shifts": [float(correlation.statistic) for correlation in correlations],
        "medians": medians.tolist(),
    }


def by_chance(truth: Seen, units: int, seed: int = 5) -> float:
    """Return the mean error of the drop at a level of `units` true scenes of each class, drawn from
    the truth."""
    rng = np.random.default_rng(seed)
    sides = [0, *(1 + truth.strengths.tolist().index(level) for level in LEVELS)]
    right = truth.right[:, sides]
    classes, scenes = right.shape[2:4]
    errors = []
    for _ in range(100):
        drawn = right[:, :, np.arange(classes)[:, None], rng.integers(0, scenes, (classes, units))]
        curves = [outcomes.mean(axis=(2, 3)) for outcomes in (drawn, right)]
        errors.append(
            np.abs(np.diff([curve[:, :1] - curve[:, 1:] for curve in curves], axis=0)).mean()
        )
    return float(np.mean(errors))


def survivors(seen: Seen, rejected: float) -> dict[str, float]:
    """Return mean drop over shifts, levels and models, of all pictures, of those that a screen lets
    pass, and of whole trajectories alone; and how many there are of each. The screen rejects this
    share of the base's by CLIP's score."""
    base = seen.object_score[0, 0]
    passes = seen.present & (
        seen.object_score >= np.nanquantile(base, rejected, axis=1)[None, None, :, None]
    )
    every = seen.present
    whole = passes & passes.all(axis=1, keepdims=True)
    return {
        name: value
        for what, mask in (("all", every), ("screened", passes), ("complete", whole))
        for name, value in (
            (what, _drop(seen, mask)),
            (f"{what} share", float(mask.sum() / every.sum())),
        )
    }


def _drop(seen: Seen, mask: Bools) -> float:
    count = mask.sum(axis=3)[..., None]
    accuracy = (seen.right & mask[..., None]).sum(axis=3) / np.where(count == 0, np.nan, count)
    return float(np.nanmean(accuracy[:, :1] - accuracy[:, 1:]))
