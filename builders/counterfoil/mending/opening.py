"""The source that a model is mended on: rows to learn from, what is audited, and the test, opened and not looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from counterfoil.errors import UserError
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.opening import is_built
from counterfoil.mending.debug_images import edited_rows, seeds_of
from counterfoil.mending.sampling import train_rows, usual_per_class
from counterfoil.models.mended import MOST_CONTENTS
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.schema_mine import Mine
from counterfoil.sources import LabelledImages, rows_of
from counterfoil.sources.input_datasets import source_splits
from counterfoil.sources.labelled_sources import labelled_split
from counterfoil.sources.pins import pin_source
from counterfoil.sources.resolved_classes import resolve_classes

# What a test split is called, in the order in which one is looked for.
_TESTS = ("test", "validation", "val")


@dataclass(frozen=True)
class AuditedBuild:
    """What a built dataset that is audited began with. seeds: of noise. edited: keys of the source's rows."""

    seeds: frozenset[int]
    edited: frozenset[str]


@dataclass(frozen=True)
class MendSource:
    """A recipe's images for mending. train: at most so many rows a class, with their units where the recipe names any.

    whole_train: the train split, of which `train` is a part. test: None where all rows of the confirm half have to do.
    audited: of the audited images, where they are a built dataset.
    """

    recipe: Recipe
    mine: Mine
    train: LabelledImages
    whole_train: LabelledImages
    test: LabelledImages | None
    audited: AuditedBuild | None
    per_class: int


def open_source(
    on: Recipe | str | Path,
    overrides: Sequence[str],
    test: str | None,
    per_class: int | None,
    seed: int,
    audited: Sequence[str] | None,
) -> MendSource:
    """What `on`, a recipe, says of its source. UserError for one that cannot be mended on, or no such split."""
    recipe = resolve_classes(load_recipe(on, overrides))
    if per_class is not None and per_class < 1:
        raise UserError(f"--per-class: found {per_class}, expected 1 or more")
    if recipe.source.conditions is not None:
        raise UserError(
            f"recipe {recipe.name}: its images may have several conditions, and a head of one label an image is mended",
            "Name a recipe whose images have one label each.",
        )
    mine = recipe.mine or Mine()
    if audited:
        mine = mine.model_copy(update={"on": tuple(audited)})
    pin = pin_source(recipe.source)
    splits = source_splits(recipe.source, pin)
    train = recipe.source.train_split
    if train not in splits:
        raise UserError(
            f"'{recipe.source.dataset}' has no split '{train}', and a head is fitted on training images",
            f"Its splits are {', '.join(splits) or 'not named'}; set source.train_split.",
        )
    whole = labelled_split(recipe.source, train, recipe.classes, pin)
    per_class = usual_per_class(len(recipe.classes)) if per_class is None else per_class
    chosen = train_rows(whole.labels, per_class, seed)
    if len(chosen) > MOST_CONTENTS // 2:
        raise UserError(
            f"--per-class {per_class}: a head would be fitted to {len(chosen):,} training images, expected at most"
            f" {MOST_CONTENTS // 2:,}: its folder names each, so that no evaluation takes them",
            f"Name fewer, such as --per-class {max(1, MOST_CONTENTS // 2 // max(1, len(recipe.classes)))}.",
        )
    name = _test_split(recipe, mine, splits, test)
    return MendSource(
        recipe=recipe,
        mine=mine,
        train=rows_of(whole, chosen),
        whole_train=whole,
        test=None if name is None else labelled_split(recipe.source, name, recipe.classes, pin),
        audited=_audited(recipe, mine, splits),
        per_class=per_class,
    )


def _test_split(recipe: Recipe, mine: Mine, splits: Sequence[str], asked: str | None) -> str | None:
    taken = {recipe.source.train_split: "the head learns from it", **dict.fromkeys(mine.on, "it is audited")}
    free = [name for name in splits if name not in taken]
    if asked is None:
        return next((name for name in _TESTS if name in free), free[0] if free else None)
    if asked in taken:
        raise UserError(
            f"--test {asked}: {taken[asked]}, so that it is no test",
            f"Name another split: {', '.join(free) or 'none is left'}",
        )
    if asked not in splits:
        raise UserError(
            f"--test: '{recipe.source.dataset}' has no split '{asked}'{did_you_mean(asked, free)}",
            f"Its splits are {', '.join(splits)}.",
        )
    return asked


def _audited(recipe: Recipe, mine: Mine, splits: Sequence[str]) -> AuditedBuild | None:
    """What is known of audited images that a recipe made: a built dataset, which is named alone."""
    if len(mine.on) != 1 or mine.on[0] in splits or not is_built(mine.on[0]):
        return None
    opened = open_dataset(mine.on[0])
    rows = np.arange(len(opened.keys))
    return AuditedBuild(frozenset(seeds_of(opened, rows)), edited_rows(opened, rows, recipe))


def target_of(mine: Mine, model: str) -> Mine:
    """The same audit, of another classifier."""
    return mine.model_copy(update={"target": model})
