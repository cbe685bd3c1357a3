"""Simulation: pairs drawn until a decision, with looks after each batch, against a number of pairs
fixed beforehand.

Both tests ask for the same error: of m hypotheses, that of one which is confirmed alone (m / α for
the e-value, α / m for the p-value of an exact one-sided McNemar test). Their powers are made equal
in two ways:

- *of one hypothesis* (`Row`): the pairs with which McNemar has the sequential test's power at this
  very difference. Nobody knows that number beforehand, so that it is the hardest baseline.
- *of a run* (`SimulatedRun`): hypotheses of several differences, some of nothing, and the one
  number of pairs for each of them with which McNemar confirms as many in all. That is what a run
  with a fixed number would have to draw.

A row of the grid is the base's rate, the difference, and how alike the two images of a pair fail:
at 0 independently, at 1 the base never fails where the description is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import stats

from counterfoil.arrays import Bools, Ints
from counterfoil.paired_stats import log_e_values, tango_uppers

Shares = tuple[float, float]
"""The shares of all pairs that fail and that are rescued."""

BASE_RATES = (0.05, 0.1, 0.2, 0.4)
DIFFERENCES = (-0.05, 0.0, 0.05, 0.1, 0.15, 0.3)
ALIKE = (0.0, 0.5, 0.9)
# Differences of the hypotheses of a run: half of them show nothing or are better than the base.
RUN = (-0.05, 0.0, 0.0, 0.0, 0.0, 0.1, 0.15, 0.15, 0.3, 0.3)
# Above it, the pairs of an equal power are those of the simulation's own error, and many. It
# favours the fixed number.
MOST_POWER = 0.99
MOST_FIXED = 1_000_000


@dataclass(frozen=True, slots=True)
class Design:
    """What both tests are given. first, most: pairs at the first look and at the last; growth: from
    look to look."""

    hypotheses: int = 20
    alpha: float = 0.1
    margin: float = 0.05
    first: int = 16
    most: int = 2048
    growth: float = 2.0

    @property
    def level(self) -> float:
        """Of a fixed test: α / m."""
        return self.alpha / self.hypotheses

    @property
    def looks(self) -> Ints:
        """Pairs drawn at each look, the last one `most`."""
        steps = np.arange(int(np.log(self.most / self.first) / np.log(self.growth)) + 1)
        earlier = np.round(self.first * self.growth**steps).astype(np.int64)
        return np.append(earlier[earlier < self.most], self.most)


_USUAL = Design()


@dataclass(frozen=True, slots=True)
class Sequential:
    """What became of simulated tests: shares of the runs, and pairs that a run drew."""

    confirmed: float
    futile: float
    out_of_budget: float
    pairs: float


@dataclass(frozen=True, slots=True)
class Row:
    """One hypothesis. discordant: share of pairs that disagree. fixed: McNemar's pairs; None where
    nothing is there."""

    base_rate: float
    difference: float
    alike: float
    discordant: float
    sequential: Sequential
    fixed: int | None

    @property
    def pairs(self) -> float:
        return self.sequential.pairs


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """Hypotheses of several differences on one base. confirmed: share of them; pairs, fixed: of
    each of them."""

    base_rate: float
    alike: float
    confirmed: float
    pairs: float
    fixed: int | None


def pair_shares(base_rate: float, difference: float, alike: float) -> Shares | None:
    """Return the (failing, rescued) shares of all pairs; None if no pairs can have these rates."""
    rate = base_rate + difference
    if not 0 <= rate <= 1:
        return None
    rescued = base_rate * (1 - rate)
    # As alike as the rates allow: then no more pairs disagree than the difference needs.
    least = max(0.0, -difference)
    rescued = least + (1 - alike) * (rescued - least)
    return rescued + difference, rescued


def decided(failing: Ints, rescued: Ints, design: Design) -> tuple[Bools, Bools, Ints]:
    """Return by run (runs,) whether counts at each look (runs, looks) confirm it, whether it is
    futile, and its pairs.

    A run ends at the first look that decides, as `paired_stats.decide_test` does.
    """
    looks = design.looks
    # Runs share most of their counts: each is judged once.
    counts = np.stack([failing, rescued, np.broadcast_to(looks, failing.shape)], axis=-1).reshape(
        -1, 3
    )
    (b, c, pairs), which = _distinct(counts, design.most + 1)
    futile = (tango_uppers(b, c, pairs, 0.95) < design.margin)[which].reshape(failing.shape)
    confirmed = log_e_values(b, b + c) >= np.log(design.hypotheses / design.alpha)
    confirmed = confirmed[which].reshape(failing.shape)
    ends = futile | confirmed
    at = np.where(ends.any(axis=1), ends.argmax(axis=1), len(looks) - 1)
    runs = np.arange(len(at))
    return (confirmed & ~futile)[runs, at], futile[runs, at], looks[at]


def _distinct(counts: Ints, base: int) -> tuple[Ints, Ints]:
    """Return the distinct rows (3, distinct) of (n, 3) numbers below `base`, and each row's index
    among them (n,)."""
    _, first, which = np.unique(
        counts @ (base ** np.arange(3)), return_index=True, return_inverse=True
    )
    return counts[first].T, which.ravel()


def outcomes(shares: Shares) -> list[float]:
    """Return the chances of a pair: failing, rescued, and alike."""
    return [*shares, max(0.0, 1 - sum(shares))]


def drawn_pairs(shares: Shares, design: Design, runs: int, rng: np.random.Generator) -> Ints:
    """Draw `runs` tests: (runs, looks, 3) pairs by outcome at each look."""
    batches = np.diff(design.looks, prepend=0)
    drawn = [rng.multinomial(batch, outcomes(shares), runs) for batch in batches]
    return np.stack(drawn, axis=1).cumsum(axis=1)


def simulate(shares: Shares, design: Design, runs: int, seed: Sequence[int]) -> Sequential:
    """Run `runs` tests whose pairs fall with these (failing, rescued) shares."""
    drawn = drawn_pairs(shares, design, runs, np.random.default_rng(list(seed)))
    confirmed, futile, pairs = decided(drawn[..., 0], drawn[..., 1], design)
    return Sequential(
        float(confirmed.mean()),
        float(futile.mean()),
        float(1 - confirmed.mean() - futile.mean()),
        float(pairs.mean()),
    )


def fixed_power(pairs: int, shares: Shares, level: float) -> float:
    """Return an exact one-sided McNemar test's power for this many pairs, over all counts of pairs
    that disagree."""
    failing, rescued = shares
    disagree = failing + rescued
    if disagree <= 0:
        return 0.0
    around = 9 * np.sqrt(pairs * disagree * (1 - disagree)) + 9
    counts = np.arange(
        max(0, int(pairs * disagree - around)), min(pairs, int(pairs * disagree + around)) + 1
    )
    # More failing pairs than these have a p-value of `level` at most.
    most = stats.binom.isf(level, counts, 0.5)
    of_counts = stats.binom.sf(most, counts, failing / disagree)
    return float(np.sum(stats.binom.pmf(counts, pairs, disagree) * of_counts))


def fixed_pairs(power: float, hypotheses: Sequence[Shares], level: float) -> int | None:
    """Return the fewest pairs with which McNemar's mean power over the hypotheses is `power`; None
    above `MOST_FIXED`.

    hypotheses: (failing, rescued) shares. Of descriptions that are worse, no power above
    `MOST_POWER` is asked for.
    """
    worse = sum(failing > rescued for failing, rescued in hypotheses) / len(hypotheses)
    wanted = min(power, MOST_POWER * worse)
    if wanted <= level:
        return None

    def enough(pairs: int) -> bool:
        return (
            sum(fixed_power(pairs, shares, level) for shares in hypotheses) / len(hypotheses)
            >= wanted
        )

    low = 0
    high = 16
    while not enough(high):
        low = high
        high = 2 * high
        if high > MOST_FIXED:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def simulated_row(
    base_rate: float, difference: float, alike: float, design: Design, runs: int, seed: int
) -> Row | None:
    """Return one hypothesis by `runs` tests; None if no pairs can have these rates. Equal seeds
    give equal rows."""
    shares = pair_shares(base_rate, difference, alike)
    if shares is None:
        return None
    seeds = [seed, *(round(1e9 * share) for share in shares)]
    simulated = simulate(shares, design, runs, seeds)
    fixed = fixed_pairs(simulated.confirmed, [shares], design.level) if difference > 0 else None
    return Row(base_rate, difference, alike, sum(shares), simulated, fixed)


def simulated_rows(
    design: Design = _USUAL,
    runs: int = 4000,
    seed: int = 0,
    base_rates: Iterable[float] = BASE_RATES,
    differences: Iterable[float] = DIFFERENCES,
    alike: Iterable[float] = ALIKE,
) -> list[Row]:
    """Return a row for each point of the grid that pairs can have."""
    points = product(base_rates, alike, differences)
    rows = (
        simulated_row(rate, difference, similar, design, runs, seed)
        for rate, similar, difference in points
    )
    return [row for row in rows if row is not None]


def run_of(rows: Sequence[Row], design: Design) -> SimulatedRun:
    """Return a run whose hypotheses are these rows, of one base and equally alike."""
    pairs = [row.pairs for row in rows]
    confirmed = float(np.mean([row.sequential.confirmed for row in rows]))
    # Rounding may leave a share of nothing a little below it.
    shares = []
    for row in rows:
        failing = max(0.0, row.discordant + row.difference) / 2
        rescued = max(0.0, row.discordant - row.difference) / 2
        shares.append((failing, rescued))
    fixed = fixed_pairs(confirmed, shares, design.level)
    return SimulatedRun(rows[0].base_rate, rows[0].alike, confirmed, float(np.mean(pairs)), fixed)


def simulated_runs(design: Design, runs: int) -> list[SimulatedRun]:
    """Return a run of hypotheses with the differences of `RUN` for each base rate, and for how
    alike pairs fail."""
    simulated = []
    for rate, similar in product(BASE_RATES, ALIKE):
        of_difference = {
            difference: simulated_row(rate, difference, similar, design, runs, 0)
            for difference in set(RUN)
        }
        rows = [row for difference in RUN if (row := of_difference[difference]) is not None]
        simulated.append(run_of(rows, design))
    return simulated


def saved(rows: Sequence[Row] | Sequence[SimulatedRun]) -> float:
    """Return the sequential test's pairs as a share of McNemar's, over all with a fixed number; NaN
    without any."""
    known = [(row.pairs, row.fixed) for row in rows if row.fixed is not None]
    if not known:
        return float("nan")
    return sum(drawn for drawn, _ in known) / sum(fixed for _, fixed in known)


def table_of_rows(rows: Sequence[Row]) -> list[str]:
    """Return Markdown: a line a hypothesis."""
    lines = [
        "| base | alike | difference | disagree | confirmed | futile | pairs | fixed | ratio |",
        "| --: | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for row in rows:
        sequential = row.sequential
        lines.append(
            f"| {row.base_rate:g} | {row.alike:g} | {row.difference:+g} | {row.discordant:.3f} |"
            f" {sequential.confirmed:.1%} | {sequential.futile:.1%} | {sequential.pairs:.0f} |"
            f" {_against(row.fixed, sequential.pairs)} |"
        )
    return lines


def table_of_runs(runs: Sequence[SimulatedRun]) -> list[str]:
    """Return Markdown: a line a run."""
    lines = [
        "| base | alike | confirmed | pairs a hypothesis | fixed | ratio |",
        "| --: | --: | --: | --: | --: | --: |",
    ]
    for run in runs:
        ends = _against(run.fixed, run.pairs)
        lines.append(
            f"| {run.base_rate:g} | {run.alike:g} | {run.confirmed:.1%} | {run.pairs:.0f} | {ends}"
            " |"
        )
    return lines


def _against(fixed: int | None, pairs: float) -> str:
    return "– | –" if fixed is None else f"{fixed} | {pairs / fixed:.2f}"
