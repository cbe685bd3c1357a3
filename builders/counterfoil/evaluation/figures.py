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
from counterfoil.recipe.schema_prompts import Kind
from counterfoil.report.pictures import data_uri, webp
from counterfoil.report.published import SETS
from counterfoil.report.results import GroupFacts, ModelFacts, Results
from counterfoil.report.severity import ACCURACY
from counterfoil.report.words import between, cut_text, in_words, listed, percent, points
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
    images = subject.images(shown) if shown else ()
    return {key: data_uri(webp(rgb_image(encoded), 88, _THUMBNAIL)) for key, encoded in images}


def short(name: str, longest: int = _LONGEST_NAME) -> str:
    """Return a shift's name for a figure, cut to `longest` characters."""
    return cut_text(in_words(name), longest)


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure, axes = new_panels(1, 1, size=(width, height))
    return figure, axes[0][0]


def new_panels(
    rows: int, columns: int, size: tuple[float, float] | None = None
) -> tuple[Figure, Any]:
    """Return a figure of (rows, columns) small plots that share their axes, unless a size in inches
    is given."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_style()):
        figure = Figure(
            figsize=size or (2.15 * columns + 0.5, 2.25 * rows + 0.5), layout="constrained"
        )
        shared = size is None
        return figure, figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared)


def as_svg(
    figure: Figure, name: str, title: str, tips: Mapping[str, Sequence[str]] | None = None
) -> str:
    """Return the figure as an SVG element with a title; equal numbers give equal bytes.

    `tips` maps the gid of a bar to its sentence, and of a scatter to one sentence per point.
    """
    import matplotlib

    buffer = io.StringIO()
    # Ids derive from the salt, and must differ between figures of one page.
    with matplotlib.rc_context(_style() | {"svg.hashsalt": f"counterfoil-{name}"}):
        figure.savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
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
    width = float(figure.get_figwidth())
    # As wide as the page, up to the width at which text matches the page's. On a narrow page the
    # figure scrolls, so that its text stays readable.
    return re.sub(
        r'(<svg[^>]*?) height="[\d.]+pt"',
        rf'\1 style="min-width:{width * _FEWEST_CSS_PIXELS:.0f}px;max-width:{width * _CSS_PIXELS:.0f}px"',
        text,
        count=1,
    )


def _with_tips(text: str, gid: str, sentences: Sequence[str]) -> str:
    """Return the SVG with a <title> in the group with id `gid`, or in each of its points."""
    start = text.index(f'<g id="{gid}">')
    end = start + len(f'<g id="{gid}">')
    titles = [f"<title>{escape(sentence)}</title>" for sentence in sentences]
    if len(titles) == 1:
        return text[:end] + titles[0] + text[end:]
    pieces = [text[:end]]
    position = end
    for title in titles:
        point = re.compile(r"<use ([^>]*?)/>").search(text, position)
        assert point is not None  # a scatter draws one <use> per point
        pieces += [text[position : point.start()], f"<use {point[1]}>{title}</use>"]
        position = point.end()
    return "".join(pieces) + text[position:]


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
    pixels = axes.transData.transform([(x, y) for x, y, _ in points])
    dots = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in pixels]
    frame = axes.get_window_extent(renderer)
    taken: list[Bbox] = []
    for index, (x, y, label) in enumerate(points):
        best: tuple[float, Any] | None = None
        for rank, (across, up) in enumerate(_OFFSETS):
            text = axes.annotate(
                label,
                (x, y),
                xytext=(across, up),
                textcoords="offset points",
                fontsize=8.5,
                color=MUTED,
                ha=("center", "left", "right")[int(np.sign(across))],
                va=("center", "bottom", "top")[int(np.sign(up))],
                parse_math=False,
                annotation_clip=False,
            )
            text.set_in_layout(False)
            box = text.get_window_extent(renderer)
            others = taken + dots[:index] + dots[index + 1 :]
            outside = box.width * box.height - _shared(box, frame)
            cost = sum(_shared(box, other) for other in others) + 4 * outside + 0.5 * rank
            if best is None or cost < best[0]:
                if best is not None:
                    best[1].remove()
                best = (cost, text)
            else:
                text.remove()
        assert best is not None
        taken.append(best[1].get_window_extent(renderer))


# Offsets of a label from its point, in points: first beside it, then above and below, then further
# away.
_OFFSETS = (
    (6, 0), (-6, 0), (5, 4), (-5, 4), (5, -4), (-5, -4), (0, 6), (0, -6),
    (6, 11), (-6, 11), (6, -11), (-6, -11), (0, 15), (0, -15),
)  # fmt: skip


def _shared(box: Any, other: Any) -> float:
    width = min(box.x1, other.x1) - max(box.x0, other.x0)
    height = min(box.y1, other.y1) - max(box.y0, other.y0)
    return max(0.0, width) * max(0.0, height)


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
# Fewer points do not show how impact and slope relate.
FEWEST_SHIFTS_FOR_SLOPES = 10


def kind_of_shift(shift: GroupFacts) -> str:
    return shift.kind if shift.kind in KINDS else "other"


def measured_shifts(results: Results, *measures: str) -> list[tuple[GroupFacts, list[Estimate]]]:
    """Return the shifts that have all these numbers, with the numbers, largest impact first."""
    measured = []
    for shift in results.by_impact:
        estimates = [results.rows.estimate(measure, group=shift.name) for measure in measures]
        if all(estimate is not None for estimate in estimates):
            measured.append((shift, [estimate for estimate in estimates if estimate is not None]))
    return measured


def panels_in_rows(count: int) -> tuple[Figure, list[Axes]]:
    """Return `count` small plots, in rows."""
    columns = count if count <= _PANELS_A_ROW + 1 else _PANELS_A_ROW
    figure, axes = new_panels(math.ceil(count / columns), columns)
    panels = list(axes.flat)
    for index in range(count, len(panels)):
        panels[index].set_visible(False)
        # The panel above an empty one shows the scale of the column.
        panels[index - columns].tick_params(labelbottom=True)
    return figure, panels[:count]


def title_panel(panel: Axes, name: str) -> None:
    """Write a shift's name above its panel, and draw the grid."""
    panel.set_title(short(name, 26), fontsize=10, color=INK, loc="left", pad=4, parse_math=False)
    panel.grid(color=RULE, linewidth=0.6, zorder=0)


def draw_diagonal(axes: Axes, low: float, high: float) -> None:
    """Draw the dashed line where both numbers are equal."""
    axes.plot([low, high], [low, high], color=MUTED, linewidth=0.8, linestyle=(0, (3, 3)), zorder=1)


def label_panels(figure: Figure, across: str, up: str) -> None:
    figure.supxlabel(across, color=MUTED, fontsize=10)
    figure.supylabel(up, color=MUTED, fontsize=10)


def line_figure(results: Results) -> str | None:
    """Draw base against shifted accuracy: a point per model, a panel per shift, with the fitted
    line if any."""
    shown = [shift for shift, _ in measured_shifts(results, "impact")][:MOST_PANELS]
    if not shown:
        return None
    figure, panels = panels_in_rows(len(shown))
    sides = [
        results.drop_sides(model.name, shift.name) for shift in shown for model in results.models
    ]
    values = [100 * value for both in sides if both is not None for value in both]
    low = min(values)
    high = max(values)
    margin = max(2.0, 0.06 * (high - low))
    low = max(-2.0, low - margin)
    high = min(102.0, high + margin)
    tips = {}
    for index, (panel, shift) in enumerate(zip(panels, shown, strict=True)):
        tips |= _draw_line_panel(panel, f"panel{index}", results, shift, low, high)
    label_panels(figure, "accuracy on the base (%)", "accuracy under the shift (%)")
    return as_svg(
        figure,
        "lines",
        "Accuracy under each shift against accuracy on the base, one point a model",
        tips,
    )


def slope_figure(results: Results) -> str | None:
    """Draw absolute impact against ID/OOD slope, a point per shift (Vendrow 2023, Figure 11); None
    for few shifts."""
    shown = measured_shifts(results, "impact", "slope")
    if len(shown) < FEWEST_SHIFTS_FOR_SLOPES:
        return None
    figure, axes = new_figure(8.2, 5.4)
    tips = {}
    labels = []
    for index, (shift, [impact, line]) in enumerate(shown):
        x = 100 * impact.value
        y = line.value
        colour = KIND_COLOURS[kind_of_shift(shift)]
        axes.scatter(x, y, s=44, color=colour, zorder=3, linewidths=0, gid=f"shift{index}")
        ends = (
            "" if line.low is None or line.high is None else f" ({line.low:.2f} to {line.high:.2f})"
        )
        slope = f"{line.value:.2f}{ends}"
        tips[f"shift{index}"] = [
            f"{in_words(shift.name)} ({kind_of_shift(shift)}): impact {_points(impact)} points,"
            f" slope {slope}"
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
    """Draw one shift's panel, models near chance as rings. Return a sentence for each point, by
    gid."""
    colour = KIND_COLOURS[kind_of_shift(shift)]
    draw_diagonal(axes, low, high)
    tips = {}
    note = ""
    number = results.rows
    line, intercept = (number.value(name, group=shift.name) for name in ("slope", "intercept"))
    for name, models, faces in (
        (gid, results.sound_models, colour),
        (f"{gid}chance", [model for model in results.models if model.near_chance], "none"),
    ):
        if not models:
            continue
        sides = [results.drop_sides(model.name, shift.name) or (0.0, 0.0) for model in models]
        x = [100 * base for base, _ in sides]
        y = [100 * accuracy for _, accuracy in sides]
        if line is not None and intercept is not None and faces != "none":
            ends = [min(x), max(x)]
            fitted = [line * end + 100 * intercept for end in ends]
            axes.plot(ends, fitted, color=colour, linewidth=1.6, zorder=2)
            note = f"slope {line:.2f}"
        axes.scatter(
            x, y, s=20, facecolors=faces, edgecolors=MUTED if faces == "none" else colour,
            linewidths=1 if faces == "none" else 0, zorder=3, gid=name, clip_on=False,
        )  # fmt: skip
        tips[name] = _sides_tips(models, sides, shift)
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)
    axes.set_aspect("equal")
    axes.locator_params(nbins=5)
    title_panel(axes, shift.name)
    axes.text(0.05, 0.9, note, transform=axes.transAxes, fontsize=8.5, color=MUTED)
    return tips


def _sides_tips(
    models: Sequence[ModelFacts], sides: Sequence[tuple[float, float]], shift: GroupFacts
) -> list[str]:
    """Return a sentence for each model: its accuracies on the base and under a shift."""
    return [
        f"{model.name}: base {percent(base)}, {in_words(shift.name)} {percent(shifted)}"
        for model, (base, shifted) in zip(models, sides, strict=True)
    ]


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
    shown = [shift for shift, _ in measured_shifts(results, "impact")][:MOST_PANELS]
    if results.published is None or not shown:
        return None
    figure, panels = panels_in_rows(len(shown))
    tips = {}
    for index, (panel, shift) in enumerate(zip(panels, shown, strict=True)):
        for line in results.published.lines:
            x = ndtri(np.array([line.low, line.high]))
            x = np.maximum(x, (ndtri(0.01) - line.probit_intercept) / line.probit_slope)
            y = line.probit_intercept + line.probit_slope * x
            panel.plot(x, y, color=MUTED, linewidth=1, linestyle=_PUBLISHED[line.shifted], zorder=1)
            beside: Mapping[str, Any] = {
                "xytext": (3, 0),
                "textcoords": "offset points",
                "ha": "left",
                "va": "top",
            }
            panel.annotate(
                SETS[line.shifted],
                (x[0], y[0]),
                fontsize=7.5,
                color=MUTED,
                annotation_clip=True,
                **beside,
            )
        key = {"group": shift.name}
        number = results.rows.value
        models = results.sound_models
        sides = [results.drop_sides(model.name, shift.name) or (0.0, 0.0) for model in models]
        base, shifted = np.array(sides).T
        x = probits(base, shift.base_images)
        y = probits(shifted, shift.images)
        colour = KIND_COLOURS[kind_of_shift(shift)]
        panel.scatter(x, y, s=20, color=colour, linewidths=0, zorder=3, gid=f"published{index}")
        if (slope := number("probit_slope", **key)) is not None:
            ends = np.array([x.min(), x.max()])
            panel.plot(
                ends, y.mean() + slope * (ends - x.mean()), color=colour, linewidth=1.6, zorder=2
            )
        panel.margins(x=0.12)
        title_panel(panel, shift.name)
        tips[f"published{index}"] = _sides_tips(models, sides, shift)
    # The panels share their axes. The line of ImageNet-A extends far below any point.
    lowest = min(
        float(np.asarray(collection.get_offsets())[:, 1].min())
        for panel in panels
        for collection in panel.collections
    )
    limits = panels[0].get_xlim(), (min(lowest - 0.1, ndtri(0.01)), panels[0].get_ylim()[1])
    for axis, (low, high) in zip((panels[0].xaxis, panels[0].yaxis), limits, strict=True):
        ticks = [tick for tick in _PROBIT_TICKS if low <= ndtri(tick / 100) <= high]
        axis.set_ticks(ndtri(np.array(ticks) / 100), [f"{tick:g}" for tick in ticks])
    panels[0].set(xlim=limits[0], ylim=limits[1])
    label_panels(figure, "accuracy on the base, or on ImageNet (%)", "accuracy under the shift (%)")
    title = (
        "Accuracy under each shift against the base, and timm’s published lines, on the probit"
        " scale"
    )
    return as_svg(figure, "published", title, tips)


def _points(estimate: Estimate) -> str:
    interval = between(estimate)
    return points(estimate.value) + (f" ({interval})" if interval else "")


# The lines of a panel have the colours of these kinds.
LINES = ("weather", "style", "background", "co-occurrence", "light", "colour", "mined", "noise")


def legend(models: Sequence[ModelFacts]) -> list[tuple[str, str]]:
    """Return the models that have a line, each with the kind whose colour it has."""
    return [(model.short_name, kind) for model, kind in zip(models, LINES, strict=False)]


def severity_figure(
    results: Results, models: Sequence[ModelFacts], measure: str = ACCURACY, title: str = "accuracy"
) -> str | None:
    """Draw a measure against the level: a panel per shift, a line per model (at most `LINES`); None
    without curves."""
    shown = [curve for curve in results.severity if curve.classes][:MOST_PANELS]
    if not shown or not models:
        return None
    figure, panels = panels_in_rows(len(shown))
    tips = {}
    for index, (panel, curve) in enumerate(zip(panels, shown, strict=True)):
        levels = [float(at) for at in curve.ats]
        for line, (model, kind) in enumerate(zip(models, LINES, strict=False)):
            key = {"model": model.name, "group": curve.shift}
            # A curve has all levels or no level.
            estimates = [
                estimate
                for at in curve.ats
                if (estimate := results.rows.estimate(measure, at=at, **key))
            ]
            colour = KIND_COLOURS[kind]
            values = [100 * estimate.value for estimate in estimates]
            gid = f"levels{index}m{line}"
            for at, estimate in zip(levels, estimates, strict=True):
                if estimate.low is not None and estimate.high is not None:
                    ends = [100 * estimate.low, 100 * estimate.high]
                    panel.plot([at, at], ends, color=colour, linewidth=0.9, alpha=0.45, zorder=1)
            panel.plot(levels, values, color=colour, linewidth=1.6, zorder=2)
            panel.scatter(
                levels, values, s=14, color=colour, linewidths=0, zorder=3, gid=gid, clip_on=False
            )
            tips[gid] = [
                f"{model.name}, {in_words(curve.shift)} at {at}: {percent(estimate.value)}"
                f" ({between(estimate)})"
                for at, estimate in zip(curve.ats, estimates, strict=True)
            ]
        title_panel(panel, curve.shift)
        panel.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    axis = listed(list(dict.fromkeys(curve.axis for curve in shown)), last="or")
    label_panels(figure, f"{axis} (0: base, 1: the whole shift)", f"{title} (%)")
    label = f"{title[0].upper()}{title[1:]} of each model against the level of each shift"
    return as_svg(figure, "severity", label, tips)
