"""The drawings of mending's page: what each head gains, what λ, contexts and images do, which failures are shared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from counterfoil.evaluation.figure_style import INK, KIND_COLOURS, MUTED, RULE, as_svg, new_figure, short
from counterfoil.mending.document import (
    HELDOUT,
    IN_CONTEXTS,
    TEST,
    ArmResult,
    Collective,
    EffectPoint,
    LambdaPoint,
    ModelMended,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# What is drawn of each head, in what colour of the page.
SETS = ((HELDOUT, "debug heldout"), (IN_CONTEXTS, "in contexts"), (TEST, "test"))
_COLOURS = {
    HELDOUT: KIND_COLOURS["mined"],
    IN_CONTEXTS: KIND_COLOURS["co-occurrence"],
    TEST: KIND_COLOURS["other"],
}
_WIDTH = 7.4
_NAME = 34


def gains_figure(model: ModelMended, place: int) -> str:
    """A row a head, a dot with its whisker for the gain on each set of rows, in points."""
    arms = model.arms
    figure, axes = new_figure(_WIDTH, 0.9 + 0.5 * len(arms))
    axes.axvline(0, color=RULE, linewidth=1)
    tips: dict[str, Sequence[str]] = {}
    for offset, (name, title) in zip((0.2, 0.0, -0.2), SETS, strict=True):
        for row, arm in enumerate(arms):
            one = arm.of_set(name)
            if one is None or one.gain is None:
                continue
            colour = MUTED if arm.role == "retrained" else _COLOURS[name]  # what any refit gains
            y = len(arms) - 1 - row + offset
            if one.low is not None and one.high is not None:
                axes.plot([100 * one.low, 100 * one.high], [y, y], color=colour, linewidth=1.4, alpha=0.6)
            gid = f"gain-{row}-{name}"
            axes.scatter([100 * one.gain], [y], s=26, color=colour, zorder=3, gid=gid)
            tips[gid] = [f"{head_name(arm)}, {title}: {_points(one.before)} % before, {_points(one.after)} % after"]
    axes.set_yticks(range(len(arms)), [short(head_name(arm), _NAME) for arm in reversed(arms)])
    axes.set_ylim(-0.6, len(arms) - 0.4)
    axes.set_xlabel("gain over the model as it was (points)")
    axes.tick_params(axis="y", length=0)
    return as_svg(figure, f"gains-{place}", "What each head gains", tips)


def lambda_figure(arm: ArmResult, place: str) -> str:
    """What λ adds to the retrained head (Figure 5a of Chegini 2023); dashed, the chosen one."""
    figure, axes = new_figure(_WIDTH / 2, 2.6)
    axes.axhline(0, color=RULE, linewidth=1)
    values = list(range(len(arm.curve)))
    for name, title in SETS:
        shares = [_of_point(point, name) for point in arm.curve]
        _line(axes, values, shares, _of_point(arm.curve[0], name), name, title)
    chosen = next((at for at, point in enumerate(arm.curve) if point.value == arm.lam), None)
    if chosen is not None:
        axes.axvline(chosen, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_xticks(values, [f"{point.value:g}" for point in arm.curve])
    axes.set_xlabel("λ, the weight of drawn images")
    axes.set_ylabel("more than λ = 0 (points)")
    return as_svg(figure, f"lambda-{place}", f"Accuracy over λ, {short(arm.name)}")


def effect_figure(arm: ArmResult, points: Sequence[EffectPoint], what: str, place: str) -> str:
    """What drawn images add to the retrained head, over how many contexts a class, or images a context (Figure 5b)."""
    figure, axes = new_figure(_WIDTH / 2, 2.6)
    axes.axhline(0, color=RULE, linewidth=1)
    values = list(range(len(points)))
    for name, title in SETS:
        _line(axes, values, [_of_effect(point, name) for point in points], _of_point(arm.curve[0], name), name, title)
    axes.set_xticks(values, [f"{point.value}" for point in points])
    axes.set_xlabel(what)
    axes.set_ylabel("more than λ = 0 (points)")
    return as_svg(figure, f"effect-{place}", f"Accuracy over {what}")


def overlap_figure(collective: Collective) -> str:
    """Failures in common over failures of either, pair by pair, models of one family side by side (Figure 4)."""
    order = sorted(range(len(collective.models)), key=lambda at: (collective.families[at], at))
    names = [short(collective.models[at], _NAME) for at in order]
    side = max(3.0, 0.55 * len(names) + 2.2)
    figure, axes = new_figure(min(_WIDTH, side + 1.2), side)
    from matplotlib.patches import Rectangle

    for row, one in enumerate(order):
        for column, other in enumerate(order):
            value = collective.overlap[one][other]
            if value is None:
                continue
            axes.add_patch(
                Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=KIND_COLOURS["mined"], alpha=0.75 * value, lw=0)
            )
            axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", fontsize=8.5, color=INK)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(length=0)
    return as_svg(figure, "overlap", "Failures in common, percent of the failures of either")


def head_name(arm: ArmResult) -> str:
    """What a head is called on the page."""
    return "retrained, λ = 0" if arm.role == "retrained" else arm.name


def _line(
    axes: Axes, values: Sequence[int], shares: Sequence[float | None], base: float | None, name: str, title: str
) -> None:
    known = [
        (value, 100 * (share - base))
        for value, share in zip(values, shares, strict=True)
        if share is not None and base is not None
    ]
    if known:
        axes.plot(
            *zip(*known, strict=True), color=_COLOURS[name], marker="o", markersize=3.6, linewidth=1.6, label=title
        )


def _of_point(point: LambdaPoint, name: str) -> float | None:
    return {HELDOUT: point.heldout, IN_CONTEXTS: point.in_contexts, TEST: point.test}[name]


def _of_effect(point: EffectPoint, name: str) -> float | None:
    return {HELDOUT: point.heldout, IN_CONTEXTS: point.in_contexts, TEST: point.test}[name]


def _points(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"
