"""Measure whether two models answer alike: on which images their answers differ, and by how much
their confidence does.

An export, a quantized model or another runtime should be the same model. Whether it is as accurate
does not show that: answers may change in both directions.
"""

from __future__ import annotations

import numpy as np

from counterfoil.accuracy_stats import AverageComparison, ClassAverage
from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.evaluation.tasks.classes.answers import AllAnswers
from counterfoil.prediction.inference import Predictions
from counterfoil.stats import REPLICATES, seeded_generator


def differing_answers(
    answered: AllAnswers,
    first: int,
    second: int,
) -> Bools:
    """Return whether the top answers of two models differ, (images,).

    Models with the same outputs are compared by output. Otherwise by the class of the dataset that
    an output stands for; all outputs that stand for none count as one answer.
    """
    prediction = answered.answers.prediction
    if _same_outputs(answered, first, second):
        return prediction[:, first] != prediction[:, second]
    labels = []
    for index in (first, second):
        class_map = answered.maps[index]
        label_of = np.full(class_map.num_classes, -1)
        for label, outputs in enumerate(class_map.targets):
            label_of[list(outputs)] = label
        labels.append(label_of[prediction[:, index]])
    of_first, of_second = labels
    return of_first != of_second


def largest_difference(
    answered: AllAnswers,
    first: int,
    second: int,
    rows: Ints,
) -> float | None:
    """Return by how much two models' confidence in one output differs at most, on some images.

    Only the best answers of each model are known (`prediction.inference.RANKED`). If an output is
    among those of one model alone, the other's confidence counts as that in its last one, so the
    difference may be larger. None if outputs are not the same, or if scores have no known scale.
    """
    if not _same_outputs(answered, first, second):
        return None
    answers = answered.scored[first].predictions
    other = answered.scored[second].predictions
    from_one = _largest(answers, other, rows)
    from_other = _largest(other, answers, rows)
    largest = max(from_one, from_other)
    return largest if np.isfinite(largest) else None


def differing_share(answered: AllAnswers, rows: Ints, differs: Bools) -> AverageComparison:
    """Return the share of some images on which answers differ, with its resamples.

    It is over images, not averaged over classes: an answer is compared with an answer, whatever is
    right. rows: the images, at least one. differs: (images,) of all images.
    """
    chosen = differs[rows]
    images = len(rows)
    units = answered.subject.units
    if units is None:
        rng = seeded_generator(answered.seed, "differing answers")
        # How many of n images differ in a resample of n.
        counts = rng.binomial(images, chosen.mean(), REPLICATES)
        draws = counts / images
    else:
        of_rows = units.of_image[rows]
        means = units.mean(of_rows, chosen[:, None])
        draws = means[:, 0]
    one_class = np.zeros(images, np.int64)
    count = answered.unit_count(rows)
    share = ClassAverage.of(one_class, chosen, draws, count)
    return AverageComparison(share)


def _same_outputs(answered: AllAnswers, first: int, second: int) -> bool:
    class_map = answered.maps[first]
    other = answered.maps[second]
    if class_map.num_classes != other.num_classes or class_map.targets != other.targets:
        return False
    names = {class_map.label_names, other.label_names} - {None}
    return len(names) < 2


def _largest(
    of_one: Predictions,
    of_other: Predictions,
    rows: Ints,
) -> float:
    """Return the largest difference over the best answers of one model; NaN if it is not known."""
    others = of_other.answers[rows]
    shares = of_other.shares[rows].astype(np.float64)
    largest: Floats = np.zeros(len(rows))
    answers = of_one.answers[rows].T
    of_answers = of_one.shares[rows].T
    for answer, share in zip(answers, of_answers, strict=True):
        among = others == answer[:, None]
        confidence = np.where(among, shares, 0.0).sum(axis=1)
        # The other model's confidence in an output that is not among its best is at most this.
        of_last = np.minimum(shares[:, -1], share)
        known = np.where(among.any(axis=1), confidence, of_last)
        apart = np.abs(share - known)
        largest = np.maximum(largest, apart)
    return float(largest.max(initial=0.0))
