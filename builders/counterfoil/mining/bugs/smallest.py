"""The smallest difference that pairs would have confirmed: what "no failure found" is worth."""

from __future__ import annotations

from math import log

import numpy as np

from counterfoil.mining.bugs.pair_tests import log_e_values
from counterfoil.mining.hypothesis_tests import POWER

_RUNS = 4000
_STEPS = 12


def smallest_seen(pairs: int, base_rate: float, tested: int, fdr: float) -> float | None:
    """The least difference that all of `pairs` confirm with a chance of `POWER`, where no other of `tested` is.

    The halves of a pair fail independently, the base's at `base_rate`: what noise they share makes them agree more, and
    differences easier to see. By simulation, of one seed. None where no difference is seen so often.
    """
    threshold = log(max(tested, 1) / fdr)

    def power(difference: float) -> float:
        described = base_rate + difference
        failing, rescued = described * (1 - base_rate), (1 - described) * base_rate
        drawn = np.random.default_rng(0).multinomial(pairs, [failing, rescued, 1 - failing - rescued], _RUNS)
        values = log_e_values(drawn[:, 0], drawn[:, 0] + drawn[:, 1])
        return float((values >= threshold).mean())

    low, high = 0.0, 1.0 - base_rate
    if pairs < 1 or high <= 0 or power(high) < POWER:
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return high
