"""Precision against recall at IoU .50, averaged over categories, on the base and under the shifts
that cost most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.arrays import Floats
from counterfoil.detection_stats import RECALLS, Matches
from counterfoil.evaluation.figures import (
    KIND_COLOURS,
    LINES,
    MUTED,
    as_svg,
    label_panels,
    panels_in_rows,
    title_panel,
)
from counterfoil.evaluation.resampled_page import sorted_drops
from counterfoil.report.results import ModelFacts, ResultRow, Results
from counterfoil.report.words import in_words, percent
from counterfoil.resampled_stats import mean_of_finite

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVE = "precision"
# One of every five recalls of COCO is enough for a figure.
_STEP = 5
_MOST_SHIFTS = 7


def precision_curve(matches: Matches) -> Floats:
    """Return the precision at each of `RECALLS`, (101,), as pycocotools has it: the best at that or
    a higher recall.

    It is the mean over categories that have objects, NaN without any; the mean of the curve is
    AP50.
    """
    curves = np.full((matches.categories, len(RECALLS)), np.nan)
    totals = np.bincount(matches.object_category[matches.counted[0]], minlength=matches.categories)
    for category in np.flatnonzero(totals):
        of_category = (matches.category == category) & ~matches.ignored[0, 0]
        right = np.cumsum(matches.matched[0, 0, of_category])
        precision = right / (np.arange(1, len(right) + 1) + np.spacing(1))
        envelope = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
        curves[category] = envelope[np.searchsorted(right / totals[category], RECALLS)]
    return mean_of_finite(curves)


def curve_points(matches: Matches) -> list[tuple[str, float]]:
    """Return some points of the curve, as (recall in words of a row, precision)."""
    curve = precision_curve(matches)
    return [
        (f"{RECALLS[index]:.2f}", float(curve[index])) for index in range(0, len(RECALLS), _STEP)
    ]


def curve_figure(results: Results, models: Sequence[ModelFacts]) -> str | None:
    """Draw a panel for the base and each of the shifts that cost most, with a line a model; None
    without curves."""
    if not models:
        return None
    worst = [group.name for group, _ in sorted_drops(results, models[0], "AP50")[:_MOST_SHIFTS]]
    names = [name for name in (results.base, *worst) if name is not None]
    lines = {
        (name, model.name): results.rows.where(CURVE, model=model.name, group=name)
        for name in names
        for model in models[: len(LINES)]
    }
    if not any(lines.values()):
        return None
    figure, panels = panels_in_rows(len(names))
    tips = {}
    for index, (panel, name) in enumerate(zip(panels, names, strict=True)):
        for line, (model, kind) in enumerate(zip(models, LINES, strict=False)):
            colour = KIND_COLOURS[kind]
            if name != results.base:
                _draw(
                    panel,
                    lines[names[0], model.name],
                    MUTED if len(models) == 1 else colour,
                    base=True,
                )
            rows = lines[name, model.name]
            _draw(panel, rows, colour)
            gid = f"recalls{index}m{line}"
            at = [(100 * float(row.at), 100 * (row.value or 0.0)) for row in rows]
            panel.scatter(
                [x for x, _ in at],
                [y for _, y in at],
                s=9,
                color=colour,
                linewidths=0,
                zorder=3,
                gid=gid,
            )
            tips[gid] = [
                f"{model.name}, {in_words(name)}: precision {percent(row.value)} at recall"
                f" {percent(float(row.at), 0)}"
                for row in rows
            ]
        panel.set(xlim=(-2, 102), ylim=(-2, 102))
        panel.set_aspect("equal")
        title_panel(panel, name)
        panel.set_xticks([0, 50, 100])
        panel.set_yticks([0, 50, 100])
    label_panels(figure, "recall (%)", "precision (%)")
    return as_svg(figure, "recalls", "Precision against recall, on the base and under shifts", tips)


def _draw(panel: Axes, rows: Sequence[ResultRow], colour: str, base: bool = False) -> None:
    x = [100 * float(row.at) for row in rows]
    y = [100 * (row.value or 0.0) for row in rows]
    style = (0, (3, 3)) if base else "solid"
    panel.plot(x, y, color=colour, linewidth=1.0 if base else 1.6, linestyle=style, zorder=2)
