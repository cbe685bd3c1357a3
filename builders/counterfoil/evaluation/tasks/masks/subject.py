"""A built dataset with masks, opened for scoring: its groups, and the mask of every image."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from counterfoil.arrays import Floats, Ints
from counterfoil.data.masks import PixelClasses, decoded_mask
from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation.dataset import OpenDataset, compared_units, rows_to_compare, stored_rows
from counterfoil.recipe.tasks.masks import MASK, UNLABELLED
from counterfoil.resampled_stats import Units
from counterfoil.store.decoding import UnreadableImage, open_image
from counterfoil.store.manifest import VERIFY
from counterfoil.store.reading import read_receipts


@dataclass(frozen=True)
class MaskSubject:
    """The images to score: those made from a source row that every group has.

    masks: the encoded mask of each image of a group, by image number: no shift moves a pixel. rows:
    (groups, n), the places of these images in the dataset's order. left_out: the number of images
    whose source row is missing in a group.
    """

    dataset: OpenDataset
    masks: tuple[bytes, ...]
    rows: Ints
    left_out: int
    units: Units | None = None
    preview: bool = False
    """Whether these are not all images of the dataset."""

    @property
    def images(self) -> int:
        """The number of images in each group."""
        return self.rows.shape[1]

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.dataset.recipe.task.names(self.dataset.recipe.source))

    @cached_property
    def number_of(self) -> dict[int, int]:
        """The image number of each row to score."""
        numbers = np.broadcast_to(np.arange(self.images), self.rows.shape)
        rows = self.rows.ravel().tolist()
        return dict(zip(rows, numbers.ravel().tolist(), strict=True))

    def shape(self, row: int) -> tuple[int, int]:
        """Return the height and width of the mask of a row to score."""
        with open_image(self.masks[self.number_of[row]]) as picture:
            return picture.height, picture.width

    def mask(self, number: int) -> PixelClasses:
        """Return the classes of the pixels of an image, by its number."""
        return decoded_mask(self.masks[number])

    @cached_property
    def pixels(self) -> Ints:
        """The number of pixels of each class in each image, (n, k). Raise RunFailure for a mask
        that no build writes, and UserError if no pixel has a class."""
        classes = len(self.classes)
        counts = np.zeros((self.images, UNLABELLED + 1), np.int64)
        for number in range(self.images):
            try:
                mask = self.mask(number).ravel()
                counts[number] = np.bincount(mask, minlength=UNLABELLED + 1)
                odd = counts[number, classes:UNLABELLED].any()
            except UnreadableImage:
                odd = True
            if odd:
                key = self.dataset.keys[self.rows[0, number]]
                raise RunFailure(
                    f"{self.dataset.directory}: {key} has a mask that no build writes", VERIFY
                )
        if not counts[:, :classes].any():
            raise UserError(f"{self.dataset.source}: no pixel of its masks has a class")
        return counts[:, :classes]

    @cached_property
    def measured(self) -> tuple[int, ...]:
        """The classes that some pixel has."""
        return tuple(np.flatnonzero(self.pixels.any(axis=0)).tolist())

    @cached_property
    def shares(self) -> Floats:
        """The share of each class among all pixels that have one, (k,). Who answers that class
        everywhere has this IoU of it."""
        totals = self.pixels.sum(axis=0)
        return np.asarray(totals / totals.sum())


def open_masks(dataset: OpenDataset, limit: int | None = None) -> MaskSubject:
    """Read the masks of a dataset, from at most `limit` rows of its source.

    Raise RunFailure if a shift changes a mask, and UserError if no image is in every group.
    """
    rows, left_out = rows_to_compare(dataset, limit)
    base_of: dict[str, str] = {}
    for of_row in rows.T.tolist():
        base = dataset.keys[of_row[0]]
        for row in of_row:
            key = dataset.keys[row]
            base_of[key] = base
    masks: dict[str, bytes] = {}
    receipts = read_receipts(dataset.directory)
    # The base is the first group, so its masks are read first.
    receipts.sort(key=lambda receipt: receipt.group != dataset.groups[0].group)
    for row in stored_rows(dataset.directory, dataset.recipe, receipts, MASK):
        key = row["key"]
        if key in base_of:
            encoded = (row[MASK] or {}).get("bytes") or b""
            if encoded != masks.setdefault(base_of[key], encoded):
                raise RunFailure(
                    f"{dataset.directory}: {key} has another mask than its base image", VERIFY
                )
    of_base = tuple(masks[dataset.keys[row]] for row in rows[0].tolist())
    preview = limit is not None or dataset.preview is not None
    return MaskSubject(
        dataset,
        of_base,
        rows,
        left_out,
        compared_units(dataset, rows),
        preview,
    )
