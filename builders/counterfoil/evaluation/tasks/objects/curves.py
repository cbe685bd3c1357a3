"""Precision against recall at IoU .50, averaged over categories, on the base and under the shifts
that cost most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from counterfoil.arrays import Floats
from counterfoil.detection_stats import RECALLS, Matches
from counterfoil.evaluation.figures import (
    DASHED,
    KIND_COLOURS,
    LINES,
    MUTED,
    as_svg,
    draw_line,
    draw_points,
    label_panels,
    panels_in_rows,
    title_panel,
)
from counterfoil.evaluation.resampled_page import sorted_drops
from counterfoil.report.results import ModelFacts, ResultRow, Results
from counterfoil.report.words import format_percent, in_words
from counterfoil.resampled_stats import mean_of_finite

CURVE = "precision"
# One of every five recalls of COCO is enough for a figure.
_STEP = 5
_MOST_SHIFTS = 7


def precision_curve(matches: Matches) -> Floats:
    """Return the precision at each of `RECALLS`, (101,), as pycocotools has it: the best precision
    among this recall and all higher ones.

    The curve is a mean over the categories that have objects; it is NaN if none has. Its own mean
    is AP50.
    """
    curves = np.full((matches.categories, len(RECALLS)), np.nan)
    objects = matches.object_category[matches.counted[0]]
    totals = np.bincount(objects, minlength=matches.categories)
    # Objects of all sizes, at IoU .50.
    ignored = matches.ignored[0, 0]
    matched = matches.matched[0, 0]
    for category in np.flatnonzero(totals):
        of_category = (matches.category == category) & ~ignored
        right = np.cumsum(matched[of_category])
        # pycocotools adds np.spacing(1) too.
        detections = np.arange(1, len(right) + 1) + np.spacing(1)
        precision = right / detections
        highest = np.maximum.accumulate(precision[::-1])
        envelope = np.append(highest[::-1], 0.0)  # recalls that no detection reaches have 0
        reached = np.searchsorted(right / totals[category], RECALLS)
        curves[category] = envelope[reached]
    return mean_of_finite(curves)


def curve_points(matches: Matches) -> list[tuple[str, float]]:
    """Return every fifth point of the curve: the recall as text, such as "0.05", and the
    precision."""
    recalls = [f"{recall:.2f}" for recall in RECALLS[::_STEP]]
    precisions = precision_curve(matches)[::_STEP]
    return list(zip(recalls, precisions.tolist(), strict=True))


def curve_figure(results: Results, models: Sequence[ModelFacts]) -> str | None:
    """Draw a panel for the base and each of the shifts that cost most, with one line per model.
    Return None if no model has a curve."""
    if not models:
        return None
    names = [] if results.base is None else [results.base]
    drops = sorted_drops(results, models[0], "AP50")
    for group, _ in drops[:_MOST_SHIFTS]:
        names.append(group.name)
    shown = models[: len(LINES)]
    rows_of = {}
    for name in names:
        for model in shown:
            rows = results.rows.where(CURVE, model=model.name, group=name)
            rows_of[name, model.name] = rows
    if not any(rows_of.values()):
        return None
    figure, panels = panels_in_rows(len(names))
    ends = (-2, 102)
    ticks = [0, 50, 100]
    tips: dict[str, list[str]] = {}
    for index, (panel, name) in enumerate(zip(panels, names, strict=True)):
        for line, model in enumerate(shown):
            colour = KIND_COLOURS[LINES[line]]
            if name != results.base:
                first = names[0]  # the base, or the worst shift without a base
                x, y = _points(rows_of[first, model.name])
                base_colour = colour
                if len(models) == 1:
                    base_colour = MUTED
                panel.plot(
                    x,
                    y,
                    color=base_colour,
                    linewidth=1.0,
                    linestyle=DASHED,
                    zorder=2,
                )
            rows = rows_of[name, model.name]
            x, y = _points(rows)
            gid = f"recalls{index}m{line}"
            draw_line(panel, x, y, colour)
            draw_points(panel, x, y, 9, gid, color=colour)
            tips[gid] = []
            for row in rows:
                precision = f"precision {format_percent(row.value)}"
                recall = f"recall {format_percent(float(row.at), 0)}"
                tips[gid].append(f"{model.name}, {in_words(name)}: {precision} at {recall}")
        panel.set(xlim=ends, ylim=ends)
        panel.set_aspect("equal")
        title_panel(panel, name)
        panel.set_xticks(ticks)
        panel.set_yticks(ticks)
    label_panels(figure, "recall (%)", "precision (%)")
    return as_svg(figure, "recalls", "Precision against recall, on the base and under shifts", tips)


def _points(rows: Sequence[ResultRow]) -> tuple[list[float], list[float]]:
    """Return the recalls and the precisions of a curve in percent."""
    recalls = []
    precisions = []
    for row in rows:
        recalls.append(100 * float(row.at))
        precisions.append(100 * (row.value or 0.0))
    return recalls, precisions
