"""The object scores of a built dataset's candidates, class by class, under each caption that screens them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.calibration.scores import ShiftScores, shortest
from counterfoil.recipe.prompts import object_caption_for

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe, RecipeClass

# A page has so many sliders of objects, so that every one can have pictures.
MOST_OBJECTS = 100


@dataclass(frozen=True, slots=True)
class ObjectScores:
    """All scored candidates of a class under one caption, by ascending object score; arrays of one length n.

    `units` are positions among the shifts' scores, `ranks` positions in their arrays.
    """

    cls: RecipeClass
    caption: str
    threshold: float
    units: np.ndarray
    ranks: np.ndarray
    scores: np.ndarray
    has_image: np.ndarray

    @property
    def rejected(self) -> int:
        """Candidates whose object is below the threshold that they were cut by."""
        return int((self.scores < np.float32(self.threshold)).sum())


@dataclass(frozen=True, slots=True)
class ObjectGroup:
    """Shifts whose objects are screened by one caption and one threshold spec: what one slider a class can set."""

    place: int
    caption: str
    units: tuple[int, ...]
    objects: tuple[ObjectScores, ...]


def object_groups(recipe: Recipe, scores: Sequence[ShiftScores]) -> tuple[ObjectGroup, ...]:
    """The groups in the recipe's order; classes in label order, those without a scored candidate left out."""
    members: dict[tuple[str, str], list[int]] = {}
    for unit, each in enumerate(scores):
        spec = json.dumps(each.shift.object_threshold.model_dump(exclude_none=True), sort_keys=True)
        members.setdefault((each.shift.object_caption, spec), []).append(unit)
    return tuple(
        ObjectGroup(place, caption, tuple(units), tuple(_objects(recipe, scores, units)))
        for place, ((caption, _), units) in enumerate(members.items())
    )


def shown_groups(groups: Sequence[ObjectGroup], most: int = MOST_OBJECTS) -> tuple[ObjectGroup, ...]:
    """The groups with at most so many objects in all: those that reject most candidates."""
    every = [(one.rejected, -group.place, -at) for group in groups for at, one in enumerate(group.objects)]
    chosen = {(-place, -at) for _, place, at in sorted(every, reverse=True)[:most]}
    return tuple(
        replace(group, objects=tuple(one for at, one in enumerate(group.objects) if (group.place, at) in chosen))
        for group in groups
    )


def _objects(recipe: Recipe, scores: Sequence[ShiftScores], units: Sequence[int]) -> list[ObjectScores]:
    of_unit = np.concatenate([np.full(scores[unit].scores.size, unit) for unit in units])
    ranks = np.concatenate([np.arange(scores[unit].scores.size) for unit in units])
    labels, values, least, kept = (
        np.concatenate([getattr(scores[unit], name) for unit in units])
        for name in ("labels", "object_scores", "object_thresholds", "has_image")
    )
    found = []
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        own = own[np.argsort(values[own], kind="stable")]
        cls = recipe.classes[int(label)]
        caption = object_caption_for(scores[units[0]].shift, cls)
        threshold = shortest(float(least[own[0]]))
        found.append(ObjectScores(cls, caption, threshold, of_unit[own], ranks[own], values[own], kept[own]))
    return found
