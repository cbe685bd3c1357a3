"""Which outputs of a classifier are right for each class of a dataset.

Two kinds of model can be scored. One with ImageNet-1k outputs, when every class of the recipe lists its
`imagenet` indices (one for an ImageNet subset, several for a category). And one whose outputs are the
source labels of the input dataset. Anything else is refused, since a wrong map scores near zero silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from counterfoil.errors import UserError

if TYPE_CHECKING:
    from counterfoil.models.classifiers import ClassifierFacts
    from counterfoil.recipe import RecipeClass

IMAGENET_OUTPUTS = 1000


@dataclass(frozen=True)
class ClassMap:
    """For each label of the dataset, the model outputs that count as right; `outputs` says what they are."""

    outputs: Literal["imagenet", "source labels"]
    num_classes: int
    targets: tuple[tuple[int, ...], ...]

    @property
    def top_k(self) -> int:
        """The k of "top-5": one less than the outputs where five would leave nothing to get wrong."""
        return max(1, min(5, self.num_classes - 1))


def map_classes(classes: Sequence[RecipeClass], facts: ClassifierFacts) -> ClassMap:
    """The class map between a recipe's classes and a model's outputs; UserError when there is none."""
    with_indices = [one for one in classes if one.imagenet]
    if facts.num_classes == IMAGENET_OUTPUTS and with_indices:
        missing = [one.id for one in classes if not one.imagenet]
        if missing:
            raise UserError(
                f"model {facts.name!r} has ImageNet outputs, but {len(missing)} of {len(classes)} classes "
                f"of the recipe have no `imagenet` indices: {_some(missing)}"
            )
        wrong = [one.id for one in classes if not all(0 <= i < IMAGENET_OUTPUTS for i in one.imagenet)]
        if wrong:
            raise UserError(f"classes with `imagenet` indices outside 0 … {IMAGENET_OUTPUTS - 1}: {_some(wrong)}")
        return ClassMap("imagenet", facts.num_classes, tuple(tuple(one.imagenet) for one in classes))
    return ClassMap("source labels", facts.num_classes, _source_targets(classes, facts))


def _source_targets(classes: Sequence[RecipeClass], facts: ClassifierFacts) -> tuple[tuple[int, ...], ...]:
    """One target a class, its source label, where the model's outputs are the source labels."""
    labels = [one.source_label for one in classes]
    targets = tuple((label,) for label in labels)
    names = [name.casefold() for name in facts.label_names or ()]
    if len(names) == facts.num_classes and max(labels) < len(names):
        # A model that names its outputs can prove or disprove the map, whatever their number.
        misplaced = [one for one in classes if names[one.source_label] not in _names(one)]
        if not misplaced:
            return targets
        found_elsewhere = [one for one in misplaced if _names(one) & set(names)]
        if found_elsewhere:
            one = found_elsewhere[0]
            raise UserError(
                f"model {facts.name!r} names its output {one.source_label} "
                f"{(facts.label_names or ())[one.source_label]!r}, but the recipe's class with that source "
                f"label is {one.name!r} ({len(misplaced)} of {len(classes)} classes differ)",
                "The model was trained with another order of classes; correct `source_label` in the recipe.",
            )
    if facts.num_classes != max(labels) + 1:
        known = (
            "none lists `imagenet` indices"
            if not any(one.imagenet for one in classes)
            else (f"their `imagenet` indices need a model of {IMAGENET_OUTPUTS} outputs")
        )
        raise UserError(
            f"model {facts.name!r} has {facts.num_classes} outputs, which match nothing in the recipe: "
            f"its classes have source labels up to {max(labels)} (a model of {max(labels) + 1} outputs), "
            f"and {known}",
            "Add `imagenet: [indices]` to the recipe's classes to score ImageNet models.",
        )
    return targets


def _names(one: RecipeClass) -> set[str]:
    return {one.name.casefold(), one.id.casefold()}


def _some(ids: Sequence[str], shown: int = 5) -> str:
    return ", ".join(ids[:shown]) + (f" and {len(ids) - shown} more" if len(ids) > shown else "")
