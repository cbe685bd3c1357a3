"""Find out whether the outputs of a model near chance fit the classes far better in another order:
for a warning.

Of all orders, the best for some images looks good by chance. So it is found on every second image
of each class (as an assignment problem) and measured on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from counterfoil.arrays import Ints
from counterfoil.evaluation.tasks.classes.answers import AllAnswers
from counterfoil.prediction.class_map import folder_orders
from counterfoil.report.words import format_list, format_percent
from counterfoil.stats import Estimate, chance_line, wilson_estimate

# With more classes, counting every pair of classes takes too much memory for a warning.
MOST_CLASSES = 2_000
# The intervals of the two orders must be at least this far apart (a fraction).
LEAST_GAIN = 0.1
# Name a known order if it fits the first half nearly as well as the best of all orders.
_NEARLY = 0.9


@dataclass(frozen=True)
class BetterOrder:
    """Another order of k classes."""

    means: Ints
    """(k,) the class that each class's output seems to mean."""
    kind: str
    """Words for the order."""
    given: Estimate
    """The share of right answers in the given order, on images that did not choose the other."""
    better: Estimate
    """The share in this order, on the same images."""


def better_order(
    labels: Ints,
    answers: Ints,
    classes: int,
    named: Sequence[tuple[str, Ints]] = (),
) -> BetterOrder | None:
    """Return the order that outputs seem to have; None if none is clearly better.

    labels, answers: (n,) the class of each image and of its answer, -1 for none, numbered as
    outputs are. named: other likely orders, (k,) each, and their names.
    """
    if not 2 <= classes <= MOST_CLASSES:
        return None
    choosing = np.zeros(len(labels), bool)  # the images that choose the order
    for label in range(classes):
        of_class = np.flatnonzero(labels == label)
        choosing[of_class[::2]] = True
    known = answers >= 0
    counted = choosing & known
    counts = np.zeros((classes, classes), np.int64)
    np.add.at(counts, (answers[counted], labels[counted]), 1)

    from scipy.optimize import linear_sum_assignment

    _, means = linear_sum_assignment(counts, maximize=True)
    kind = "to be in another order"
    index = np.arange(classes)
    likely = [*named]
    for step in range(1, classes):
        least = min(step, classes - step)
        words = "one" if least == 1 else least
        likely.append((f"shifted by {words}", (index + step) % classes))
    likely.append(("to be in reverse order", index[::-1]))
    fits = []
    for _, order in likely:
        fits.append(int(counts[index, order].sum()))
    best = max(fits)
    if best >= _NEARLY * counts[index, means].sum():
        kind, means = likely[fits.index(best)]
    judged = ~choosing
    total = int(judged.sum())
    if not total:
        return None
    judged &= known
    right = judged & (answers == labels)
    given = wilson_estimate(int(right.sum()), total)
    meant = means[answers.clip(0)]
    right = judged & (meant == labels)
    better = wilson_estimate(int(right.sum()), total)
    assert better.low is not None and given.high is not None
    least_better = max(given.high + LEAST_GAIN, chance_line(1 / classes))
    if better.low < least_better:
        return None
    return BetterOrder(means, kind, given, better)


def likely_order(answered: AllAnswers, model: int) -> str:
    """Return words for the order that the outputs of a model near chance seem to have; empty if
    none fits better."""
    class_map = answered.maps[model]
    classes = answered.subject.classes
    several = any(len(target) > 1 for target in class_map.targets)
    outputs = np.array([target[0] for target in class_map.targets])
    count = len(outputs)
    if several or len(np.unique(outputs)) < count:
        return ""
    # Number the classes in the order of their outputs.
    class_at = np.argsort(outputs)
    place_of = np.argsort(class_at)
    place_of_output = np.full(class_map.num_classes, -1)
    place_of_output[outputs] = place_of
    groups = (0,) if answered.subject.base else answered.places
    rows = np.concatenate(list(map(answered.rows, groups)))
    labels = place_of[answered.subject.labels[rows]]
    prediction = answered.answers.prediction[rows, model]
    answers = place_of_output[prediction]
    named = []
    for whose, order in folder_orders(classes).items():
        named.append((f"to be in {whose} order of the class names", place_of[order]))
    better = better_order(labels, answers, count, named)
    if better is None:
        return ""
    moved = np.flatnonzero(better.means != np.arange(count))
    meant = []
    for index in moved[:3]:
        output = outputs[class_at[index]]
        cls = classes[class_at[better.means[index]]]
        meant.append(f"output {output} is {cls.name}")
    matches = f"{', '.join(meant)} and so on" if len(moved) > 3 else format_list(meant)
    return (
        f"{better.kind}: {format_percent(better.better.value)} of images are right if {matches}, and"
        f" {format_percent(better.given.value)} as they are matched. Check --class-order."
    )
