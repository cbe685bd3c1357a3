"""The report's figures: impact, base against shifted accuracy, impact against slope, curves over
levels, transfer.

matplotlib draws them in stand-in colours, which become the page's CSS variables, so that a figure
follows the page's light or dark theme. Points and bars carry a sentence that the page shows when
the pointer rests on them.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from scipy.special import ndtri

from counterfoil.accuracy_stats import probits
from counterfoil.arrays import Floats
from counterfoil.recipe.schema_prompts import Kind
from counterfoil.report.pictures import data_uri, encode_webp
from counterfoil.report.published import SETS
from counterfoil.report.results import GroupFacts, ModelFacts, Results
from counterfoil.report.severity import ACCURACY
from counterfoil.report.words import (
    cut_text,
    format_interval,
    format_list,
    format_percent,
    format_points,
    in_words,
)
from counterfoil.stats import Estimate
from counterfoil.store.decoding import rgb_image

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from counterfoil.evaluation.dataset import Subject

# Kinds of shifts in the order of legends: the recipe's kinds, and one for shifts without a kind.
KINDS: tuple[str, ...] = (*get_args(Kind), "other")
# CSS pixels per inch of figure: 96 at natural size, larger here to fill the page.
_CSS_PIXELS = 120
# At this scale the smallest text, 8.5 points, is 10 CSS pixels high.
_FEWEST_CSS_PIXELS = 85
_LONGEST_NAME = 30

DASHED: Any = (0, (3, 3))
# Stand-in colour -> CSS variable of the page.
INK = "#010a01"
MUTED = "#010a02"
RULE = "#010a03"
KIND_COLOURS = {kind: f"#010a{0x10 + index:02x}" for index, kind in enumerate(KINDS)}
_VARIABLES = {INK: "--ink", MUTED: "--muted", RULE: "--rule"} | {
    colour: f"--kind-{kind}" for kind, colour in KIND_COLOURS.items()
}


# A report is one file: these bound its size (about 1 MB of thumbnails for 24 shifts).
MOST_SHIFTS = 24
_THUMBNAIL = 96


def thumbnails(subject: Subject, keys: Iterable[str]) -> dict[str, str]:
    """Return small pictures of readable images, as addresses that hold them, by key."""
    shown = frozenset(keys)
    addresses = {}
    if shown:
        for key, encoded in subject.images(shown):
            picture = encode_webp(rgb_image(encoded), 88, _THUMBNAIL)
            addresses[key] = data_uri(picture)
    return addresses


def short_shift_name(name: str, longest: int = _LONGEST_NAME) -> str:
    """Return a shift's name for a figure, cut to `longest` characters."""
    return cut_text(in_words(name), longest)


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a figure of one plot, of a size in inches, with room for whatever labels it gets."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_style()):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
    return figure, axes


def as_svg(
    figure: Figure,
    name: str,
    title: str,
    tips: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """Return the figure as an SVG element with a title; equal numbers give equal bytes.

    `tips` maps the gid of a bar to its sentence, and of a scatter to one sentence per point.
    """
    import matplotlib

    buffer = io.StringIO()
    # Ids derive from the salt, and must differ between figures of one page.
    style = _style() | {"svg.hashsalt": f"counterfoil-{name}"}
    without_clock = {"Date": None, "Creator": None}
    with matplotlib.rc_context(style):
        figure.savefig(buffer, format="svg", transparent=True, metadata=without_clock)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for gid, sentences in (tips or {}).items():
        text = _with_tips(text, gid, sentences)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    # Ids are unique within a figure only.
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    # Text uses the page's font. matplotlib measured its own, which is wider than most.
    text = re.sub(r"font:\s*([\d.]+px)[^;\"]*", r"font-size: \1", text)
    text = re.sub(r"<svg ", f'<svg role="img" aria-label="{title}" class="figure" ', text, count=1)
    # As wide as the page, up to the width at which text matches the page's. On a narrow page the
    # figure scrolls, so that its text stays readable.
    width = float(figure.get_figwidth())
    least = width * _FEWEST_CSS_PIXELS
    most = width * _CSS_PIXELS
    style_attribute = rf'\1 style="min-width:{least:.0f}px;max-width:{most:.0f}px"'
    return re.sub(r'(<svg[^>]*?) height="[\d.]+pt"', style_attribute, text, count=1)


def _with_tips(text: str, gid: str, sentences: Sequence[str]) -> str:
    """Return the SVG with a <title> in the group with id `gid`, or in each of its points."""
    group = f'<g id="{gid}">'
    position = text.index(group) + len(group)
    pieces = [text[:position]]
    point_form = re.compile(r"<use ([^>]*?)/>")
    for sentence in sentences:
        title = f"<title>{escape(sentence)}</title>"
        if len(sentences) == 1:
            pieces.append(title)
            break
        point = point_form.search(text, position)
        assert point is not None  # a scatter draws one <use> per point
        pieces.append(text[position : point.start()])
        pieces.append(f"<use {point[1]}>{title}</use>")
        position = point.end()
    pieces.append(text[position:])
    return "".join(pieces)


def place_labels(axes: Axes, points: Sequence[tuple[float, float, str]]) -> None:
    """Write a label beside each point, inside the axes, where it covers the fewest other labels and
    points."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()  # computes the layout, which gives points their pixels
    dots = []
    places = [(x, y) for x, y, _ in points]
    for left, bottom in axes.transData.transform(places) - 4:
        dots.append(Bbox.from_bounds(left, bottom, 8, 8))
    frame = axes.get_window_extent(renderer)
    taken: list[Bbox] = []
    for index, (x, y, label) in enumerate(points):
        others = taken + dots[:index] + dots[index + 1 :]
        texts = []
        costs = []
        for rank, (across, up) in enumerate(_OFFSETS):
            side = int(np.sign(across))
            height = int(np.sign(up))
            text = axes.annotate(
                label,
                (x, y),
                xytext=(across, up),
                textcoords="offset points",
                fontsize=8.5,
                color=MUTED,
                ha=("center", "left", "right")[side],
                va=("center", "bottom", "top")[height],
                parse_math=False,
                annotation_clip=False,
            )
            text.set_in_layout(False)
            box = text.get_window_extent(renderer)
            covered = sum(_shared(box, other) for other in others)
            outside = box.width * box.height - _shared(box, frame)
            texts.append(text)
            costs.append(covered + 4 * outside + 0.5 * rank)
        cheapest = costs.index(min(costs))
        best = texts.pop(cheapest)
        for text in texts:
            text.remove()
        taken.append(best.get_window_extent(renderer))


# Offsets of a label from its point, in points: first beside it, then above and below, then further
# away.
_OFFSETS = (
    (6, 0), (-6, 0), (5, 4), (-5, 4), (5, -4), (-5, -4), (0, 6), (0, -6),
    (6, 11), (-6, 11), (6, -11), (-6, -11), (0, 15), (0, -15),
)  # fmt: skip


def _shared(box: Any, other: Any) -> float:
    left = max(box.x0, other.x0)
    right = min(box.x1, other.x1)
    bottom = max(box.y0, other.y0)
    top = min(box.y1, other.y1)
    return max(0.0, right - left) * max(0.0, top - bottom)


def _style() -> Any:
    return {
        "svg.fonttype": "none",
        "font.size": 9.5,
        "axes.edgecolor": RULE,
        "axes.labelcolor": MUTED,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": MUTED,
        "ytick.labelcolor": INK,
        "text.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.facecolor": "none",
        "figure.facecolor": "none",
    }


MOST_PANELS = 36
_PANELS_A_ROW = 4
# Inches: a panel, the room for labels beside and below all panels, and that beside and above each.
_PANEL = 1.85
_LEFT = 0.75
_BOTTOM = 0.6
_ACROSS = 0.3
_UP = 0.42
# A single panel is as wide as what is written below it.
_NARROWEST = 3.2
# Fewer points do not show how impact and slope relate.
FEWEST_SHIFTS_FOR_SLOPES = 10


def kind_of_shift(shift: GroupFacts) -> str:
    return shift.kind if shift.kind in KINDS else "other"


def measured_shifts(results: Results, *measures: str) -> list[tuple[GroupFacts, list[Estimate]]]:
    """Return the shifts that have all these numbers, with the numbers, largest impact first."""
    measured = []
    for shift in results.by_impact:
        estimates = []
        for measure in measures:
            estimate = results.rows.estimate(measure, group=shift.name)
            if estimate is not None:
                estimates.append(estimate)
        if len(estimates) == len(measures):
            measured.append((shift, estimates))
    return measured


def _shown_shifts(results: Results) -> list[GroupFacts]:
    """Return the shifts of the largest impact, as many as a figure has panels."""
    return [shift for shift, _ in measured_shifts(results, "impact")[:MOST_PANELS]]


def panels_in_rows(count: int) -> tuple[Figure, list[Axes]]:
    """Return `count` small plots that share their axes, in rows.

    Their margins are fixed, because a layout that measures all labels takes as long as drawing
    them.
    """
    import matplotlib
    from matplotlib.figure import Figure

    columns = count
    if count > _PANELS_A_ROW + 1:
        columns = _PANELS_A_ROW
    rows = math.ceil(count / columns)
    right = _LEFT + columns * _PANEL + (columns - 1) * _ACROSS
    width = max(right + _ACROSS, _NARROWEST)
    height = _BOTTOM + rows * (_PANEL + _UP)
    grid = {
        "left": _LEFT / width,
        "right": right / width,
        "bottom": _BOTTOM / height,
        "top": 1 - _UP / height,
        "wspace": _ACROSS / _PANEL,
        "hspace": _UP / _PANEL,
    }
    with matplotlib.rc_context(_style()):
        figure = Figure(figsize=(width, height))
        axes = figure.subplots(
            rows,
            columns,
            squeeze=False,
            sharex=True,
            sharey=True,
            gridspec_kw=grid,
        )
    panels = list(axes.flat)
    for index in range(count, len(panels)):
        panels[index].set_visible(False)
        # The panel above an empty one shows the scale of the column.
        panels[index - columns].tick_params(labelbottom=True)
    return figure, panels[:count]


def title_panel(panel: Axes, name: str) -> None:
    """Write a shift's name above its panel, and draw the grid."""
    shown = short_shift_name(name, 26)
    panel.set_title(
        shown,
        fontsize=10,
        color=INK,
        loc="left",
        pad=4,
        parse_math=False,
    )
    panel.grid(color=RULE, linewidth=0.6, zorder=0)


def draw_diagonal(axes: Axes, low: float, high: float) -> None:
    """Draw the dashed line where both numbers are equal."""
    ends = [low, high]
    axes.plot(
        ends,
        ends,
        color=MUTED,
        linewidth=0.8,
        linestyle=DASHED,
        zorder=1,
    )


def draw_line(panel: Axes, x: Any, y: Any, colour: str) -> None:
    """Draw the line of a model, or one that is fitted to points."""
    panel.plot(
        x,
        y,
        color=colour,
        linewidth=1.6,
        zorder=2,
    )


def draw_points(panel: Axes, x: Any, y: Any, size: float, gid: str, **marks: Any) -> None:
    """Draw points, whose sentences the page knows by `gid`. marks: their colours."""
    marks.setdefault("linewidths", 0)
    panel.scatter(
        x,
        y,
        s=size,
        zorder=3,
        gid=gid,
        **marks,
    )


def label_panels(figure: Figure, across: str, up: str) -> None:
    figure.supxlabel(across, color=MUTED, fontsize=10)
    figure.supylabel(up, color=MUTED, fontsize=10)


def line_figure(results: Results) -> str | None:
    """Draw base against shifted accuracy: a point per model, a panel per shift, with the fitted
    line if any."""
    shown = _shown_shifts(results)
    if not shown:
        return None
    figure, panels = panels_in_rows(len(shown))
    values = []
    for shift in shown:
        for model in results.models:
            values += results.drop_sides(model.name, shift.name) or ()
    low = 100 * min(values)
    high = 100 * max(values)
    margin = max(2.0, 0.06 * (high - low))
    low = max(-2.0, low - margin)
    high = min(102.0, high + margin)
    near_chance = [model for model in results.models if model.near_chance]
    tips = {}
    for index, (panel, shift) in enumerate(zip(panels, shown, strict=True)):
        colour = KIND_COLOURS[kind_of_shift(shift)]
        draw_diagonal(panel, low, high)
        note = ""
        slope = results.rows.value("slope", group=shift.name)
        intercept = results.rows.value("intercept", group=shift.name)
        filled = {"facecolors": colour, "edgecolors": colour}
        rings: dict[str, Any] = {
            "facecolors": "none",
            "edgecolors": MUTED,
            "linewidths": 1,
        }
        for gid, models, marks in (
            (f"panel{index}", results.sound_models, filled),
            (f"panel{index}chance", near_chance, rings),  # models near chance are rings
        ):
            if not models:
                continue
            sides = _sides(results, models, shift)
            x, y = 100 * sides
            if slope is not None and intercept is not None and marks is filled:
                ends = np.array([x.min(), x.max()])
                fitted = slope * ends + 100 * intercept
                draw_line(panel, ends, fitted, colour)
                note = f"slope {slope:.2f}"
            draw_points(panel, x, y, 20, gid, clip_on=False, **marks)
            tips[gid] = _sides_tips(models, sides, shift)
        panel.set_xlim(low, high)
        panel.set_ylim(low, high)
        panel.set_aspect("equal")
        panel.locator_params(nbins=5)
        title_panel(panel, shift.name)
        panel.text(
            0.05,
            0.9,
            note,
            transform=panel.transAxes,
            fontsize=8.5,
            color=MUTED,
        )
    label_panels(figure, "accuracy on the base (%)", "accuracy under the shift (%)")
    title = "Accuracy under each shift against accuracy on the base, one point a model"
    return as_svg(figure, "lines", title, tips)


def slope_figure(results: Results) -> str | None:
    """Draw absolute impact against ID/OOD slope, a point per shift (Vendrow 2023, Figure 11); None
    for few shifts."""
    shown = measured_shifts(results, "impact", "slope")
    if len(shown) < FEWEST_SHIFTS_FOR_SLOPES:
        return None
    figure, axes = new_figure(8.2, 5.4)
    tips = {}
    labels = []
    for index, (shift, estimates) in enumerate(shown):
        impact, line = estimates
        x = 100 * impact.value
        y = line.value
        kind = kind_of_shift(shift)
        gid = f"shift{index}"
        draw_points(axes, x, y, 44, gid, color=KIND_COLOURS[kind])
        impact_words = format_points(impact.value)
        interval = format_interval(impact)
        if interval:
            impact_words += f" ({interval})"
        slope = f"{y:.2f}"
        if line.low is not None and line.high is not None:
            slope += f" ({line.low:.2f} to {line.high:.2f})"
        tip = f"{in_words(shift.name)} ({kind}): impact {impact_words} points, slope {slope}"
        tips[gid] = [tip]
        labels.append((x, y, short_shift_name(shift.name)))
    axes.margins(x=0.1, y=0.08)
    axes.axhline(
        1,
        color=MUTED,
        linewidth=0.8,
        linestyle=DASHED,
        zorder=1,
    )
    axes.grid(color=RULE, linewidth=0.7, zorder=0)
    axes.set_xlabel("absolute impact (points)", color=MUTED)
    axes.set_ylabel("ID/OOD slope", color=MUTED)
    place_labels(axes, labels)
    return as_svg(figure, "slopes", "Absolute impact against ID/OOD slope, one point a shift", tips)


def _sides(results: Results, models: Sequence[ModelFacts], shift: GroupFacts) -> Floats:
    """Return each model's accuracies on the base and under a shift, (2, models)."""
    of_models = []
    for model in models:
        sides = results.drop_sides(model.name, shift.name)
        of_models.append(sides or (0.0, 0.0))
    return np.array(of_models).T


def _sides_tips(models: Sequence[ModelFacts], sides: Floats, shift: GroupFacts) -> list[str]:
    """Return a sentence for each model: its accuracies on the base and under a shift."""
    tips = []
    for model, base, shifted in zip(models, *sides.tolist(), strict=True):
        under_shift = f"{in_words(shift.name)} {format_percent(shifted)}"
        tips.append(f"{model.name}: base {format_percent(base)}, {under_shift}")
    return tips


_PROBIT_TICKS = (1, 5, 20, 50, 80, 95, 99, 99.9)
# A test set of timm -> its line style.
_PUBLISHED: Mapping[str, Any] = {
    "v2": "solid",
    "sketch": (0, (6, 2)),
    "r": (0, (1, 1.5)),
    "a": (0, (6, 2, 1, 2)),
}


def published_figure(results: Results) -> str | None:
    """Draw base against shifted accuracy on the probit scale, a panel per shift: a point per model,
    and timm's lines.

    Return None without published lines, or if no shift is measured for a model that is not near
    chance.
    """
    shown = _shown_shifts(results)
    if results.published is None or not shown:
        return None
    figure, panels = panels_in_rows(len(shown))
    models = results.sound_models
    tips = {}
    lowest = math.inf
    for index, (panel, shift) in enumerate(zip(panels, shown, strict=True)):
        for line in results.published.lines:
            accuracies = np.array([line.low, line.high])
            lowest_x = (ndtri(0.01) - line.probit_intercept) / line.probit_slope
            x = np.maximum(ndtri(accuracies), lowest_x)
            y = line.probit_intercept + line.probit_slope * x
            style = _PUBLISHED[line.shifted]
            panel.plot(
                x,
                y,
                color=MUTED,
                linewidth=1,
                linestyle=style,
                zorder=1,
            )
            panel.annotate(
                SETS[line.shifted],
                (x[0], y[0]),
                xytext=(3, 0),
                textcoords="offset points",
                ha="left",
                va="top",
                fontsize=7.5,
                color=MUTED,
                annotation_clip=True,
            )
        sides = _sides(results, models, shift)
        x = probits(sides[0], shift.base_images)
        y = probits(sides[1], shift.images)
        lowest = min(lowest, float(y.min()))
        colour = KIND_COLOURS[kind_of_shift(shift)]
        gid = f"published{index}"
        draw_points(panel, x, y, 20, gid, color=colour)
        slope = results.rows.value("probit_slope", group=shift.name)
        if slope is not None:
            ends = np.array([x.min(), x.max()])
            fitted = y.mean() + slope * (ends - x.mean())
            draw_line(panel, ends, fitted, colour)
        panel.margins(x=0.12)
        title_panel(panel, shift.name)
        tips[gid] = _sides_tips(models, sides, shift)
    # The panels share their axes. The line of ImageNet-A extends far below any point.
    panel = panels[0]
    across = panel.get_xlim()
    _, top = panel.get_ylim()
    bottom = min(lowest - 0.1, ndtri(0.01))
    up = (bottom, top)
    for axis, (low, high) in ((panel.xaxis, across), (panel.yaxis, up)):
        places = []
        labels = []
        for tick in _PROBIT_TICKS:
            position = ndtri(tick / 100)
            if low <= position <= high:
                places.append(position)
                labels.append(f"{tick:g}")
        axis.set_ticks(places, labels)
    panel.set(xlim=across, ylim=up)
    label_panels(figure, "accuracy on the base, or on ImageNet (%)", "accuracy under the shift (%)")
    title = (
        "Accuracy under each shift against the base, and timm’s published lines, on the probit"
        " scale"
    )
    return as_svg(figure, "published", title, tips)


# The lines of a panel have the colours of these kinds.
LINES = ("weather", "style", "background", "co-occurrence", "light", "colour", "mined", "noise")


def lines_of_models(models: Sequence[ModelFacts]) -> list[tuple[str, str]]:
    """Return the models that have a line, each with the kind whose colour it has."""
    names = [model.short_name for model in models]
    return list(zip(names, LINES, strict=False))


def severity_figure(
    results: Results,
    models: Sequence[ModelFacts],
    measure: str = ACCURACY,
    title: str = "accuracy",
) -> str | None:
    """Draw a measure against the level: a panel per shift, a line per model (at most `LINES`); None
    without curves."""
    curves = [curve for curve in results.severity if curve.classes]
    shown = curves[:MOST_PANELS]
    if not shown or not models:
        return None
    figure, panels = panels_in_rows(len(shown))
    tips = {}
    for index, (panel, curve) in enumerate(zip(panels, shown, strict=True)):
        levels = [float(at) for at in curve.ats]
        for line, (model, kind) in enumerate(zip(models, LINES, strict=False)):
            colour = KIND_COLOURS[kind]
            gid = f"levels{index}m{line}"
            values = []
            tips[gid] = []
            for level, at in zip(levels, curve.ats, strict=True):
                key = {
                    "model": model.name,
                    "group": curve.shift,
                    "at": at,
                }
                estimate = results.rows.estimate(measure, **key)
                assert estimate is not None  # a curve has all levels
                values.append(100 * estimate.value)
                if estimate.low is not None and estimate.high is not None:
                    ends = [100 * estimate.low, 100 * estimate.high]
                    panel.plot(
                        [level] * 2,
                        ends,
                        color=colour,
                        linewidth=0.9,
                        alpha=0.45,
                        zorder=1,
                    )
                accuracy = f"{format_percent(estimate.value)} ({format_interval(estimate)})"
                tips[gid].append(f"{model.name}, {in_words(curve.shift)} at {at}: {accuracy}")
            draw_line(panel, levels, values, colour)
            draw_points(panel, levels, values, 14, gid, color=colour, clip_on=False)
        title_panel(panel, curve.shift)
        panel.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    axes = dict.fromkeys(curve.axis for curve in shown)
    axis = format_list(list(axes), last="or")
    label_panels(figure, f"{axis} (0: base, 1: the whole shift)", f"{title} (%)")
    label = f"{title[0].upper()}{title[1:]} of each model against the level of each shift"
    return as_svg(figure, "severity", label, tips)
