"""The images to score, with labels and in groups, the base first. A built dataset also has its
judges' answers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from counterfoil.arrays import Bools, Ints
from counterfoil.corrupting.corruptions import MATCH
from counterfoil.data.hub import HubDataset, locate_dataset
from counterfoil.data.labelled_images import LabelledImages, evenly_chosen, evenly_thinned, rows_of
from counterfoil.data.labelled_sources import NamedDataset, labelled_source
from counterfoil.data.pictures import MOST_LOOKED_AT, look_at_pictures
from counterfoil.data.pins import SourcePin
from counterfoil.data.pool import pool_of
from counterfoil.data.resolved_classes import resolve_classes
from counterfoil.dataset.label_checks import checks_of_dataset, read_people, with_people
from counterfoil.dataset.reading import SoundDataset, read_dataset
from counterfoil.documents import sha256_json
from counterfoil.errors import ProblemLine, UserError
from counterfoil.evaluation.candidates import (
    MinedCandidates,
    read_mined,
    refuse_other_data,
    stored_images,
)
from counterfoil.evaluation.messages import failure, message, refusal
from counterfoil.models.mended import EditsOf
from counterfoil.models.names import LAB
from counterfoil.prediction.changes import Change
from counterfoil.recipe import Recipe, RecipeClass
from counterfoil.recipe.keep.misclassified import FAILED, RIGHT, MisclassifiedRule
from counterfoil.recipe.kinds import ROW
from counterfoil.recipe.layering import without_folders
from counterfoil.recipe.names import judge_column
from counterfoil.recipe.schema_output import Evaluate
from counterfoil.recipe.tasks.task import UNIT
from counterfoil.regular_files import named_path
from counterfoil.report.labels import LabelChecks
from counterfoil.resampled_stats import Units
from counterfoil.store.layout import LOCK, RECIPE, writable_cache
from counterfoil.store.manifest import changed_data, content_of_receipts, refuse_changed
from counterfoil.store.reading import planned_rows, read_receipts, read_shard
from counterfoil.store.receipts import Receipt, counts_of, preview_images
from counterfoil.store.rows import TableForm

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class JudgedShift:
    """A shift that keeps the images that judges answer wrongly: its index among the groups, and its
    keep rule."""

    index: int
    rule: MisclassifiedRule

    @property
    def judges(self) -> tuple[str, ...]:
        """Their names without folders."""
        return tuple(map(without_folders, self.rule.judges()))


@dataclass(frozen=True)
class JudgedImages:
    """The shifts that keep judges' failures, and for each judge the images kept because it was
    wrong, (n,) bool.

    A judge's name has no folders. The n images are those of the dataset, in its order.
    """

    shifts: tuple[JudgedShift, ...] = ()
    wrong: Mapping[str, Bools] = field(default_factory=dict)


def read_judged(dataset: SoundDataset, keys: Sequence[str], shifts: Ints) -> JudgedImages:
    """Return the judges' recorded answers. keys, shifts: (n,), for the dataset's images, from the
    same files."""
    judged: list[JudgedShift] = []
    groups: set[str] = set()
    # The shifts that read each judge's recorded answers, by judge and by the kind of answer.
    shifts_of: dict[tuple[str, str], list[int]] = {}
    for index, shift in enumerate(dataset.recipe.all_shifts()):
        for rule in shift.keep:
            if not shift.top or not isinstance(rule, MisclassifiedRule):
                continue
            judged_shift = JudgedShift(index, rule)
            judged.append(judged_shift)
            groups.add(shift.group)
            for judge in judged_shift.judges:
                of_judge = shifts_of.setdefault((judge, rule.decides), [])
                of_judge.append(index)
    if not judged:
        return JudgedImages()
    row_of = {key: row for row, key in enumerate(keys)}
    wrong = {}
    columns = {}
    for judge, what in shifts_of:
        wrong[judge] = np.zeros(len(keys), dtype=bool)
        columns[judge, what] = judge_column(judge, what)
    receipts = [receipt for receipt in dataset.receipts if receipt.group in groups]
    read = dict.fromkeys(columns.values())
    for stored in stored_rows(dataset.directory, dataset.recipe, receipts, *read):
        row = row_of[stored["key"]]
        for (judge, what), column in columns.items():
            # A wrong answer is true in a column of failures, and false in one of right answers. A
            # judge that was not asked or gave no answer is not wrong.
            of_wrong_answer = what == FAILED
            fails = stored[column] is of_wrong_answer
            if fails and shifts[row] in shifts_of[judge, what]:
                wrong[judge][row] = True
    return JudgedImages(tuple(judged), wrong)


def stored_rows(
    directory: Path,
    recipe: Recipe,
    receipts: Iterable[Receipt],
    *columns: str,
) -> Iterator[dict[str, Any]]:
    """Yield the key and these columns of the accepted images in some shards."""
    form = TableForm.of(recipe)
    for receipt in receipts:
        yield from read_shard(directory, receipt, ["key", *columns], form=form)


def _read_units(dataset: SoundDataset, keys: Sequence[str], pairs: Ints) -> Units | None:
    """Return the units of images with these keys (n,) and pairs (n,); None if rows store none.

    Raise RunFailure if an image has no unit, or another one than its base image: no build can have
    written that.
    """
    if UNIT not in TableForm.of(dataset.recipe).added:
        return None
    unit_of: dict[str, int] = {}
    for row in stored_rows(dataset.directory, dataset.recipe, dataset.receipts, UNIT):
        unit = row[UNIT]
        unit_of[row["key"]] = -1 if unit is None else unit
    of_images = [unit_of[key] for key in keys]
    units = np.array(of_images, np.int64)
    together = np.stack([pairs, units])
    of_pairs, _ = np.unique(together, axis=1)
    different = np.unique(pairs)
    if (units < 0).any() or len(of_pairs) > len(different):
        raise failure("altered-dataset.unit", dataset.directory)
    return Units.of(units)


# What scoring needs of a published dataset: no rejected image, no card. Mined shifts may need more
# (`candidates.py`).
_PUBLISHED = [
    "recipe.yaml",
    "lock.json",
    "manifest.json",
    "data/**",
    "receipts/**",
    "tokens/**",
    "rows.csv",
    "review/**",
]


@dataclass(frozen=True)
class Group:
    """The base, a shift, or a part of other labelled images. Each level of a shift is a group."""

    name: str
    """The name in lines, tables and pages."""
    kind: str | None
    """The kind of the shift, if the recipe gives one."""
    prompt: str
    """The maker of the images, in words; empty if no build made them."""
    group: str
    """The folder of its shards; for other images, its name."""
    class_labels: tuple[int, ...]
    """The classes planned in it."""
    candidates: int | None
    """The number of rendered candidates; None if nothing was rendered."""
    paired: bool
    """Whether an image shares its noise with the base image of its class and index."""
    of: str = ""
    """The recipe's name for all levels of its shift."""
    level: float | None = None
    """The level of a graded shift."""
    realised: bool = False
    """Whether the level is a share of CLIP's gain, not of the way."""
    top: bool = True
    """Whether this is the highest level, or the shift has no levels."""
    change: Change | None = None
    """The change of preparation, if this is a computed shift."""
    corruption: str = ""
    """The corruption of its stored images, if they have one."""
    severity: int = 0
    """The severity of the corruption."""


@dataclass(frozen=True)
class SubjectPart:
    """Labelled images of one origin. `prefix` begins their keys and group names; `first` is their
    first group. `change`: how these images are prepared, if they are those of the base again."""

    images: LabelledImages
    prefix: str
    first: int
    change: Change | None = None


@dataclass(frozen=True, kw_only=True)
class Subject:
    """All (n,) images in a fixed order, part after part."""

    source: str
    """The path or name that a person typed."""
    name: str
    """The name of the images on pages."""
    directory: Path | None
    """The directory of a built dataset."""
    workplace: Path
    """A folder for answers and reports."""
    content: str
    """A sha256 over the images and their order."""
    classes: tuple[RecipeClass, ...]
    """The classes, in the order of labels."""
    groups: tuple[Group, ...]
    """The groups, the base first."""
    base: bool
    """Whether group 0 is the base."""
    parts: tuple[SubjectPart, ...]
    """The images by their origin."""
    keys: tuple[str, ...]
    """(n,) distinct texts."""
    labels: Ints
    """(n,) positions in `classes`."""
    shifts: Ints
    """(n,) positions in `groups`."""
    indices: Ints
    """(n,) the number of an image in its cell."""
    min_images_per_class: int
    """Drops leave out classes with fewer images."""
    models: tuple[str, ...]
    """The models that the recipe lists."""
    repo: str | None
    """The name on the Hub that the recipe gives."""
    published: HubDataset | None = None
    """The dataset of the Hub that it is a copy of."""
    mined: MinedCandidates = field(default_factory=MinedCandidates)
    """The candidates of a built dataset's mined shifts."""
    judged: JudgedImages = field(default_factory=JudgedImages)
    """Which of its images are there because a classifier was wrong."""
    recipe: Recipe | None = None
    """The recipe that built the images, or by whose classes they are read."""
    pins: Mapping[str, Any] = field(default_factory=dict)
    """What a build made the images from."""
    label_checks: LabelChecks | None = None
    """Who checked a built dataset's labels."""
    units: Units | None = None
    """The units of the input dataset (videos), if it names them."""

    @property
    def stored_parts(self) -> tuple[SubjectPart, ...]:
        """The parts whose images are stored, which come before computed ones."""
        return tuple(part for part in self.parts if part.change is None)

    @property
    def own_groups(self) -> int:
        """The number of groups of the first part; those of other parts follow."""
        if len(self.parts) > 1:
            return self.parts[1].first
        return len(self.groups)

    def of_rows(self, rows: Ints, **changed: Any) -> Self:
        """Return these rows in their order, with other fields changed to fit them."""
        units = self.units
        if units is not None:
            units = Units.of(units.of_image[rows])
        return replace(
            self,
            keys=tuple(self.keys[row] for row in rows.tolist()),
            labels=self.labels[rows],
            shifts=self.shifts[rows],
            indices=self.indices[rows],
            units=units,
            **changed,
        )

    def without_computed(self) -> Self:
        """Return these images without computed shifts, which are the last groups and rows."""
        parts = self.stored_parts
        if len(parts) == len(self.parts):
            return self
        base, *others = (group for group in self.groups if group.change is None)
        paired = any(group.paired for group in others)
        groups = replace(base, paired=paired), *others
        count = sum(len(part.images) for part in parts)
        rows = np.arange(count)
        return self.of_rows(rows, groups=groups, parts=parts)

    @property
    def preview(self) -> int | None:
        """The largest number of images in a group if this is a preview."""
        previews = []
        for part in self.parts:
            most = part.images.preview
            if most is not None:
                previews.append(most)
        return min(previews, default=None)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on how folders of images were read."""
        notes: dict[str, None] = {}
        for part in self.parts:
            notes |= dict.fromkeys(part.images.notes)
        return tuple(notes)

    @property
    def scored_sentences(self) -> tuple[str, ...]:
        """Say for each origin how many of its images are scored, if some are not."""
        sentences = []
        for part in self.stored_parts:
            sentence = part.images.scored_sentence
            if sentence:
                name = part.prefix.rstrip("/") or self.name
                sentences.append(f"{name}: {sentence}")
        return tuple(sentences)

    @property
    def paths(self) -> tuple[str | None, ...] | None:
        """Each image's path below the folder that it was read from; None if no image was read from
        one."""
        if all(part.images.paths is None for part in self.parts):
            return None
        paths: list[str | None] = []
        for part in self.parts:
            images = part.images
            paths += images.paths or (None,) * len(images)
        return tuple(paths)

    def images(self, keys: frozenset[str] | None = None) -> Iterator[tuple[str, bytes | None]]:
        """Yield (key, encoded image) of every row, or of those named in `keys`, in order."""
        for _, key, encoded in self._by_part(keys):
            yield key, encoded

    def pictures(self, keys: frozenset[str]) -> Iterator[tuple[str, Image | None]]:
        """Yield (key, picture) of the rows named in `keys`, in order; None for an unreadable one."""
        for part, key, encoded in self._by_part(keys):
            yield key, part.images.decoded(encoded)

    def _by_part(
        self, keys: frozenset[str] | None
    ) -> Iterator[tuple[SubjectPart, str, bytes | None]]:
        for part in self.parts:
            prefix = part.prefix
            part_keys = None
            if keys is not None:
                of_part = [key for key in keys if key.startswith(prefix)]
                if not of_part:
                    continue
                part_keys = frozenset(key.removeprefix(prefix) for key in of_part)
            for key, encoded in part.images.images(part_keys):
                yield part, f"{prefix}{key}", encoded


@dataclass(frozen=True, kw_only=True)
class OpenDataset(Subject):
    """A built dataset: the accepted images in plan order; its shifts are the groups, the base
    first.

    content: sha256 over the hashes of its data files. indices: of candidates.
    """

    directory: Path
    recipe: Recipe

    def labelled(self) -> LabelledImages:
        return self.parts[0].images

    def stored(self, *columns: str) -> Iterator[dict[str, Any]]:
        """Yield the key and these columns of every accepted image, in plan order."""
        receipts = read_receipts(self.directory)
        return stored_rows(self.directory, self.recipe, receipts, *columns)


def open_dataset(source: str | Path) -> OpenDataset:
    """Return the dataset at a path or Hub id (`user/name`, `user/name@revision`).

    Raise UserError if it is missing, not finished, or has no base image; RunFailure if the Hub
    cannot be reached.
    """
    located = locate_dataset(source, _PUBLISHED)
    directory = located.directory
    published = located.reference
    standing = read_dataset(directory, "receipts", own=published is None)
    finished = standing.finished()
    recipe = finished.recipe
    receipts = finished.receipts
    if not (directory / "data").is_dir():
        raise refusal("altered-dataset.data", directory)
    hint = f"`counterfoil verify {source}` names everything that is damaged and how to repair it."
    refuse_changed(changed_data(directory, receipts), hint)
    keys, shifts, labels, indices = _accepted_rows(finished)
    if not np.any(shifts == 0):
        raise refusal("nothing-to-measure.base", directory)
    reasons = counts_of(receipts)
    content = content_of_receipts(receipts)
    pairs = labels * (indices.max() + 1) + indices
    units = _read_units(finished, keys, pairs)
    mined = read_mined(finished, reasons, published)
    refuse_other_data(directory, recipe, mined, keys)
    groups = _recipe_groups(recipe, reasons)
    names = tuple(group.name for group in groups)
    preview = preview_images(recipe, receipts)
    min_images_per_class = recipe.evaluate.min_images_per_class
    if preview is not None:
        min_images_per_class = 1
    read = partial(stored_images, directory, receipts, "data")
    images = LabelledImages(
        str(source),
        content,
        keys,
        labels,
        shifts,
        names,
        read,
        preview=preview,
    )
    label_checks = read_judged_labels(finished)
    people = read_people(directory, content, names)
    # Answers and reports are in the user's cache if the dataset may not be written to.
    workplace = _cache_of(str(directory.resolve()))
    if published is None and os.access(directory, os.W_OK):
        workplace = directory / ".counterfoil"
    return OpenDataset(
        source=str(source),
        name=recipe.name,
        directory=directory,
        workplace=workplace,
        content=content,
        classes=recipe.classes,
        groups=groups,
        base=True,
        parts=(SubjectPart(images, "", 0),),
        keys=keys,
        labels=labels,
        shifts=shifts,
        indices=indices,
        min_images_per_class=min_images_per_class,
        models=recipe.evaluate.models,
        repo=recipe.publish.repo,
        published=published,
        mined=mined,
        judged=read_judged(finished, keys, shifts),
        recipe=recipe,
        pins=finished.lock.inputs,
        units=units,
        label_checks=with_people(label_checks, people),
    )


def _accepted_rows(dataset: SoundDataset) -> tuple[tuple[str, ...], Ints, Ints, Ints]:
    """Return keys, shifts (as positions), labels and indices of all accepted images, (n,) each."""
    names = [shift.name for shift in dataset.recipe.all_shifts()]
    position = {name: index for index, name in enumerate(names)}
    keys: list[str] = []
    shifts: list[int] = []
    labels: list[int] = []
    indices: list[int] = []
    plan = dataset.plan
    for shard, receipt in zip(plan.shards, dataset.receipts, strict=True):
        for row in planned_rows(dataset.directory, plan, shard, receipt, "data"):
            keys.append(row["key"])
            shifts.append(position[row["shift"]])
            labels.append(row["label"])
            indices.append(row["index"])
    return (
        tuple(keys),
        np.array(shifts, np.int64),
        np.array(labels, np.int64),
        np.array(indices, np.int64),
    )


def _recipe_groups(recipe: Recipe, reasons: Mapping[str, Mapping[str, int]]) -> tuple[Group, ...]:
    """Return the base and the shifts as groups; reasons: shift → reason → candidates."""
    groups = []
    for shift in recipe.all_shifts():
        # `match` follows a drawn shift, and has no severity.
        corruption = "" if shift.corruption in (None, MATCH) else shift.corruption
        of_shift = reasons.get(shift.name, {})
        group = Group(
            name=shift.name,
            kind=shift.kind,
            prompt=recipe.kind.made_by(shift),
            group=shift.group,
            class_labels=shift.class_labels,
            candidates=sum(of_shift.values()),
            paired=recipe.samples.noise == "paired",
            of=shift.of,
            level=shift.level,
            realised=shift.realised,
            top=shift.top,
            corruption=corruption,
            severity=shift.severity,
        )
        groups.append(group)
    return tuple(groups)


def _cache_of(text: str) -> Path:
    """Return the folder of the user's cache for what a text identifies."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return writable_cache() / digest[:16]


def read_judged_labels(dataset: SoundDataset) -> LabelChecks:
    """Return the label checks of every shift, from the accepted rows.

    Raise RunFailure for a damaged table, or a lock that does not pin the judge.
    """
    directory = dataset.directory
    recipe = dataset.recipe
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    if recipe.screen.judge is not None:
        right = judge_column(recipe.screen.judge, RIGHT)
        columns = ("shift", "label", right)
        for row in stored_rows(directory, recipe, dataset.receipts, *columns):
            answer = row[right]
            if answer is not None:
                cls = recipe.classes[row["label"]]
                cell = row["shift"], cls.id
                images, disagreed = counts.get(cell, (0, 0))
                counts[cell] = images + 1, disagreed + (not answer)
    try:
        return checks_of_dataset(recipe, dataset.lock.inputs, counts)
    except ValueError as error:
        raise failure("altered-dataset.lock", directory / LOCK, error) from error


def labelled_subject(
    source: str,
    images: LabelledImages,
    classes: Sequence[RecipeClass] | None,
    base: str | None,
) -> Subject:
    """Return labelled images as a subject, by `classes` or their own. Raise UserError if `base` is
    no group."""
    names = images.group_names
    if base is not None and base not in names:
        raise refusal("unmeasured-group.group", source, base, names)
    if classes is None:
        own_classes = []
        for label, name in enumerate(images.class_names or ()):
            cls = RecipeClass(f"{label:04d}", name, label, label, ())
            own_classes.append(cls)
        classes = own_classes
    order = sorted(range(len(names)), key=lambda group: names[group] != base)
    position = np.argsort(order)
    ordered_names = tuple(names[group] for group in order)
    ordered = replace(images, groups=position[images.groups], group_names=ordered_names)
    units = None
    if images.units is not None:
        numbers = np.array(images.units)
        units = Units.of(numbers)
    return Subject(
        source=source,
        name=Path(source).name or source,
        directory=None,
        # A folder of images may not be written to, so its answers are in the user's cache.
        workplace=_cache_of(images.content),
        content=images.content,
        classes=tuple(classes),
        groups=_groups(ordered, ""),
        base=base is not None,
        parts=(SubjectPart(ordered, "", 0),),
        keys=ordered.keys,
        labels=ordered.labels,
        shifts=ordered.groups,
        indices=_numbered(ordered),
        min_images_per_class=Evaluate().min_images_per_class,
        models=(),
        repo=None,
        units=units,
    )


def with_others(subject: Subject, others: Mapping[str, LabelledImages]) -> Subject:
    """Return the subject with other labelled images as more groups, called NAME, or NAME/GROUP if
    there are several."""
    for name, images in others.items():
        groups = _groups(images, name)
        taken = {group.name for group in subject.groups}
        for group in groups:
            if group.name in taken:
                raise refusal("group-clash.beside", "beside", group.name)
        first = len(subject.groups)
        prefix = f"{name}/"
        part = SubjectPart(images, prefix, first)
        keys = tuple(f"{prefix}{key}" for key in images.keys)
        units = subject.units
        if units is not None:  # each other image is a unit
            of_others = units.count + np.arange(len(images))
            of_image = np.append(units.of_image, of_others)
            units = Units.of(of_image)
        subject = replace(
            subject,
            units=units,
            content=sha256_json([subject.content, name, images.content]),
            groups=subject.groups + groups,
            parts=(*subject.parts, part),
            keys=subject.keys + keys,
            labels=np.append(subject.labels, images.labels),
            shifts=np.append(subject.shifts, images.groups + first),
            indices=np.append(subject.indices, _numbered(images)),
        )
    return subject


def _groups(images: LabelledImages, name: str) -> tuple[Group, ...]:
    groups = []
    for index, group in enumerate(images.group_names):
        labels = np.unique(images.labels[images.groups == index])
        class_labels = tuple(labels.tolist())
        shown = group
        if name:
            shown = name if len(images.group_names) == 1 else f"{name}/{group}"
        of_group = Group(shown, None, "", shown, class_labels, None, paired=False)
        groups.append(of_group)
    return tuple(groups)


def _numbered(images: LabelledImages) -> Ints:
    """Return the number of each image in its group and class, in order."""
    groups = len(images.group_names)
    cells = images.labels * groups + images.groups
    return ranks_in_cells(cells)


def ranks_in_cells(cells: Ints) -> Ints:
    """Count, for each item, the earlier items of its cell."""
    by_cell = np.argsort(cells, kind="stable")
    ordered = cells[by_cell]
    first_of_cell = np.searchsorted(ordered, ordered)
    ranks = np.empty(len(cells), dtype=np.int64)
    ranks[by_cell] = np.arange(len(cells)) - first_of_cell
    return ranks


def pair_texts(subject: Subject) -> list[str]:
    """Return what each image shares with its base image: label and index."""
    labels = subject.labels.tolist()
    indices = subject.indices.tolist()
    return [f"{label}_{index}" for label, index in zip(labels, indices, strict=True)]


def unit_names(subject: Subject) -> list[str]:
    """Return for each image the key of the first one of the same unit: what a pair shares, if the
    images name no units."""
    shared: list[object] = [*subject.keys]
    if subject.units is not None:
        shared = subject.units.of_image.tolist()
    elif subject.base:
        pairs = pair_texts(subject)
        for row, group in enumerate(subject.shifts.tolist()):
            if group == 0 or subject.groups[group].paired:
                shared[row] = ("pair", pairs[row])
    first: dict[object, str] = {}
    return [first.setdefault(unit, key) for unit, key in zip(shared, subject.keys, strict=True)]


AnySubject = TypeVar("AnySubject", bound=Subject)


def limit_subject(
    subject: AnySubject,
    most: int,
    preferred: frozenset[str] = frozenset(),
) -> AnySubject:
    """Return a preview: at most so many images of each group, as evenly over classes as they come.

    Pairs in `preferred` come first, then, in shifts, the pairs of the base. A group counts as many
    candidates as its images stand for. The candidates of mined shifts are left out, whose rates
    need all of them.
    """
    pairs = pair_texts(subject)
    rows_of_groups = []
    groups = []
    first_pairs = preferred
    base_labels = frozenset[int]()
    for index, group in enumerate(subject.groups):
        rows = np.flatnonzero(subject.shifts == index)
        group_pairs = [pairs[row] for row in rows]
        places = evenly_chosen(group_pairs, subject.labels[rows], most, first_pairs)
        chosen = rows[places]
        rows_of_groups.append(chosen)
        chosen_labels = frozenset(subject.labels[chosen].tolist())
        if index == 0 and subject.base:
            first_pairs = frozenset(pairs[row] for row in chosen)
            base_labels = chosen_labels
        present = base_labels | chosen_labels
        labels = tuple(label for label in group.class_labels if label in present)
        candidates = group.candidates
        if candidates is not None:
            of_chosen = candidates * len(chosen)
            candidates = round(of_chosen / max(1, len(rows)))
        groups.append(replace(group, class_labels=labels, candidates=candidates))
    rows = np.sort(np.concatenate(rows_of_groups))
    preview = max(map(len, rows_of_groups))
    parts = []
    contents = []
    first = 0
    for part in subject.parts:
        end = first + len(part.images)
        of_part = rows[(rows >= first) & (rows < end)]
        chosen_images = rows_of(part.images, of_part - first)
        images = replace(chosen_images, preview=preview)
        parts.append(replace(part, images=images))
        contents.append(images.content)
        first = end
    wrong = {}
    for judge, answers in subject.judged.wrong.items():
        judged_rows = rows[rows < len(answers)]
        wrong[judge] = answers[judged_rows]
    content = contents[0]
    if len(contents) > 1:
        content = sha256_json(contents)
    return subject.of_rows(
        rows,
        content=content,
        groups=tuple(groups),
        parts=tuple(parts),
        min_images_per_class=1,
        mined=MinedCandidates(),
        judged=replace(subject.judged, wrong=wrong),
    )


_LOOKED_AT = 9  # images of a set, to estimate their usual size
# The value of `groups` that makes each config a group.
CONFIGS = "configs"
_SOURCE = "source:"


def open_subject(
    dataset: str | Path,
    recipe: Recipe | str | Path | None,
    base: str | None,
    groups: str | None,
    beside: Mapping[str, str | Path],
) -> Subject:
    """Return the images of `dataset`, with the image sets in `beside` as further groups.

    A built dataset brings its own classes and groups. Other images are read by the classes of
    `recipe` (else their own), in `groups` of a column or `configs`, compared with `base`;
    `source:SPLIT` is a split of the recipe's source. Raise UserError for images that are missing or
    do not fit, RunFailure if the Hub cannot be reached.
    """
    chosen = None
    classes = None
    if recipe is not None:
        chosen = resolve_classes(recipe)
        classes = chosen.classes
    plain = recipe is not None or base is not None or groups is not None
    if is_built(dataset, surely_not=plain):
        if plain:
            raise refusal("unfit-option.built", dataset)
        subject: Subject = open_dataset(dataset)
    else:
        try:
            images = _labelled(dataset, chosen, classes, groups)
        except UserError as error:
            if plain or not named_path(dataset).is_dir():
                raise
            neither = message("unknown-images", dataset, RECIPE)
            problems = [neither]
            for problem in error.problems:
                indented = f"  {problem}"
                problems.append(ProblemLine(indented, problem.code, problem.path))
            raise UserError(problems, error.hint) from error
        subject = labelled_subject(str(dataset), images, classes, base)
        subject = replace(subject, recipe=chosen)
    others = {}
    for name, source in beside.items():
        others[name] = _labelled(source, chosen, subject.classes, None)
    return with_others(subject, others)


def is_built(dataset: str | Path, *, surely_not: bool = False) -> bool:
    """Return whether a folder or a Hub name is a built dataset; offline a Hub name is, unless
    `surely_not`."""
    written = str(dataset)
    folder = named_path(written)
    if folder.is_dir():
        return (folder / LOCK).exists() or (folder / RECIPE).exists()
    if written.startswith((LAB, _SOURCE)):
        return False
    reference = HubDataset.parse(written)
    if reference is None:
        return ":" not in written  # opening it explains the problem
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub import errors as hub

    hub_api = HfApi()
    revision = reference.revision
    try:
        return hub_api.file_exists(reference.repo, LOCK, repo_type="dataset", revision=revision)
    except (
        hub.HfHubHTTPError,
        hub.HFValidationError,
        hub.OfflineModeIsEnabled,
        httpx2.HTTPError,
        OSError,
        ValueError,
    ):
        return not surely_not


def _labelled(
    name: str | Path,
    recipe: Recipe | None,
    classes: Sequence[RecipeClass] | None,
    groups: str | None,
) -> LabelledImages:
    """Return the images that a person names; `source:SPLIT` is read as the recipe reads its input
    dataset."""
    configs_are_groups = groups == CONFIGS
    column = None if configs_are_groups else groups
    if not str(name).startswith(_SOURCE):
        images = labelled_source(
            name,
            classes,
            configs_are_groups=configs_are_groups,
            group_column=column,
        )
        if images.paths is not None:  # read from a folder: look at a sample of its pictures
            some = evenly_thinned(images, MOST_LOOKED_AT)
            pictures = look_at_pictures(some.images(), len(some), decode=False)
            of_pictures = pictures.notes(len(images))
            images = replace(images, notes=(*images.notes, *of_pictures))
        return images
    if recipe is None:
        raise refusal("unknown-source.recipe", name)
    source = recipe.source
    reference = NamedDataset(
        dataset=source.dataset,
        split=str(name).removeprefix(_SOURCE),
        revision=source.revision,
        config=source.config,
        image_column=source.image_column,
        label_column=source.label_column,
        unit_column=source.unit_column,
        conditions=source.conditions,
        exif=source.exif,
        numbering_splits=source.numbering_splits,
    )
    return labelled_source(reference, classes, group_column=column, labels_are_numbers=True)


def usual_side(sets: Iterable[LabelledImages]) -> int | None:
    """Return the usual shorter side of an image, in pixels, in the set where it is smallest.

    The usual side of a set is the median over a few of its images.
    """
    usual_sides = []
    for images in sets:
        sides = []
        some = evenly_thinned(images, _LOOKED_AT)
        for _, encoded in some.images():
            image = images.decoded(encoded)
            if image is not None:
                sides.append(min(image.size))
        if sides:
            usual_sides.append(int(median(sides)))
    return min(usual_sides, default=None)


def edits_of(
    directory: Path,
    recipe: Recipe,
    pins: Mapping[str, Any],
    keys: Sequence[str],
) -> EditsOf | None:
    """Return the rows that the images with these keys were edited from; None if the images are no
    edits."""
    if not recipe.kind.alters_rows:
        return None
    rows = sorted(set(rows_in_pool(directory, recipe, keys)))
    # Two pools of the same rows have one hash: over a folder's content, or over a name and a
    # commit.
    pool = pool_of(recipe)
    pin = SourcePin.of(pins.get("pool"))
    if pin is None:
        origin: list[Any] = [pool.dataset, pool.revision]
    else:
        origin = [pin.content or [pin.dataset, pin.revision]]
    called = sha256_json([*origin, pool.config])
    split = recipe.generator.get("split")
    return EditsOf(called, split, tuple(rows))


def rows_in_pool(directory: Path, recipe: Recipe, keys: Sequence[str]) -> list[int]:
    """Return the row of the pool that each image is, or is an edit of. Raise UserError if a row is
    unknown."""
    stored = stored_rows(directory, recipe, read_receipts(directory), ROW)
    row_of = {row["key"]: row[ROW] for row in stored}
    pool_rows = []
    unknown = []
    for key in keys:
        row = row_of.get(key)
        if row is None or row < 0:
            unknown.append(key)
        else:
            pool_rows.append(row)
    if unknown:
        raise refusal(
            "altered-dataset.pool", directory, unknown[0], column=ROW, more=len(unknown) - 1
        )
    return pool_rows
