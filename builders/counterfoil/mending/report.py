"""The report page of mending and the card of a mended model. Each is one file and loads nothing
else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from counterfoil import __version__
from counterfoil.dataset.card.markdown import code, code_cell, inline
from counterfoil.evaluation.figures import (
    INK,
    KIND_COLOURS,
    MUTED,
    RULE,
    as_svg,
    new_figure,
    short_shift_name,
)
from counterfoil.mending import document
from counterfoil.mending.evaluating import COMPARED
from counterfoil.report.templates import template_environment
from counterfoil.report.words import (
    format_count,
    format_number,
    format_percent,
    format_points,
    in_words,
    safe_text,
)

# The sets of rows that are drawn, each with its field in a point of a curve and its colour on the
# page.
_DRAWN = {
    document.HELDOUT: ("heldout", KIND_COLOURS["mined"]),
    document.IN_CONTEXTS: ("in_contexts", KIND_COLOURS["co-occurrence"]),
    document.TEST: ("test", KIND_COLOURS["other"]),
}
_WIDTH = 7.4
_NAME = 34
CARD = "model-card.md.j2"
PAGE = "mend-report.html.j2"
MOST_LISTED = 60
MOST_HEADLINE = 2000  # several times the longest that a run writes


def gains_figure(model: document.ModelMended, index: int) -> str:
    """Draw one line for each head. On each set of rows, a dot with its interval shows the gain, in
    points."""
    variants = model.arms
    figure, axes = new_figure(_WIDTH, 0.9 + 0.5 * len(variants))
    axes.axvline(0, color=RULE, linewidth=1)
    tips: dict[str, Sequence[str]] = {}
    offsets = (0.2, 0.0, -0.2)
    for offset, (name, (_, set_colour)) in zip(offsets, _DRAWN.items(), strict=True):
        for row, variant in enumerate(variants):
            measured = variant.of_set(name)
            if measured is None or measured.gain is None:
                continue
            colour = set_colour
            if variant.role == "retrained":  # any refit gains as much
                colour = MUTED
            y = len(variants) - 1 - row + offset
            if measured.low is not None and measured.high is not None:
                ends = [100 * measured.low, 100 * measured.high]
                axes.plot(ends, [y, y], color=colour, linewidth=1.4, alpha=0.6)
            gid = f"gain-{row}-{name}"
            axes.scatter([100 * measured.gain], [y], s=26, color=colour, zorder=3, gid=gid)
            shares = (
                f"{format_percent(measured.before)} before, {format_percent(measured.after)} after"
            )
            tips[gid] = [f"{variant.called}, {document.TITLES[name]}: {shares}"]
    names = [short_shift_name(variant.called, _NAME) for variant in reversed(variants)]
    axes.set_yticks(range(len(variants)), names)
    axes.set_ylim(-0.6, len(variants) - 0.4)
    axes.set_xlabel("gain over the original model (points)")
    axes.tick_params(axis="y", length=0)
    return as_svg(figure, f"gains-{index}", "What each head gains", tips)


def draw_gain_curve(
    variant: document.VariantResult,
    points: Sequence[document.LambdaPoint | document.EffectPoint],
    over: str,
    name: str,
) -> str:
    """Draw the gain over the retrained head against λ, as Figure 5a of Chegini 2023; a dashed line
    marks the chosen λ.

    With other points, draw it against contexts per class or images per context (Figure 5b).
    """
    figure, axes = new_figure(_WIDTH / 2, 2.6)
    axes.axhline(0, color=RULE, linewidth=1)
    for title, (field, colour) in _DRAWN.items():
        base = getattr(variant.curve[0], field)
        shares = [getattr(point, field) for point in points]
        x = [at for at, share in enumerate(shares) if share is not None]
        if x and base is not None:
            y = [100 * (shares[at] - base) for at in x]
            label = document.TITLES[title]
            axes.plot(
                x,
                y,
                color=colour,
                marker="o",
                markersize=3.6,
                linewidth=1.6,
                label=label,
            )
    for at, point in enumerate(points):
        if isinstance(point, document.LambdaPoint) and point.value == variant.lam:
            axes.axvline(at, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
            break
    axes.set_xticks(range(len(points)), [f"{point.value:g}" for point in points])
    axes.set_xlabel(over)
    axes.set_ylabel("gain over λ = 0 (points)")
    return as_svg(figure, name, f"Accuracy over {over}, {short_shift_name(variant.name)}")


def overlap_figure(collective: document.Collective) -> str:
    """Draw intersection over union of failures for each pair of models (Figure 4). Families are
    side by side."""
    from matplotlib.patches import Rectangle

    order = sorted(range(len(collective.models)), key=lambda at: (collective.families[at], at))
    names = [short_shift_name(collective.models[at], _NAME) for at in order]
    side = max(3.0, 0.55 * len(names) + 2.2)
    figure, axes = new_figure(min(_WIDTH, side + 1.2), side)
    for row, index in enumerate(order):
        for column, other in enumerate(order):
            value = collective.overlap[index][other]
            if value is None:
                continue
            corner = (column - 0.5, row - 0.5)
            colour = KIND_COLOURS["mined"]
            square = Rectangle(corner, 1, 1, facecolor=colour, alpha=0.75 * value, lw=0)
            axes.add_patch(square)
            shown = f"{100 * value:.0f}"
            axes.text(column, row, shown, ha="center", va="center", fontsize=8.5, color=INK)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(length=0)
    return as_svg(figure, "overlap", "Shared failures, in percent of the failures of either model")


def model_card(
    about: Mapping[str, Any],
    verdict: str = "",
    *,
    role: str = "mended",
    headline: str = "",
    helps: bool = True,
    images: str = "drawn images",
    trained_on: Sequence[str] = (),
    chosen_on: Sequence[str] = (),
) -> str:
    """Return the card of a model, whose mended.json is `about`; equal facts give equal cards.

    role: the role of the variant. headline: the verdict in one sentence. helps: only such a head is
    called mended.
    images: words for the images that it learned from beside its training images.
    trained_on: names of the sets that the head was fitted to. chosen_on: names of the sets whose
    discover half only chose variant and λ. No name has a folder of this machine.
    """
    filters = {"code": code, "cell": code_cell, "inline": inline, "number": "{:,}".format}
    environment = template_environment(CARD, filters, markdown=True)
    return environment.get_template(CARD).render(
        about=about,
        verdict=verdict,
        role=role,
        headline=headline,
        helps=helps,
        images=images,
        trained_on=trained_on,
        chosen_on=chosen_on,
    )


def mend_report(mended: document.Mended) -> str:
    from markupsafe import Markup

    filters = {
        "named": safe_text,
        "whole": lambda text: safe_text(text, MOST_HEADLINE),
        "in_words": in_words,
        "points": format_points,
        "percent": lambda value: format_percent(value, 0).replace(" ", "\N{NO-BREAK SPACE}"),
        "number": lambda count: format_number(count, 0),
        "counted": format_count,
        "control": document.control_words,
    }
    environment = template_environment(PAGE, filters)
    return environment.get_template(PAGE).render(
        mended=mended,
        figure=lambda draw, *about: Markup(draw(*about)),
        gains_figure=gains_figure,
        curve_figure=draw_gain_curve,
        overlap_figure=overlap_figure,
        set_notes=document.SET_NOTES,
        compared={name: document.TITLES[name] for name in COMPARED},
        fewest_listed=document.FEWEST_LISTED,
        balanced=document.BALANCED_ROLES,
        most_listed=MOST_LISTED,
        version=__version__,
    )
