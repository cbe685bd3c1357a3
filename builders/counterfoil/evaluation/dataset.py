"""Open a built dataset for scoring: its recipe, the metadata of every accepted image, its content hash, its judges.

A dataset is a directory that `counterfoil build` finished, or the same published on the Hub. A row of `data` has
every judge's answer, as it was recorded when the dataset was built: which images are there because a classifier of its
keep rules was wrong about them, and whether its labels are true by the second judge (`screen.judge`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.data import LabelledImages
from counterfoil.data.hub import HubDataset, locate_dataset
from counterfoil.dataset import read_dataset
from counterfoil.dataset.label_checks import checks_of_dataset, read_people, with_people
from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation.candidates import MinedCandidates, read_mined, refuse_other_data
from counterfoil.recipe import Recipe, RecipeClass
from counterfoil.recipe.keep.misclassified import FAILED, RIGHT, MisclassifiedRule, judge_column
from counterfoil.recipe.layering import without_folders
from counterfoil.report.labels import LabelChecks
from counterfoil.store import Receipt
from counterfoil.store.layout import LOCK, user_cache
from counterfoil.store.manifest import VERIFY, changed_data, content_of_receipts, refuse_changed
from counterfoil.store.reading import planned_rows, shard_batches
from counterfoil.store.receipts import counts_of
from counterfoil.store.rows import TableForm


@dataclass(frozen=True)
class JudgedShift:
    """A shift that keeps what judges get wrong: its place among the groups, and the rule that asks them."""

    place: int
    rule: MisclassifiedRule

    @property
    def judges(self) -> tuple[str, ...]:
        """Their names without folders."""
        return tuple(map(without_folders, self.rule.judges()))


@dataclass(frozen=True)
class JudgedImages:
    """The shifts that keep what judges get wrong, and by judge (n,) bool: kept, and recorded as wrong about it.

    Judges go by their names without folders; the n images are those of the dataset, in its order.
    """

    shifts: tuple[JudgedShift, ...] = ()
    wrong: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)


def read_judged(
    directory: Path, recipe: Recipe, receipts: Sequence[Receipt], keys: Sequence[str], shifts: NDArray[np.int64]
) -> JudgedImages:
    """Return what `data` records of the judges. keys, shifts (n,): of the dataset's images, from the same files."""
    every = recipe.all_shifts()
    judged = tuple(
        JudgedShift(index, rule)
        for index, shift in enumerate(every)
        for rule in shift.keep
        if shift.top and isinstance(rule, MisclassifiedRule)
    )
    if not judged:
        return JudgedImages()
    groups = {every[judged_shift.place].group for judged_shift in judged}
    # By judge and by what of its record says whether it is wrong, the shifts that ask so.
    places: dict[tuple[str, str], list[int]] = {}
    for judged_shift in judged:
        for judge in judged_shift.judges:
            places.setdefault((judge, judged_shift.rule.decides), []).append(judged_shift.place)
    row_of = {key: row for row, key in enumerate(keys)}
    wrong = {judge: np.zeros(len(keys), dtype=bool) for judge, _ in places}
    form = TableForm.of(recipe)
    columns = list(dict.fromkeys(judge_column(*each) for each in places))
    for receipt in receipts:
        if receipt.group not in groups:
            continue
        for batch in shard_batches(directory, receipt, ["key", *columns], "data", form):
            rows = np.array([row_of[key] for key in batch.column("key").to_pylist()], dtype=np.int64)
            for (judge, what), asking_shifts in places.items():
                # A judge that was not asked about an image, or gave no answer, is not wrong.
                answers = batch.column(judge_column(judge, what)).to_pylist()
                fails = np.array([answer is (what == FAILED) for answer in answers], dtype=bool)
                wrong[judge][rows] |= fails & np.isin(shifts[rows], asking_shifts)
    return JudgedImages(judged, wrong)


# What scoring needs of a published dataset: no rejected image, no card. Mined shifts may need more (`candidates.py`).
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
    """The base, a shift, or a part of other labelled images.

    `class_labels` are the classes that are planned in it, `candidates` what was rendered for it, None where nothing
    was. `paired` says that an image shares its noise with the base image of its class and index. Of a shift with levels
    each is a group, as in `recipe.prompts.Shift`: `of` names the shift, `top` says that it is the highest of them.
    """

    name: str
    kind: str | None
    prompt: str
    group: str
    class_labels: tuple[int, ...]
    candidates: int | None
    paired: bool
    of: str = ""
    level: float | None = None
    realised: bool = False
    top: bool = True


@dataclass(frozen=True)
class SubjectPart:
    """Labelled images of one origin. Their keys and names of groups begin with `prefix`, their groups at `first`."""

    images: LabelledImages
    prefix: str
    first: int


@dataclass(frozen=True, kw_only=True)
class Subject:
    """All (n,) images in a fixed order, part after part.

    shifts: (n,) positions in `groups`. indices: (n,) the number of an image in its cell. base: whether group 0 is the
    base. directory: the built dataset's; None where there is none. workplace: where answers and reports may be written.
    mined: the candidates of a built dataset's mined shifts. judged: which of its images, the first part, are there
    because a classifier was wrong. recipe, pins: what the images were made by, where that is known, and the inputs that
    a built dataset's lock pins. published: the dataset of the Hub that it is a copy of. label_checks: who checked its
    labels.
    """

    source: str
    name: str
    directory: Path | None
    workplace: Path
    content: str
    classes: tuple[RecipeClass, ...]
    groups: tuple[Group, ...]
    base: bool
    parts: tuple[SubjectPart, ...]
    keys: tuple[str, ...]
    labels: NDArray[np.int64]
    shifts: NDArray[np.int64]
    indices: NDArray[np.int64]
    min_images_per_class: int
    models: tuple[str, ...]
    repo: str | None
    published: HubDataset | None = None
    mined: MinedCandidates = field(default_factory=MinedCandidates)
    judged: JudgedImages = field(default_factory=JudgedImages)
    recipe: Recipe | None = None
    pins: Mapping[str, Any] = field(default_factory=dict)
    label_checks: LabelChecks | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What must be said of how folders of images were read."""
        return tuple(dict.fromkeys(note for part in self.parts for note in part.images.notes))

    @property
    def paths(self) -> tuple[str | None, ...] | None:
        """Where each image lies below the folder that it was read from; None if no image was read from one."""
        if all(part.images.paths is None for part in self.parts):
            return None
        return tuple(path for part in self.parts for path in part.images.paths or (None,) * len(part.images))

    def images(self, keys: frozenset[str] | None = None) -> Iterator[tuple[str, bytes | None]]:
        """Yield (key, encoded image) of every row, or of those named in `keys`, in order."""
        for part in self.parts:
            part_keys = None
            if keys is not None:
                part_keys = frozenset(key.removeprefix(part.prefix) for key in keys if key.startswith(part.prefix))
            for key, encoded in part.images.images(part_keys):
                yield f"{part.prefix}{key}", encoded


@dataclass(frozen=True, kw_only=True)
class OpenDataset(Subject):
    """A built dataset: the accepted images in plan order, their groups the shifts, the base first.

    content: sha256 over the data files' own. indices: of candidates.
    """

    directory: Path
    recipe: Recipe

    def labelled(self) -> LabelledImages:
        """Return the accepted images as what predictions are made of; the shifts are the groups."""
        return self.parts[0].images


def open_dataset(source: str | Path) -> OpenDataset:
    """Return the dataset at a path or Hub id (`user/name`, `user/name@revision`).

    Raise UserError if it is missing, not finished, or has no base image; RunFailure if the Hub cannot be reached.
    """
    located = locate_dataset(source, _PUBLISHED)
    directory = located.directory
    finished = read_dataset(directory, "receipts", own=located.reference is None).finished()
    recipe, receipts = finished.recipe, finished.receipts
    if not (directory / "data").is_dir():
        raise UserError(f"{directory} has no data folder: no candidate was accepted, or files are missing", VERIFY)
    hint = f"`counterfoil verify {source}` names everything that is damaged and how to repair it."
    refuse_changed(directory, changed_data(directory, receipts), hint)
    position = {shift.name: index for index, shift in enumerate(recipe.all_shifts())}
    keys: list[str] = []
    columns: dict[str, list[int]] = {"shift": [], "label": [], "index": []}
    for shard, receipt in zip(finished.plan.shards, receipts, strict=True):
        for row in planned_rows(directory, finished.plan, shard, receipt, "data"):
            keys.append(row["key"])
            columns["shift"].append(position[row["shift"]])
            columns["label"].append(row["label"])
            columns["index"].append(row["index"])
    shifts = np.asarray(columns["shift"], dtype=np.int64)
    if not np.any(shifts == 0):
        raise UserError(
            f"{directory} has no accepted base image, so there is nothing to measure a drop against",
            "Lower the object threshold, or ask for more candidates, and build it again.",
        )
    labels = np.asarray(columns["label"], dtype=np.int64)
    reasons, content = counts_of(receipts), content_of_receipts(receipts)
    mined = read_mined(finished, reasons, located.reference)
    refuse_other_data(directory, recipe, mined, keys)

    def read(wanted: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
        left = None if wanted is None else len(wanted)
        for receipt in receipts:
            for batch in shard_batches(directory, receipt, ["key", "image"]):
                if left == 0:
                    return
                images = batch.column("image")
                for index, key in enumerate(batch.column("key").to_pylist()):
                    if wanted is None or key in wanted:
                        yield key, (images[index].as_py() or {}).get("bytes")
                        left = None if left is None else left - 1

    groups = tuple(
        Group(
            name=shift.name,
            kind=shift.kind,
            prompt=recipe.kind.made_by(shift),
            group=shift.group,
            class_labels=shift.class_labels,
            candidates=sum(reasons.get(shift.name, {}).values()),
            paired=recipe.samples.noise == "paired",
            of=shift.of,
            level=shift.level,
            realised=shift.realised,
            top=shift.top,
        )
        for shift in recipe.all_shifts()
    )
    names = tuple(group.name for group in groups)
    images = LabelledImages(str(source), content, tuple(keys), labels, shifts, names, read)
    return OpenDataset(
        source=str(source),
        name=recipe.name,
        directory=directory,
        workplace=_workplace(directory, located.reference is not None),
        content=content,
        classes=recipe.classes,
        groups=groups,
        base=True,
        parts=(SubjectPart(images, "", 0),),
        keys=images.keys,
        labels=labels,
        shifts=shifts,
        indices=np.asarray(columns["index"], dtype=np.int64),
        min_images_per_class=recipe.evaluate.min_images_per_class,
        models=recipe.evaluate.models,
        repo=recipe.publish.repo,
        published=located.reference,
        mined=mined,
        judged=read_judged(directory, recipe, receipts, keys, shifts),
        recipe=recipe,
        pins=finished.lock.inputs,
        label_checks=with_people(
            read_judged_labels(directory, recipe, receipts, finished.lock.inputs),
            read_people(directory, content, names),
        ),
    )


def _workplace(directory: Path, published: bool) -> Path:
    """Return the folder of predictions and reports: inside the dataset if it may be written, else the user's cache."""
    if not published and os.access(directory, os.W_OK):
        return directory / ".counterfoil"
    return user_cache() / hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:16]


def read_judged_labels(
    directory: Path, recipe: Recipe, receipts: Sequence[Receipt], inputs: Mapping[str, Any]
) -> LabelChecks:
    """Return the checks of every shift by the accepted rows, after these were compared with the recipe.

    `inputs` are those of the lock. Raise RunFailure for a damaged table, or a lock that does not pin the judge.
    """
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    if recipe.screen.judge is not None:
        right, form = judge_column(recipe.screen.judge, RIGHT), TableForm.of(recipe)
        for receipt in receipts:
            for batch in shard_batches(directory, receipt, ["shift", "label", right], "data", form):
                for shift, label, answer in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    if answer is not None:
                        cell = (shift, recipe.classes[label].id)
                        images, disagreed = counts.get(cell, (0, 0))
                        counts[cell] = (images + 1, disagreed + (not answer))
    try:
        return checks_of_dataset(recipe, inputs, counts)
    except ValueError as error:
        raise RunFailure(f"{directory / LOCK} is not a lock that a build wrote: {error}", VERIFY) from error
