"""Say where a file of answers leaves doubt: scores that tie, a column of classes beside the scores,
answers that may be the true labels.

A column beside scores holds the model's answers, which are the classes of the best scores, or true
labels, which are those of the dataset. If it agrees with neither, scores may be in another order,
or of other images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import Bools, Ints
from counterfoil.evaluation.dataset import Subject
from counterfoil.models.classifiers.of_predictions import RecordedClassifier
from counterfoil.prediction.passes import Scored

# With fewer images, a model may well be right on all.
_FEWEST = 20


def file_doubts(scored: Scored, subject: Subject, given: Bools) -> Iterator[str]:
    """Yield what leaves doubt, with how many images it is about. given: (images,), which images the
    model answered."""
    classifier = scored.classifier
    assert isinstance(classifier, RecordedClassifier)
    images = int(given.sum())
    answer = classifier.columns.answer
    if answer is not None:
        all_right = images >= _FEWEST and scored.predictions.correct[given].all()
        if all_right and classifier.may_be_truth:
            yield (
                f"all {images:,} answers are the labels of the dataset, so the column {answer!r} may"
                " hold the true labels"
            )
        return
    by_column: dict[str, list[Ints]] = {}
    for part in subject.stored_parts:
        images_of_part = part.images
        named = classifier.named_beside(images_of_part.keys, images_of_part.paths, subject.classes)
        for column, classes in named.items():
            by_column.setdefault(column, []).append(classes)
    tied = scored.predictions.tied_top_k
    top_k = scored.class_map.top_k
    if tied is not None and top_k > 1 and tied[given].any():
        count = int(tied[given].sum())
        yield (
            f"on {count:,} of {images:,} images the right class ties with others for place {top_k},"
            f" so the order of outputs decides whether it counts among the best {top_k}"
        )
    targets = scored.class_map.targets
    for column, parts in by_column.items():
        classes = np.concatenate(parts)
        rows = np.flatnonzero(given[: len(classes)] & (classes >= 0))
        named_classes = classes[rows]
        answers = scored.predictions.prediction[rows]
        agree = _are_of(answers, named_classes, targets)
        unlike_best = int((~agree).sum())
        labels = subject.labels[rows]
        unlike_truth = int((named_classes != labels).sum())
        if unlike_best and (unlike_truth or classifier.holds_answers(column)):
            yield (
                f"the column {column!r} names another class than the best score on"
                f" {unlike_best:,} of {len(rows):,} images, and than the dataset on"
                f" {unlike_truth:,}"
            )


def _are_of(answers: NDArray[np.integer], classes: Ints, targets: Sequence[Sequence[int]]) -> Bools:
    """Return whether each answer, an output, is right for the class beside it."""
    right = np.zeros(len(answers), bool)
    for label in np.unique(classes).tolist():
        of_class = classes == label
        right[of_class] = np.isin(answers[of_class], targets[label])
    return right
