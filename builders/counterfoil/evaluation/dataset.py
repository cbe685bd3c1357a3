"""Open a built dataset for scoring: its recipe, the metadata of every accepted image, its content hash.

A dataset is a directory that `counterfoil build` finished, or the same published on the Hub.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.dataset import read_dataset
from counterfoil.errors import RunFailure, UserError
from counterfoil.evaluation.candidates import MinedCandidates, read_mined, refuse_other_data
from counterfoil.evaluation.judged_images import JudgedImages, read_judged
from counterfoil.evaluation.judged_labels import read_judged_labels
from counterfoil.hub import DatasetReference, locate_dataset
from counterfoil.label_checks import read_people, with_people
from counterfoil.plan import sample_key
from counterfoil.recipe import Recipe
from counterfoil.report.labels import LabelChecks
from counterfoil.sources import LabelledImages
from counterfoil.store import Receipt, read_batches
from counterfoil.store.content import changed_data, content_of_receipts
from counterfoil.user_cache import user_cache

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
_MOST_SHOWN = 10
_VERIFY = "`counterfoil verify` names what is damaged, and how it is repaired."
_METADATA = ("key", "label", "shift", "index")


@dataclass(frozen=True)
class OpenDataset:
    """A built dataset whose accepted images are known by position, in plan order.

    keys: one a row. shifts: (n,) position in `recipe.all_shifts()`. labels, indices: (n,).
    content: sha256 over the data files' own. reasons: shift -> reason -> candidates.
    workplace: where predictions and reports may be written. reference: the published dataset that it is a copy of.
    mined: the candidates of its mined shifts. judged: which images are there because a classifier was wrong. pins: the
    inputs that its lock pins. label_checks: who checked its labels.
    """

    source: str
    directory: Path
    workplace: Path
    recipe: Recipe
    content: str
    keys: tuple[str, ...]
    shifts: NDArray[np.int64]
    labels: NDArray[np.int64]
    indices: NDArray[np.int64]
    reasons: Mapping[str, Mapping[str, int]]
    reference: DatasetReference | None = None
    mined: MinedCandidates = field(default_factory=MinedCandidates)
    judged: JudgedImages = field(default_factory=JudgedImages)
    pins: Mapping[str, Any] = field(default_factory=dict)
    label_checks: LabelChecks | None = None

    def labelled(self) -> LabelledImages:
        """The accepted images as what predictions are made of; the shifts are the groups."""
        names = tuple(shift.name for shift in self.recipe.all_shifts())
        return LabelledImages(self.source, self.content, self.keys, self.labels, self.shifts, names, self.images)

    def images(self, keys: frozenset[str] | None = None) -> Iterator[tuple[str, bytes | None]]:
        """(key, encoded image) of every row, or of those named in `keys`, in order."""
        left = None if keys is None else len(keys)
        for batch in read_batches(self.directory, columns=["key", "image"]):
            if left == 0:
                return
            batch_keys = batch.column("key").to_pylist()
            images = batch.column("image")
            for position, key in enumerate(batch_keys):
                if keys is None or key in keys:
                    yield key, (images[position].as_py() or {}).get("bytes")
                    left = None if left is None else left - 1


def open_dataset(source: str | Path) -> OpenDataset:
    """The dataset at a path or Hub id (`user/name`, `user/name@revision`).

    Raises UserError when there is none, when it is not a finished Counterfoil dataset, or when it
    has no base image to compare with; RunFailure when the Hub cannot be reached.
    """
    located = locate_dataset(source, _PUBLISHED)
    directory = located.directory
    finished = read_dataset(directory, "receipts", own=located.reference is None).finished()
    recipe, receipts = finished.recipe, finished.receipts
    if not (directory / "data").is_dir():
        raise UserError(f"{directory} has no data folder: no candidate was accepted, or files are missing", _VERIFY)
    changed = changed_data(directory, receipts)
    if changed:
        raise RunFailure(
            [f"{directory}: {line}" for line in changed[:_MOST_SHOWN]],
            f"`counterfoil verify {source}` names all that is damaged, and how each is repaired.",
        )
    position = {shift.name: place for place, shift in enumerate(recipe.all_shifts())}
    keys: list[str] = []
    columns: dict[str, list[int]] = {"shift": [], "label": [], "index": []}
    for batch in read_batches(directory, columns=list(_METADATA)):
        keys += batch.column("key").to_pylist()
        names = batch.column("shift").to_pylist()
        unknown = sorted(set(names) - set(position))
        if unknown:
            raise UserError(f"{directory}: data holds shifts that recipe.yaml does not: {', '.join(unknown)}")
        columns["shift"] += [position[name] for name in names]
        columns["label"] += batch.column("label").to_pylist()
        columns["index"] += batch.column("index").to_pylist()
    shifts = np.asarray(columns["shift"], dtype=np.int64)
    if not np.any(shifts == 0):
        raise UserError(
            f"{directory} has no accepted base image, so there is nothing to measure a drop against",
            "Lower the object threshold, or ask for more candidates, and build it again.",
        )
    labels = np.asarray(columns["label"], dtype=np.int64)
    if labels.min() < 0 or labels.max() >= len(recipe.classes):
        raise UserError(f"{directory}: data holds labels that recipe.yaml, with {len(recipe.classes)} classes, has not")
    _refuse_strangers(directory, recipe, keys, columns)
    reasons, content = _reasons(receipts), content_of_receipts(receipts)
    mined = read_mined(finished, reasons, located.reference)
    refuse_other_data(directory, recipe, mined, keys)
    return OpenDataset(
        source=str(source),
        directory=directory,
        workplace=_workplace(directory, located.reference is not None),
        recipe=recipe,
        content=content,
        keys=tuple(keys),
        shifts=shifts,
        labels=labels,
        indices=np.asarray(columns["index"], dtype=np.int64),
        reasons=reasons,
        reference=located.reference,
        mined=mined,
        judged=read_judged(directory, recipe, receipts, keys, shifts),
        pins=finished.lock.inputs,
        label_checks=with_people(
            read_judged_labels(directory, recipe, receipts, finished.lock.inputs),
            read_people(directory, content, position.keys()),
        ),
    )


def _refuse_strangers(
    directory: Path, recipe: Recipe, keys: Sequence[str], columns: Mapping[str, Sequence[int]]
) -> None:
    """RunFailure for rows that are no samples of the recipe: each has the key of its shift, class and index, once."""
    shifts, classes = [shift.name for shift in recipe.all_shifts()], recipe.classes
    rows = zip(keys, columns["shift"], columns["label"], columns["index"], strict=True)
    for key, shift, label, index in rows:
        if key != sample_key(shifts[shift], classes[label].id, index):
            raise RunFailure(f"{directory}: data holds a row {key[:80]!r} that the recipe does not have", _VERIFY)
    if len(set(keys)) < len(keys):
        repeated = next(key for key, times in Counter(keys).items() if times > 1)
        raise RunFailure(f"{directory}: data holds the row {repeated} more than once", _VERIFY)


def _workplace(directory: Path, published: bool) -> Path:
    """Where predictions and reports go: inside the dataset where that may be written, else the user's cache.

    `.counterfoil/` is neither published nor part of the manifest.
    """
    if not published and os.access(directory, os.W_OK):
        return directory / ".counterfoil"
    return user_cache() / hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:16]


def _reasons(receipts: Sequence[Receipt]) -> Mapping[str, Mapping[str, int]]:
    reasons: dict[str, Counter[str]] = {}
    for receipt in receipts:
        for shift, counts in receipt.counts.items():
            reasons.setdefault(shift, Counter()).update(counts)
    return reasons
