"""Intervals that have to be there."""

from __future__ import annotations

from typing import Any


def interval_of(estimate: Any) -> tuple[float, float, float]:
    """Return the lower end, the value and the upper end of an estimate, which has all of them."""
    assert estimate is not None
    ends = estimate.low, estimate.value, estimate.high
    assert None not in ends
    return ends
