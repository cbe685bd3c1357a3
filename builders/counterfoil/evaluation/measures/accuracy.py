"""How often models are right: over all images, as timm counts, and averaged over classes; and how often guessing is."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from counterfoil.evaluation import statistics
from counterfoil.evaluation.measures.measure import Measure
from counterfoil.evaluation.scores import AllAnswers
from counterfoil.report.results import ResultRow, row
from counterfoil.stats import wilson_estimate


def _over_images(answered: AllAnswers, name: str, correct: NDArray[np.bool_]) -> Iterator[ResultRow]:
    places = [(answered.group(place).name, answered.rows(place)) for place in range(len(answered.subject.groups))]
    if not answered.subject.base:
        places.append(("", np.flatnonzero(answered.answers.readable)))
    for group, rows in places:
        for place, model in enumerate(answered.models):
            if len(rows):
                found = wilson_estimate(int(correct[rows, place].sum()), len(rows))
                at = str(answered.maps[place].top_k) if name == "top_k" else ""
                yield row(name, found, model=model, group=group, at=at, n=len(rows))


def _top1(answered: AllAnswers) -> Iterator[ResultRow]:
    return _over_images(answered, "top1", answered.answers.correct)


def _top_k(answered: AllAnswers) -> Iterator[ResultRow]:
    return _over_images(answered, "top_k", answered.answers.correct_top_k)


def _accuracy(answered: AllAnswers) -> Iterator[ResultRow]:
    averages = answered.averages() if answered.subject.base else None
    for place in range(len(answered.subject.groups)):
        group, kept = answered.group(place).name, answered.kept(place)
        images = sum(one.counts[1] for one in kept)
        if averages is not None and place == 0:
            found = [averages.interval(model) for model in range(len(answered.models))]
        elif answered.subject.base:
            drops = answered.drops(place)
            found = drops.accuracy.tolist() if drops else []
        else:
            by_class = [statistics.accuracy_per_class(one.base_present, one.base_correct) for one in kept]
            found = np.mean(by_class, axis=0).tolist() if by_class else []
        yield from (
            row("accuracy", value, model=name, group=group, n=images)
            for name, value in zip(answered.models, found, strict=False)
        )
        for one in answered.enough(place):
            own = statistics.accuracy_per_class(one.shift_present, one.shift_correct).tolist()
            yield from (
                row("accuracy", value, model=name, group=group, class_id=one.class_id, n=one.counts[1])
                for name, value in zip(answered.models, own, strict=True)
            )


def _base_accuracy(answered: AllAnswers) -> Iterator[ResultRow]:
    if not answered.subject.base:
        return
    for place in answered.shifts:
        group, found = answered.group(place).name, answered.drops(place)
        if found:
            images = sum(one.counts[0] for one in answered.kept(place))
            for name, value in zip(answered.models, found.base_accuracy.tolist(), strict=True):
                yield row("base_accuracy", value, model=name, group=group, n=images)
        for one in answered.enough(place):
            own = statistics.accuracy_per_class(one.base_present, one.base_correct).tolist()
            near = answered.floor.cells[one.class_id]
            for model, value in enumerate(own):
                note = "near chance" if near[model] else ""
                yield ResultRow(
                    "base_accuracy",
                    answered.models[model],
                    group,
                    one.class_id,
                    value=value,
                    n=one.counts[0],
                    note=note,
                )


def _chance(answered: AllAnswers) -> Iterator[ResultRow]:
    for name, own in zip(answered.models, answered.maps, strict=True):
        yield row("chance", float(own.chances.mean()), model=name)


TOP1 = Measure(
    _top1,
    "Accuracy over all images",
    "percent",
    "Every image counts once, whatever the number of a class, with the Wilson interval of the share.",
    shown=(),
)
TOP_K = Measure(
    _top_k,
    "Top-k accuracy over all images",
    "percent",
    "The share of images whose class is among the model's best k answers, of which `at` tells the k.",
    shown=(),
)
ACCURACY = Measure(
    _accuracy,
    "Accuracy averaged over classes",
    "percent",
    "Every class with enough images counts once; the interval on the base is a bootstrap's.",
    shown=(),
)
BASE_ACCURACY = Measure(
    _base_accuracy,
    "Accuracy on the base",
    "percent",
    "Accuracy on the base images of the classes that the shift measures, from which the drop is taken.",
    shown=(),
)
CHANCE = Measure(
    _chance, "Chance level", "percent", "How often a guess among all outputs is right, averaged over classes.", shown=()
)
