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

from counterfoil.evaluation.failures import (
    base_partners,
    browser_html,
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
    subject: MultilabelSubject, models: Sequence[MeasuredClassifier], preview: str, folder: Path
) -> Path:
    """Write the failure browser and return its page. preview: the sentence that marks a preview, or
    empty."""
    dataset = subject.dataset
    labels = len(subject.labels)
    # A question is one known label of one image, image after image.
    order = np.argsort(subject.rows, axis=None)
    rows = subject.rows.ravel()[order]
    groups = len(subject.rows)
    # An unknown label asks no question: no answer to it is a failure.
    known = np.tile(subject.truth.known, (groups, 1))[order].ravel()
    present = np.tile(subject.truth.present, (groups, 1))[order].reshape(-1, 1)[known]
    answers = np.stack(
        [model.answers.reshape(-1, labels)[order].ravel()[known] for model in models], axis=1
    )
    right = answers == present
    questions = replace(
        dataset,
        classes=tuple(replace(cls, label=label) for label, cls in enumerate(subject.labels)),
        keys=tuple(dataset.keys[row] for row in np.repeat(rows, labels)[known].tolist()),
        labels=np.tile(np.arange(labels), len(rows))[known],
        shifts=np.repeat(dataset.shifts[rows], labels)[known],
        indices=np.repeat(dataset.indices[rows], labels)[known],
    )
    readable = np.ones(len(right), dtype=bool)
    shifts = range(1, len(dataset.groups))
    partners = base_partners(
        questions.labels, questions.shifts, questions.indices, readable, shifts
    )
    chosen = choose_failures(right, readable, questions.labels, questions.shifts, partners)
    data = failures_data(
        questions,
        2 * present + right,
        right,
        np.full(right.shape, np.nan, np.float32),
        chosen,
        [(model.name, _OUTCOMES.__getitem__, "") for model in models],
        [group.name for group in dataset.groups[1:]] + [dataset.groups[0].name],
    )
    times = Counter(questions.keys[question] for question in chosen.images.tolist())

    def pictures() -> Iterator[Image | None]:
        for key, encoded in dataset.images(frozenset(times)):
            yield from repeat(readable_image(encoded), times[key])

    html = browser_html(
        "failures-of-labels.html.j2",
        dataset.name,
        preview,
        data,
        found=chosen.count,
        shown=len(chosen.rows),
        images=len(right),
        paired=True,
        changed=True,
    )
    return write_sheets(folder, html, pictures(), len(chosen.images))


def label_columns(
    subject: MultilabelSubject, models: Sequence[MeasuredClassifier]
) -> dict[str, Any]:
    """Return the columns of each image in predictions.parquet: its conditions, those that are
    unknown if any is, then three columns for each model.

    `missed.MODEL`, `wrongly_given.MODEL` and `scores.MODEL` are about the measured labels.
    """
    import pyarrow as pa

    names = np.array([cls.name for cls in subject.labels], dtype=object)

    def named(mask: Any) -> Any:
        return pa.array(
            [names[row].tolist() for group in mask for row in group], pa.list_(pa.string())
        )

    truth = subject.truth
    shape = (len(subject.rows), *subject.truth.present.shape)
    having = np.broadcast_to(truth.having, shape)
    lacking = np.broadcast_to(truth.lacking, shape)
    columns: dict[str, Any] = {"conditions": named(having)}
    if not truth.known.all():
        columns[UNKNOWN] = named(~having & ~lacking)
    labels = [cls.label for cls in subject.labels]
    for model in models:
        columns[f"missed.{model.name}"] = named(having & ~model.answers)
        columns[f"wrongly_given.{model.name}"] = named(lacking & model.answers)
        scores = model.answered.values[subject.rows.ravel()][:, labels]
        columns[f"scores.{model.name}"] = pa.array(scores.tolist(), pa.list_(pa.float64()))
    return columns
