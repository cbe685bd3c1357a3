"""The figure of transfer: a bar a model, its failures on what a judge got wrong (after Wiles 2022, Figure 4)."""

from __future__ import annotations

from counterfoil.evaluation.figure_style import INK, KIND_COLOURS, MUTED, RULE, as_svg, new_figure
from counterfoil.keep.failure_names import TOP1
from counterfoil.report.results import Results
from counterfoil.report.transfer import JUDGE, ON_BASE, RELATION_WORDS, TRANSFER, Transfer, called
from counterfoil.report.words import between, percent

MOST_MODELS = 60
_LONGEST_NAME = 34
_COLOUR = KIND_COLOURS["mined"]
# Stronger for closer kin.
_STRENGTH = {JUDGE: 0.0, "same architecture": 1.0, "same family": 0.7, "other": 0.4}


def transfer_figure(transfer: Transfer, results: Results, number: int) -> str | None:
    """Bars of top-1 failure rates by kinship with the judge, lines for intervals, rings for the base; None without any.

    `number` tells the figures of a page apart.
    """
    key = {"against": transfer.judge, "at": TOP1}
    shown = [
        (model, rate)
        for model in transfer.by_kinship
        if (rate := results.rows.estimate(TRANSFER, model=model.name, **key)) is not None
    ][:MOST_MODELS]
    if not shown:
        return None
    figure, axes = new_figure(8.2, 1.1 + 0.3 * len(shown))
    tips, labels = {}, []
    for place, (model, rate) in enumerate(shown):
        itself, (name, note) = model.relation == JUDGE, called(model.name, results)
        name += f" ({note})" if note else ""
        labels.append(f"{_cut(name)} · {_cut(model.family)}")
        [bar] = axes.barh(
            place, 100 * rate.value, height=0.62, zorder=2,
            color=RULE if itself else _COLOUR, alpha=None if itself else _STRENGTH[model.relation],
        )  # fmt: skip
        bar.set_gid(f"bar{place}")
        interval, base = between(rate), results.rows.value(ON_BASE, model=model.name, **key)
        said = ", by construction" if itself else f" ({interval})" if interval else ""
        beside = "" if base is None else f"; base {percent(base)}"
        tips[f"bar{place}"] = [f"{name}, {RELATION_WORDS[model.relation]}: {percent(rate.value)}{said}{beside}"]
        if not itself and rate.low is not None and rate.high is not None:
            axes.plot([100 * rate.low, 100 * rate.high], [place, place], color=INK, linewidth=1.1, zorder=3)
        if base is not None:
            axes.scatter(
                100 * base, place, s=26, facecolors="none", edgecolors=MUTED, linewidths=1.3, zorder=4, clip_on=False
            )
    axes.set_yticks(range(len(shown)), labels, parse_math=False)
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
