"""What a person names to be scored: a built dataset, any other labelled images, and what stands beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from counterfoil.errors import UserError
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.subject import Subject, built_subject, labelled_subject, with_others
from counterfoil.hub import DatasetReference
from counterfoil.models.names import LAB
from counterfoil.recipe import Recipe, RecipeClass
from counterfoil.regular_files import named_path
from counterfoil.sources import LabelledImages
from counterfoil.sources.labelled_sources import Reference, labelled_source
from counterfoil.sources.resolved_classes import resolve_classes
from counterfoil.store.layout import LOCK, RECIPE

# As `groups`: each config of the dataset is a group.
CONFIGS = "configs"
_SOURCE = "source:"


def open_subject(
    dataset: str | Path,
    recipe: Recipe | str | Path | None,
    base: str | None,
    groups: str | None,
    beside: Mapping[str, str | Path],
) -> Subject:
    """What `dataset` names, with what stands `beside` it, each under a name.

    A folder or Hub dataset that `counterfoil build` made is opened as that. Any other is read as images with labels:
    `recipe` gives the classes (else they are its own), `groups` the column that names groups, or `configs`; `base` is
    the group that the others are compared with. `source:SPLIT` is a split of the recipe's input dataset. Raises
    UserError for what is not there or does not fit, RunFailure where the Hub cannot be reached.
    """
    chosen = None if recipe is None else resolve_classes(recipe)
    plain = recipe is not None or base is not None or groups is not None
    if is_built(dataset, surely_not=plain):
        if plain:
            raise UserError(f"{dataset} is a built dataset: its recipe, base and groups are its own")
        subject = built_subject(open_dataset(dataset))
    else:
        try:
            images = _labelled(dataset, chosen, None if chosen is None else chosen.classes, groups)
        except UserError as error:
            if plain or not named_path(dataset).is_dir():
                raise
            neither = f"{dataset} is no built dataset: it has no {RECIPE}; nor is it one of images with labels:"
            raise UserError([neither, *(f"  {line}" for line in error.problems)], error.hint) from error
        subject = labelled_subject(str(dataset), images, None if chosen is None else chosen.classes, base)
        subject = replace(subject, recipe=chosen)
    others = {name: _labelled(place, chosen, subject.classes, None) for name, place in beside.items()}
    return with_others(subject, others)


def is_built(dataset: str | Path, *, surely_not: bool = False) -> bool:
    """Whether a folder or a name of the Hub is a dataset that `counterfoil build` made.

    A name of the Hub is asked for one small file; offline it is taken for one, unless it is `surely_not`.
    """
    written = str(dataset)
    folder = named_path(written)
    if folder.is_dir():
        return (folder / LOCK).exists() or (folder / RECIPE).exists()
    if written.startswith((LAB, _SOURCE)):
        return False
    reference = DatasetReference.parse(written)
    if reference is None:
        return ":" not in written  # opening it says what is wrong
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub import errors as hub

    try:
        return HfApi().file_exists(reference.repo, LOCK, repo_type="dataset", revision=reference.revision)
    except (hub.HfHubHTTPError, hub.HFValidationError, hub.OfflineModeIsEnabled, httpx2.HTTPError, OSError, ValueError):
        return not surely_not


def _labelled(
    place: str | Path, recipe: Recipe | None, classes: Sequence[RecipeClass] | None, groups: str | None
) -> LabelledImages:
    """The images that a place names; `source:SPLIT` is read as the recipe reads its input dataset."""
    column = None if groups == CONFIGS else groups
    if not str(place).startswith(_SOURCE):
        return labelled_source(place, classes, configs_are_groups=groups == CONFIGS, group_column=column)
    if recipe is None:
        raise UserError(f"{place}: which source? expected a recipe", "Name one: --recipe wardrobe-mini")
    source = recipe.source
    reference = Reference(
        dataset=source.dataset,
        split=str(place).removeprefix(_SOURCE),
        revision=source.revision,
        config=source.config,
        image_column=source.image_column,
        label_column=source.label_column,
        conditions=source.conditions,
    )
    return labelled_source(reference, classes, group_column=column, labels_are_numbers=True)
