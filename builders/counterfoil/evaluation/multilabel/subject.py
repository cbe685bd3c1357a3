"""A built dataset whose images have several labels, opened for scoring. Each label becomes a class."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation.dataset import OpenDataset, rows_in_every_group
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.multilabel import CONDITIONS
from counterfoil.report.results import LeftOut
from counterfoil.store.manifest import VERIFY
from counterfoil.store.reading import read_receipts, shard_batches
from counterfoil.store.rows import TableForm


def open_conditions(dataset: OpenDataset) -> tuple[OpenDataset, NDArray[np.bool_]]:
    """Return the dataset with its conditions as classes, and whether each image has each, (images, conditions).

    Raise RunFailure if no build can have written the table.
    """
    form = TableForm.of(dataset.recipe)
    present = np.zeros((len(dataset.keys), len(form.conditions)), dtype=bool)
    row_of = {key: row for row, key in enumerate(dataset.keys)}
    for receipt in read_receipts(dataset.directory):
        for batch in shard_batches(dataset.directory, receipt, ["key", CONDITIONS], "data", form):
            for key, numbers in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                if numbers is None or not set(numbers) <= set(range(len(form.conditions))):
                    raise RunFailure(f"{dataset.directory}: {key[:80]} has conditions that no build writes", VERIFY)
                if key in row_of:  # a preview has only some images
                    present[row_of[key], numbers] = True
    classes = tuple(RecipeClass(name, name, label, label, ()) for label, name in enumerate(form.conditions))
    return replace(dataset, classes=classes), present


@dataclass(frozen=True)
class MultilabelSubject:
    """The images to compare. Each source row that they are made from has a readable image in every group.

    rows: (groups, n), the places of these images in the dataset's order. Image i of every group is made from the same
    source row. present: (n, k), which `labels` each image has. few: labels that cannot be measured, because too few
    images have them or too few lack them.
    """

    dataset: OpenDataset
    rows: NDArray[np.int64]
    labels: tuple[RecipeClass, ...]
    present: NDArray[np.bool_]
    few: tuple[LeftOut, ...]

    @classmethod
    def of(
        cls, dataset: OpenDataset, present: NDArray[np.bool_], readable: NDArray[np.bool_], minimum: int
    ) -> MultilabelSubject:
        """Choose images and labels.

        present: (images, conditions). readable: (images,). minimum: so many images must have a
        label, and so many must lack it. Raise UserError if no image or no label is left, and RunFailure if a shift
        changes conditions.
        """
        rows = rows_in_every_group(dataset, np.flatnonzero(readable))
        if (present[rows] != present[rows[0]]).any():
            raise RunFailure(f"{dataset.directory}: an image has other conditions than its base image", VERIFY)
        having = present[rows[0]].sum(axis=0)
        enough = np.minimum(having, rows.shape[1] - having) >= max(2, minimum)
        if not enough.any():
            raise UserError(
                f"{dataset.source}: no label has {max(2, minimum)} images with it and as many without it",
                "Build with more samples.candidates, or lower min_images_per_class (--min-images).",
            )
        labels = tuple(dataset.classes[label] for label in np.flatnonzero(enough))
        few = [(dataset.classes[label], int(having[label])) for label in np.flatnonzero(~enough)]
        left_out = tuple(LeftOut(label.id, label.name, images, images) for label, images in few)
        return cls(dataset, rows, labels, present[rows[0]][:, enough], left_out)

    @property
    def images(self) -> int:
        """The number of images in each group."""
        return self.rows.shape[1]
