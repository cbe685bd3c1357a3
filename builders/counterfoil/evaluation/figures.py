"""Figures of the report as inline SVG whose colours follow the page's light or dark theme.

matplotlib draws with stand-in colours, which are then replaced by the page's CSS variables.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from counterfoil.evaluation.results import Evaluation, ShiftResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("background", "weather", "light", "colour", "co-occurrence", "style", "other")
MOST_BARS = 40
MOST_PANELS = 36
_PANELS_A_ROW = 4
# CSS pixels an inch of figure: 96 at natural size, somewhat larger here to fill the page.
_CSS_PIXELS = 120

# Stand-in colour -> CSS variable of the page.
_INK, _MUTED, _RULE = "#010a01", "#010a02", "#010a03"
_KIND_COLOURS = {kind: f"#010a1{place}" for place, kind in enumerate(KINDS)}
_VARIABLES = {_INK: "--ink", _MUTED: "--muted", _RULE: "--rule"} | {
    colour: f"--kind-{kind}" for kind, colour in _KIND_COLOURS.items()
}


def kind_of(shift: ShiftResult) -> str:
    """The shift's kind as the figures and the page group it."""
    return shift.kind if shift.kind in KINDS else "other"


def spoken(name: str) -> str:
    """A shift's name for reading: underscores are spaces."""
    return name.replace("_", " ")


def impact_figure(evaluation: Evaluation) -> str | None:
    """Bars of the absolute impact of each shift with its interval, largest first; None without any."""
    shown = [shift for shift in evaluation.shifts if shift.impact is not None]
    shown = sorted(shown, key=lambda one: -one.impact.value if one.impact else 0.0)[:MOST_BARS]
    if not shown:
        return None
    figure, axes = _figure(8.2, 0.9 + 0.3 * len(shown))
    for row, shift in enumerate(shown):
        impact = shift.impact
        assert impact is not None
        colour = _KIND_COLOURS[kind_of(shift)]
        axes.barh(row, 100 * impact.value, height=0.62, color=colour, zorder=2)
        if impact.low is not None and impact.high is not None:
            axes.plot([100 * impact.low, 100 * impact.high], [row, row], color=_INK, linewidth=1.1, zorder=3)
            for end in (impact.low, impact.high):
                axes.plot([100 * end] * 2, [row - 0.14, row + 0.14], color=_INK, linewidth=1.1, zorder=3)
    axes.set_yticks(range(len(shown)), [spoken(one.name) for one in shown], parse_math=False)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.axvline(0, color=_INK, linewidth=0.8, zorder=4)
    axes.grid(axis="x", color=_RULE, linewidth=0.7, zorder=0)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("drop in accuracy, averaged over models (percentage points)", color=_MUTED)
    return _svg(figure, "impact", "Absolute impact of each shift with its interval")


def line_figure(evaluation: Evaluation) -> str | None:
    """Base against shifted accuracy: a point a model, a panel a shift, with the fitted line if any."""
    shown = [shift for shift in evaluation.shifts if shift.impact is not None][:MOST_PANELS]
    if not shown:
        return None
    columns = len(shown) if len(shown) <= _PANELS_A_ROW + 1 else _PANELS_A_ROW
    rows = math.ceil(len(shown) / columns)
    figure, axes = _panels(rows, columns)
    low, high = _bounds(evaluation, shown)
    for place, shift in enumerate(shown):
        _draw_line_panel(axes[place // columns][place % columns], evaluation, shift, low, high)
    for place in range(len(shown), rows * columns):
        axes[place // columns][place % columns].set_visible(False)
    figure.supxlabel("accuracy on the base (%)", color=_MUTED, fontsize=10)
    figure.supylabel("accuracy under the shift (%)", color=_MUTED, fontsize=10)
    return _svg(figure, "lines", "Accuracy under each shift against accuracy on the base, one point a model")


def slope_figure(evaluation: Evaluation) -> str | None:
    """Absolute impact against ID/OOD slope, a point a shift (Vendrow 2023, Figure 11), or None."""
    shown = [shift for shift in evaluation.shifts if shift.impact is not None and shift.slope is not None]
    if len(shown) < 2:
        return None
    figure, axes = _figure(8.2, 4.6)
    for shift in shown:
        assert shift.impact is not None and shift.slope is not None
        x, y = 100 * shift.impact.value, shift.slope.slope
        axes.scatter(x, y, s=42, color=_KIND_COLOURS[kind_of(shift)], zorder=3, linewidths=0)
        axes.annotate(
            spoken(shift.name), (x, y), xytext=(6, 4), textcoords="offset points", fontsize=8.5, color=_MUTED,
            parse_math=False,
        )  # fmt: skip
    axes.margins(x=0.12, y=0.12)
    axes.grid(color=_RULE, linewidth=0.7, zorder=0)
    axes.set_xlabel("absolute impact (percentage points)", color=_MUTED)
    axes.set_ylabel("ID/OOD slope", color=_MUTED)
    return _svg(figure, "slopes", "Absolute impact against ID/OOD slope, one point a shift")


def _draw_line_panel(axes: Axes, evaluation: Evaluation, shift: ShiftResult, low: float, high: float) -> None:
    colour = _KIND_COLOURS[kind_of(shift)]
    scores = [evaluation.score(model.name, shift.name) for model in evaluation.models]
    x = [100 * (one.base_accuracy or 0.0) for one in scores]
    y = [100 * (one.accuracy or 0.0) for one in scores]
    axes.plot([low, high], [low, high], color=_MUTED, linewidth=0.8, linestyle=(0, (3, 3)), zorder=1)
    note = ""
    if shift.slope is not None:
        ends = [min(x), max(x)]
        fitted = [shift.slope.slope * one + 100 * shift.slope.intercept for one in ends]
        axes.plot(ends, fitted, color=colour, linewidth=1.6, zorder=2)
        note = f"slope {shift.slope.slope:.2f}"
    axes.scatter(x, y, s=20, color=colour, zorder=3, linewidths=0)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    axes.set_title(spoken(shift.name), fontsize=10, color=_INK, loc="left", pad=4, parse_math=False)
    axes.text(0.05, 0.9, note, transform=axes.transAxes, fontsize=8.5, color=_MUTED)
    axes.grid(color=_RULE, linewidth=0.6, zorder=0)


def _bounds(evaluation: Evaluation, shown: Sequence[ShiftResult]) -> tuple[float, float]:
    names = {shift.name for shift in shown}
    scores = [one for one in evaluation.scores if one.shift in names and one.accuracy is not None]
    values = [100 * value for one in scores for value in (one.accuracy, one.base_accuracy) if value is not None]
    low, high = min(values), max(values)
    margin = max(2.0, 0.06 * (high - low))
    return max(-2.0, low - margin), min(102.0, high + margin)


def _style() -> Any:
    return {
        "svg.fonttype": "none",
        "font.size": 9.5,
        "axes.edgecolor": _RULE,
        "axes.labelcolor": _MUTED,
        "xtick.color": _MUTED,
        "ytick.color": _MUTED,
        "xtick.labelcolor": _MUTED,
        "ytick.labelcolor": _INK,
        "text.color": _INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
    }


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure, axes = _panels(1, 1, size=(width, height))
    return figure, axes[0][0]


def _panels(rows: int, columns: int, size: tuple[float, float] | None = None) -> tuple[Figure, Any]:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_style()):
        figure = Figure(figsize=size or (2.15 * columns + 0.5, 2.25 * rows + 0.5), layout="constrained")
        shared = size is None
        return figure, figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared)


def _svg(figure: Figure, name: str, title: str) -> str:
    """The figure as an SVG element with a title, themed, and the same bytes for the same numbers."""
    import matplotlib

    buffer = io.StringIO()
    # The salt names the ids inside, which must differ between figures of one page.
    with matplotlib.rc_context(_style() | {"svg.hashsalt": f"counterfoil-{name}"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    # Ids are counted within a figure, and several figures share the page.
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    # Text takes the page's font; matplotlib measured with its own, which is wider than most.
    text = re.sub(r"font:\s*([\d.]+px)[^;\"]*", r"font-size: \1", text)
    text = re.sub(r"<svg ", f'<svg role="img" aria-label="{title}" class="figure" ', text, count=1)
    width = float(figure.get_figwidth())
    # As wide as the page allows, and no wider than its text stays in proportion to the page's.
    return re.sub(
        r'(<svg[^>]*?) height="[\d.]+pt"', rf'\1 style="max-width:{width * _CSS_PIXELS:.0f}px"', text, count=1
    )
