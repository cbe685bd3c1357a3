"""Computed shifts: the base images again, prepared otherwise for each model, or corrupted at its size.

No image of them is stored. An image is paired with the base image that it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from counterfoil.arrays import Bools, Ints
from counterfoil.corrupting.corruptions import CORRUPTIONS
from counterfoil.data.labelled_images import LabelledImages, rows_of
from counterfoil.errors import UserError
from counterfoil.evaluation.dataset import Group, OpenDataset, Subject, SubjectPart
from counterfoil.plan.layout import SEED_BITS, sample_seed
from counterfoil.prediction.changes import Change, answers_name, changes_file
from counterfoil.prediction.inference import Predictions
from counterfoil.prediction.passes import Scored
from counterfoil.recipe import Recipe
from counterfoil.recipe.corrupted import computed_clash
from counterfoil.recipe.preprocessing import (
    CHROMA,
    EXIF,
    OF_FILES,
    PREPROCESSING,
    preprocessing_names,
)
from counterfoil.recipe.prompts import DEFAULT_SEVERITY
from counterfoil.recipe.severity import MOST_SEVERE, level_name
from counterfoil.report.results import ResultRows
from counterfoil.report.words import format_count, format_list, format_points
from counterfoil.resampled_stats import Units

PREPROCESSING_KIND = "preprocessing"
_NO_FILE = {
    EXIF: "no image has an EXIF tag that turns it",
    CHROMA: "no image is a JPEG with halved chroma (4:2:0)",
}
_MOST_NAMED = 6


def computed_groups(
    recipe: Recipe | None,
    words: Sequence[str] | None,
) -> list[Group]:
    """Return a group for each change of the recipe. words: the changes of preprocessing that a
    person names in place of the recipe's."""
    groups = []
    if words is None:
        words = () if recipe is None else recipe.evaluate.preprocessing
    for name in preprocessing_names(words):
        groups.append(_group(Change(name), PREPROCESSING_KIND, PREPROCESSING[name]))
    corrupted = {} if recipe is None else recipe.evaluate.corrupted
    for name, spec in corrupted.items():
        kind = CORRUPTIONS[spec.corruption].kind
        severity = spec.severity
        if severity is None or severity.levels is None:
            fixed = DEFAULT_SEVERITY if severity is None else severity.fixed or DEFAULT_SEVERITY
            change = Change(name, spec.corruption, fixed)
            groups.append(_group(change, kind, _says(change)))
            continue
        levels = severity.levels.asked
        for level in levels:
            shown = level_name(name, level, corrupts=True)
            change = Change(shown, spec.corruption, round(level * MOST_SEVERE))
            group = _group(change, kind, _says(change))
            groups.append(replace(group, of=name, level=level, top=level == levels[-1]))
    return groups


def _says(change: Change) -> str:
    corruption = change.corruption.replace("_", " ")
    return f"{corruption}, severity {change.severity}, at the model's own size"


def _group(
    change: Change,
    kind: str,
    says: str,
) -> Group:
    return Group(
        name=change.name,
        kind=kind,
        prompt=says,
        group=change.name,
        class_labels=(),
        candidates=None,
        paired=True,
        of=change.name,
        change=change,
    )


def with_computed(
    subject: Subject,
    recipe: Recipe | None,
    words: Sequence[str] | None,
) -> tuple[Subject, tuple[str, ...]]:
    """Return the subject with its computed shifts as further groups, and notes on those that it
    cannot have.

    Raise UserError if there is no base, or for a name that another group has.
    """
    groups = computed_groups(recipe, words)
    if not groups:
        return subject, ()
    if not subject.base:
        # Other images, of --beside, are later parts.
        named = subject.parts[1].first if len(subject.parts) > 1 else len(subject.groups)
        if named > 1 and words is None:
            note = "Computed shifts of the recipe are left out, because no group is the base."
            return subject, (note,)
        if named > 1:
            raise UserError(
                f"{subject.source} has {named:,} groups, and no base whose images are"
                " prepared otherwise",
                "Name one of its groups with --base.",
            )
        subject = replace(subject, base=True)
    _refuse_clashes(subject, recipe, groups)
    rows = np.flatnonzero(subject.shifts == 0)
    images = replace(
        rows_of(subject.parts[0].images, rows),
        groups=np.zeros(len(rows), np.int64),
        group_names=(subject.groups[0].name,),
        seeds=_seeds(subject, rows),
    )
    concerned = _rows_of_files(images, [group.name for group in groups])
    base = replace(subject.groups[0], paired=True)
    subject = replace(subject, groups=(base, *subject.groups[1:]))
    notes = []
    for group in groups:
        of_group = images
        chosen = rows
        if group.name in concerned and group.kind == PREPROCESSING_KIND:
            places = concerned[group.name]
            if not len(places):
                why = _NO_FILE.get(group.name, "no image is a JPEG")
                notes.append(f"{group.name} is left out: {why}.")
                continue
            if len(places) < len(rows):
                of_group = rows_of(images, places)
                chosen = rows[places]
                of_base = format_count(len(rows), "image")
                notes.append(f"{group.name} concerns {len(places):,} of {of_base} of the base.")
        subject = _with_group(subject, group, of_group, chosen)
    return subject, tuple(notes)


def _refuse_clashes(
    subject: Subject,
    recipe: Recipe | None,
    groups: Sequence[Group],
) -> None:
    """Raise UserError if a computed shift has the name of another, or of other images."""
    hint = "Give the computed shift another name, or leave it out."
    # Levels of a stored shift have its name before theirs, and keys of other images begin with it.
    taken = {part.prefix.rstrip("/") for part in subject.parts}
    for group in subject.groups:
        taken |= {group.name, group.of}
    clashes = [group.name for group in groups if taken & {group.name, group.of}]
    if clashes:
        raise UserError(f"{subject.source} has a group {', '.join(clashes)} already", hint)
    corrupted = {} if recipe is None else recipe.evaluate.corrupted
    changes = [group.name for group in groups if group.kind == PREPROCESSING_KIND]
    clash = computed_clash(corrupted, changes)
    if clash is not None:
        raise UserError(f"two computed shifts have the name {clash}", hint)


def _with_group(
    subject: Subject,
    group: Group,
    images: LabelledImages,
    rows: Ints,
) -> Subject:
    """Return the subject with a group that has its images of these rows again."""
    prefix = f"{group.name}/"
    labels = subject.labels[rows]
    index = len(subject.groups)
    units = subject.units
    if units is not None:
        units = Units.of(np.append(units.of_image, units.of_image[rows]))
    class_labels = tuple(np.unique(labels).tolist())
    if len(rows) == (subject.shifts == 0).sum():
        class_labels = subject.groups[0].class_labels
    return replace(
        subject,
        groups=(*subject.groups, replace(group, class_labels=class_labels)),
        parts=(*subject.parts, SubjectPart(images, prefix, index, group.change)),
        keys=(*subject.keys, *(f"{prefix}{key}" for key in images.keys)),
        labels=np.append(subject.labels, labels),
        shifts=np.append(subject.shifts, np.full(len(rows), index)),
        indices=np.append(subject.indices, subject.indices[rows]),
        units=units,
    )


def _seeds(
    subject: Subject,
    rows: Ints,
) -> Ints:
    """Return the seed of each image: that of its sample if a build stored it, else one of its
    key."""
    seeds = []
    if isinstance(subject, OpenDataset):
        of_recipe = subject.recipe.samples.seed
        for row in rows.tolist():
            class_id = subject.classes[int(subject.labels[row])].id
            seeds.append(sample_seed(of_recipe, class_id, int(subject.indices[row]), None))
        return np.array(seeds, np.int64)
    for row in rows.tolist():
        digest = hashlib.sha256(subject.keys[row].encode()).digest()
        seeds.append(int.from_bytes(digest[:7], "big") >> (7 * 8 - SEED_BITS))
    return np.array(seeds, np.int64)


def _rows_of_files(
    images: LabelledImages,
    names: Sequence[str],
) -> dict[str, Ints]:
    """Return the images that each change of how files are read concerns, by its name."""
    of_files = [name for name in names if name in OF_FILES]
    places: dict[str, list[int]] = {name: [] for name in of_files}
    if of_files:
        for row, (_, encoded) in enumerate(images.images()):
            for name in of_files:
                if changes_file(name, encoded):
                    places[name].append(row)
    return {name: np.array(rows, np.int64) for name, rows in places.items()}


def answered_parts(subject: Subject) -> Iterator[list[SubjectPart]]:
    """Yield the parts that models answer together: a stored part alone, and computed parts of the
    same images."""
    together: dict[str, list[SubjectPart]] = {}
    for part in subject.parts:
        if part.change is None:
            yield [part]
        else:
            together.setdefault(part.images.content, []).append(part)
    yield from together.values()


def answers_of_part(
    subject: Subject,
    part: SubjectPart,
    name: str,
    scored: Mapping[str, Scored],
    on_first: Scored,
) -> Scored:
    """Return a model's answers to a part; those to its base images if it refused the change."""
    if part.change is None:
        return scored[name]
    of_change = scored.get(answers_name(name, part.change))
    if of_change is not None:
        return of_change
    base = np.flatnonzero(subject.shifts == 0)
    known = dict(zip((subject.keys[row] for row in base), base.tolist(), strict=True))
    rows = [known[key] for key in part.images.keys]
    columns = {}
    for column, values in on_first.predictions.columns().items():
        columns[column] = values[rows]
    return replace(on_first, predictions=Predictions(**columns))


def without_refused(
    subject: Subject,
    names: Sequence[str],
    refused: Mapping[tuple[str, str], str],
) -> tuple[Subject, dict[int, Bools]]:
    """Return the subject without the computed shifts that every model refused, and by group which
    models refused it, (models,)."""
    kept = []
    dropped = []
    for part in subject.parts:
        change = part.change
        by_all = change is not None and all((name, change.name) in refused for name in names)
        (dropped if by_all else kept).append(part)
    if all(part.change is None for part in kept):
        return subject.without_computed(), {}
    places = [part.first for part in dropped]
    left = ~np.isin(subject.shifts, places)
    order = [index for index in range(len(subject.groups)) if index not in places]
    number = np.full(len(subject.groups), -1)
    number[order] = np.arange(len(order))
    units = subject.units
    if units is not None and dropped:
        units = Units.of(units.of_image[left])
    subject = replace(
        subject,
        groups=tuple(subject.groups[index] for index in order),
        parts=tuple(replace(part, first=int(number[part.first])) for part in kept),
        keys=tuple(subject.keys[row] for row in np.flatnonzero(left).tolist()),
        labels=subject.labels[left],
        shifts=number[subject.shifts[left]],
        indices=subject.indices[left],
        units=units,
    )
    by_group = {}
    for part in subject.parts:
        change = part.change
        if change is None:
            continue
        of_models = np.array([(name, change.name) in refused for name in names])
        if of_models.any():
            by_group[part.first] = of_models
    return subject, by_group


def shifts_are_paired(subject: Subject) -> bool:
    """Return whether pages say that shifts are paired: the stored ones; computed ones if there are
    no others."""
    stored = [group for group in subject.groups[1:] if group.change is None]
    return any(group.paired for group in stored or subject.groups)


def refusal_notes(
    refused: Mapping[tuple[str, str], str],
    called: Mapping[str, str],
) -> Iterator[str]:
    """Yield which models have no row of which computed shifts, and why. called: name → short
    name."""
    changes: dict[tuple[str, str], list[str]] = {}
    for (name, change), why in refused.items():
        changes.setdefault((name, why), []).append(change)
    models: dict[tuple[str, str], list[str]] = {}
    for (name, why), of_model in changes.items():
        shown = format_list(of_model, _MOST_NAMED)
        models.setdefault((shown, why), []).append(called[name])
    for (shown, why), names in models.items():
        have = "has" if len(names) == 1 else "have"
        yield f"{format_list(names, _MOST_NAMED)} {have} no row for {shown}: {why}."


def computed_note(
    subject: Subject,
    rows: ResultRows,
) -> str | None:
    """Return what a reader must know of computed shifts; None without any. rows: of the results."""
    computed = [group for group in subject.groups if group.change is not None]
    if not computed:
        return None
    corrupted = sum(group.kind != PREPROCESSING_KIND for group in computed)
    what = format_count(len(computed), "shift is", "shifts are")
    how = "prepared otherwise for each model"
    if corrupted == len(computed):
        how = "corrupted at each model's own size and crop"
    elif corrupted:
        how += ", or corrupted at its own size and crop"
    note = (
        f"{what} computed from the base images, {how}. No image of them is stored, and the page of"
        " failures shows the base image."
    )
    names = {group.name for group in computed}
    halves = []
    for row in rows.where("drop"):
        of_whole = row.group in names and not row.class_id
        if of_whole and row.low is not None and row.high is not None:
            halves.append((row.high - row.low) / 2)
    if halves:
        note += (
            " Drops are paired by image: a 95 % interval reaches"
            f" {format_points(float(np.median(halves)))} points to either side in the median."
        )
    return note
