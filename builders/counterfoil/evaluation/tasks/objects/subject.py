"""A built dataset with objects, opened for scoring: its groups, and the objects of every image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from counterfoil.arrays import Ints
from counterfoil.data.labelled_images import evenly_chosen
from counterfoil.data.written_objects import is_box, is_number
from counterfoil.detection_stats import Objects
from counterfoil.errors import RunFailure
from counterfoil.evaluation.dataset import OpenDataset, compared_units, rows_in_every_group
from counterfoil.recipe.tasks.objects import OBJECTS, objects_feature
from counterfoil.resampled_stats import Units
from counterfoil.store.decoding import UnreadableImage, open_image
from counterfoil.store.manifest import VERIFY
from counterfoil.store.reading import read_receipts, shard_batches
from counterfoil.store.rows import TableForm


@dataclass(frozen=True)
class DetectionSubject:
    """The images to score: those made from a source row that every group has. Groups then differ
    only by their shift.

    objects: those of every image of the dataset. rows: (groups, n), the places of the images to
    score in the dataset's order. Image i of every group is made from the same source row. left_out:
    the number of images whose source row is missing in a group. units: the units that images share,
    if the recipe names them.
    """

    dataset: OpenDataset
    objects: tuple[Mapping[str, list[Any]], ...]
    rows: Ints
    left_out: int
    units: Units | None = None

    @property
    def images(self) -> int:
        """The number of images in each group."""
        return self.rows.shape[1]

    @property
    def categories(self) -> tuple[str, ...]:
        return self.dataset.recipe.source.categories

    @property
    def category_ids(self) -> tuple[int, ...]:
        """The numbers of the categories in the dataset's source, if the recipe has them."""
        return self.dataset.recipe.source.category_ids

    @cached_property
    def truth(self) -> Objects:
        """The objects of each image, by image number. No shift moves an object, so they are the
        same in every group."""
        base_objects = [self.objects[row] for row in self.rows[0]]
        image = np.repeat(
            np.arange(self.images), [len(objects["bbox"]) for objects in base_objects]
        )
        parts: dict[str, list[Any]] = {}
        for name in objects_feature(()):
            parts[name] = [value for objects in base_objects for value in objects[name]]
        return Objects.of(image, parts["bbox"], parts["category"], parts["area"], parts["iscrowd"])

    def keys_of(self, group: int) -> list[str]:
        """Return the keys of a group's images, in the order of image numbers."""
        return [self.dataset.keys[row] for row in self.rows[group].tolist()]

    @cached_property
    def sides(self) -> Ints:
        """Width and height in pixels, (images, 2). All images made from one source row have one
        size."""
        keys = self.keys_of(0)
        sizes = {key: open_size(encoded) for key, encoded in self.dataset.images(frozenset(keys))}
        return np.array([sizes[key] for key in keys], np.int64)


def open_size(encoded: bytes | None) -> tuple[int, int]:
    """Return the width and height of an encoded image; (1, 1) if it cannot be opened."""
    try:
        with open_image(encoded) as picture:
            return picture.size
    except UnreadableImage:
        return 1, 1


def open_objects(dataset: OpenDataset, limit: int | None = None) -> DetectionSubject:
    """Read the objects of a dataset, from at most `limit` rows of its source.

    Raise RunFailure if no build can have written the table, and UserError if no image is in every
    group.
    """
    form = TableForm.of(dataset.recipe)
    objects: list[Mapping[str, list[Any]]] = []
    for receipt in read_receipts(dataset.directory):
        for batch in shard_batches(dataset.directory, receipt, ["key", OBJECTS], "data", form):
            keys = batch.column("key").to_pylist()
            for key, cell in zip(keys, batch.column(OBJECTS).to_pylist(), strict=True):
                if not _is_whole(cell, len(form.names)):
                    raise RunFailure(
                        f"{dataset.directory}: {key[:80]} has objects that no build writes", VERIFY
                    )
                objects.append(cell)
    rows = rows_in_every_group(dataset, np.arange(len(objects)))
    left_out = len(objects) - rows.size
    if limit is not None:
        indices = [str(index) for index in dataset.indices[rows[0]].tolist()]
        rows = rows[:, evenly_chosen(indices, np.zeros(len(indices), np.int64), limit)]
    for first, *others in rows.T.tolist():
        for row in others:
            if objects[row] != objects[first]:
                key = dataset.keys[row]
                raise RunFailure(
                    f"{dataset.directory}: {key} has other objects than its base image", VERIFY
                )
    return DetectionSubject(dataset, tuple(objects), rows, left_out, compared_units(dataset, rows))


def _is_whole(cell: Any, categories: int) -> bool:
    """Return whether the objects of one row are sound. The table may come from a stranger."""
    if not isinstance(cell, Mapping) or any(cell.get(name) is None for name in objects_feature(())):
        return False
    lengths = {len(values) for values in cell.values()}
    if len(lengths) > 1 or any(None in values for values in cell.values()):
        return False
    boxes = all(is_box(box) and box[2] >= 0 and box[3] >= 0 for box in cell["bbox"])
    areas = all(is_number(area) and area >= 0 for area in cell["area"])
    return boxes and areas and all(0 <= category < categories for category in cell["category"])
