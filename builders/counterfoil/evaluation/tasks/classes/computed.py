"""Computed shifts: the base images again, prepared otherwise for each model, or corrupted at its size.

No image of them is stored. An image is paired with the base image that it is.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from counterfoil.arrays import Bools, Ints
from counterfoil.corrupting.corruptions import CORRUPTIONS
from counterfoil.data.labelled_images import LabelledImages, rows_of
from counterfoil.evaluation.dataset import Group, OpenDataset, Subject, SubjectPart
from counterfoil.evaluation.messages import refusal
from counterfoil.plan.layout import SEED_BITS, sample_seed
from counterfoil.prediction.changes import Change, answers_name, changes_file
from counterfoil.prediction.inference import Predictions
from counterfoil.prediction.passes import Scored
from counterfoil.recipe import Recipe
from counterfoil.recipe.corrupted import CorruptedSpec, computed_clash
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


def computed_groups(recipe: Recipe | None, words: Sequence[str] | None) -> list[Group]:
    """Return a group for each change of the recipe. words: the changes of preprocessing that a
    person names in place of the recipe's."""
    groups = []
    corrupted: Mapping[str, CorruptedSpec] = {}
    if recipe is not None:
        corrupted = recipe.evaluate.corrupted
        if words is None:
            words = recipe.evaluate.preprocessing
    for name in preprocessing_names(words or ()):
        says = PREPROCESSING[name]
        groups.append(_group(Change(name), PREPROCESSING_KIND, says))
    for name, spec in corrupted.items():
        severity = spec.severity
        if severity is None or severity.levels is None:
            fixed = severity.fixed if severity else None
            change = Change(name, spec.corruption, fixed or DEFAULT_SEVERITY)
            groups.append(_corrupted_group(change))
            continue
        levels = severity.levels.asked
        for level in levels:
            shown = level_name(name, level, corrupts=True)
            fixed = round(level * MOST_SEVERE)
            change = Change(shown, spec.corruption, fixed)
            top = level == levels[-1]
            group = _corrupted_group(change)
            groups.append(replace(group, of=name, level=level, top=top))
    return groups


def _corrupted_group(change: Change) -> Group:
    corruption = change.corruption.replace("_", " ")
    says = f"{corruption}, severity {change.severity}, at the model's own size"
    return _group(change, CORRUPTIONS[change.corruption].kind, says)


def _group(change: Change, kind: str, says: str) -> Group:
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
        named = subject.own_groups
        if named > 1 and words is None:
            note = "Computed shifts of the recipe are left out, because no group is the base."
            return subject, (note,)
        if named > 1:
            raise refusal("nothing-to-measure.groups", subject.source, named)
        subject = replace(subject, base=True)
    preprocessing = [group.name for group in groups if group.kind == PREPROCESSING_KIND]
    _refuse_clashes(subject, recipe, groups, preprocessing)
    rows = np.flatnonzero(subject.shifts == 0)
    images = replace(
        rows_of(subject.parts[0].images, rows),
        groups=np.zeros(len(rows), np.int64),
        group_names=(subject.groups[0].name,),
        seeds=_seeds(subject, rows),
    )
    concerned = _rows_of_files(images, preprocessing)
    notes = []
    for group in groups:
        name = group.name
        of_group = images
        chosen = rows
        if name in concerned:
            places = np.array(concerned[name], np.int64)
            if not len(places):
                why = _NO_FILE.get(name, "no image is a JPEG")
                notes.append(f"{name} is left out: {why}.")
                continue
            if len(places) < len(rows):
                of_group = rows_of(images, places)
                chosen = rows[places]
                of_base = format_count(len(rows), "image")
                notes.append(f"{name} concerns {len(places):,} of {of_base} of the base.")
        subject = _with_group(subject, group, of_group, chosen)
    return subject, tuple(notes)


def _refuse_clashes(
    subject: Subject,
    recipe: Recipe | None,
    groups: Sequence[Group],
    preprocessing: Sequence[str],
) -> None:
    """Raise UserError if a computed shift has the name of another, or of other images."""
    # Levels of a stored shift have its name before theirs, and keys of other images begin with it.
    taken = {part.prefix.rstrip("/") for part in subject.parts}
    for group in subject.groups:
        taken |= {group.name, group.of}
    clashes = [group.name for group in groups if taken & {group.name, group.of}]
    if clashes:
        raise refusal("group-clash.taken", subject.source, clashes)
    corrupted = {} if recipe is None else recipe.evaluate.corrupted
    clash = computed_clash(corrupted, preprocessing)
    if clash is not None:
        raise refusal("group-clash.computed", None, clash)


def _with_group(
    subject: Subject,
    group: Group,
    images: LabelledImages,
    rows: Ints,
) -> Subject:
    """Return the subject with a group that has its images of these rows again."""
    base, *others = subject.groups
    base = replace(base, paired=True)
    prefix = f"{group.name}/"
    labels = subject.labels[rows]
    index = len(subject.groups)
    units = subject.units
    if units is not None:
        of_image = units.of_image
        units = Units.of(np.append(of_image, of_image[rows]))
    class_labels = tuple(np.unique(labels).tolist())
    base_images = np.count_nonzero(subject.shifts == 0)
    if len(rows) == base_images:
        class_labels = base.class_labels
    group = replace(group, class_labels=class_labels)
    part = SubjectPart(images, prefix, index, group.change)
    keys = [f"{prefix}{key}" for key in images.keys]
    shifts = np.full_like(labels, index)
    return replace(
        subject,
        groups=(base, *others, group),
        parts=(*subject.parts, part),
        keys=(*subject.keys, *keys),
        labels=np.append(subject.labels, labels),
        shifts=np.append(subject.shifts, shifts),
        indices=np.append(subject.indices, subject.indices[rows]),
        units=units,
    )


def _seeds(subject: Subject, rows: Ints) -> Ints:
    """Return the seed of each image: that of its sample if a build stored it, else one of its
    key."""
    seeds = []
    for row in rows.tolist():
        if isinstance(subject, OpenDataset):
            of_recipe = subject.recipe.samples.seed
            cls = subject.classes[subject.labels[row]]
            index = int(subject.indices[row])
            seed = sample_seed(of_recipe, cls.id, index, None)
        else:
            key = subject.keys[row].encode()
            digest = hashlib.sha256(key).digest()
            seed = int.from_bytes(digest[:7], "big") >> (7 * 8 - SEED_BITS)
        seeds.append(seed)
    return np.array(seeds, np.int64)


def _rows_of_files(
    images: LabelledImages,
    names: Sequence[str],
) -> dict[str, list[int]]:
    """Return the images that each change of how files are read concerns, by its name."""
    places: dict[str, list[int]] = {}
    for name in names:
        if name in OF_FILES:
            places[name] = []
    if not places:
        return places
    for row, (_, encoded) in enumerate(images.images()):
        for name, rows in places.items():
            if changes_file(name, encoded):
                rows.append(row)
    return places


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
    rows = _base_rows(subject, part)
    columns = {}
    on_images = on_first.predictions.columns()
    for column, values in on_images.items():
        columns[column] = values[rows]
    return replace(on_first, predictions=Predictions(**columns))


def _base_rows(subject: Subject, part: SubjectPart) -> Ints:
    """Return the rows of the base images that a computed part changes."""
    base = np.flatnonzero(subject.shifts == 0).tolist()
    row_of = {subject.keys[row]: row for row in base}
    return np.array([row_of[key] for key in part.images.keys])


def without_refused(
    subject: Subject,
    names: Sequence[str],
    refused: Mapping[tuple[str, str], str],
) -> tuple[Subject, dict[int, Bools]]:
    """Return the subject without the computed shifts that every model refused, and by group which
    models refused it, (models,)."""
    if not refused:
        return subject, {}
    left = subject.without_computed()
    by_group = {}
    for part in subject.parts:
        if part.change is None:
            continue
        change = part.change.name
        of_models = np.array([(name, change) in refused for name in names])
        if of_models.all():
            continue
        if of_models.any():
            by_group[len(left.groups)] = of_models
        group = subject.groups[part.first]
        rows = _base_rows(left, part)
        left = _with_group(left, group, part.images, rows)
    return left, by_group


def shifts_are_paired(subject: Subject) -> bool:
    """Return whether pages say that shifts are paired: the stored ones; computed ones if there are
    no others."""
    _, *shifts = subject.groups
    stored = [group for group in shifts if group.change is None]
    return any(group.paired for group in stored or subject.groups)


def refusal_notes(
    refused: Mapping[tuple[str, str], str],
    called: Mapping[str, str],
) -> Iterator[str]:
    """Yield which models have no row of which computed shifts, and why. called: name → short
    name."""
    changes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (name, change), why in refused.items():
        changes[name, why].append(change)
    models: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (name, why), of_model in changes.items():
        shown = format_list(of_model, _MOST_NAMED)
        models[shown, why].append(called[name])
    for (shown, why), names in models.items():
        have = "have"
        if len(names) == 1:
            have = "has"
        yield f"{format_list(names, _MOST_NAMED)} {have} no row for {shown}: {why}."


def computed_note(subject: Subject, rows: ResultRows) -> Iterator[str]:
    """Yield what a reader must know of computed shifts, if there are any. rows: of the results."""
    computed = [group for group in subject.groups if group.change is not None]
    if not computed:
        return
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
    for row in rows.where("drop", class_id=""):
        if row.low is None or row.high is None:
            continue
        if row.group in names:
            halves.append((row.high - row.low) / 2)
    if halves:
        half = format_points(float(np.median(halves)))
        note += (
            f" Drops are paired by image: a 95 % interval reaches {half} points to either side in"
            " the median."
        )
    yield note
