"""A built dataset with objects, opened for scoring: its groups, and the objects of every image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from counterfoil.arrays import Ints
from counterfoil.data.written_objects import is_box, is_number
from counterfoil.detection_stats import Objects
from counterfoil.evaluation.compared_images import ComparedImages, compared_images
from counterfoil.evaluation.dataset import OpenDataset
from counterfoil.evaluation.messages import failure
from counterfoil.recipe.tasks.objects import OBJECTS, objects_feature
from counterfoil.store.decoding import UnreadableImage, open_image
from counterfoil.store.rows import TableForm


@dataclass(frozen=True)
class DetectionSubject(ComparedImages):
    """The images to compare, and their objects."""

    objects: tuple[Mapping[str, list[Any]], ...]
    """The objects of every image of the dataset."""

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
        images: list[int] = []
        columns: dict[str, list[Any]] = {
            "bbox": [],
            "category": [],
            "area": [],
            "iscrowd": [],
        }
        for image, row in enumerate(self.rows[0].tolist()):
            objects = self.objects[row]
            images += [image] * len(objects["bbox"])
            for name, values in columns.items():
                values += objects[name]
        return Objects.of(images, *columns.values())

    @cached_property
    def sides(self) -> Ints:
        """Width and height in pixels, (images, 2); 1 and 1 of an image that cannot be opened. All
        images made from one source row have one size."""
        dataset = self.dataset
        keys = [dataset.keys[row] for row in self.rows[0].tolist()]
        size_of = {}
        for key, encoded in dataset.images(frozenset(keys)):
            try:
                with open_image(encoded) as picture:
                    size_of[key] = picture.size
            except UnreadableImage:
                size_of[key] = 1, 1
        sizes = [size_of[key] for key in keys]
        return np.array(sizes, np.int64)


def open_objects(dataset: OpenDataset, limit: int | None = None) -> DetectionSubject:
    """Read the objects of a dataset, from at most `limit` rows of its source.

    Raise RunFailure if no build can have written the table, and UserError if no image is in every
    group.
    """
    directory = dataset.directory
    form = TableForm.of(dataset.recipe)
    objects: list[Mapping[str, list[Any]]] = []
    for stored in dataset.stored(OBJECTS):
        of_image = stored[OBJECTS]
        if not _is_whole(of_image, len(form.names)):
            key = stored["key"][:80]
            raise failure("altered-dataset.cell", directory, key, what="objects")
        objects.append(of_image)
    compared = compared_images(dataset, limit)
    rows = compared.rows
    for first, *others in rows.T.tolist():
        for other in others:
            if objects[other] != objects[first]:
                key = dataset.keys[other]
                raise failure("altered-dataset.differs", directory, key, what="objects")
    return DetectionSubject(
        dataset,
        rows,
        compared.left_out,
        compared.preview,
        tuple(objects),
    )


def _is_whole(cell: Any, categories: int) -> bool:
    """Return whether the objects of one row are sound. The table may come from a stranger."""
    if not isinstance(cell, Mapping):
        return False
    for name in objects_feature(()):
        if cell.get(name) is None:
            return False
    count = len(cell["bbox"])
    for values in cell.values():
        if len(values) != count or None in values:
            return False
    for box in cell["bbox"]:
        if not is_box(box):
            return False
        _, _, width, height = box
        if width < 0 or height < 0:
            return False
    for area in cell["area"]:
        if not is_number(area) or area < 0:
            return False
    return all(0 <= category < categories for category in cell["category"])
