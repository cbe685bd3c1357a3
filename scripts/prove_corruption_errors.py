"""Prove the intervals of mPC, rPC, mCE and relative mCE where truth is known.

    python scripts/prove_corruption_errors.py --write

Answers are drawn; nothing is built and no model is loaded. About eight minutes of one core.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import product

# One thread: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy import stats

import proving
from counterfoil.arrays import Floats
from counterfoil.corrupting.corruptions import SEVERITIES
from counterfoil.evaluation.tasks.classes.answers import AllAnswers
from counterfoil.evaluation.tasks.classes.measures import corruption_error
from counterfoil.evaluation.tasks.classes.measures.comparison import ComparedModels
from prove_intervals import MODELS, answered_of, right_answers

SEED = 300
CLASSES = 10
KINDS = 4
# How much of the liability to be right an image shares over groups and models; the rest is its own.
SHARED = 0.6
MEASURES = (
    corruption_error.MPC,
    corruption_error.RPC,
    corruption_error.MCE,
    corruption_error.RELATIVE_MCE,
)


# By how much the liability to be right falls with each severity of the first kind.
FALL = 0.15
# Corruptions that cost little, nothing, and less than nothing.
SMALL_FALLS = (0.02, 0.0, -0.02)


def true_shares(base: float, better: float, fall: float = FALL) -> Floats:
    """Return the shares of right answers (groups, classes, models): base, then kinds by severity.

    better: how many points the new model is better than the old one under corruptions.
    """
    of_class = stats.norm.ppf(base) + 0.4 * np.linspace(-1, 1, CLASSES)
    falls = [
        fall * (kind + 1) * severity
        for kind in range(KINDS)
        for severity in range(1, SEVERITIES + 1)
    ]
    old = stats.norm.cdf(of_class - np.append(0, falls)[:, None])
    gains = np.append(0, np.full(len(falls), better))
    new = (old + gains[:, None]).clip(0.02, 0.995)
    return np.stack([new, old], axis=2)


def truth_of(shares: Floats) -> tuple[float, ...]:
    """Return what the measures are of the new model, in the order of `MEASURES`."""
    accuracy = shares.mean(axis=1)
    by_kind = accuracy[1:].reshape(KINDS, SEVERITIES, 2).mean(axis=1)
    errors = 1 - by_kind
    lost = accuracy[0] - by_kind
    mean = by_kind[:, 0].mean()
    ratio = (errors[:, 0] / errors[:, 1]).mean()
    relative = (lost[:, 0] / lost[:, 1]).mean()
    return float(mean), float(mean / accuracy[0, 0]), float(ratio), float(relative)


def answers_drawn(rng: np.random.Generator, shares: Floats, images: int) -> AllAnswers:
    """Return drawn answers of two models to every image, unchanged and under every corruption."""
    right = right_answers(rng, shares, images, SHARED)
    answered = answered_of(right, seed=int(rng.integers(1 << 30)))
    base, *shifted = answered.subject.groups
    groups = [base]
    kinds_and_severities = product(range(KINDS), range(1, SEVERITIES + 1))
    for group, (kind, severity) in zip(shifted, kinds_and_severities, strict=True):
        groups.append(replace(group, corruption=f"kind {kind}", severity=severity))
    subject = replace(answered.subject, groups=tuple(groups))
    return replace(answered, subject=subject, requests=(ComparedModels(*MODELS),))


def interval_of(measure: str, answered: AllAnswers) -> tuple[float | None, float | None]:
    """Return the ends of the interval of the new model, or None if it has no row or no interval."""
    of_measure = corruption_error.MEASURES[measure].rows
    assert of_measure is not None
    for row in of_measure(answered):
        if row.model == MODELS[0]:
            return row.low, row.high
    return None, None


def coverage(seed: int, sets: int) -> list[str]:
    lines = [
        f"Two models, ten classes, {KINDS} kinds of corruption at {SEVERITIES} severities:"
        f" {sets} sets a cell. Base and corruptions share images, and both models share"
        f" {100 * SHARED:.0f} % of what makes an image hard. A cell is the share of 95 % intervals"
        " that hold the truth, and their mean width in points, among the sets that have an interval."
        " The last column is how many have one of relative mCE: it is left out if the old model loses"
        " nothing under some kind, in the set or in more than 2.5 % of its resamples.",
        "",
        "| images per class | accuracy on the base | better by | mPC | rPC | mCE | relative mCE | have one |",
        "| --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for images, base, better in product((5, 20, 50), (0.8, 0.95), (0.0, 0.05)):
        shares = true_shares(base, better)
        truth = np.array(truth_of(shares))
        rng = np.random.default_rng([seed, images, round(100 * base), round(100 * better)])
        ends = []
        for _ in range(sets):
            answered = answers_drawn(rng, shares, images)
            ends.append([interval_of(measure, answered) for measure in MEASURES])
        low, high = np.moveaxis(np.array(ends, dtype=np.float64), 2, 0)
        measured = np.isfinite(low)
        cells = []
        for column in range(len(MEASURES)):
            with_interval = measured[:, column]
            ends_low = low[with_interval, column]
            ends_high = high[with_interval, column]
            held = ((ends_low <= truth[column]) & (truth[column] <= ends_high)).mean()
            cells.append(f"{100 * held:.1f} %, {100 * (ends_high - ends_low).mean():.1f}")
        shown = " | ".join(cells)
        intervals = f"{100 * measured[:, -1].mean():.0f} %"
        begin = f"| {images} | {100 * base:.0f} % | {100 * better:.0f}"
        lines.append(f"{begin} | {shown} | {intervals} |")
    return lines


def small_costs(seed: int, sets: int) -> list[str]:
    """Return the table of rPC near and above 1."""
    lines = [
        f"The same under corruptions that cost little, nothing, or less than nothing: {sets} sets a"
        " cell.",
        "",
        "| images per class | accuracy on the base | true rPC | 95 % intervals that hold it | mean width |",
        "| --: | --: | --: | --: | --: |",
    ]
    for images, base, fall in product((5, 20, 50), (0.6, 0.9), SMALL_FALLS):
        shares = true_shares(base, 0.0, fall)
        accuracy = shares[..., 0].mean(axis=1)
        truth = accuracy[1:].mean() / accuracy[0]
        rng = np.random.default_rng([seed, images, round(100 * base), round(1000 * fall) + 100])
        ends = []
        for _ in range(sets):
            answered = answers_drawn(rng, shares, images)
            ends.append(interval_of(corruption_error.RPC, answered))
        low, high = np.array(ends, dtype=np.float64).T
        # A truth of 1 is not exactly 1 as a quotient of sums.
        held = ((low <= truth + 1e-9) & (truth - 1e-9 <= high)).mean()
        width = np.mean(high - low)
        begin = f"| {images} | {100 * base:.0f} % | {100 * truth:.1f} %"
        lines.append(f"{begin} | {100 * held:.1f} % | {100 * width:.1f} |")
    return lines


def main() -> None:
    parser = proving.parser(__doc__, ["coverage"])
    parser.add_argument("--sets", type=int, default=300, help="sets of answers of a cell")
    options = parser.parse_args()
    opening = [f"The table is of seed {SEED}; the intervals have no setting that was chosen."]
    lines = ["### Errors of corruption benchmarks", "", *coverage(SEED, options.sets)]
    lines += ["", *small_costs(SEED, options.sets)]
    tables = [proving.Table("coverage", lines)]
    proving.tell(
        "prove_corruption_errors",
        "Errors of corruption benchmarks",
        opening,
        tables,
        ["coverage"],
        options.write,
    )


if __name__ == "__main__":
    main()
