"""Images with masks, for semantic segmenters: each pixel has a class of the recipe, or none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from counterfoil.errors import quoted
from counterfoil.recipe.keep.rule import Column
from counterfoil.recipe.parts import RecipeParts, RecipeProblem, as_mapping
from counterfoil.recipe.section import NonEmpty, Section, field_check
from counterfoil.recipe.tasks.objects import categories_problem
from counterfoil.recipe.tasks.task import PlacedTruth, SourceTask

if TYPE_CHECKING:
    from counterfoil.recipe.schema_inputs import Source

# The column of masks in every row of a dataset with masks.
MASK = "mask"
# The number of pixels that no measure counts, as in most datasets. Classes have the numbers below.
UNLABELLED = 255


class Masks(Section):
    """For semantic segmenters: each image has a mask, a PNG with the number of each pixel's class,
    255 for none. null: images have no masks."""

    column: NonEmpty = MASK
    """Column that holds the masks. A folder with `images` and `masks`, or with COCO files that have
    outlines, has it by any name."""
    classes: tuple[str, ...] = Field(min_length=1, max_length=UNLABELLED)
    """The names of classes, in the order of their numbers, from 0 on. Outlines are matched by
    category, and `background` is outside all."""
    numbers: tuple[int, ...] = ()
    """The number of each class in masks, where these are not 0, 1 and so on. Other numbers are then
    no class."""

    _names = field_check("classes", by=categories_problem)

    def problem(self) -> str | None:
        numbers = self.numbers
        fitting = all(0 <= number <= UNLABELLED for number in numbers)
        each = len(set(numbers)) == len(numbers) == len(self.classes)
        if numbers and not (fitting and each):
            return (
                f"found the numbers {quoted(str([*numbers]))}, expected a number of its own from 0"
                f" to {UNLABELLED} for each class"
            )
        return None


class MasksSource(PlacedTruth):
    """Each pixel of an image has one class or none."""

    name = "masks"
    section = Masks
    reader = "counterfoil.data.masks:masks_of"
    row_fault = "counterfoil.data.masks:mask_fault"
    measured_by = "counterfoil.evaluation.tasks.masks.task:MasksTask"
    measures = "IoU and drops of segmenters"
    models = "predictions"
    hub = ("image-segmentation", ["semantic-segmentation"])
    mark = "mask"
    marks = "masks"
    fit = "lie on what they mark"
    marked = "pixel"
    measured = "mIoU"
    holds = "masks of"
    given = "masks"
    truth = "masks"
    numbers = "Numbers in masks"
    shows = "classes"
    glimpse = "a class"
    undivided = "images with masks have source.masks.classes and no classes, expected null"
    unmade = (
        "whose images have no masks, expected corrupt: it changes images with masks and leaves each"
        " pixel where it is"
    )
    unmined = "mining looks for failures of classifiers, expected null with source.masks"
    unscreened = (
        "an image with many classes has no class to screen by, expected null with source.masks"
    )
    noun = "segmenter"
    table = "segmentation.csv"
    reading = (
        "mIoU is the mean of the IoU of {names} classes, over the pixels of all images together. A"
        " drop is mIoU on the base minus mIoU under a shift, in points, over the classes that the"
        " model does not answer near chance on the base."
    )
    guesses = "is near chance on the base for every class, so it has no drops."

    def names(self, source: Source) -> Sequence[str]:
        return self.keys(source).classes

    def columns(self, source: Source) -> dict[str, Column]:
        numbered = ", ".join(f"{number} {name}" for number, name in enumerate(self.names(source)))
        meaning = f"Class of each pixel, a PNG of one channel; 255: no class. Numbers: {numbered}."
        return {MASK: Column("Image", meaning)}

    def problems(self, parts: RecipeParts) -> Iterator[RecipeProblem]:
        yield from SourceTask.problems(self, parts)
        if as_mapping(parts.recipe.get("output")).get("format") == "webdataset":
            yield ("output", "format"), "masks are a column of Parquet files, expected parquet"
        yield from super().problems(parts)
