"""Images with masks, for semantic segmenters. The `source.categories` are the classes of pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from counterfoil.recipe.keep.rule import Column
from counterfoil.recipe.names import quoted
from counterfoil.recipe.parts import RecipeParts, RecipeProblem, mapping, sequence
from counterfoil.recipe.tasks.task import PlacedTruth

if TYPE_CHECKING:
    from counterfoil.recipe.schema_inputs import Source

# The column of masks in every row of a dataset with masks.
MASK = "mask"
# The number of pixels that no measure counts, as in most datasets. Classes have the numbers below.
UNLABELLED = 255


class MasksSource(PlacedTruth):
    """Each pixel of an image has one class or none."""

    name = "masks"
    measures = "IoU and drops of segmenters"
    models = "predictions"
    hub = ("image-segmentation", ["semantic-segmentation"])
    what = "images with masks"
    mark = "mask"
    marks = "masks"
    fit = "lie on what they mark"
    marked = "pixel"
    noun = "segmenter"
    measured = "mIoU"
    holds = "masks of"
    given = "masks"
    truth = "masks"
    numbers = "Numbers in masks"
    shows = "classes"
    glimpse = "a class"
    unmined = "mining looks for failures of classifiers, expected null with source.masks"
    unscreened = (
        "an image with many classes has no class to screen by, expected null with source.masks"
    )

    def names(self, source: Source) -> Sequence[str]:
        return source.categories

    def columns(self, source: Source) -> dict[str, Column]:
        meaning = (
            "Class of each pixel, a PNG of one channel; 255: no class. Numbers: "
            + ", ".join(f"{number} {name}" for number, name in enumerate(source.categories))
            + "."
        )
        return {MASK: Column("Image", meaning)}

    def planned(self, source: Source) -> dict[str, Any]:
        masks = {"column": source.masks, "categories": source.categories}
        return {"masks": masks | ({"ids": source.category_ids} if source.category_ids else {})}

    def problems(self, parts: RecipeParts) -> Iterator[RecipeProblem]:
        categories = sequence(parts.source.get("categories"))
        if not 0 < len(categories) <= UNLABELLED:
            message = (
                f"found {len(categories)}, expected the names of 1 to {UNLABELLED} classes, in the"
                " order of their numbers in masks"
            )
            yield ("source", "categories"), message
        ids = sequence(parts.source.get("category_ids"))
        unfit = any(type(number) is not int or not 0 <= number <= UNLABELLED for number in ids)
        if ids and (unfit or len(ids) != len(categories) or len(set(ids)) < len(ids)):
            message = (
                f"found {quoted(str([*ids]))}, expected a number of its own from 0 to {UNLABELLED}"
                " for each class"
            )
            yield ("source", "category_ids"), message
        for key, usual in (("objects", None), ("boxes", "coco")):
            if parts.source.get(key) not in (None, usual):
                yield ("source", key), f"found with source.masks, expected {usual or 'null'}"
        if mapping(parts.recipe.get("output")).get("format") == "webdataset":
            yield ("output", "format"), "masks are a column of Parquet files, expected parquet"
        yield from super().problems(parts)
