"""The drawings of mining's page, as small SVGs in its colours: rates with intervals, accuracy over K, tests in pairs.

Places across are in percent of the width, so a drawing is as wide as its column and its dots stay round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from counterfoil.mining.drawn_findings import SequentialLook
from counterfoil.mining.findings import CurvePoint, Rate

if TYPE_CHECKING:
    from markupsafe import Markup

# Percent of the width that is left free at either end, where half a dot needs room.
_EDGE = 2.5
_ROW = 22
_CURVE_HEIGHT = 120
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)
_STRIP_HEIGHT = 14
_BAR_HEIGHT = 10
# E-values from 1e-10 to 1e100, in natural logarithms: beyond, a look is drawn at the edge.
_LEAST_LOG_E, _MOST_LOG_E = -23.0, 230.0
_MOST_POWERS = 7


def rates_figure(rates: Sequence[tuple[Rate, str]]) -> Markup:
    """A row for each (rate, CSS class), a dot with its whisker on a common axis from 0 to 100 %."""
    height = _ROW * len(rates)
    parts = [_line(_x(tick), 0, _x(tick), height, "grid") for tick in _TICKS]
    for row, (rate, look) in enumerate(rates):
        middle = _ROW * row + _ROW / 2
        if rate.interval is not None:
            low, high = (min(1.0, max(0.0, bound)) for bound in rate.interval)
            parts.append(_line(_x(low), middle, _x(high), middle, f"whisker {look}"))
        if rate.rate is not None:
            parts.append(f'<circle class="{look}" cx="{_x(rate.rate)}" cy="{middle:g}" r="5.5"/>')
    return _svg(parts, height, "dots")


def curve_figure(points: Sequence[CurvePoint], accuracy: float | None) -> Markup:
    """Accuracy from 0 to 100 % over K, on a logarithmic axis; dashed, the accuracy of all images of the classes."""
    lowest, highest = math.log(points[0].k), math.log(points[-1].k)
    parts = [_line(_x(0), _y(tick), _x(1), _y(tick), "grid") for tick in _TICKS]
    if accuracy is not None:
        parts.append(_line(_x(0), _y(accuracy), _x(1), _y(accuracy), "all"))
    places = [
        (_x((math.log(point.k) - lowest) / (highest - lowest) if highest > lowest else 0.5), _y(point.accuracy))
        for point in points
    ]
    for (left, above), (right, below) in pairwise(places):
        parts.append(_line(left, above, right, below, "curve"))
    for (x, y), point in zip(places, points, strict=True):
        told = f"{point.k:,} images: {100 * point.accuracy:.0f} % right"
        parts.append(f'<circle class="point" cx="{x}" cy="{y:g}" r="3.2"><title>{told}</title></circle>')
    return _svg(parts, _CURVE_HEIGHT, "curve")


def pairs_figure(parts: Sequence[tuple[int, str]]) -> Markup:
    """One strip of all pairs, parted into (pairs, CSS class) from left to right."""
    every = sum(pairs for pairs, _ in parts) or 1
    drawn, before = [], 0
    for pairs, look in parts:
        if pairs:
            drawn.append(
                f'<rect class="{look}" x="{100 * before / every:.2f}%" y="0" '
                f'width="{100 * pairs / every:.2f}%" height="{_STRIP_HEIGHT}"/>'
            )
        before += pairs
    return _svg(drawn, _STRIP_HEIGHT, "strip")


def bar_figure(share: float, most: float, look: str) -> Markup:
    """A bar as long as `share` is of `most`; a sliver for what is not zero."""
    width = max(0.8, 100 * share / most) if share and most else 0.0
    return _svg([f'<rect class="{look}" y="0" width="{width:.2f}%" height="{_BAR_HEIGHT}"/>'], _BAR_HEIGHT, "bar")


def looks_figure(looks: Sequence[SequentialLook], line: float | None) -> Markup:
    """The e-value after each look over pairs, both logarithmic; dashed, the line from which it counts.

    Grid lines are powers of ten, the strong one E = 1.
    """
    values = [min(_MOST_LOG_E, max(_LEAST_LOG_E, look.log_e)) for look in looks]
    every = [0.0, *values, *(() if line is None else (line,))]
    low, high = min(every), max(every)
    room = max(high - low, 1.0)

    def across(pairs: int) -> str:
        first, last = (math.log(max(1, look.pairs)) for look in (looks[0], looks[-1]))
        return _x((math.log(max(1, pairs)) - first) / (last - first) if last > first else 0.5)

    parts = []
    step = max(1, math.ceil(room / math.log(10) / _MOST_POWERS))
    for power in range(math.ceil(low / math.log(10)), math.floor(high / math.log(10)) + 1):
        if power % step == 0:
            height = _y((power * math.log(10) - low) / room)
            parts.append(_line(_x(0), height, _x(1), height, "grid" if power else "one"))
    if line is not None:
        parts.append(_line(_x(0), _y((line - low) / room), _x(1), _y((line - low) / room), "counts"))
    places = [(across(look.pairs), _y((value - low) / room)) for look, value in zip(looks, values, strict=True)]
    for (left, above), (right, below) in pairwise(places):
        parts.append(_line(left, above, right, below, "curve"))
    for (x, y), look in zip(places, looks, strict=True):
        told = f"{look.pairs:,} pairs: log10 E {look.log_e / math.log(10):.1f}"
        parts.append(f'<circle class="point" cx="{x}" cy="{y:g}" r="3.2"><title>{told}</title></circle>')
    return _svg(parts, _CURVE_HEIGHT, "curve looks")


def _x(share: float) -> str:
    return f"{_EDGE + (100 - 2 * _EDGE) * share:.2f}%"


def _y(share: float) -> float:
    return round(5 + (_CURVE_HEIGHT - 10) * (1 - share), 1)


def _line(x1: str, y1: float, x2: str, y2: float, look: str) -> str:
    return f'<line class="{look}" x1="{x1}" y1="{y1:g}" x2="{x2}" y2="{y2:g}"/>'


def _svg(parts: Sequence[str], height: int, look: str) -> Markup:
    """The numbers stand beside every drawing, so readers of the page's text lose nothing by its being hidden."""
    from markupsafe import Markup

    return Markup(f'<svg class="{look}" width="100%" height="{height}" aria-hidden="true">{"".join(parts)}</svg>')
