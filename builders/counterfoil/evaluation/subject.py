"""What is scored: labelled images in groups, of which the first may be the base that the others are compared with.

A person names a built dataset, whose groups are its shifts; any other labelled images; and others that stand beside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from counterfoil.data import LabelledImages, thinned
from counterfoil.data.hub import HubDataset
from counterfoil.data.labelled_sources import NamedDataset, labelled_source
from counterfoil.data.pictures import MOST_LOOKED_AT, look_at_pictures
from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.errors import UserError
from counterfoil.evaluation.dataset import Group, Subject, SubjectPart, open_dataset
from counterfoil.models.names import LAB
from counterfoil.recipe import Recipe, RecipeClass, sha256_json
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.schema_output import Evaluate
from counterfoil.regular_files import named_path
from counterfoil.store.layout import LOCK, RECIPE, user_cache


def labelled_subject(
    source: str, images: LabelledImages, classes: Sequence[RecipeClass] | None, base: str | None
) -> Subject:
    """Return labelled images as a subject, by `classes` or their own. Raise UserError if `base` is no group."""
    if base is not None and base not in images.group_names:
        known = ", ".join(images.group_names[:20])
        raise UserError(f"{source} has no group '{base}'{did_you_mean(base, images.group_names)}", f"It has: {known}.")
    if classes is None:
        names = images.class_names or ()
        classes = [RecipeClass(f"{label:04d}", name, label, label, ()) for label, name in enumerate(names)]
    order = sorted(range(len(images.group_names)), key=lambda group: images.group_names[group] != base)
    position = np.argsort(order)
    ordered = replace(
        images, groups=position[images.groups], group_names=tuple(images.group_names[group] for group in order)
    )
    defaults = Evaluate()
    return Subject(
        source=source,
        name=Path(source).name or source,
        directory=None,
        # Answers to images that lie in no dataset of ours are kept in the user's cache.
        workplace=user_cache() / hashlib.sha256(images.content.encode()).hexdigest()[:16],
        content=images.content,
        classes=tuple(classes),
        groups=_groups(ordered, ""),
        base=base is not None,
        parts=(SubjectPart(ordered, "", 0),),
        keys=ordered.keys,
        labels=ordered.labels,
        shifts=ordered.groups,
        indices=_numbered(ordered),
        min_images_per_class=defaults.min_images_per_class,
        models=(),
        repo=None,
    )


def with_others(subject: Subject, others: Mapping[str, LabelledImages]) -> Subject:
    """Return the subject with other labelled images beside it, each under a name; of several groups NAME/GROUP."""
    for name, images in others.items():
        groups = _groups(images, name)
        clash = next(
            (group.name for group in groups if group.name in {group_before.name for group_before in subject.groups}),
            None,
        )
        if clash is not None:
            raise UserError(f"there are two groups '{clash}'", "Give the --beside images another name.")
        first = len(subject.groups)
        subject = replace(
            subject,
            content=sha256_json([subject.content, name, images.content]),
            groups=(*subject.groups, *groups),
            parts=(*subject.parts, SubjectPart(images, f"{name}/", first)),
            keys=(*subject.keys, *(f"{name}/{key}" for key in images.keys)),
            labels=np.concatenate([subject.labels, images.labels]),
            shifts=np.concatenate([subject.shifts, images.groups + first]),
            indices=np.concatenate([subject.indices, _numbered(images)]),
        )
    return subject


def _groups(images: LabelledImages, name: str) -> tuple[Group, ...]:
    groups = []
    for index, group in enumerate(images.group_names):
        labels = np.unique(images.labels[images.groups == index])
        shown = group if not name else name if len(images.group_names) == 1 else f"{name}/{group}"
        groups.append(Group(shown, None, "", shown, tuple(labels.tolist()), None, paired=False))
    return tuple(groups)


def _numbered(images: LabelledImages) -> NDArray[np.int64]:
    """Return the number of each image in its group and class, in order."""
    indices = np.zeros(len(images), dtype=np.int64)
    for group in range(len(images.group_names)):
        for label in np.unique(images.labels):
            rows = np.flatnonzero((images.groups == group) & (images.labels == label))
            indices[rows] = np.arange(len(rows))
    return indices


_LOOKED_AT = 9  # images, to tell their usual size
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
    """Return what `dataset` names, with what stands `beside` it, each under a name.

    A built dataset is opened as that. Other images are read by the classes of `recipe` (else their own), in `groups` of
    a column or `configs`, compared with `base`; `source:SPLIT` is a split of the recipe's source. Raise UserError
    for what is missing or does not fit, RunFailure if the Hub cannot be reached.
    """
    chosen = None if recipe is None else resolve_classes(recipe)
    plain = recipe is not None or base is not None or groups is not None
    if is_built(dataset, surely_not=plain):
        if plain:
            raise UserError(f"{dataset} is a built dataset, which has its own recipe, base and groups")
        subject: Subject = open_dataset(dataset)
    else:
        try:
            images = _labelled(dataset, chosen, None if chosen is None else chosen.classes, groups)
        except UserError as error:
            if plain or not named_path(dataset).is_dir():
                raise
            neither = f"{dataset} is neither a built dataset (it has no {RECIPE}) nor a set of images with labels:"
            raise UserError([neither, *(f"  {line}" for line in error.problems)], error.hint) from error
        subject = labelled_subject(str(dataset), images, None if chosen is None else chosen.classes, base)
        subject = replace(subject, recipe=chosen)
    others = {name: _labelled(source, chosen, subject.classes, None) for name, source in beside.items()}
    return with_others(subject, others)


def is_built(dataset: str | Path, *, surely_not: bool = False) -> bool:
    """Return whether a folder or a Hub name is a built dataset; offline a Hub name is, unless `surely_not`."""
    written = str(dataset)
    folder = named_path(written)
    if folder.is_dir():
        return (folder / LOCK).exists() or (folder / RECIPE).exists()
    if written.startswith((LAB, _SOURCE)):
        return False
    reference = HubDataset.parse(written)
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
    """Return the images that a place names; `source:SPLIT` is read as the recipe reads its input dataset."""
    column = None if groups == CONFIGS else groups
    if not str(place).startswith(_SOURCE):
        images = labelled_source(place, classes, configs_are_groups=groups == CONFIGS, group_column=column)
        if images.paths is not None:  # of a folder, of whose pictures some are looked at
            some = thinned(images, MOST_LOOKED_AT)
            pictures = look_at_pictures(some.images(), len(some), decode=False)
            images = replace(images, notes=(*images.notes, *pictures.notes(len(images))))
        return images
    if recipe is None:
        raise UserError(f"{place}: its source is unknown without a recipe", "Name one: --recipe wardrobe-mini")
    source = recipe.source
    reference = NamedDataset(
        dataset=source.dataset,
        split=str(place).removeprefix(_SOURCE),
        revision=source.revision,
        config=source.config,
        image_column=source.image_column,
        label_column=source.label_column,
        conditions=source.conditions,
        exif=source.exif,
    )
    return labelled_source(reference, classes, group_column=column, labels_are_numbers=True)


def usual_side(sets: Iterable[LabelledImages]) -> int | None:
    """Return the shorter side of a set's images, by the median of a few, in pixels: of the set with the smallest."""
    shorter_sides = []
    for images in sets:
        decoded = (images.decoded(encoded) for _, encoded in thinned(images, _LOOKED_AT).images())
        sides = [min(image.size) for image in decoded if image is not None]
        shorter_sides += [int(median(sides))] if sides else []
    return min(shorter_sides, default=None)
