"""Images with objects, for detectors. The `source.categories` are the categories of the objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from counterfoil.recipe.keep.rule import Column
from counterfoil.recipe.names import LONGEST_CLASS_NAME, plain_name, quoted
from counterfoil.recipe.parts import RecipeParts, RecipeProblem, as_sequence
from counterfoil.recipe.tasks.task import PlacedTruth

if TYPE_CHECKING:
    from counterfoil.recipe.schema_inputs import Source

# The column of objects in every row of a dataset with boxes, and the column's type in tables.
OBJECTS = "objects"
# LVIS has 1,203 categories, and Objects365 has 365.
MOST_CATEGORIES = 10_000
# This limit is far above the number of objects in any image of COCO, LVIS or Open Images.
MOST_OBJECTS = 100_000


class ObjectsSource(PlacedTruth):
    """Each image has objects, with a box and a category each."""

    name = "objects"
    reader = "counterfoil.data.objects:objects_of"
    measured_by = "counterfoil.evaluation.tasks.objects.task:ObjectsTask"
    nouns = ("category", "categories")
    measures = "AP and drops of detectors"
    models = "transformers"
    hub = ("object-detection", None)
    mark = "box"
    marks = "boxes"
    fit = "lie around their objects"
    marked = "object"
    measured = "average precision"
    holds = "objects of"
    given = "boxes and categories of objects"
    truth = "boxes and categories"
    numbers = "Categories"
    shows = "objects"
    glimpse = "an object"
    undivided = "images with objects have categories and no classes, expected null"
    unmade = (
        "whose images have no boxes, expected corrupt: it changes images with"
        " objects and leaves each object where it is"
    )
    unmined = "mining looks for failures of classifiers, expected null with source.objects"
    unscreened = (
        "an image with many objects has no class to screen by, expected null with source.objects"
    )
    noun = "detector"
    table = "detection.csv"
    means: ClassVar[Mapping[str, str]] = {"mPC": "mean AP (mPC)"}
    reading = (
        "AP is the mean over IoU thresholds from .50 to .95 and over categories, as COCO computes"
        " it. mPC is the mean AP over shifts. A drop is AP on the base minus AP under a shift, in"
        " points."
    )
    guesses = "finds next to nothing on the base, so its drops mean little."

    def fits(self, source: Mapping[str, Any]) -> bool:
        return source.get("objects") is not None

    def names(self, source: Source) -> Sequence[str]:
        return source.categories

    def columns(self, source: Source) -> dict[str, Column]:
        meaning = "Objects of the image: boxes [x, y, width, height] in pixels, and categories."
        return {OBJECTS: Column(OBJECTS, meaning)}

    def planned(self, source: Source) -> dict[str, Any]:
        return {
            "objects": {
                "column": source.objects,
                "categories": source.categories,
                "boxes": source.boxes,
            }
        }

    def notes(self, corruptions: Sequence[str | None]) -> tuple[str, ...]:
        note = (
            "occlusion covers part of each image: boxes stay, also of objects that can no"
            " longer"
            " be seen"
        )
        return (note,) if "occlusion" in corruptions else ()

    def problems(self, parts: RecipeParts) -> Iterator[RecipeProblem]:
        if not as_sequence(parts.source.get("categories")):
            message = (
                "missing, expected the names of the objects' categories; `counterfoil init`"
                " writes them"
            )
            yield ("source", "categories"), message
        ids = as_sequence(parts.source.get("category_ids"))
        if ids and (
            len(ids) != len(as_sequence(parts.source.get("categories")))
            or len(set(map(str, ids))) < len(ids)
        ):
            message = f"found {quoted(str([*ids]))}, expected a number of its own for each category"
            yield ("source", "category_ids"), message
        yield from super().problems(parts)


def categories_problem(names: Sequence[str]) -> str | None:
    """Return a problem with the names of categories, or None."""
    if len(names) > MOST_CATEGORIES:
        return f"found {len(names):,} categories, expected at most {MOST_CATEGORIES:,}"
    for name in names:
        if not name.strip() or len(name) > LONGEST_CLASS_NAME or not name.isprintable():
            return (
                f"found {quoted(name)}, expected a name of 1 to {LONGEST_CLASS_NAME} printable"
                " characters"
            )
    twice = [name for name, times in Counter(map(plain_name, names)).items() if times > 1]
    return f"found '{twice[0]}' again, expected each category once" if twice else None


def objects_feature(names: Sequence[str]) -> dict[str, Any]:
    """Return the type of the column of objects for `datasets.Features.from_dict`.

    The type is a struct of lists, as in the Hub's viewer and in the examples of the library
    transformers.
    """
    values = {
        "id": {"dtype": "int64", "_type": "Value"},
        "bbox": {"feature": {"dtype": "float64", "_type": "Value"}, "length": 4, "_type": "List"},
        "category": {"names": list(names), "_type": "ClassLabel"},
        "area": {"dtype": "float64", "_type": "Value"},
        "iscrowd": {"dtype": "bool", "_type": "Value"},
    }
    return {name: {"feature": feature, "_type": "List"} for name, feature in values.items()}


def no_objects() -> dict[str, list[Any]]:
    """Return the value of the column for an image without objects."""
    return {name: [] for name in objects_feature(())}
