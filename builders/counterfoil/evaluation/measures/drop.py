"""How much accuracy a shift takes: of each model, over pairs alone, over all shifts, and over all models (impact)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from counterfoil.evaluation.measures.measure import Measure
from counterfoil.evaluation.scores import AllAnswers
from counterfoil.evaluation.statistics import Drops, accuracy_per_class
from counterfoil.report.results import ResultRow, row


def _found(answered: AllAnswers) -> Iterator[tuple[int, str, Drops]]:
    """The shifts that measure a class: place, name and drops."""
    if answered.subject.base:
        for place in answered.shifts:
            if (found := answered.drops(place)) is not None:
                yield place, answered.group(place).name, found


def _drop(answered: AllAnswers) -> Iterator[ResultRow]:
    for place, group, found in _found(answered):
        images = sum(one.counts[1] for one in answered.kept(place))
        for model, name in enumerate(answered.models):
            yield row("drop", found.interval(model), model=name, group=group, n=images)
    for place in answered.shifts if answered.subject.base else ():
        for one in answered.enough(place):
            base = accuracy_per_class(one.base_present, one.base_correct)
            lost = (base - accuracy_per_class(one.shift_present, one.shift_correct)).tolist()
            for name, value in zip(answered.models, lost, strict=True):
                yield row(
                    "drop",
                    value,
                    model=name,
                    group=answered.group(place).name,
                    class_id=one.class_id,
                    n=one.counts[1],
                )


def _pairs_drop(answered: AllAnswers) -> Iterator[ResultRow]:
    for place, group, _ in _found(answered):
        found = answered.pairs_drops(place)
        pairs = sum(one.counts[1] for one in answered.pairs(place))
        if found is not None:
            for model, name in enumerate(answered.models):
                yield row("pairs_drop", found.interval(model), model=name, group=group, n=pairs)


def _average_drop(answered: AllAnswers) -> Iterator[ResultRow]:
    drops = [found.drop for _, _, found in _found(answered)]
    if drops:
        for model, name in enumerate(answered.models):
            own = [float(drop[model]) for drop in drops]
            yield row("average_drop", float(np.mean(own)), model=name, n=len(own))


def _impact(answered: AllAnswers) -> Iterator[ResultRow]:
    models = int(answered.sound.sum())
    for place, group, found in _found(answered):
        if (whole := found.impact()) is not None:
            yield row("impact", whole, group=group, n=models)
        images = {one.class_id: one.counts[1] for one in answered.kept(place)}
        for class_id, own in found.classes.items():
            if own.impact is not None:
                yield row("impact", own.impact, group=group, class_id=class_id, n=images[class_id])


DROP = Measure(
    _drop,
    "Drop in accuracy",
    "points",
    "Points of accuracy lost from base to shift, averaged over classes, with a bootstrap's interval.",
    shown=(),
)
PAIRS_DROP = Measure(
    _pairs_drop,
    "Drop over pairs",
    "points",
    "The same over the `n` pairs whose base and shifted image were both accepted, so that the screen's choice is out.",
    shown=(),
)
AVERAGE_DROP = Measure(
    _average_drop, "Average drop", "points", "The drop averaged over the shifts that measure it.", shown=()
)
IMPACT = Measure(
    _impact,
    "Impact",
    "points",
    "The drop averaged over the `n` models that are not near chance on the base; the interval resamples images, with"
    " the models held fixed.",
    shown=(),
)
