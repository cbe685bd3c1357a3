"""Images of a built dataset whose groups are compared image by image, made from source rows that every
group has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from counterfoil.arrays import Ints
from counterfoil.data.labelled_images import evenly_chosen
from counterfoil.evaluation.dataset import OpenDataset
from counterfoil.evaluation.messages import refusal
from counterfoil.resampled_stats import Units


@dataclass(frozen=True)
class ComparedImages:
    """The images to compare: those made from a source row that every group has. Groups then differ
    only by their shift."""

    dataset: OpenDataset
    rows: Ints
    """(groups, n), the places of these images in the dataset's order. Image i of every group is
    made from the same source row."""
    left_out: int
    """The number of images whose source row is missing in a group."""
    preview: int | None
    """The number of images of a group, if these are not all images."""

    @property
    def images(self) -> int:
        """The number of images in each group."""
        return self.rows.shape[1]

    @cached_property
    def units(self) -> Units | None:
        """The units of the images of a group, (n,); None if no two images share one."""
        units = self.dataset.units
        if units is None:
            return None
        of_group = Units.of(units.of_image[self.rows[0]])
        return of_group if of_group.shared else None

    @cached_property
    def number_of(self) -> Ints:
        """The image number of every row of the dataset, -1 for rows that are not compared."""
        numbers = np.full(len(self.dataset.keys), -1, np.int64)
        numbers[self.rows] = np.arange(self.images)
        return numbers


def rows_in_every_group(dataset: OpenDataset, known: Ints) -> Ints:
    """Return those of some rows whose source row has an image in every group, (groups, n).

    Image i of every group is made from the same source row. Raise UserError if no image is left.
    """
    groups = len(dataset.groups)
    sources = int(dataset.indices.max()) + 1
    rows = np.full((groups, sources), -1)
    rows[dataset.shifts[known], dataset.indices[known]] = known
    everywhere = (rows >= 0).all(axis=0)
    rows = rows[:, everywhere]
    if not rows.size:
        raise refusal("nothing-to-measure.rows", dataset.source)
    return rows


def compared_images(dataset: OpenDataset, limit: int | None = None) -> ComparedImages:
    """Return the images to compare, of at most `limit` source rows."""
    every = np.arange(len(dataset.keys))
    rows = rows_in_every_group(dataset, every)
    left_out = len(every) - rows.size
    preview = dataset.preview
    if limit is not None:
        of_base = dataset.indices[rows[0]].tolist()
        indices = list(map(str, of_base))
        one_class = np.zeros(len(indices), np.int64)
        places = evenly_chosen(indices, one_class, limit)
        rows = rows[:, places]
        preview = len(places)
    return ComparedImages(dataset, rows, left_out, preview)
