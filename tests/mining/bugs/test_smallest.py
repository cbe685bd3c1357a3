"""What would have been seen is what a run of that size does see, four times in five."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from counterfoil.mining.bugs.pair_tests import log_e_values
from counterfoil.mining.bugs.smallest import smallest_seen


@pytest.mark.parametrize(("pairs", "base_rate", "tested"), [(128, 0.0, 8), (128, 0.2, 8), (400, 0.1, 20)])
def test_a_difference_of_that_size_is_confirmed_four_times_in_five(pairs: int, base_rate: float, tested: int) -> None:
    least = smallest_seen(pairs, base_rate, tested, 0.1)
    assert least is not None
    rng = np.random.default_rng(7)
    described = rng.random((3000, pairs)) < base_rate + least
    base = rng.random((3000, pairs)) < base_rate
    failing, rescued = (described & ~base).sum(1), (~described & base).sum(1)
    power = (log_e_values(failing, failing + rescued) >= log(tested / 0.1)).mean()
    assert power == pytest.approx(0.8, abs=0.05)


def test_it_grows_with_the_base_rate_and_with_what_was_tested_and_falls_with_pairs() -> None:
    def least(pairs: int, base_rate: float, tested: int) -> float:
        return smallest_seen(pairs, base_rate, tested, 0.1) or 1.0

    assert least(128, 0.0, 8) < least(128, 0.1, 8) < least(128, 0.3, 8)
    assert least(256, 0.1, 8) < least(128, 0.1, 8) < least(128, 0.1, 80)


def test_too_few_pairs_show_no_difference_at_all() -> None:
    assert smallest_seen(0, 0.1, 1, 0.1) is None
    assert smallest_seen(6, 0.0, 20, 0.1) is None
