"""Images with several labels, for classifiers that score each label separately.

A recipe with `source.conditions` and without classes has one class, which stands for every image, like a recipe with
objects. Each image is taken once, with all its conditions. A recipe with two classes for each condition instead asks
single questions, and each of its images belongs to one class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from counterfoil.recipe.keep import Column
from counterfoil.recipe.objects import is_every_image
from counterfoil.recipe.parts import RecipeParts, RecipeProblem

# The column of conditions that every row of such a dataset has, and the column of those that may be unknown.
CONDITIONS, UNKNOWN = "conditions", "unknown_conditions"


def condition_columns(multilabel: bool, may_be_unknown: bool) -> dict[str, Column]:
    """Return the columns of conditions that rows have, if a recipe takes images with all their conditions."""
    if not multilabel:
        return {}
    meaning = "Conditions that the image has, of the recipe's; empty for none."
    columns = {CONDITIONS: Column("list<ClassLabel>", meaning)}
    if may_be_unknown:
        meaning = "Conditions of which nobody knows whether the image has them; it neither has nor lacks these."
        columns[UNKNOWN] = Column("list<ClassLabel>", meaning)
    return columns


def conditions_feature(names: Sequence[str]) -> dict[str, Any]:
    """Return the type of the column of conditions, in the form that `datasets.Features.from_dict` reads."""
    return {"feature": {"names": list(names), "_type": "ClassLabel"}, "_type": "List"}


def multilabel_problems(parts: RecipeParts) -> Iterator[RecipeProblem]:
    """Yield what a recipe may not combine with images that keep all their conditions: images that are drawn or
    screened, and mining.
    """
    classes = parts.source.get("classes")
    if parts.source.get("conditions") is None or not (classes is None or is_every_image(classes)):
        return
    if not parts.kind.corrupts:
        message = (
            "missing, expected two classes a condition: source label 0 has the first, 1 lacks it, and so on. Without"
            " classes each image keeps all its conditions, which needs generator.kind corrupt"
        )
        yield ("source", "classes"), message
        return
    if parts.recipe.get("mine") is not None:
        yield ("mine",), "mining needs two classes a condition in source.classes, expected null without them"
    for key in ("model", "judge"):
        if parts.screen.get(key) is not None:
            message = "an image with several conditions has no class to screen by, expected null without source.classes"
            yield ("screen", key), message
