"""The report's figures: impact of each shift, base against shifted accuracy, and impact against slope."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from counterfoil.evaluation.figure_style import (
    INK,
    KIND_COLOURS,
    KINDS,
    MUTED,
    RULE,
    as_svg,
    new_figure,
    new_panels,
    place_labels,
    short,
    spoken,
)
from counterfoil.report.reference import averaged
from counterfoil.report.results import GroupFacts, Results
from counterfoil.report.words import between, points
from counterfoil.stats import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_BARS = 40
MOST_PANELS = 36
_PANELS_A_ROW = 4
# Through fewer points nobody sees how impact and slope go together.
FEWEST_SHIFTS_FOR_SLOPES = 10


def kind_of_shift(shift: GroupFacts) -> str:
    """The shift's kind as the figures and the page group it."""
    return shift.kind if shift.kind in KINDS else "other"


def _measured(results: Results, *measures: str) -> list[tuple[GroupFacts, list[Estimate]]]:
    """The shifts that have all these numbers, with them, largest impact first."""
    found = []
    for shift in results.by_impact:
        own = [results.rows.estimate(measure, group=shift.name) for measure in measures]
        if all(one is not None for one in own):
            found.append((shift, [one for one in own if one is not None]))
    return found


def impact_figure(results: Results) -> str | None:
    """Bars of the absolute impact of each shift with its interval, largest first; None without any."""
    shown = _measured(results, "impact")[:MOST_BARS]
    if not shown:
        return None
    figure, axes = new_figure(8.2, 0.9 + 0.3 * len(shown))
    tips = {}
    for row, (shift, [impact]) in enumerate(shown):
        [bar] = axes.barh(row, 100 * impact.value, height=0.62, color=KIND_COLOURS[kind_of_shift(shift)], zorder=2)
        bar.set_gid(f"bar{row}")
        tips[f"bar{row}"] = [f"{spoken(shift.name)}: {_points(impact)} points"]
        if impact.low is not None and impact.high is not None:
            axes.plot([100 * impact.low, 100 * impact.high], [row, row], color=INK, linewidth=1.1, zorder=3)
            for end in (impact.low, impact.high):
                axes.plot([100 * end] * 2, [row - 0.14, row + 0.14], color=INK, linewidth=1.1, zorder=3)
    axes.set_yticks(range(len(shown)), [short(one.name) for one, _ in shown], parse_math=False)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.axvline(0, color=INK, linewidth=0.8, zorder=4)
    axes.grid(axis="x", color=RULE, linewidth=0.7, zorder=0)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    words = averaged(results)
    axes.set_xlabel(f"drop in accuracy{f', {words}' if words else ''} (points)", color=MUTED)
    return as_svg(figure, "impact", "Absolute impact of each shift with its interval", tips)


def line_figure(results: Results) -> str | None:
    """Base against shifted accuracy: a point a model, a panel a shift, with the fitted line if any."""
    shown = [shift for shift, _ in _measured(results, "impact")][:MOST_PANELS]
    if not shown:
        return None
    columns = len(shown) if len(shown) <= _PANELS_A_ROW + 1 else _PANELS_A_ROW
    rows = math.ceil(len(shown) / columns)
    figure, axes = new_panels(rows, columns)
    low, high = _bounds(results, shown)
    tips = {}
    for place, shift in enumerate(shown):
        panel = axes[place // columns][place % columns]
        tips |= _draw_line_panel(panel, f"panel{place}", results, shift, low, high)
    for place in range(len(shown), rows * columns):
        axes[place // columns][place % columns].set_visible(False)
        # The panel above it is the last of its column, and shows the scale there.
        axes[place // columns - 1][place % columns].tick_params(labelbottom=True)
    figure.supxlabel("accuracy on the base (%)", color=MUTED, fontsize=10)
    figure.supylabel("accuracy under the shift (%)", color=MUTED, fontsize=10)
    return as_svg(figure, "lines", "Accuracy under each shift against accuracy on the base, one point a model", tips)


def slope_figure(results: Results) -> str | None:
    """Absolute impact against ID/OOD slope, a point a shift (Vendrow 2023, Figure 11); None for few shifts."""
    shown = _measured(results, "impact", "slope")
    if len(shown) < FEWEST_SHIFTS_FOR_SLOPES:
        return None
    figure, axes = new_figure(8.2, 5.4)
    tips = {}
    labels = []
    for place, (shift, [impact, line]) in enumerate(shown):
        x, y, colour = 100 * impact.value, line.value, KIND_COLOURS[kind_of_shift(shift)]
        axes.scatter(x, y, s=44, color=colour, zorder=3, linewidths=0, gid=f"shift{place}")
        ends = "" if line.low is None or line.high is None else f" ({line.low:.2f} to {line.high:.2f})"
        slope = f"{line.value:.2f}{ends}"
        tips[f"shift{place}"] = [
            f"{spoken(shift.name)} ({kind_of_shift(shift)}): impact {_points(impact)} points, slope {slope}"
        ]
        labels.append((x, y, short(shift.name)))
    axes.margins(x=0.1, y=0.08)
    axes.axhline(1, color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)), zorder=1)
    axes.grid(color=RULE, linewidth=0.7, zorder=0)
    axes.set_xlabel("absolute impact (points)", color=MUTED)
    axes.set_ylabel("ID/OOD slope", color=MUTED)
    place_labels(axes, labels)
    return as_svg(figure, "slopes", "Absolute impact against ID/OOD slope, one point a shift", tips)


def _draw_line_panel(
    axes: Axes, gid: str, results: Results, shift: GroupFacts, low: float, high: float
) -> dict[str, list[str]]:
    """Draw one shift's panel, models near chance as rings; returns a sentence for each point, by gid."""
    colour = KIND_COLOURS[kind_of_shift(shift)]
    axes.plot([low, high], [low, high], color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)), zorder=1)
    tips = {}
    note, number = "", results.rows
    line, intercept = (number.value(name, group=shift.name) for name in ("slope", "intercept"))
    for name, models, faces in (
        (gid, results.sound_models, colour),
        (f"{gid}chance", [model for model in results.models if model.near_chance], "none"),
    ):
        if not models:
            continue
        x, y = (
            [100 * (number.value(measure, model=model.name, group=shift.name) or 0.0) for model in models]
            for measure in ("base_accuracy", "accuracy")
        )
        if line is not None and intercept is not None and faces != "none":
            ends = [min(x), max(x)]
            fitted = [line * one + 100 * intercept for one in ends]
            axes.plot(ends, fitted, color=colour, linewidth=1.6, zorder=2)
            note = f"slope {line:.2f}"
        axes.scatter(
            x, y, s=20, facecolors=faces, edgecolors=MUTED if faces == "none" else colour,
            linewidths=1 if faces == "none" else 0, zorder=3, gid=name, clip_on=False,
        )  # fmt: skip
        tips[name] = [
            f"{model.name}: base {base:.1f} %, {spoken(shift.name)} {shifted:.1f} %"
            for model, base, shifted in zip(models, x, y, strict=True)
        ]
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    axes.locator_params(nbins=5)
    axes.set_title(short(shift.name, 26), fontsize=10, color=INK, loc="left", pad=4, parse_math=False)
    axes.text(0.05, 0.9, note, transform=axes.transAxes, fontsize=8.5, color=MUTED)
    axes.grid(color=RULE, linewidth=0.6, zorder=0)
    return tips


def _bounds(results: Results, shown: Sequence[GroupFacts]) -> tuple[float, float]:
    names = {shift.name for shift in shown}
    values = [
        100 * one.value
        for measure in ("accuracy", "base_accuracy")
        for one in results.rows.where(measure, class_id="")
        if one.group in names and one.value is not None
    ]
    low, high = min(values), max(values)
    margin = max(2.0, 0.06 * (high - low))
    return max(-2.0, low - margin), min(102.0, high + margin)


def _points(estimate: Estimate) -> str:
    """An impact in points with its interval."""
    interval = between(estimate)
    return points(estimate.value) + (f" ({interval})" if interval else "")
