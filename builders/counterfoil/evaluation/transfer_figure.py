"""The figure of transfer: a bar a model, its failures on what a judge got wrong (after Wiles 2022, Figure 4)."""

from __future__ import annotations

from counterfoil.evaluation.figure_style import INK, KIND_COLOURS, MUTED, RULE, as_svg, new_figure
from counterfoil.evaluation.spoken_numbers import between, percent
from counterfoil.evaluation.spoken_transfer import RELATION_WORDS, SpokenTransfer
from counterfoil.evaluation.transfer import JUDGE, TOP1

MOST_MODELS = 60
_LONGEST_NAME = 34
_COLOUR = KIND_COLOURS["mined"]
# Stronger for closer kin.
_STRENGTH = {JUDGE: 0.0, "same architecture": 1.0, "same family": 0.7, "other": 0.4}


def transfer_figure(spoken: SpokenTransfer, number: int) -> str | None:
    """Bars of top-1 failure rates by kinship with the judge, lines for intervals, rings for the base; None without any.

    `number` tells the figures of a page apart.
    """
    shown = [(row, name, rate) for row, name in zip(spoken.rows, spoken.names, strict=True) if (rate := row.rate(TOP1))]
    shown = shown[:MOST_MODELS]
    if not shown:
        return None
    figure, axes = new_figure(8.2, 1.1 + 0.3 * len(shown))
    tips = {}
    for place, (row, name, rate) in enumerate(shown):
        itself = row.relation == JUDGE
        [bar] = axes.barh(
            place, 100 * rate.rate.value, height=0.62, zorder=2,
            color=RULE if itself else _COLOUR, alpha=None if itself else _STRENGTH[row.relation],
        )  # fmt: skip
        bar.set_gid(f"bar{place}")
        interval = between(rate.rate)
        base = "" if rate.base_rate is None else f"; base {percent(rate.base_rate)}"
        said = ", by construction" if itself else f" ({interval})" if interval else ""
        tips[f"bar{place}"] = [f"{name}, {RELATION_WORDS[row.relation]}: {percent(rate.rate.value)}{said}{base}"]
        if not itself and rate.rate.low is not None and rate.rate.high is not None:
            axes.plot([100 * rate.rate.low, 100 * rate.rate.high], [place, place], color=INK, linewidth=1.1, zorder=3)
        if rate.base_rate is not None:
            axes.scatter(
                100 * rate.base_rate, place, s=26, facecolors="none", edgecolors=MUTED, linewidths=1.3, zorder=4,
                clip_on=False,
            )  # fmt: skip
    axes.set_yticks(
        range(len(shown)), [f"{_cut(name)} · {_cut(row.family)}" for row, name, _ in shown], parse_math=False
    )
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(0, 101)
    axes.grid(axis="x", color=RULE, linewidth=0.7, zorder=0)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("wrong answers, top-1 (%); the ring is the base of the same classes", color=MUTED)
    return as_svg(figure, f"transfer{number}", "Failure rates of the models on what a judge got wrong", tips)


def _cut(name: str) -> str:
    """A model's name, with its underscores, cut where it would squeeze the drawing."""
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1].rstrip()}…"
