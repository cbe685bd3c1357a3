"""The failures of multi-label classifiers, label by label: the page of the browser, and a table of all images.

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

from counterfoil.evaluation.failures import base_partners, choose_failures, failures_data, failures_html, write_browser
from counterfoil.evaluation.multilabel.measures import MeasuredClassifier
from counterfoil.evaluation.multilabel.subject import MultilabelSubject
from counterfoil.evaluation.scores import ModelAnswers
from counterfoil.store.decoding import readable_image

if TYPE_CHECKING:
    from PIL.Image import Image

# The outcome for one label. Its index is 2 · (the image has the label) + (the model is right).
_OUTCOMES = ("wrongly given", "rightly not given", "missed", "found")


def write_label_failures(
    subject: MultilabelSubject, models: Sequence[MeasuredClassifier], preview: str, folder: Path
) -> Path:
    """Write the failure browser and return its page. preview: the sentence that marks a preview, or empty."""
    dataset, labels = subject.dataset, len(subject.labels)
    # A question is one label of one image: question q is label q % labels of image rows[q // labels].
    order = np.argsort(subject.rows, axis=None)
    rows = subject.rows.ravel()[order]
    present = np.broadcast_to(subject.present, (len(subject.rows), *subject.present.shape)).reshape(-1, labels)[order]
    answers = np.stack([model.answers.reshape(-1, labels)[order].ravel() for model in models], axis=1)
    right = answers == present.reshape(-1, 1)
    questions = replace(
        dataset,
        classes=tuple(replace(cls, label=label) for label, cls in enumerate(subject.labels)),
        keys=tuple(dataset.keys[row] for row in rows.tolist() for _ in range(labels)),
        labels=np.tile(np.arange(labels), len(rows)),
        shifts=np.repeat(dataset.shifts[rows], labels),
        indices=np.repeat(dataset.indices[rows], labels),
    )
    readable = np.ones(len(right), dtype=bool)
    shifts = range(1, len(dataset.groups))
    partners = base_partners(questions.labels, questions.shifts, questions.indices, readable, shifts)
    chosen = choose_failures(right, readable, questions.labels, questions.shifts, partners)
    outcomes = 2 * present.reshape(-1, 1) + right
    confidence = np.full(right.shape, np.nan, np.float32)
    data = failures_data(
        questions,
        ModelAnswers(readable, outcomes, right, right),
        confidence,
        chosen,
        [(model.name, _OUTCOMES.__getitem__, "") for model in models],
        [group.name for group in dataset.groups[1:]] + [dataset.groups[0].name],
    )
    times = Counter(questions.keys[question] for question in chosen.images.tolist())

    def pictures() -> Iterator[Image | None]:
        for key, encoded in dataset.images(frozenset(times)):
            yield from repeat(readable_image(encoded), times[key])

    html = failures_html(
        dataset.name, data, chosen, len(right), paired=True, changed=True, preview=preview, labels=True
    )
    return write_browser(folder, html, pictures(), len(chosen.images))


def label_columns(subject: MultilabelSubject, models: Sequence[MeasuredClassifier]) -> dict[str, Any]:
    """Return the columns of each image in predictions.parquet: its conditions, then three columns for each model.

    `missed.MODEL`, `wrongly_given.MODEL` and `scores.MODEL` are about the measured labels.
    """
    import pyarrow as pa

    names = np.array([cls.name for cls in subject.labels], dtype=object)

    def named(mask: Any) -> Any:
        return pa.array([names[row].tolist() for group in mask for row in group], pa.list_(pa.string()))

    present = np.broadcast_to(subject.present, (len(subject.rows), *subject.present.shape))
    columns: dict[str, Any] = {"conditions": named(present)}
    labels = [cls.label for cls in subject.labels]
    for model in models:
        columns[f"missed.{model.name}"] = named(present & ~model.answers)
        columns[f"wrongly_given.{model.name}"] = named(~present & model.answers)
        scores = model.answered.values[subject.rows.ravel()][:, labels]
        columns[f"scores.{model.name}"] = pa.array(scores.tolist(), pa.list_(pa.float64()))
    return columns
