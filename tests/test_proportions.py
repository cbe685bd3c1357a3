"""Wilson's interval and the line of chance: one of each in the house, equal to the other library's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from counterfoil.proportions import chance_line, wilson_interval

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
    assert others == ["proportions.py"]
