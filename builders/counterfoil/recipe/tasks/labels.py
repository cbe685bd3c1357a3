"""Images with several labels, for classifiers that score each label separately.

Each image is taken once, with all its conditions. A recipe with two classes for each condition
instead asks single questions, and each of its images belongs to one class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from counterfoil.recipe.keep.rule import Column
from counterfoil.recipe.parts import RecipeParts, RecipeProblem
from counterfoil.recipe.tasks.task import SourceTask, WholeImages, is_every_image

if TYPE_CHECKING:
    from counterfoil.recipe.schema_inputs import Conditions, Source

# The column of conditions that every row of such a dataset has, and the column of those that may be
# unknown.
CONDITIONS = "conditions"
UNKNOWN = "unknown_conditions"


class LabelsSource(WholeImages):
    """Each image has any number of the recipe's conditions."""

    name = "labels"
    labelled = True
    reader = "counterfoil.data.labels:conditions_of"
    measured_by = "counterfoil.evaluation.tasks.labels.task:LabelsTask"
    nouns = ("label", "labels")
    hub = ("image-classification", ["multi-label-image-classification"])
    unmined = "mining needs two classes a condition in source.classes, expected null without them"
    unscreened = (
        "an image with several conditions has no class to screen by, expected null without"
        " source.classes"
    )
    noun = "classifier"
    table = "multilabel.csv"
    reading = (
        "mAP is the mean of the average precision of {names} labels. A drop is mAP on the base"
        " minus mAP under a shift, in points, over the labels that the model does not rank near"
        " chance on the base."
    )
    guesses = "is near chance on the base for every label, so it has no drops."

    def fits(self, source: Mapping[str, Any]) -> bool:
        if source.get("conditions") is None or source.get("objects") is not None:
            return False
        classes = source.get("classes")
        return classes is None or is_every_image(classes)

    def names(self, source: Source) -> Sequence[str]:
        return _conditions(source).names

    def columns(self, source: Source) -> dict[str, Column]:
        meaning = "Conditions that the image has, of the recipe's; empty for none."
        columns = {CONDITIONS: Column("list<ClassLabel>", meaning)}
        if _conditions(source).may_be_unknown:
            meaning = (
                "Conditions of which nobody knows whether the image has them; it neither has"
                " nor lacks these."
            )
            columns[UNKNOWN] = Column("list<ClassLabel>", meaning)
        return columns

    def planned(self, source: Source) -> dict[str, Any]:
        conditions = _conditions(source).model_dump(mode="json")
        if not conditions["columns"]:
            conditions["column"] = source.label_column
        return {"conditions": conditions}

    def problems(self, parts: RecipeParts) -> Iterator[RecipeProblem]:
        yield from SourceTask.problems(self, parts)
        if not parts.kind.corrupts:
            message = (
                "missing, expected two classes a condition: source label 0 has the first, 1 lacks"
                " it, and so on. Without classes each image keeps all its conditions, which needs"
                " generator.kind corrupt"
            )
            yield ("source", "classes"), message
            return
        yield from super().problems(parts)


def _conditions(source: Source) -> Conditions:
    assert source.conditions is not None  # the task is derived from them
    return source.conditions


def conditions_feature(names: Sequence[str]) -> dict[str, Any]:
    """Return the type of the column of conditions, in the form that `datasets.Features.from_dict`
    reads."""
    return {"feature": {"names": list(names), "_type": "ClassLabel"}, "_type": "List"}
