"""The simulation of sequential tests decides as mining does, and its rival's power is exact."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bugs_proof.sequential import (
    Design,
    decided,
    fixed_pairs,
    fixed_power,
    pair_shares,
    run_of,
    saved,
    simulated_rows,
)
from counterfoil.paired_stats import PairCount, decide_test, log_e_value


def test_looks_grow_up_to_the_budget() -> None:
    assert Design().looks.tolist() == [16, 32, 64, 128, 256, 512, 1024, 2048]
    assert Design(most=100).looks.tolist() == [16, 32, 64, 100]
    assert Design(most=16).looks.tolist() == [16]
    assert Design(most=60, growth=1.5).looks.tolist() == [16, 24, 36, 54, 60]


@pytest.mark.parametrize("alike", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("difference", [-0.05, 0.0, 0.2])
def test_pairs_have_the_rates_that_they_are_said_to_have(difference: float, alike: float) -> None:
    failing, rescued = pair_shares(0.1, difference, alike) or (np.nan, np.nan)
    both = 0.1 - rescued
    assert both + failing == pytest.approx(0.1 + difference)
    assert min(failing, rescued, both) >= 0
    if alike == 0:
        assert both == pytest.approx(0.1 * (0.1 + difference))
    if alike == 1:
        assert failing + rescued == pytest.approx(abs(difference))
    assert pair_shares(0.9, 0.2, alike) is None and pair_shares(0.01, -0.2, alike) is None


def test_runs_are_decided_as_mining_decides() -> None:
    design = Design(hypotheses=5, most=512)
    batches = np.diff(design.looks, prepend=0)
    rng = np.random.default_rng(0)
    drawn = np.stack(
        [rng.multinomial(batch, [0.12, 0.05, 0.83], 60) for batch in batches], axis=1
    ).cumsum(axis=1)
    confirmed, futile, pairs = decided(drawn[..., 0], drawn[..., 1], design)
    assert 0 < confirmed.sum() < 60 and futile.any()
    for run in range(60):
        word = "open"
        look = 0
        for look, (b, c, _) in zip(design.looks, drawn[run].tolist(), strict=True):
            count = PairCount(int(look), 0, b, c)
            word = decide_test(count, log_e_value(b, b + c), np.log(5 / 0.1), design.margin)
            if word != "open":
                break
        assert (word == "confirmed", word == "futile", look) == (
            confirmed[run],
            futile[run],
            pairs[run],
        )


def test_the_rivals_power_is_that_of_the_exact_test() -> None:
    """Against every table of 24 pairs, each with SciPy's own binomial test."""
    shares = (0.4, 0.1)
    pairs = 24
    level = 0.02
    power = 0.0
    for b in range(pairs + 1):
        for c in range(pairs + 1 - b):
            if b + c and stats.binomtest(b, b + c, alternative="greater").pvalue <= level:
                power += float(stats.multinomial.pmf([b, c, pairs - b - c], pairs, [*shares, 0.5]))
    assert fixed_power(pairs, shares, level) == pytest.approx(power, rel=1e-9)
    assert fixed_power(pairs, (0.0, 0.0), level) == 0
    assert fixed_power(500, (0.1, 0.1), level) <= level


def test_the_fixed_number_is_the_fewest_pairs_of_that_power() -> None:
    shares = (0.25, 0.1)
    pairs = fixed_pairs(0.8, [shares], 0.005)
    assert pairs is not None
    assert fixed_power(pairs, shares, 0.005) >= 0.8 > fixed_power(pairs - 1, shares, 0.005)
    # Half of two hypotheses show nothing: the same pairs confirm half as many.
    assert fixed_pairs(0.4, [shares, (0.0, 0.1)], 0.005) == pairs
    assert fixed_pairs(1.0, [shares], 0.005) == fixed_pairs(0.99, [shares], 0.005)
    assert fixed_pairs(0.0, [shares], 0.005) is None
    assert fixed_pairs(0.8, [(0.1, 0.1)], 0.005) is None


def test_a_row_and_a_run_come_out_again_and_draw_less_than_a_fixed_number() -> None:
    rows = simulated_rows(runs=300, base_rates=[0.1], differences=[0.0, 0.15, 0.3], alike=[0.5])
    few, again, others = (
        simulated_rows(runs=20, seed=seed, base_rates=[0.1], differences=[0.3], alike=[0.5])
        for seed in (0, 0, 1)
    )
    assert few == again != others
    nothing, planted, wide = rows
    assert nothing.fixed is None and nothing.sequential.confirmed <= 0.02
    assert nothing.sequential.futile > 0.9
    for row in (planted, wide):
        sequential = row.sequential
        assert (
            row.fixed is not None and sequential.pairs < row.fixed and sequential.confirmed > 0.95
        )
        assert sequential.confirmed + sequential.futile + sequential.out_of_budget == pytest.approx(
            1
        )
    assert wide.sequential.pairs < planted.sequential.pairs
    run = run_of(rows, Design())
    assert run.fixed is not None and run.pairs < run.fixed
    assert saved([run]) == pytest.approx(run.pairs / run.fixed)
    assert 0.5 < saved(rows) < 1 and np.isnan(saved([nothing]))
