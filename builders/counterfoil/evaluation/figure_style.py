"""How the report's figures look: matplotlib draws them in stand-in colours, which become the page's CSS variables.

So a figure follows the page's light or dark theme. Points and bars carry a sentence that the page shows
when the pointer rests on them.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, get_args

from counterfoil.recipe.schema_prompts import Kind
from counterfoil.report.words import spoken

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What a shift changes, in the order of legends; the recipe's kinds, and one for shifts that name none.
KINDS: tuple[str, ...] = (*get_args(Kind), "other")
# CSS pixels an inch of figure: 96 at natural size, somewhat larger here to fill the page.
_CSS_PIXELS = 120
# The smallest text, 8.5 of 72 points an inch, is then 10 CSS pixels high.
_FEWEST_CSS_PIXELS = 85
_LONGEST_NAME = 30

# Stand-in colour -> CSS variable of the page.
INK, MUTED, RULE = "#010a01", "#010a02", "#010a03"
KIND_COLOURS = {kind: f"#010a{0x10 + place:02x}" for place, kind in enumerate(KINDS)}
_VARIABLES = {INK: "--ink", MUTED: "--muted", RULE: "--rule"} | {
    colour: f"--kind-{kind}" for kind, colour in KIND_COLOURS.items()
}


def short(name: str, longest: int = _LONGEST_NAME) -> str:
    """A shift's name for a figure, cut where it would squeeze the drawing."""
    text = spoken(name)
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}…"


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of one plot, in inches."""
    figure, axes = new_panels(1, 1, size=(width, height))
    return figure, axes[0][0]


def new_panels(rows: int, columns: int, size: tuple[float, float] | None = None) -> tuple[Figure, Any]:
    """A figure of (rows, columns) small plots that share their axes, unless a size is given."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_style()):
        figure = Figure(figsize=size or (2.15 * columns + 0.5, 2.25 * rows + 0.5), layout="constrained")
        shared = size is None
        return figure, figure.subplots(rows, columns, squeeze=False, sharex=shared, sharey=shared)


def as_svg(figure: Figure, name: str, title: str, tips: Mapping[str, Sequence[str]] | None = None) -> str:
    """The figure as an SVG element with a title, themed, and the same bytes for the same numbers.

    `tips` maps the gid of a bar to its sentence, and of a scatter to one sentence a point.
    """
    import matplotlib

    buffer = io.StringIO()
    # The salt names the ids inside, which must differ between figures of one page.
    with matplotlib.rc_context(_style() | {"svg.hashsalt": f"counterfoil-{name}"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for gid, sentences in (tips or {}).items():
        text = _with_tips(text, gid, sentences)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    # Ids are counted within a figure, and several figures share the page.
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    # Text takes the page's font; matplotlib measured with its own, which is wider than most.
    text = re.sub(r"font:\s*([\d.]+px)[^;\"]*", r"font-size: \1", text)
    text = re.sub(r"<svg ", f'<svg role="img" aria-label="{title}" class="figure" ', text, count=1)
    width = float(figure.get_figwidth())
    # As wide as the page allows, and no wider than its text stays in proportion to the page's; on a narrow page it
    # scrolls rather than shrink its text below what can be read.
    return re.sub(
        r'(<svg[^>]*?) height="[\d.]+pt"',
        rf'\1 style="min-width:{width * _FEWEST_CSS_PIXELS:.0f}px;max-width:{width * _CSS_PIXELS:.0f}px"',
        text,
        count=1,
    )


def _with_tips(text: str, gid: str, sentences: Sequence[str]) -> str:
    """The SVG with a <title> in the group called `gid`, or in each of the points drawn there."""
    start = text.index(f'<g id="{gid}">')
    end = start + len(f'<g id="{gid}">')
    titles = [f"<title>{escape(sentence)}</title>" for sentence in sentences]
    if len(titles) == 1:
        return text[:end] + titles[0] + text[end:]
    pieces, position = [text[:end]], end
    for title in titles:
        point = re.compile(r"<use ([^>]*?)/>").search(text, position)
        assert point is not None  # a scatter draws one <use> a point
        pieces += [text[position : point.start()], f"<use {point[1]}>{title}</use>"]
        position = point.end()
    return "".join(pieces) + text[position:]


def place_labels(axes: Axes, points: Sequence[tuple[float, float, str]], *, size: float = 8.5) -> None:
    """Write a label beside each point where it covers the fewest other labels and points.

    Labels are placed in the order of the points, which must lie inside the axes already.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()  # settles the layout, and with it where points lie in pixels
    pixels = axes.transData.transform([(x, y) for x, y, _ in points])
    dots = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in pixels]
    frame = axes.get_window_extent(renderer)
    taken: list[Bbox] = []
    for place, (x, y, label) in enumerate(points):
        best: tuple[float, Any] | None = None
        for rank, (across, up) in enumerate(_OFFSETS):
            text = axes.annotate(
                label, (x, y), xytext=(across, up), textcoords="offset points", fontsize=size, color=MUTED,
                ha="left" if across > 0 else "right" if across < 0 else "center",
                va="center" if up == 0 else "bottom" if up > 0 else "top", parse_math=False, annotation_clip=False,
            )  # fmt: skip
            text.set_in_layout(False)
            box = text.get_window_extent(renderer)
            others = taken + dots[:place] + dots[place + 1 :]
            cost = sum(_shared(box, one) for one in others) + 4 * _outside(box, frame) + 0.5 * rank
            if best is None or cost < best[0]:
                if best is not None:
                    best[1].remove()
                best = (cost, text)
            else:
                text.remove()
        assert best is not None
        taken.append(best[1].get_window_extent(renderer))


# Where a label may stand, in points from its own: beside it first, then above and below, then further off.
_OFFSETS = (
    (6, 0), (-6, 0), (5, 4), (-5, 4), (5, -4), (-5, -4), (0, 6), (0, -6),
    (6, 11), (-6, 11), (6, -11), (-6, -11), (0, 15), (0, -15),
)  # fmt: skip


def _shared(one: Any, other: Any) -> float:
    """Area in pixels that two boxes share."""
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return max(0.0, width) * max(0.0, height)


def _outside(box: Any, frame: Any) -> float:
    """Area in pixels of a box that lies outside a frame."""
    return box.width * box.height - _shared(box, frame)


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
