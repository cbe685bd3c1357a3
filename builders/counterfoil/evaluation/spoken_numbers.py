"""Fractions as a page and a terminal say them: percentage points, percent, and intervals."""

from __future__ import annotations

from counterfoil.stats import Estimate


def points(value: float | None, signed: bool = False) -> str:
    """A fraction as percentage points with one decimal; a dash for None."""
    if value is None:
        return "–"
    text = f"{100 * value:+.1f}" if signed else f"{100 * value:.1f}"
    # A drop that rounds to nothing has no sign.
    text = text.lstrip("+-") if float(text) == 0 else text
    return text.replace("-", "−")


def percent(value: float | None) -> str:
    """A fraction as percent with one decimal; a dash for None."""
    return "–" if value is None else f"{100 * value:.1f} %"


def between(estimate: Estimate | None) -> str:
    """The interval of an estimate in points, as "low to high"; nothing where there is none."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    return f"{points(estimate.low)} to {points(estimate.high)}"
