"""Parts *mending* and *others*: what of the failures held out, and of the true slice, a mended head gets right.

A heldout of failures starts at zero, so any retraining gains: everything is told beside λ = 0, the same head retrained
on the same training images alone. *gain* is an arm's heldout accuracy less that of λ = 0, of the same run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from directions_proof.intervals import ANY, SHARE, Estimate, mean_of
from mend_proof.arms import ARMS, COMPARED, CONTROLS, MAIN, measured_arms
from mend_proof.plan import kind_of
from mend_proof.runs import Run

# Of a target's runs: directions and twice as many heads are fitted there.
_OTHERS_IN = 2
_LIFT = "contexts by lift"
_BEFORE, _NOTHING, _NAMES = "before", "lambda 0", "class names"
Results = Mapping[str, Sequence[Mapping[str, Any]]]


def measure(run: Run) -> dict[str, Any]:
    """Accuracies by arm; what the other methods find in the first runs of worlds alone."""
    if run.target.world is None:
        return measured_arms(run, (*CONTROLS, MAIN))
    return measured_arms(run, ARMS if run.seed % 100 < _OTHERS_IN else COMPARED)


def measure_ranks(run: Run) -> dict[str, Any]:
    """Accuracies by the two ranks of contexts."""
    return measured_arms(run, (_NOTHING, _NAMES, MAIN, _LIFT))


def table_ranks(results: Results) -> list[str]:
    """Markdown: by count and by lift, and how much more lift gains."""
    lines = [
        "The wardrobe's classifiers, one run: a class that learned a place has most of its rows there, and by count"
        " that place is chosen for its few failures too.",
        "",
        "| targets | arm | seed | heldout | gain | slice | slice gain | rest | test | λ | pictures |",
        "| -- | -- | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    for title, own in _groups(results).items():
        lines += _lines(title, own, (_BEFORE, _NOTHING, _NAMES, MAIN, _LIFT))
    more = {which: _over(results, _LIFT, MAIN, which).points() for which in ("heldout", "slice", "test")}
    told = "; ".join(f"{which} {points}" for which, points in more.items())
    return [*lines, "", f"- by lift less by count, in points: {told}"]


def table(results: Results) -> list[str]:
    """Markdown: by kind and arm, and whether the aims are met."""
    lines = [
        "*heldout*: failures of the confirm half. *slice*, *rest*: of the planted class on true renders of garments"
        " that nobody saw. *test*: change of accuracy in points. *gain*: heldout, less λ = 0 of the same run, in"
        " points; *slice gain* likewise. *pictures*: drawn ones that the head learned from.",
        "",
        "| targets | arm | seed | heldout | gain | slice | slice gain | rest | test | λ | pictures |",
        "| -- | -- | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    groups = _groups(results)
    for title, own in groups.items():
        lines += _lines(title, own, (_BEFORE, *COMPARED))
    lines += ["", *(f"- {_aims(title, own)}" for title, own in groups.items())]
    return [*lines, "", *_same_lambda(groups)]


def _same_lambda(groups: Mapping[str, Results]) -> list[str]:
    """The chosen contexts against class names at one λ for both: the choice of λ is no part of the difference."""
    lines = [
        "At the same λ for both: chosen contexts less class names, in points.",
        "",
        "| targets | λ | heldout | slice | test | test, less before |",
        "| -- | --: | --: | --: | --: | --: |",
    ]
    for title, results in groups.items():
        first = next(iter(results.values()))[0]
        for place, lam in enumerate(lam for lam in first[MAIN]["curve"] if lam != "0"):
            at = {which: _curves(results, lam, which) for which in ("heldout", "slice", "test")}
            cells = [mean_of([own - names for own, names, _ in at[which]]).points() for which in at]
            cells.append(mean_of([own - before for own, _, before in at["test"]]).points())
            lines.append(f"| {title if place == 0 else ''} | {lam} | {' | '.join(cells)} |")
    return lines


def _curves(results: Results, lam: str, which: str) -> list[tuple[float, float, float]]:
    """Of each target, means over runs at one λ: the chosen contexts, class names, the classifier as it was."""
    return [
        (
            float(np.nanmean([run[MAIN]["curve"][lam][which] for run in runs])),
            float(np.nanmean([run[_NAMES]["curve"][lam][which] for run in runs])),
            float(np.nanmean([_at(run, _BEFORE, which) for run in runs])),
        )
        for runs in results.values()
    ]


def table_others(results: Results) -> list[str]:
    """Markdown: by kind and arm."""
    lines = [
        "Of the first two runs of each world. *hard captions*: the same contexts, ranked by the class's direction."
        " *fails when drawn*: those whose first pictures fail most often, in place of confirmed bugs. *filter*: real"
        " rows of a pool, hardest by the direction. *upweight*: training rows that are hard count twice. *DFR*: fitted"
        " on the discover half alone, as many of each class and group; by truth it is a bound.",
        "",
        "| targets | arm | seed | heldout | gain | slice | slice gain | rest | test | λ | pictures |",
        "| -- | -- | --: | --: | --: | --: | --: | --: | --: | --: | --: |",
    ]
    having = {name: [run for run in runs if "filter" in run] for name, runs in results.items()}
    for title, own in _groups({name: runs for name, runs in having.items() if runs}).items():
        lines += _lines(title, own, (_BEFORE, _NOTHING, _NAMES, MAIN, *(arm for arm in ARMS if arm not in COMPARED)))
    return lines


def _groups(results: Results) -> dict[str, Results]:
    found: dict[str, Results] = {}
    kinds = list(dict.fromkeys(kind_of(name) for name in results))
    for kind in kinds:
        own = {name: runs for name, runs in results.items() if kind_of(name) == kind}
        found[f"{kind} ({len(own)})"] = own
    worlds = {name: runs for name, runs in results.items() if kind_of(name) != "wardrobe"}
    if len([kind for kind in kinds if kind != "wardrobe"]) > 1:
        found[f"all worlds ({len(worlds)})"] = worlds
    return found


def _lines(title: str, results: Results, arms: Sequence[str]) -> list[str]:
    lines = []
    for arm in arms:
        having = {name: runs for name, runs in results.items() if arm in runs[0]}
        if not having:
            continue
        mark = "" if len(having) == len(results) else f" ({len(having)})"
        cells = [
            _share(having, arm, "seed"),
            _share(having, arm, "heldout"),
            "" if arm in (_BEFORE, _NOTHING) else _over(having, arm, _NOTHING, "heldout").points(),
            _share(having, arm, "slice"),
            "" if arm in (_BEFORE, _NOTHING) else _over(having, arm, _NOTHING, "slice").points(),
            _share(having, arm, "rest"),
            "" if arm == _BEFORE else _over(having, arm, _BEFORE, "test").points(),
            "" if arm == _BEFORE else f"{_mean(having, arm, 'lambda'):.2f}",
            "" if arm == _BEFORE else f"{_mean(having, arm, 'pictures'):.0f}",
        ]
        lines.append(
            f"| {title if arm == _BEFORE else ''} | {arm.replace('lambda', 'λ =')}{mark} | {' | '.join(cells)} |"
        )
    return lines


def _aims(title: str, results: Results) -> str:
    def told(which: str) -> str:
        own, names = (_over(results, arm, _NOTHING, which) for arm in (MAIN, _NAMES))
        ratio = f"{own.value / names.value:.1f} times" if names.value > 0 else "where class names gain nothing"
        more = _over(results, MAIN, _NAMES, which)
        beyond = [float(np.mean([_beyond_twice(run, which) for run in runs])) for runs in results.values()]
        twice = mean_of(beyond, ANY)
        return f"{ratio}, {more.points()} points more; less twice that of class names {twice.points()}"

    test = _over(results, MAIN, _BEFORE, "test")
    return f"{title}: gain on heldout {told('heldout')}. On the slice {told('slice')}. Test {test.points()} points."


def _beyond_twice(run: Mapping[str, Any], which: str) -> float:
    """The gain of the chosen contexts over λ = 0, less twice that of class names."""
    own, names, nothing = (_at(run, arm, which) for arm in (MAIN, _NAMES, _NOTHING))
    return own - nothing - 2 * (names - nothing)


def _share(results: Results, arm: str, which: str) -> str:
    shares = [float(np.nanmean([_at(run, arm, which) for run in runs])) for runs in results.values()]
    return mean_of(shares, SHARE).text(percent=True)


def _mean(results: Results, arm: str, which: str) -> float:
    return float(np.mean([run[arm][which] for runs in results.values() for run in runs]))


def _over(results: Results, arm: str, other: str, which: str) -> Estimate:
    return mean_of(
        [
            float(np.nanmean([_at(run, arm, which) - _at(run, other, which) for run in runs]))
            for runs in results.values()
        ]
    )


def _at(run: Mapping[str, Any], arm: str, which: str) -> float:
    return run[arm]["accuracy"][which]
