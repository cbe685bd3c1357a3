"""The failures of multi-label classifiers, label by label: the page of the browser, and a table of
all images.

In the browser an image appears once for each label that a model misses or wrongly gives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.arrays import Bools
from counterfoil.evaluation.failures import (
    base_partners,
    choose_failures,
    failures_data,
    write_sheets,
)
from counterfoil.evaluation.tasks.labels.measures import MeasuredClassifier
from counterfoil.evaluation.tasks.labels.subject import MultilabelSubject
from counterfoil.recipe.tasks.labels import UNKNOWN
from counterfoil.store.decoding import readable_image

if TYPE_CHECKING:
    from PIL.Image import Image

# The outcome for one label. Its index is 2 · (the image has the label) + (the model is right).
_OUTCOMES = ("wrongly given", "rightly not given", "missed", "found")


def write_label_failures(
    subject: MultilabelSubject,
    models: Sequence[MeasuredClassifier],
    preview: str,
    folder: Path,
) -> Path:
    """Write the failure browser and return its page. preview: the sentence that marks a preview, or
    empty."""
    dataset = subject.dataset
    truth = subject.truth
    # A question is one known label of one image, image after image. An unknown label asks no
    # question: no answer to it is a failure.
    groups = len(subject.rows)
    order = np.argsort(subject.rows, axis=None)
    known = np.tile(truth.known, (groups, 1))[order]
    present = np.tile(truth.present, (groups, 1))[order][known]
    image, label = np.nonzero(known)
    rows = subject.rows.ravel()[order][image]
    answers = []
    for model in models:
        of_images = model.answers.reshape(known.shape)
        answers.append(of_images[order][known])
    right = np.stack(answers, axis=1) == present[:, None]
    shifts = dataset.shifts[rows]
    questions = replace(
        dataset,
        classes=tuple(replace(cls, label=number) for number, cls in enumerate(subject.labels)),
        keys=tuple(dataset.keys[row] for row in rows.tolist()),
        labels=label,
        shifts=shifts,
        indices=dataset.indices[rows],
    )
    readable = np.ones(len(right), dtype=bool)
    compared = range(1, len(dataset.groups))
    partners = base_partners(label, shifts, questions.indices, readable, compared)
    chosen = choose_failures(right, readable, label, shifts, partners)
    base, *others = (group.name for group in dataset.groups)
    data = failures_data(
        questions,
        2 * present[:, None] + right,
        right,
        np.full(right.shape, np.nan, np.float32),
        chosen,
        [(model.name, _OUTCOMES.__getitem__, "") for model in models],
        [*others, base],
    )
    times = Counter(questions.keys[question] for question in chosen.images.tolist())

    def pictures() -> Iterator[Image | None]:
        for key, encoded in dataset.images(frozenset(times)):
            yield from repeat(readable_image(encoded), times[key])

    return write_sheets(
        folder,
        "failures-of-labels.html.j2",
        dataset.name,
        preview,
        data,
        chosen,
        pictures(),
        images=len(right),
        paired=True,
        changed=True,
    )


def label_columns(
    subject: MultilabelSubject, models: Sequence[MeasuredClassifier]
) -> dict[str, Any]:
    """Return the columns of each image in predictions.parquet: its conditions, those that are
    unknown if any is, then three columns for each model.

    `missed.MODEL`, `wrongly_given.MODEL` and `scores.MODEL` are about the measured labels.
    """
    import pyarrow as pa

    names = np.array([cls.name for cls in subject.labels], dtype=object)
    groups = (len(subject.rows), 1, 1)

    def names_in(mask: Bools) -> Any:
        """Return the labels of each image, from a mask (groups, images, labels)."""
        lists = [names[of_image].tolist() for of_image in mask.reshape(-1, len(names))]
        return pa.array(lists, pa.list_(pa.string()))

    truth = subject.truth
    columns: dict[str, Any] = {"conditions": names_in(np.tile(truth.having, groups))}
    if not truth.known.all():
        columns[UNKNOWN] = names_in(np.tile(~truth.known, groups))
    labels = [cls.label for cls in subject.labels]
    for model in models:
        columns[f"missed.{model.name}"] = names_in(truth.having & ~model.answers)
        columns[f"wrongly_given.{model.name}"] = names_in(truth.lacking & model.answers)
        scores = model.answered.values[subject.rows.ravel()][:, labels]
        columns[f"scores.{model.name}"] = pa.array(scores.tolist(), pa.list_(pa.float64()))
    return columns
