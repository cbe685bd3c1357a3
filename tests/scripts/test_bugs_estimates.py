"""The simulation of reported findings: fresh pairs are true, the test's own pairs are not."""

from __future__ import annotations

import numpy as np
import pytest

from bugs_proof.estimates import (
    FEWEST,
    EstimatedFamily,
    EstimatedRow,
    _e_bh,
    simulated_estimates,
)
from counterfoil.sequential_stats import e_bh

MISSES = 3.5  # standard errors; of a hundred lines one in twenty may be this far out


def fresh_pairs_are_true(rows: list[EstimatedRow], families: list[EstimatedFamily]) -> None:
    for row in rows:
        if row.confirmed >= FEWEST:
            assert abs(row.fresh.off) < MISSES * row.fresh.error, row
            assert row.fresh.covered >= 0.93 - MISSES * np.sqrt(0.93 * 0.07 / row.confirmed), row
    for family in families:
        assert family.by_fresh >= 0.95 - MISSES * np.sqrt(0.95 * 0.05 / family.runs), family


def test_the_tests_own_pairs_tell_too_much_and_fresh_ones_do_not() -> None:
    rows, families = simulated_estimates(runs=400, base_rates=[0.2], alike=[0.5])
    fresh_pairs_are_true(rows, families)
    (row,) = [row for row in rows if row.difference == 0.1]
    assert row.confirmed >= FEWEST and row.test.off > 0.05 and row.test.covered < 0.9
    assert row.fresh.half_width < 0.055


@pytest.mark.whole
def test_fresh_pairs_are_true_on_every_line() -> None:
    fresh_pairs_are_true(*simulated_estimates(runs=2000))


def test_many_runs_are_judged_as_one_is() -> None:
    log_e = np.random.default_rng(0).normal(1.5, 3, (200, 7))
    assert _e_bh(log_e, 0.1).tolist() == [e_bh(row, 0.1) for row in log_e.tolist()]
