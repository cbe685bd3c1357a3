"""Images with objects, for detectors. The `source.categories` are the categories of the objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from counterfoil.errors import quoted
from counterfoil.recipe.keep.registered import RegisteredRule, least_iou
from counterfoil.recipe.keep.rule import Column
from counterfoil.recipe.names import LONGEST_CLASS_NAME, plain_name
from counterfoil.recipe.parts import RecipeParts, RecipeProblem, as_mapping, as_sequence
from counterfoil.recipe.tasks.task import PlacedTruth

if TYPE_CHECKING:
    from counterfoil.recipe.schema import Recipe
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
            "occlusion covers part of each image: boxes stay, also of objects that can no longer be"
            " seen"
        )
        return (note,) if "occlusion" in corruptions else ()

    def edit_problem(self, parts: RecipeParts) -> str | None:
        for spec in (parts.screen, *(spec for _, spec in parts.of_shifts)):
            steps = as_sequence(parts.keep_of(spec))
            limits = [as_mapping(as_mapping(step).registered) for step in steps]
            if not any(None not in (rule.translation, rule.zoom) for rule in limits):
                return (
                    "which moves objects away from their boxes, expected corrupt, or in screen.keep"
                    " and in every shift's own keep a rule that drops such edits:"
                    " {registered: {translation: 0.02, zoom: 1.03}}"
                )
        return None

    def stays(self, recipe: Recipe) -> str:
        if not recipe.kind.edits:
            return super().stays(recipe)
        translation, zoom = loosest_limits(recipe)
        ious = [f"{least_iou(side, translation, zoom):.2f}" for side in (0.1, 0.25, 0.5)]
        return (
            "Boxes are those of the row that was edited, in its middle square; an object of which"
            " less than half lies there is marked as iscrowd. Edits that moved by more than"
            f" {100 * translation:.3g} % of a side, or whose zoom is above {zoom:.4g} or below"
            f" {1 / zoom:.3g}, were dropped. At both limits, a box of a tenth, a quarter and half of"
            f" a side still has an IoU of at least {ious[0]}, {ious[1]} and {ious[2]} with its"
            " object, so AP at higher IoU thresholds also measures the editor. Whether an editor"
            " moved, added or removed a single object was not measured."
        )

    def problems(self, parts: RecipeParts) -> Iterator[RecipeProblem]:
        categories = as_sequence(parts.source.get("categories"))
        if not categories:
            message = (
                "missing, expected the names of the objects' categories; `counterfoil init`"
                " writes them"
            )
            yield ("source", "categories"), message
        ids = as_sequence(parts.source.get("category_ids"))
        each = len(set(map(str, ids))) == len(ids) == len(categories)
        if ids and not each:
            message = f"found {quoted(str([*ids]))}, expected a number of its own for each category"
            yield ("source", "category_ids"), message
        yield from super().problems(parts)


def loosest_limits(recipe: Recipe) -> tuple[float, float]:
    """Return the largest translation and zoom that any group of a recipe of edits keeps."""
    translations = [0.0]
    zooms = [1.0]
    for shift in recipe.all_shifts():
        rules = [rule for rule in shift.keep if isinstance(rule, RegisteredRule)]
        translations.append(min(rule.translation or 0.0 for rule in rules))
        zooms.append(min(rule.zoom or 1.0 for rule in rules))
    return max(translations), max(zooms)


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
