"""A built dataset with masks, opened for scoring: its groups, and the mask of every image."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from counterfoil.arrays import Floats, Ints
from counterfoil.data.masks import PixelClasses, decoded_mask
from counterfoil.evaluation.compared_images import ComparedImages, compared_images
from counterfoil.evaluation.dataset import OpenDataset, stored_rows
from counterfoil.evaluation.messages import failure, refusal
from counterfoil.recipe.tasks.masks import MASK, UNLABELLED
from counterfoil.store.decoding import UnreadableImage, open_image
from counterfoil.store.reading import read_receipts


@dataclass(frozen=True)
class MaskSubject(ComparedImages):
    """The images to compare, and their masks."""

    masks: tuple[bytes, ...]
    """The encoded mask of each image of a group, by image number: no shift moves a pixel."""

    @property
    def classes(self) -> tuple[str, ...]:
        recipe = self.dataset.recipe
        return tuple(recipe.task.names(recipe.source))

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
        dataset = self.dataset
        classes = len(self.classes)
        numbers = UNLABELLED + 1
        counts = np.zeros((self.images, numbers), np.int64)
        for image, of_image in enumerate(counts):
            try:
                mask = self.mask(image).ravel()
                of_image[:] = np.bincount(mask, minlength=numbers)
                odd = of_image[classes:UNLABELLED].any()
            except UnreadableImage:
                odd = True
            if odd:
                key = dataset.keys[self.rows[0, image]]
                raise failure("altered-dataset.cell", dataset.directory, key, what="a mask")
        of_classes = counts[:, :classes]
        if not of_classes.any():
            raise refusal("nothing-to-measure.pixels", dataset.source)
        return of_classes

    @cached_property
    def measured(self) -> tuple[int, ...]:
        """The classes that some pixel has."""
        having = self.pixels.any(axis=0)
        return tuple(np.flatnonzero(having).tolist())

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
    compared = compared_images(dataset, limit)
    rows = compared.rows
    base_of: dict[str, str] = {}
    for of_row in rows.T.tolist():
        keys = [dataset.keys[row] for row in of_row]
        base_of |= dict.fromkeys(keys, keys[0])
    masks: dict[str, bytes] = {}
    directory = dataset.directory
    receipts = read_receipts(directory)
    base_group = dataset.groups[0].group
    # The base is the first group, so its masks are read first.
    receipts.sort(key=lambda receipt: receipt.group != base_group)
    for row in stored_rows(directory, dataset.recipe, receipts, MASK):
        key = row["key"]
        if key in base_of:
            cell = row[MASK] or {}
            encoded = cell.get("bytes") or b""
            of_base = masks.setdefault(base_of[key], encoded)
            if encoded != of_base:
                raise failure("altered-dataset.differs", directory, key, what="mask")
    return MaskSubject(
        dataset,
        rows,
        compared.left_out,
        compared.preview,
        tuple(masks[dataset.keys[row]] for row in rows[0].tolist()),
    )
