"""The images that a dataset's are measured against: splits of its recipe's source, or any others that are named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.evaluation.subject import Subject
from counterfoil.recipe import Recipe, RecipeClass
from counterfoil.recipe.names import without_folders
from counterfoil.sources import LabelledImages, labelled_source, labelled_split, thinned
from counterfoil.sources.condition_labels import ConditionLabels
from counterfoil.sources.input_datasets import source_splits
from counterfoil.sources.known_folders import placed
from counterfoil.sources.labelled_sources import labelled_conditions
from counterfoil.sources.pins import SourcePin, loadable_pin

# Of a larger split so many rows, evenly spaced: FID of 2,048 features asks for as many (Heusel 2017).
MOST_IMAGES = 10_000


@dataclass(frozen=True)
class SourceImages:
    """Images of a source. sets: which conditions the images of a label have, where they may have several."""

    images: LabelledImages
    name: str
    rows: int
    sets: ConditionLabels | None = None

    def of_classes(self, classes: Sequence[RecipeClass], labels: Sequence[int]) -> NDArray[np.bool_]:
        """bool [n]: the images of these labels of the classes; of several conditions, one that fits is enough."""
        if self.sets is None:
            return np.isin(self.images.labels, labels)
        fitting = [self.sets.of_label(classes[label].source_label) for label in labels]
        return np.any(fitting, axis=0)[self.images.labels]


@dataclass(frozen=True)
class OpenSource:
    """What to measure against, and another split of the same source, where it has one."""

    source: SourceImages
    other: SourceImages | None


def open_source(subject: Subject, against: str | Path | None) -> OpenSource:
    """The validation split of a recipe's source as the dataset pins it, with the train split; or `against`.

    UserError for what is not there, RunFailure where a network or a disk refuses: then nothing can be measured.
    """
    if against is not None:
        images = labelled_source(against, subject.classes)
        return OpenSource(SourceImages(thinned(images, MOST_IMAGES), _shown(images), len(images)), None)
    subject = with_source_placed(subject)
    pin = pinned_source(subject)
    recipe = subject.recipe
    assert recipe is not None  # what is pinned has one
    splits = source_splits(recipe.source, pin)
    names = [name for name in (recipe.source.validation_split, recipe.source.train_split) if name in splits]
    if splits and not names:
        raise UserError(f"source: '{recipe.source.dataset}' has neither split of the recipe: {', '.join(splits)}")
    opened = [_split(recipe, name, pin) for name in dict.fromkeys(names or [recipe.source.validation_split])]
    return OpenSource(opened[0], opened[1] if len(opened) > 1 else None)


def with_source_placed(subject: Subject) -> Subject:
    """The subject with the folder of this machine that its source is, where that is known by its content."""
    recipe = subject.recipe
    if recipe is None:
        return subject
    source = placed(recipe.source, subject.pins.get("source"))
    return subject if source is recipe.source else replace(subject, recipe=recipe.model_copy(update={"source": source}))


def pinned_source(subject: Subject) -> SourcePin:
    """What the source of a subject's recipe is pinned to, as its dataset was built.

    UserError for a subject without a recipe, and for a source that is another one now.
    """
    recipe = subject.recipe
    if recipe is None:
        raise UserError("the images have no recipe, so their source is not known", "Name one: --against IMAGES")
    recorded = subject.pins.get("source")
    pin = loadable_pin(recipe.source, recorded)
    known = SourcePin.of(recorded)
    if known is not None and known.revision and pin.revision and known.revision != pin.revision:
        raise UserError(
            f"source: '{known.dataset}' was {known.revision} when the dataset was built, and is {pin.revision} here"
        )
    return pin


def shown_source(dataset: str, split: str) -> str:
    """DATASET:SPLIT, without the folders of this machine."""
    return f"{without_folders(dataset)}:{split}"


def _split(recipe: Recipe, split: str, pin: SourcePin) -> SourceImages:
    if recipe.source.conditions is None:
        images, sets = labelled_split(recipe.source, split, recipe.classes, pin), None
    else:
        images, found = labelled_conditions(recipe.source, split, pin)
        # In the order that `sets` numbers them.
        sets = ConditionLabels(found.names, np.unique(found.present, axis=0))
    return SourceImages(thinned(images, MOST_IMAGES), _shown(images), len(images), sets)


def _shown(images: LabelledImages) -> str:
    dataset, _, split = images.name.rpartition("/")
    return shown_source(dataset, split)
