"""Prove intervals and tests where truth is known: rates of few large units, KID near zero and away
from it, few worlds.

    python scripts/prove_intervals.py --write           # the tables, into RESULTS.md
    python scripts/prove_intervals.py --settings --runs 300 --parts rates    # the seed that
    settings were chosen on

Everything is drawn from distributions of which the truth is computed; nothing is built and no model
is loaded. About twenty minutes of one core.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from types import SimpleNamespace
from typing import Any

# One thread: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.random import Generator, default_rng
from scipy import optimize, stats

import proving
from counterfoil.accuracy_stats import NearChance
from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.evaluation.dataset import Group, labelled_subject
from counterfoil.evaluation.gate import GateLine, GateResult, judge_gate
from counterfoil.evaluation.scored_models import ChosenModels
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, Asking, ModelAnswers
from counterfoil.evaluation.tasks.classes.lines import ClassLines
from counterfoil.evaluation.tasks.classes.measures import MEASURES
from counterfoil.evaluation.tasks.classes.measures.comparison import ComparedModels, compare_models
from counterfoil.evaluation.tasks.classes.resampling import Resample, resampled_numbers
from counterfoil.feature_stats import SUBSETS, kernel_distance, subset_estimate
from counterfoil.recipe import RecipeClass
from counterfoil.resampled_stats import Units, share_estimate
from counterfoil.stats import (
    Estimate,
    clustered_interval,
    count_failures,
    effective_size,
    few_units_interval,
    score_test,
    wilson_interval,
)
from directions_proof.intervals import mean_of
from interval_coverage import Coverage
from prove_multilabel import all_known, draw_videos, means_of_labels, recalls_of, true_means

SETTINGS_SEED = 0
PRINTED_SEED = 100
# A table of gates at seed 100 showed that few images of a class need Student's t: what came of it
# is judged by another.
GATES_SEED = 200
UNITS = (5, 8, 15, 40)
RATES = (0.02, 0.1, 0.3, 0.5)
CORRELATIONS = (0.1, 0.3, 0.5, 0.8)
LEVELS = (0.05, 0.01, 0.001)
Counts = Ints


def sizes_of(kind: str, units: int) -> Counts:
    """Return rows of each unit: all 20, from 2 to 80 in equal steps of the logarithm, or one with a
    quarter of all rows."""
    if kind == "equal":
        return np.full(units, 20)
    if kind == "skewed":
        return np.round(np.geomspace(2, 80, units)).astype(np.int64)
    return np.append(np.full(units - 1, 12), 4 * (units - 1))


def failures(
    rng: Generator,
    rows: Counts,
    rate: float,
    correlation: float,
    of: str = "Beta",
) -> Counts:
    """Draw failures by unit, whose rates are spread by a Beta distribution, a probit-normal one, or
    as `mixed`.

    mixed: in the share of the correlation units are wholly right or wholly wrong, the others have
    the one rate.
    """
    if of == "Beta":
        spread = (1 - correlation) / correlation
        unit_rates = rng.beta(rate * spread, (1 - rate) * spread, len(rows))
    elif of == "probit":
        unit_rates = _probit(rng.normal(size=len(rows)), rate, _shared(rate, correlation))
    else:
        whole = rng.random(len(rows)) < correlation
        unit_rates = np.where(whole, rng.random(len(rows)) < rate, rate)
    return rng.binomial(rows, unit_rates)


def _probit(normal: Floats, rate: float, shared: float) -> Floats:
    """Return rates with the mean `rate`, of units that share this part of a normal liability."""
    return stats.norm.cdf((stats.norm.ppf(rate) + np.sqrt(shared) * normal) / np.sqrt(1 - shared))


@cache
def _shared(rate: float, correlation: float) -> float:
    """Return the shared part with which failures of a unit have this correlation."""
    points, weights = np.polynomial.hermite_e.hermegauss(120)

    def beyond(shared: float) -> float:
        variance = weights @ (_probit(points, rate, shared) - rate) ** 2 / weights.sum()
        return float(variance / (rate * (1 - rate)) - correlation)

    return float(optimize.brentq(beyond, 1e-4, 0.995))  # type: ignore[arg-type]


def oracle_interval(share: float, worth: float, units: int) -> tuple[float, float]:
    """Return Clopper and Pearson's on the rows that they are truly worth; with no failure or no
    success, on units."""
    if share in (0, 1):
        return few_units_interval(share, worth, units)
    return tuple(
        stats.beta.ppf(
            [0.025, 0.975],
            [share * worth, share * worth + 1],
            [(1 - share) * worth + 1, (1 - share) * worth],
        )
    )


def by_moments(failed: Counts, rows: Counts) -> tuple[float, float]:
    """Return the interval used before: Wilson's on rows divided by the design effect of the ANOVA
    estimator."""
    units = len(rows)
    total = float(rows.sum())
    share = failed.sum() / total
    means = failed / rows
    between = float((rows * (means - share) ** 2).sum()) / (units - 1)
    within = float((failed * (1 - means)).sum()) / (total - units)
    typical = (total - float((rows**2).sum()) / total) / (units - 1)
    both = between + (typical - 1) * within
    worth = effective_size(
        rows, float(np.clip((between - within) / both, 0, 1)) if both > 0 else 0.0
    )
    return wilson_interval(share * worth, worth)


def rates(seed: int, runs: int) -> list[str]:
    lines = [
        f"The 95 % interval of a failure rate: {runs:,} data sets for each of {len(RATES)} rates"
        f" ({_range(RATES)}) and"
        f" {len(CORRELATIONS)} correlations within units ({_range(CORRELATIONS)}). *coverage*: the"
        " lowest, the mean and"
        " the highest of these cells. *width*: the median width over that of the oracle, of data"
        " sets with failures and right answers both: the median of the cells, and the largest."
        " *Oracle*: Clopper and"
        " Pearson's interval on the rows divided by the true design effect. Without one failure"
        " nobody can tell how"
        " alike units are, and the bound is that of as many units: such data sets, up to the share"
        " in the last column, are always covered, so that cells go over 99 %. *by moments* is what"
        " stood"
        " before. Units' rates are Beta-distributed; *probit*: a normal liability; *mixed*: in the"
        " share of the"
        " correlation units are wholly right or wrong, else of one rate. A kind of unit that is"
        " rare and wholly wrong"
        " is mostly in no sample, and then no interval but the oracle's can allow for it.",
        "",
        "| units | rows of a unit | coverage, % | in 93 to 99 | over 99 | width | cells over 1.3 |"
        " oracle's coverage"
        " | by moments | all right or wrong, at most |",
        "| --: | -- | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    of = [(kind, "Beta") for kind in ("equal", "skewed", "one large")] + [
        ("equal", "probit"),
        ("equal", "mixed"),
    ]
    for units, (kind, spread) in product(UNITS, of):
        rows = sizes_of(kind, units)
        cells = []
        for rate, correlation in product(RATES, CORRELATIONS):
            rng = default_rng([seed, units, len(cells), len(kind), len(spread)])
            worth = effective_size(rows, correlation)
            inside = np.zeros(3)
            widths = []
            constant = 0
            for _ in range(runs):
                failed = failures(rng, rows, rate, correlation, spread)
                share = float(failed.sum() / rows.sum())
                each = (
                    clustered_interval(failed, rows),
                    oracle_interval(share, worth, units),
                    by_moments(failed, rows),
                )
                inside += [low <= rate <= high for low, high in each]
                if share in (0, 1):
                    constant += 1
                else:
                    widths.append([high - low for low, high in each[:2]])
            ratio = np.divide(*np.median(widths, axis=0)) if len(widths) >= 20 else np.nan
            cells.append((*(100 * inside / runs), ratio, 100 * constant / runs))
        coverage, oracle, before, width, constant = np.transpose(cells)
        within = int(((coverage >= 93) & (coverage <= 99)).sum())
        lines.append(
            f"| {units} | {kind}{'' if spread == 'Beta' else ', ' + spread} | {_three(coverage)}"
            f" | {within} of {len(coverage)} | {int((coverage > 99).sum())}"
            f" | {np.nanmedian(width):.2f}, {np.nanmax(width):.2f}"
            f" | {int((width > 1.3).sum())} | {_three(oracle)} | {_three(before)} |"
            f" {constant.max():.0f} % |"
        )
    return lines


def nulls(seed: int, runs: int) -> list[str]:
    lines = [
        f"One-sided tests of a set against the rest, {runs:,} each where the set's rate is the"
        " rest's plus the margin"
        f" exactly, for rates of 5, 20 and 50 % and correlations of {_range(CORRELATIONS)}: the"
        " share rejected, in %,"
        " on average over the cells, and in the worst.",
        "",
        "| units of set and rest | rows of a unit | margin |"
        f" {' | '.join(f'p ≤ {level:g}' for level in LEVELS)} |",
        "| --: | -- | --: | --: | --: | --: |",
    ]
    for (units, others), kind, margin in product(
        ((5, 10), (8, 30), (15, 40)), ("equal", "skewed"), (0.0, 0.05)
    ):
        rows = np.concatenate([sizes_of(kind, units), sizes_of(kind, others)])
        of = np.arange(units + others)
        cells = []
        for rate, correlation in product((0.05, 0.2, 0.5), CORRELATIONS):
            rng = default_rng([seed, units, len(cells), len(kind), round(100 * margin)])
            rejected = np.zeros(len(LEVELS))
            for _ in range(runs):
                failed = np.append(
                    failures(rng, rows[:units], rate + margin, correlation),
                    failures(rng, rows[units:], rate, correlation),
                )
                # Rows of units one after another, each unit's failures first.
                row = np.repeat(of, rows)
                wrong = np.arange(len(row)) - np.repeat(np.cumsum(rows) - rows, rows) < failed[row]
                rejected += score_test(
                    *count_failures(wrong, row, row < units), margin
                ) <= np.array(LEVELS)
            cells.append(100 * rejected / runs)
        shares = [
            f"{mean:.1f}, {most:.1f}"
            for mean, most in zip(np.mean(cells, 0), np.max(cells, 0), strict=True)
        ]
        lines.append(f"| {units}, {others} | {kind} | {margin:g} | {' | '.join(shares)} |")
    return lines


def kid(seed: int, runs: int) -> list[str]:
    runs = max(20, runs // 5)
    lines = [
        f"{runs} pairs of sets of normal features, one shifted in every feature. *sd*: that of the"
        " distance over"
        " these. *interval*: its mean width over that of ± 1.96 sd. *spread of subsets*: the same"
        f" of the {SUBSETS}"
        " halves, which was the interval before.",
        "",
        "| images | features | shift | distance (truth) | sd | coverage | interval | spread of"
        " subsets |",
        "| --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for (n, m), width, shift in [
        *product([(40, 90), (60, 90)], [6], [0.0, 0.1, 0.5]),
        *product([(200, 200)], [6, 64], [0.0, 0.1, 0.5]),
    ]:
        rng = default_rng([seed, n, width, round(100 * shift)])
        far = _distance_of_normals(width, shift)
        estimates = []
        spread = []
        for _ in range(runs):
            first = rng.normal(0, 1, (n, width))
            other = rng.normal(shift, 1, (m, width))
            estimates.append(kernel_distance(first, other))
            halves = [
                subset_estimate(first[a], other[b], a, b).value
                for a, b in (
                    (rng.permutation(n)[: n // 2], rng.permutation(m)[: m // 2])
                    for _ in range(SUBSETS)
                )
            ]
            spread.append(np.diff(np.percentile(halves, [2.5, 97.5]))[0])
        sd = float(np.std([estimate.value for estimate in estimates]))
        inside = np.mean([estimate.low <= far <= estimate.high for estimate in estimates])
        mean = np.mean([estimate.value for estimate in estimates])
        mean_width = np.mean([estimate.high - estimate.low for estimate in estimates])
        lines.append(
            f"| {n}, {m} | {width} | {shift:g} | {mean:.4f} ({far:.4f}) | {sd:.4f}"
            f" | {100 * inside:.0f} % | {mean_width / (3.92 * sd):.2f}"
            f" | {np.mean(spread) / (3.92 * sd):.2f} |"
        )
    return lines


def _distance_of_normals(width: int, shift: float) -> float:
    """Return MMD² of N(0, 1) and N(shift, 1) in each of `width` features, from three moments of x·y
    / width."""

    def mean_kernel(both: float, squares: float) -> float:
        """Return E (1 + s)³ of s = x·y / width; `both`: product of the means, `squares`: sum of the
        means' squares."""
        first = both
        second = (1 + squares) / width + both**2
        third = both**3 + 3 * both * (1 + squares) / width + (6 * both) / width**2
        return 1 + 3 * first + 3 * second + third

    square = shift**2
    return mean_kernel(0, 0) + mean_kernel(square, 2 * square) - 2 * mean_kernel(0, square)


def worlds(seed: int, runs: int) -> list[str]:
    lines = [
        f"The mean of k worlds and its 95 % interval, {10 * runs:,} times, of worlds that differ"
        " normally and of worlds"
        " that differ exponentially. *bootstrap*: percentiles over draws of worlds, which stood"
        " before.",
        "",
        "| worlds | normal | bootstrap | exponential | bootstrap |",
        "| --: | --: | --: | --: | --: |",
    ]
    for count in (2, 4, 5, 6, 8, 12, 25):
        cells = []
        for name, draw, truth in (("normal", _normal, 0.5), ("exponential", _exponential, 0.1)):
            rng = default_rng([seed, count, len(name)])
            covered = 0
            drawn_over = 0
            for _ in range(10 * runs):
                values = draw(rng, count)
                estimate = mean_of(values.tolist())
                covered += estimate.low <= truth <= estimate.high
                again = values[rng.integers(0, count, (400, count))].mean(axis=1)
                low, high = np.percentile(again, [2.5, 97.5])
                drawn_over += low <= truth <= high
            has_interval = np.isfinite(mean_of(draw(rng, count).tolist()).low)
            cells += [
                f"{10 * covered / runs:.1f} %" if has_interval else "no interval",
                f"{10 * drawn_over / runs:.1f} %",
            ]
        lines.append(f"| {count} | {' | '.join(cells)} |")
    return lines


def _normal(rng: Generator, count: int) -> Floats:
    return rng.normal(0.5, 0.1, count)


def _exponential(rng: Generator, count: int) -> Floats:
    return rng.exponential(0.1, count)


# ---- Gates

MODELS = ("new", "old")
# How alike one scene is to all models and shifts, of the liability to be right.
SHARED = 0.5
SURE = 0.999


def answered_of(
    right: Bools,
    present: Bools | None = None,
    seed: int = 0,
    confidence: Floats | None = None,
) -> AllAnswers:
    """Return answers (groups, classes, images, models) to the present images (groups, classes,
    images), which are all unless given, the base first.

    One class and index is one scene in all groups. confidence: of each present image, (n,). By
    default all answers have the same, so that the calibration error is its distance from the
    accuracy.
    """
    if present is None:
        present = np.ones(right.shape[:3], bool)
    groups, labels, indices = np.nonzero(present)
    names = ("base", *(f"shift_{index}" for index in range(1, len(right))))
    classes = tuple(
        RecipeClass(f"{label:02d}", f"class {label}", label, label, ())
        for label in range(right.shape[1])
    )
    keys = tuple(
        f"{names[group]}-{label}-{index}"
        for group, label, index in zip(groups, labels, indices, strict=True)
    )
    images = LabelledImages("drawn", "0" * 64, keys, labels, groups, names, lambda wanted: iter(()))
    planned = tuple(range(len(classes)))
    subject = replace(
        labelled_subject("drawn", images, classes, "base"),
        groups=tuple(
            Group(name, None, "", name, planned, right.shape[2], paired=True) for name in names
        ),
        indices=indices,
    )
    correct = right[groups, labels, indices]
    answers = ModelAnswers(
        np.ones(len(correct), bool), np.zeros(correct.shape, np.int32), correct, correct
    )
    sure = np.full(len(correct), SURE) if confidence is None else confidence
    predictions = SimpleNamespace(confidence=sure.astype(np.float32))
    classifiers = [SimpleNamespace(name=name, sha256=None, score_scale="logits") for name in MODELS]
    scored: Any = tuple(
        SimpleNamespace(classifier=each, predictions=predictions) for each in classifiers
    )
    near = NearChance(np.zeros(len(MODELS), dtype=bool))
    return AllAnswers(
        subject, scored, answers, near, 1, seed, Asking(ChosenModels(subject.classes), "cpu", 1)
    )


def right_answers(
    rng: Generator,
    shares: Floats,
    images: int,
    of_scene: float,
    of_image: float = 0.0,
) -> Bools:
    """Draw right answers (groups, classes, images, models) to images of each class.

    shares: of right answers (groups, classes, models). of_scene: how much of the liability to be
    right an image shares over groups and models. of_image: how much of the rest all models share.
    """
    groups, classes, models = shares.shape
    scene = rng.normal(size=(1, classes, images, 1))
    noise = rng.normal(size=(groups, classes, images, models))
    if of_image:
        common = rng.normal(size=(groups, classes, images, 1))
        noise = np.sqrt(1 - of_image) * noise + np.sqrt(of_image) * common
    liability = np.sqrt(of_scene) * scene + np.sqrt(1 - of_scene) * noise
    return liability < stats.norm.ppf(shares)[:, :, None]


def _scenes(
    rng: Generator,
    shares: Floats,
    images: Counts,
    kept: float,
    shared: float = 0.0,
) -> tuple[Bools, Bools]:
    """Draw `right_answers` and images that the screen keeps (groups, classes, images)."""
    most = int(images.max())
    right = right_answers(rng, shares, most, SHARED, shared)
    present = (rng.random(right.shape[:3]) < kept) & (np.arange(most) < images[:, None])
    present[:, :, 0] = True
    return right, present


def gated(
    rng: Generator,
    shares: Floats,
    images: Counts,
    lines: list[GateLine],
    kept: float = 0.9,
) -> GateResult:
    """Judge drawn answers, of which `shares` (groups, classes, models) are right, by a gate;
    images: of a class."""
    right, present = _scenes(rng, shares, images, kept)
    return judge_gate(
        ClassLines(answered_of(right, present, int(rng.integers(1 << 30)))), lines, MODELS[:1]
    )


def gate_world(
    of: str,
    count: int,
    spread: float,
    base: float,
    images: Counts | None = None,
) -> tuple[Floats, list[GateLine]]:
    """Return shares right (1 + count, 10, 2) and lines of which every limit is the truth; images:
    of each class."""
    odds = np.log(base / (1 - base)) + spread * np.linspace(-1, 1, 10)
    drops = np.linspace(0.02, 0.2, count)
    new = 1 / (1 + np.exp(-odds)) - np.append(0, drops)[:, None]
    new = new.clip(0.02, 0.98)
    shares = np.stack([new, (new + 0.02).clip(0, 0.99)], axis=2)
    mean = shares.mean(axis=1)
    whole = np.average(shares, axis=1, weights=images)
    lines = []
    for index in range(1, count + 1):

        def line(measure: str, limit: float, index: int = index, **more: Any) -> GateLine:
            return GateLine("", measure, f"shift_{index}", float(limit), **more)

        label = index % 10
        drop = line("drop", mean[0, 0] - mean[index, 0])
        relative = line("relative_drop", 1 - mean[index, 0] / mean[0, 0])
        lost = shares[0, label, 0] - shares[index, label, 0]
        difference = mean[index, 1] - mean[index, 0]
        error = SURE - whole[index, 0]
        of_kind = {
            "accuracies": line("accuracy", mean[index, 0]),
            "relative drops": relative,
            "top1": line("top1", whole[index, 0], share="top1"),
            "drops of top1": line("drop", whole[0, 0] - whole[index, 0], share="top1"),
            "calibration errors": line(
                "calibration_error", error, share="calibration_error", lower_is_better=True
            ),
            "drops of a class": line("drop", lost, class_name=f"{label:02d}"),
            "drops": drop,
            "drops, worse_than": drop
            if index % 2
            else line("worse_than", difference, other_model="old"),
        }
        lines.append(of_kind[of])
    return shares, lines


def gates(
    seed: int, runs: int, kinds: tuple[str, ...] = ("accuracies", "drops", "drops, worse_than")
) -> list[str]:
    runs = max(20, runs // 4)
    lines = [
        f"A gate of 24 lines on a model that is exactly at each of its limits, {runs} times a cell:"
        " the share of gates"
        " with a line that fails, with a line that passes, and of gates whose intervals all hold."
        " Ten classes; scenes"
        " are shared by base, shifts and models, and the screen keeps 90 % of the images. *5 to"
        " 200*: the hardest class"
        " has 5 images and the easiest 200. *alone*: the share of single intervals that hold.",
        "",
        "| lines | accuracy on the base | images per class | a line fails | a line passes | all"
        " hold | alone |",
        "| -- | --: | --: | --: | --: | --: | --: |",
    ]
    sizes = {str(n): np.full(10, n) for n in (10, 30, 100)} | {
        "5 to 200": np.geomspace(5, 200, 10).astype(np.int64)
    }
    for of, base, images in product(kinds, (0.8, 0.95), sizes):
        shares, gate_lines = gate_world(of, 24, 0.8, base, sizes[images])
        rng = default_rng([seed, len(images), int(sizes[images][0]), round(100 * base), len(of)])
        results = [gated(rng, shares, sizes[images], gate_lines) for _ in range(runs)]
        verdicts = np.array([[line.verdict for line in each.judged] for each in results])
        holds = np.array(
            [[_holds(line.estimate, line.line) for line in each.judged] for each in results]
        )
        flags = [
            (verdicts == "fail").any(axis=1),
            (verdicts == "pass").any(axis=1),
            holds.all(axis=1),
            holds,
        ]
        cells = " | ".join(f"{100 * np.mean(flag):.1f} %" for flag in flags)
        lines.append(f"| {of} | {100 * base:.0f} % | {images} | {cells} |")
    return lines


def gains(seed: int, runs: int) -> list[str]:
    runs = max(20, runs // 4)
    lines = [
        "The gain of a model over its original under one shift, and how much smaller its drop is:"
        f" {runs} data sets for"
        " each of two true gains, 0 and 5 points. Ten classes of equal size; base, shift and both"
        " models share scenes,"
        " and the screen keeps 90 % of the images. *shared*: how much of what is not the scene's is"
        " the same for both"
        " models. *alike*: the share of classes in which both models agree on all images of the"
        " shift. *coverage* and"
        " *width*: of 95 % intervals, the width in points; the lower of the two gains' coverages,"
        " and the mean width.",
        "",
        "| images per class | accuracy on the base | shared | alike | coverage of the gain | width"
        " | coverage of the smaller drop | width |",
        "| --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for images, base, shared in product((10, 30, 100), (0.8, 0.95), (0.3, 0.9, 0.98)):
        coverages = []
        widths = []
        alike = []
        for gain in (0.0, 0.05):
            rng = default_rng(
                [seed, images, round(100 * base), round(100 * shared), round(100 * gain)]
            )
            on_base = 1 / (1 + np.exp(-np.log(base / (1 - base)) - 0.8 * np.linspace(-1, 1, 10)))
            shares = np.stack(
                [np.stack([on_base, on_base], 1), np.stack([on_base + gain, on_base], 1) - [[0.1]]]
            )
            shares = shares.clip(0.02, 0.995)
            true_gain = float((shares[1, :, 0] - shares[1, :, 1]).mean())
            held = []
            for _ in range(runs):
                right, present = _scenes(rng, shares, np.full(10, images), 0.9, shared)
                differing = (right[1, :, :, 0] != right[1, :, :, 1]) & present[1]
                alike.append(1 - differing.any(axis=1).mean())
                answered = answered_of(right, present, int(rng.integers(1 << 30)))
                _, rows = compare_models(replace(answered, requests=(ComparedModels(*MODELS),)))
                under_shift = [
                    row
                    for row in rows
                    if row.group == "shift_1" and row.measure in ("gain", "drop_gain")
                ]
                ends = np.array([(row.low, row.high) for row in under_shift], dtype=np.float64)
                held.append((ends[:, 0] <= true_gain) & (true_gain <= ends[:, 1]))
                widths.append(100 * (ends[:, 1] - ends[:, 0]))
            coverages.append(100 * np.mean(held, axis=0))
        cells = zip(np.min(coverages, axis=0), np.mean(widths, axis=0), strict=True)
        lines.append(
            f"| {images} | {100 * base:.0f} % | {100 * shared:.0f} % | {100 * np.mean(alike):.0f} %"
            f" | {' | '.join(f'{coverage:.1f} % | {width:.1f}' for coverage, width in cells)} |"
        )
    return lines


def _holds(estimate: Any, line: GateLine) -> bool:
    return bool(estimate.low <= line.limit <= estimate.high)


def gate_sizes(seed: int, runs: int) -> list[str]:
    runs = max(20, runs // 10)
    lines = [
        f"How often a gate decides, {runs} times a cell: a model with 90 % on the base, ten"
        " classes, every drop and"
        " every difference so many points within its limit. A gate passes only if all its lines do.",
        "",
        "| lines | points within the limit | images per class | a line is decided | the gate passes"
        " |",
        "| -- | --: | --: | --: | --: |",
    ]
    for (of, count), margin, images in product(
        (("drops", 1), ("drops", 6), ("drops, worse_than", 24)), (0.05, 0.1), (20, 50, 100, 200)
    ):
        shares, gate_lines = gate_world(of, count, 0.8, 0.9)
        gate_lines = [replace(line, limit=line.limit + margin) for line in gate_lines]
        rng = default_rng([seed, images, count, round(100 * margin)])
        results = [gated(rng, shares, np.full(10, images), gate_lines) for _ in range(runs)]
        decided = np.mean(
            [[line.verdict != "undecided" for line in each.judged] for each in results]
        )
        passed = np.mean([each.verdict == "pass" for each in results])
        what = f"{count} {'drop' if count == 1 else of}"
        lines.append(
            f"| {what} | {100 * margin:.0f} | {images} | {100 * decided:.0f} % | {100 * passed:.0f}"
            " % |"
        )
    return lines


# videos of a set, and frames of each
VIDEOS = (10, 20, 40)
FRAMES = 12
ALIKE = (0.2, 0.5, 0.9)  # how alike the frames of a video are
# The shares of right answers by class: each video shows one of five classes.
ON_BASE = np.array([0.95, 0.9, 0.85, 0.8, 0.75])
UNDER_SHIFT = np.array([0.8, 0.7, 0.6, 0.5, 0.4])
# the shares of objects that a detector finds
FOUND = 0.85
STILL_FOUND = 0.6
KEPT = 0.7  # how alike a video is to itself under the shift


def _frames(rng: Generator, rates: Sequence[Floats], alike: float) -> list[Bools]:
    """Draw what is right in each frame on the base and under a shift, (videos, frames): each
    video's own rates are of Beta distributions. rates: (videos,) on the base and under the shift.
    """
    base, other = rng.normal(size=(2, len(rates[0])))
    normal = (base, KEPT * base + np.sqrt(1 - KEPT**2) * other)
    spread = (1 - alike) / alike
    right = []
    for of_group, mean in zip(normal, rates, strict=True):
        of_videos = stats.beta.ppf(stats.norm.cdf(of_group), mean * spread, (1 - mean) * spread)
        right.append(rng.random((len(mean), FRAMES)) < of_videos[:, None])
    return right


def _of_classifier(
    rng: Generator,
    videos: int,
    alike: float,
    of_videos: bool,
) -> dict[str, tuple[Estimate, float]]:
    """Return a classifier's numbers, with the truth. of_videos: whether the subject knows the
    videos."""
    each = videos // len(ON_BASE)
    right = np.stack(_frames(rng, (ON_BASE.repeat(each), UNDER_SHIFT.repeat(each)), alike))
    by_class = right.reshape(2, len(ON_BASE), each * FRAMES, 1).repeat(2, axis=3)
    answered = answered_of(by_class, seed=int(rng.integers(1 << 30)))
    subject = answered.subject
    if of_videos:
        units = Units.of(subject.labels * each + subject.indices // FRAMES)
        subject = replace(subject, units=replace(units, seed=answered.seed))
    answered = replace(answered, subject=subject)
    drops = answered.drops(1)
    base = float(ON_BASE.mean())
    shift = float(UNDER_SHIFT.mean())
    assert drops is not None
    measure = MEASURES["calibration_error"]
    assert measure.resampled is not None
    sample = Resample(measure.resampled, 1, 0, by_chance=measure.by_chance)
    (error,) = resampled_numbers(answered, [sample])
    rows = answered.rows(1)
    share = share_estimate(answered.answers.correct[rows, 0], answered.shared_units(rows))
    return {
        "classes: accuracy on the base": (answered.averages().interval(0), base),
        "classes: drop": (drops.interval(0), base - shift),
        "classes: top1 under the shift": (share, shift),
        "classes: calibration error under the shift": (error.interval(), SURE - shift),
    }


def units(seed: int, runs: int) -> list[str]:
    runs = max(20, runs // 5)
    lines = [
        f"Frames of videos, {runs} data sets a cell, under a base and a shift: how often 95 %"
        " intervals hold the truth,"
        " in %, and their median width in points, where videos are drawn; in brackets where frames"
        " are drawn one by"
        f" one. *alike*: the correlation of right answers of a video's {FRAMES} frames, and of"
        " several labels the share"
        " of the noise of scores that the 2 to 8 frames of a video have in common, which also have"
        " the same labels. A"
        " video shows one of five classes, so that ten videos are two of each. A number below 93 is"
        " bold.",
        "",
        f"| interval | alike | {' | '.join(f'{videos} videos' for videos in VIDEOS)} |",
        f"| -- | --: | {' | '.join('--:' for _ in VIDEOS)} |",
    ]
    of_labels = true_means(default_rng([seed, 4]))
    covered = Coverage()
    for alike, videos in product(ALIKE, VIDEOS):
        rng = default_rng([seed, videos, round(100 * alike)])
        for number, by_video in product(range(runs), (True, False)):
            numbers = _of_classifier(rng, videos, alike, by_video)
            rates = np.full(videos, FOUND), np.full(videos, STILL_FOUND)
            on_base, under_shift = (frames.ravel() for frames in _frames(rng, rates, alike))
            video = np.arange(videos).repeat(FRAMES) if by_video else np.arange(videos * FRAMES)
            recalls = recalls_of(on_base, under_shift, Units.of(video), number, FOUND, STILL_FOUND)
            numbers |= {
                f"objects: {name}": (drawn.interval(), true)
                for name, (drawn, true) in recalls.items()
            }
            of_frame, present, scores = draw_videos(videos, rng, alike)
            truth = all_known(present)
            if truth.least.min() >= 2:
                video = of_frame if by_video else np.arange(len(of_frame))
                means = means_of_labels(scores, truth, Units.of(video), number, of_labels)
                numbers |= {
                    f"labels: {name}": (drawn.interval(), true)
                    for name, (drawn, true) in means.items()
                }
            for name, (estimate, true) in numbers.items():
                covered.add((name, alike, videos, by_video), [estimate], [true])
    for name, alike in sorted({(name, alike) for name, alike, _, _ in covered}):
        cells = []
        for videos in VIDEOS:
            ways = [covered.cell((name, alike, videos, by_video)) for by_video in (True, False)]
            cells.append(f"{ways[0]} [{ways[1]}]")
        lines.append(f"| {name} | {alike:g} | {' | '.join(cells)} |")
    return lines


def _range(values: tuple[float, ...]) -> str:
    return f"{values[0]:g} to {values[-1]:g}"


def _three(values: Floats) -> str:
    return f"{values.min():.1f}, {values.mean():.1f}, {values.max():.1f}"


PARTS: dict[str, tuple[str, Callable[[int, int], list[str]]]] = {
    "rates": ("Failure rates of few large units", rates),
    "nulls": ("Tests of sets of few large units where nothing is there", nulls),
    "kid": ("KID near zero and away from it", kid),
    "worlds": ("Means over few worlds", worlds),
    "gates": ("Gates at their limits", gates),
    "gate-lines": (
        "Gates of relative drops and of single classes at their limits",
        partial(gates, kinds=("relative drops", "drops of a class")),
    ),
    "gate-measures": (
        "Gates of other measures at their limits",
        partial(gates, kinds=("top1", "drops of top1", "calibration errors")),
    ),
    "units": ("Frames of videos: classes, objects and several labels", units),
    "gains": ("Gains of a model over its original", gains),
    "gate-sizes": ("How large a set a gate needs", gate_sizes),
}


def main() -> None:
    parser = proving.parser(__doc__, PARTS, "the seed that settings were chosen on")
    parser.add_argument("--runs", type=int, default=1000, help="data sets of a cell")
    options = parser.parse_args()
    printed = {part: GATES_SEED if part.startswith("gate") else PRINTED_SEED for part in PARTS}
    opening = [
        f"The tables are of seed {PRINTED_SEED}, those of gates of seed {GATES_SEED}. Settings were"
        " chosen on others."
    ]
    tables = (
        proving.Table(
            part,
            [
                f"### {title}",
                "",
                *measure(SETTINGS_SEED if options.settings else printed[part], options.runs),
            ],
        )
        for part in options.parts
        for title, measure in [PARTS[part]]
    )
    proving.tell(
        "prove_intervals", "Intervals and tests", opening, tables, list(PARTS), options.write
    )


if __name__ == "__main__":
    main()
