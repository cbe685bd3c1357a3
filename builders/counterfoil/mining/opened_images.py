"""The images that are audited, and those that tell how features are whitened: opened, with what each has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from counterfoil.errors import UserError
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.subject import is_built
from counterfoil.recipe import Recipe
from counterfoil.sources import LabelledImages
from counterfoil.sources.labelled_sources import labelled_conditions, labelled_split
from counterfoil.sources.labels import ConditionLabels
from counterfoil.sources.open_source import open_source


def opened_parts(recipe: Recipe, on: Sequence[str], key: str = "mine.on") -> tuple[LabelledImages, ...]:
    """The images that `key` names: splits of the recipe's source, or one built dataset of the same classes."""
    places = list(dict.fromkeys(on))
    if all(map(_may_be_a_split, places)):
        _refuse_train_split(recipe, places, key)
        pin = open_source(recipe.source).pin
        return tuple(labelled_split(recipe.source, split, recipe.classes, pin) for split in places)
    if len(places) > 1:
        raise UserError(f"{key}: found {', '.join(places)}, expected splits of the source, or one built dataset")
    if not is_built(places[0]):
        raise UserError(
            f"{key}: '{places[0]}' is no split of the source and no built dataset",
            "Name a split, such as validation, or the folder of a dataset that `counterfoil build` made.",
        )
    opened = open_dataset(places[0])
    theirs, ours = ([(cls.id, cls.name) for cls in one.classes] for one in (opened.recipe, recipe))
    if theirs != ours:
        raise UserError(
            f"{key}: {places[0]} has {len(theirs)} classes, and they are not the {len(ours)} of the recipe",
            f"Mine it by its own recipe: counterfoil mine {places[0]} --on {places[0]}",
        )
    images = opened.labelled()
    # Images of one class and index begin with the same noise in every shift: they are no two observations.
    paired = opened.recipe.samples.noise == "paired"
    numbers = zip(opened.labels.tolist(), opened.indices.tolist(), strict=True)
    return (replace(images, units=tuple(f"{label}_{index}" for label, index in numbers) if paired else None),)


def opened_conditions(recipe: Recipe, on: Sequence[str]) -> tuple[tuple[LabelledImages, ...], ConditionLabels]:
    """The splits that `mine.on` names of a source of conditions, and what each row has, part after part."""
    places = list(dict.fromkeys(on))
    others = [place for place in places if not _may_be_a_split(place)]
    if others:
        raise UserError(
            f"mine.on: '{others[0]}' is no split of the source; what was made for one condition tells no other",
            "Name splits of the source.",
        )
    _refuse_train_split(recipe, places, "mine.on")
    pin = open_source(recipe.source).pin
    read = [labelled_conditions(recipe.source, split, pin) for split in places]
    present = np.concatenate([found.present for _, found in read])
    return tuple(images for images, _ in read), ConditionLabels(read[0][1].names, present)


def labelled_images(recipe: Recipe, on: Sequence[str]) -> tuple[LabelledImages, ...]:
    """The images alone, whether they have one class each or conditions."""
    return opened_parts(recipe, on) if recipe.source.conditions is None else opened_conditions(recipe, on)[0]


def _may_be_a_split(place: str) -> bool:
    return place.replace("-", "_").isidentifier()


def _refuse_train_split(recipe: Recipe, splits: Sequence[str], key: str) -> None:
    train = recipe.source.train_split
    # Where a source has one split, that is all there is: what was learned from it only its person knows.
    if train in splits and recipe.source.validation_split != train:
        known = open_source(recipe.source).splits
        others = ", ".join(one for one in known if one != train) or "a held-out split"
        raise UserError(
            f"{key}: '{train}' is the split that classifiers learn from; what one has learned by heart shows no"
            " failure",
            f"Name another: {others}.",
        )


def train_rows(recipe: Recipe) -> tuple[LabelledImages, ConditionLabels | None]:
    """The train split of a recipe's source, without units, and the conditions of its rows where they have several."""
    source = recipe.source
    if source.conditions is not None:
        return labelled_conditions(source, source.train_split, units=False)
    return labelled_split(source, source.train_split, recipe.classes, units=False), None
