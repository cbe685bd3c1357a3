"""Wilson's interval, that of rows which share units, and the line of chance: one of each in the house."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from statsmodels.stats.proportion import proportion_confint

from counterfoil.stats import (
    chance_line,
    clustered_interval,
    effective_size,
    few_units_interval,
    unit_correlation,
    wilson_interval,
)

PACKAGE = Path(__file__).parents[1] / "builders" / "counterfoil"


@given(st.floats(0.001, 3000).flatmap(lambda n: st.tuples(st.floats(0, 1).map(lambda share: share * n), st.just(n))))
def test_intervals_are_wilsons(counts: tuple[float, float]) -> None:
    """Of counts that are no whole numbers too."""
    low, high = wilson_interval(*counts)
    assert (low, high) == pytest.approx(proportion_confint(*counts, method="wilson"), abs=1e-9)
    assert 0 <= low <= counts[0] / counts[1] <= high <= 1


def test_a_share_of_nothing_may_be_any() -> None:
    assert wilson_interval(0, 0) == (0, 1)
    assert wilson_interval(0, 10)[0] == 0 and wilson_interval(10, 10)[1] == 1


def units_of(rng: np.random.Generator, rows: np.ndarray, rate: float, alike: float) -> np.ndarray:
    """Failures of units whose rates are Beta-distributed."""
    spread = (1 - alike) / alike
    return rng.binomial(rows, rng.beta(rate * spread, (1 - rate) * spread, len(rows)))


@pytest.mark.parametrize("alike", [0.05, 0.4])
def test_many_units_tell_how_alike_their_rows_are(alike: float) -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat([3, 8, 20], 300)
    parts = [(units_of(rng, rows, rate, alike), rows) for rate in (0.2, 0.6)]
    assert unit_correlation(*parts) == pytest.approx(alike, abs=0.03), "each part around its own share"
    assert effective_size(rows, alike) == pytest.approx(rows.sum() / (1 + alike * ((rows**2).sum() / rows.sum() - 1)))


@pytest.mark.parametrize(("units", "quantile"), [(6, 2.228139), (3, 2.776445), (21, 2.021075)])  # of tables of t
def test_few_units_widen_the_interval_as_twice_their_degrees_of_freedom_say(units: int, quantile: float) -> None:
    low, high = few_units_interval(0.3, 40.0, units)
    rows = 40.0 * (1.959964 / quantile) ** 2
    assert special.betainc(0.3 * rows, 0.7 * rows + 1, low) == pytest.approx(0.025, rel=1e-3)
    assert special.betainc(0.3 * rows + 1, 0.7 * rows, high) == pytest.approx(0.975, rel=1e-3)


def test_rows_that_are_units_have_the_interval_of_rows() -> None:
    failed = np.arange(30) < 9
    assert unit_correlation((failed, np.ones(30))) == 0 and effective_size(np.ones(30), 0) == 30
    assert clustered_interval(failed, np.ones(30)) == wilson_interval(9, 30)


@pytest.mark.parametrize("units", [1, 5, 40])
def test_where_no_row_fails_or_every_one_the_bound_is_exact_on_units(units: int) -> None:
    rows = np.arange(1, units + 1) * 10
    none, every = clustered_interval(rows * 0, rows), clustered_interval(rows, rows)
    if units > 1:
        assert none == pytest.approx(proportion_confint(0, units, method="beta"))
        assert every == pytest.approx(proportion_confint(units, units, method="beta"))
    assert few_units_interval(0.0, 1000.0, units) == none


@pytest.mark.parametrize(("chance", "line"), [(0.0, 0.1), (0.5, 0.55), (1.0, 1.0)])
def test_the_line_is_a_tenth_of_the_way_up(chance: float, line: float) -> None:
    assert chance_line(chance) == pytest.approx(line)


def test_nobody_else_writes_them() -> None:
    """Two definitions would drift apart: one place has the quantile, and no other asks a library for the interval."""
    others = [
        path.relative_to(PACKAGE).as_posix()
        for path in sorted(PACKAGE.rglob("*.py"))
        if re.search(r"1\.95996|inv_cdf\(0\.975\)|[\"']wilson[\"']", path.read_text(encoding="utf-8"))
    ]
    assert others == ["stats.py"]
