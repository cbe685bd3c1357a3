"""Single classes: how many of their images are found, how many answers of them are right, and what is mistaken."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from counterfoil.evaluation.answer_names import answer_names
from counterfoil.evaluation.measures.measure import Measure
from counterfoil.evaluation.scores import AllAnswers
from counterfoil.report.results import ResultRow, row
from counterfoil.stats import Estimate, wilson_interval

# The pairs of classes that are mistaken most; every answer is in predictions.parquet.
MOST_MISTAKEN = 50_000


def _answered_labels(answered: AllAnswers, model: int) -> NDArray[np.int64]:
    """(images,) the class that an answer means, -1 for an output that is right for none.

    An output that is right for several classes means the image's own, where that is one of them.
    """
    means = np.full(answered.maps[model].num_classes, -1, dtype=np.int64)
    for label, outputs in reversed(list(enumerate(answered.maps[model].targets))):
        means[list(outputs)] = label
    said = means[answered.answers.prediction[:, model].clip(0)]
    return np.where(answered.answers.correct[:, model], answered.subject.labels, said)


def _recall(answered: AllAnswers) -> Iterator[ResultRow]:
    for model, group, rows, _ in _each(answered):
        labels = answered.subject.labels[rows]
        right = answered.answers.correct[rows, model]
        yield from _shares(answered, "recall", model, group, labels, right)


def _precision(answered: AllAnswers) -> Iterator[ResultRow]:
    for model, group, rows, said in _each(answered):
        right = answered.answers.correct[rows, model]
        yield from _shares(answered, "precision", model, group, said, right)


def _confusion(answered: AllAnswers) -> Iterator[ResultRow]:
    found: list[tuple[int, ResultRow]] = []
    for model, group, rows, said in _each(answered):
        called = answer_names(answered.subject.classes, answered.maps[model])
        labels = answered.subject.labels[rows]
        images = np.bincount(labels, minlength=len(answered.subject.classes))
        outputs = answered.answers.prediction[rows, model]
        # An answer that means no class is told by its output's name.
        keys, counts = np.unique(np.stack([labels, said, np.where(said < 0, outputs, -1)]), axis=1, return_counts=True)
        for (label, answer, output), count in zip(keys.T.tolist(), counts.tolist(), strict=True):
            against = answered.subject.classes[answer].id if answer >= 0 else called(output)
            share = count / int(images[label])
            key = {"model": answered.models[model], "group": group, "class_id": answered.subject.classes[label].id}
            found.append((count, row("confusion", share, against=against, n=count, **key)))
    # Two outputs may have one name: their counts are one row's.
    together: dict[tuple[str, ...], ResultRow] = {}
    for _, one in found:
        key = (one.model, one.group, one.class_id, one.against)
        before = together.get(key)
        if before is not None:
            one = row(
                "confusion",
                (one.value or 0) + (before.value or 0),
                model=one.model,
                group=one.group,
                class_id=one.class_id,
                against=one.against,
                n=(one.n or 0) + (before.n or 0),
            )
        together[key] = one
    rows = list(together.values())
    most = sorted((one.n or 0 for one in rows), reverse=True)[:MOST_MISTAKEN]
    least = most[-1] if len(rows) > MOST_MISTAKEN else 0
    yield from (one for one in rows if (one.n or 0) > least or least == 0)


def _each(answered: AllAnswers) -> Iterator[tuple[int, str, NDArray[np.int64], NDArray[np.int64]]]:
    """Every model in every group: its place, the group, its readable images, and which class each answer means."""
    for model in range(len(answered.models)):
        said = answered.once(("said", model), lambda model=model: _answered_labels(answered, model))
        for place in range(len(answered.subject.groups)):
            rows = answered.rows(place)
            yield model, answered.group(place).name, rows, said[rows]


def _shares(
    answered: AllAnswers, name: str, model: int, group: str, of: NDArray[np.int64], right: NDArray[np.bool_]
) -> Iterator[ResultRow]:
    """A share of right answers for every class that any image is of."""
    told = of >= 0
    classes = len(answered.subject.classes)
    whole = np.bincount(of[told], minlength=classes)
    part = np.bincount(of[told], weights=right[told], minlength=classes)
    for label in np.flatnonzero(whole).tolist():
        share = Estimate(float(part[label] / whole[label]), *wilson_interval(float(part[label]), float(whole[label])))
        key = {"model": answered.models[model], "group": group, "class_id": answered.subject.classes[label].id}
        yield row(name, share, n=int(whole[label]), **key)


RECALL = Measure(
    _recall,
    "Recall",
    "percent",
    "The share of a class's images that are answered as it, of every class with an image, with its Wilson interval.",
    shown=("report",),
)
PRECISION = Measure(
    _precision,
    "Precision",
    "percent",
    "The share of the images answered as a class that are of it, with its Wilson interval; it goes by how many images"
    " of each class there are.",
    shown=("report",),
)
CONFUSION = Measure(
    _confusion,
    "Confusion",
    "percent",
    "The share of a class's images that are answered as `against`: a class by its id, or the name of an output.",
    shown=("report",),
)
