"""Simulation: what is reported of a confirmed finding's rates, by the pairs that tested it and by
fresh ones.

A run has hypotheses of several differences on one base. Each is tested as `sequential` tests it,
e-BH confirms, and a confirmed one gets as many fresh pairs as `mine` would draw for it. *By the
test* are differences and intervals of the test's own pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil, nan, sqrt

import numpy as np
from numpy.typing import NDArray

from bugs_proof.sequential import (
    ALIKE,
    BASE_RATES,
    Design,
    Shares,
    decided,
    drawn_pairs,
    outcomes,
    pair_shares,
)
from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.paired_stats import PairCount, log_e_values, pairs_of_half_width, tango_uppers
from counterfoil.recipe.schema_mine import BugsSettings
from counterfoil.stats import false_coverage_level

# Most show nothing, two less than the margin, which the test's null does not deny.
RUN = (-0.05, *(0.0,) * 13, 0.03, 0.04, 0.1, 0.1, 0.15, 0.3)
DESIGN = Design(hypotheses=len(RUN), most=128)
_SETTINGS = BugsSettings(captioner="none")
# Pairs at most, and differences under the margin.
SMALL = tuple(product((128, 2048), (0.03, 0.04)))
MISSING = 0.05
# Of fewer confirmed ones a share says little.
FEWEST = 50


@dataclass(frozen=True, slots=True)
class Reported:
    """What is reported of confirmed findings. off: mean difference reported less the true one, with
    its standard error; covered: share of 95 % intervals of the difference that hold the true one;
    half_width: their mean."""

    off: float
    error: float
    covered: float
    half_width: float


@dataclass(frozen=True, slots=True)
class EstimatedRow:
    """Hypotheses of one difference in such runs. small: of the confirmed ones, said to be perhaps
    under the margin."""

    base_rate: float
    alike: float
    difference: float
    confirmed: int
    tested: int
    test: Reported
    fresh: Reported
    pairs: float
    small: float


@dataclass(frozen=True, slots=True)
class EstimatedFamily:
    """Runs on one base that confirm something: in which share the reported intervals of all
    findings hold at once."""

    base_rate: float
    alike: float
    runs: int
    findings: float
    by_test: float
    by_fresh: float


def simulated_estimates(
    runs: int = 4000,
    base_rates: Iterable[float] = BASE_RATES,
    alike: Iterable[float] = ALIKE,
) -> tuple[list[EstimatedRow], list[EstimatedFamily]]:
    """Return a row for each positive difference, and a family, for each base rate and for how alike
    pairs fail."""
    rows = []
    families = []
    for index, (rate, similar) in enumerate(product(base_rates, alike)):
        estimated, family = _run(rate, similar, runs, np.random.default_rng([0, index]))
        rows += estimated
        families.append(family)
    return rows, families


def _run(
    base_rate: float, alike: float, runs: int, rng: np.random.Generator
) -> tuple[list[EstimatedRow], EstimatedFamily]:
    possible = {}
    for difference in RUN:
        possible[difference] = pair_shares(base_rate, difference, alike)
    true = np.asarray([difference for difference in RUN if possible[difference] is not None])
    shares = [possible[difference] or (0.0, 0.0) for difference in true.tolist()]
    counts, log_e, futile = _tested(shares, DESIGN, runs, rng)
    failing, rescued, pairs = counts
    large = (failing - rescued) / pairs >= DESIGN.margin
    confirmed = _e_bh(log_e, DESIGN.alpha) & ~futile & large
    needed = np.zeros(confirmed.shape, dtype=np.int64)
    for at in zip(*np.nonzero(confirmed), strict=True):
        count = PairCount(int(pairs[at]), 0, int(failing[at]), int(rescued[at]))
        wanted = pairs_of_half_width(count, _SETTINGS.half_width)
        needed[at] = min(wanted, _SETTINGS.estimate_pairs)
    fresh = np.zeros((3, *confirmed.shape), dtype=np.int64)
    for at, share in enumerate(shares):
        drawn = rng.multinomial(needed[:, at], outcomes(share))
        fresh[:, :, at] = drawn[:, 0], drawn[:, 1], needed[:, at]
    of_run = confirmed.sum(axis=1)
    # What the page and the recipe had: widened for being selected, at the share of hypotheses that
    # are.
    widened = [max(false_coverage_level(int(k), len(true), MISSING), 1 - MISSING) for k in of_run]
    together = 1 - MISSING / np.maximum(of_run, 1)
    tested_low, tested_high = _bounds(counts, confirmed, np.asarray(widened)[:, None])
    low, high = _bounds(fresh, confirmed, together[:, None])
    rows = []
    for difference in sorted(set(true[true > 0].tolist())):
        columns = np.flatnonzero(true == difference)
        chosen = confirmed[:, columns]
        rows.append(
            EstimatedRow(
                base_rate,
                alike,
                difference,
                int(chosen.sum()),
                chosen.size,
                _reported(counts[:, :, columns], difference, chosen),
                _reported(fresh[:, :, columns], difference, chosen),
                _mean(needed[:, columns], chosen),
                _mean(low[:, columns] < DESIGN.margin, chosen),
            )
        )
    some = of_run > 0
    by_test = (tested_low <= true) & (true <= tested_high) | ~confirmed
    by_fresh = (low <= true) & (true <= high) | ~confirmed
    family = EstimatedFamily(
        base_rate,
        alike,
        int(some.sum()),
        _mean(of_run, some),
        _mean(by_test.all(axis=1), some),
        _mean(by_fresh.all(axis=1), some),
    )
    return rows, family


def _mean(values: NDArray, chosen: Bools) -> float:
    return float(values[chosen].mean()) if chosen.any() else nan


def _tested(
    shares: Sequence[Shares], design: Design, runs: int, rng: np.random.Generator
) -> tuple[Ints, Floats, Bools]:
    """Return (3, runs, hypotheses) failing, rescued, all pairs at each test's end; its log e-value;
    futile or not."""
    counts = np.zeros((3, runs, len(shares)), dtype=np.int64)
    futile = np.zeros(counts.shape[1:], dtype=np.bool_)
    for at, share in enumerate(shares):
        drawn = drawn_pairs(share, design, runs, rng)
        _, futile[:, at], pairs = decided(drawn[..., 0], drawn[..., 1], design)
        last = np.searchsorted(design.looks, pairs)
        failing, rescued, _ = drawn[np.arange(runs), last].T
        counts[:, :, at] = failing, rescued, pairs
    return counts, log_e_values(counts[0], counts[0] + counts[1]), futile


def _e_bh(log_e: Floats, alpha: float) -> Bools:
    """Apply `sequential_stats.e_bh` to each row."""
    m = log_e.shape[1]
    needed = np.log(m / (alpha * np.arange(1, m + 1)))
    reached = -np.sort(-log_e, axis=1) >= needed
    rejected = np.where(reached.any(axis=1), m - reached[:, ::-1].argmax(axis=1), 0)
    return np.where(
        (rejected > 0)[:, None], log_e >= needed[np.maximum(rejected, 1) - 1][:, None], False
    )


def _bounds(counts: Ints, confirmed: Bools, level: Floats) -> tuple[Floats, Floats]:
    """Return the intervals of confirmed differences; (-1, 1) for the others."""
    failing, rescued, pairs = counts
    levels = np.broadcast_to(level, confirmed.shape)
    low = np.full(confirmed.shape, -1.0)
    high = np.full(confirmed.shape, 1.0)
    for tested_level in np.unique(levels[confirmed]).tolist():
        members = confirmed & (levels == tested_level)
        b, c, n = failing[members], rescued[members], pairs[members]
        low[members] = -tango_uppers(c, b, n, (1 + tested_level) / 2)
        high[members] = tango_uppers(b, c, n, (1 + tested_level) / 2)
    return low, high


def _reported(counts: Ints, true: float, confirmed: Bools) -> Reported:
    if confirmed.sum() < 2:
        return Reported(nan, nan, nan, nan)
    failing, rescued, pairs = counts
    low, high = _bounds(counts, confirmed, np.asarray(1 - MISSING))
    difference = (failing - rescued)[confirmed] / pairs[confirmed]
    return Reported(
        float(difference.mean()) - true,
        float(difference.std(ddof=1)) / sqrt(len(difference)),
        _mean((low <= true) & (true <= high), confirmed),
        _mean(high - low, confirmed) / 2,
    )


def table_of_estimates(rows: Sequence[EstimatedRow]) -> list[str]:
    """Return Markdown: a line for each difference of which enough were confirmed."""
    lines = [
        "| base | alike | difference | confirmed | test: off | covered | fresh: off | covered |"
        " half-width | pairs |"
        " perhaps under |",
        "| --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for row in rows:
        start = (
            f"| {row.base_rate:g} | {row.alike:g} | {row.difference:+g} |"
            f" {row.confirmed / row.tested:.1%} |"
        )
        if row.confirmed < FEWEST:
            lines.append(f"{start} – | – | – | – | – | – | – |")
            continue
        test = row.test
        fresh = row.fresh
        lines.append(
            f"{start} {100 * test.off:+.1f} ± {100 * test.error:.1f} | {test.covered:.0%} |"
            f" {100 * fresh.off:+.1f} ± {100 * fresh.error:.1f} | {fresh.covered:.1%} |"
            f" {100 * fresh.half_width:.1f} |"
            f" {ceil(row.pairs)} | {row.small:.0%} |"
        )
    return lines


def small_differences(runs: int) -> list[tuple[float, float, list[float]]]:
    """Return (base rate, alike, shares confirmed) of the differences and the most pairs of `SMALL`,
    in its order."""
    cells = []
    for index, (rate, alike) in enumerate(product(BASE_RATES, ALIKE)):
        confirmed = []
        for most, difference in SMALL:
            design = Design(hypotheses=len(RUN), most=most)
            rng = np.random.default_rng([0, index])
            share = pair_shares(rate, difference, alike) or (0.0, 0.0)
            counts, log_e, futile = _tested([share], design, runs, rng)
            shown = (counts[0] - counts[1]) / counts[2]
            # Alone among hypotheses that show nothing.
            enough = log_e >= np.log(len(RUN) / design.alpha)
            confirmed.append(float((enough & ~futile & (shown >= design.margin)).mean()))
        cells.append((rate, alike, confirmed))
    return cells


def table_of_small(cells: Sequence[tuple[float, float, Sequence[float]]]) -> list[str]:
    """Return Markdown: a line for each base, a column for each difference."""
    lines = [
        "| base | alike"
        f" |{''.join(f' {difference:+g}, {most:,} pairs |' for most, difference in SMALL)}",
        f"| --: | --: |{' --: |' * len(SMALL)}",
    ]
    return lines + [
        f"| {rate:g} | {alike:g} |{''.join(f' {share:.1%} |' for share in shares)}"
        for rate, alike, shares in cells
    ]


def table_of_families(families: Sequence[EstimatedFamily]) -> list[str]:
    """Return Markdown: a line for each base."""
    lines = [
        "| base | alike | runs with findings | findings a run | all covered, by the test | fresh |",
        "| --: | --: | --: | --: | --: | --: |",
    ]
    for family in families:
        lines.append(
            f"| {family.base_rate:g} | {family.alike:g} | {family.runs:,} | {family.findings:.1f} |"
            f" {family.by_test:.1%} | {family.by_fresh:.1%} |"
        )
    return lines
