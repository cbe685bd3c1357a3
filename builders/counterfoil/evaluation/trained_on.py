"""No model is measured on what it was mended on: its mended.json against the images that are to be scored.

Compared are whole sets by their content, images one by one by their pixels, and the seeds of recipes: images of one
seed share their noise, so that those of another build of it are the same images, or nearly. Rows and edits of
rows began with none; edits of one row show one object, so that a model knows it in another build of edits, and in
the row itself: which rows of which pool images are made from is read here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from counterfoil.data.pins import SourcePin
from counterfoil.data.pool import pool_of
from counterfoil.errors import CounterfoilError, UserError, raise_together
from counterfoil.evaluation.dataset import Subject
from counterfoil.models.mended import EditsOf, MendedNote, mended_of
from counterfoil.progress import track
from counterfoil.recipe import Recipe, sha256_json
from counterfoil.recipe.kinds import ROW
from counterfoil.store.decoding import pixels_sha256
from counterfoil.store.reading import read_receipts, read_shard
from counterfoil.store.rows import TableForm

_REPORTED_EVERY = 1000  # images between two reports of progress
_HINT = (
    "Images that a model was fitted to cannot measure what it learned. Evaluate it on others: a dataset built with"
    " another samples.seed, another split of the source, or other rows."
)


def mended_notes(models: Mapping[str, str]) -> dict[str, MendedNote]:
    """Return the notes of the mended among models, name → what it stands for. Raise UserError for unreadable notes."""
    notes: dict[str, MendedNote] = {}
    errors: list[CounterfoilError] = []
    for name, model in models.items():
        try:
            note = mended_of(model)
        except CounterfoilError as error:
            errors.append(error)
        else:
            notes |= {} if note is None else {name: note}
    raise_together(errors)
    return notes


def refuse_trained_on(subject: Subject, notes: Mapping[str, MendedNote]) -> None:
    """Raise UserError with every model that was mended on some of these images, or with a common seed."""
    problems: list[str] = []
    scored = {part.images.content: part.images.name for part in subject.parts}
    for name, note in notes.items():
        for trained in (*note.on, *note.datasets):
            if trained.content in scored:
                same = f"{scored[trained.content]}: the same images"
                problems.append(f"model {name!r} was mended on {trained.name}, which is {same}")
        problems += [
            f"model {name!r} was fitted to images of {scored[content]}"
            for content in dict.fromkeys(note.train_content)
            if content in scored
        ]
        if subject.recipe is not None and subject.directory is not None and not subject.recipe.kind.takes_rows:
            seed = subject.recipe.samples.seed
            problems += [
                f"model {name!r} was mended with {dataset.name} (recipe {dataset.recipe or 'unknown'}), whose"
                f" samples.seed {seed} is also that of {subject.source}: images of one seed come from the same noise"
                for dataset in note.datasets
                if dataset.seed == seed and dataset.content not in scored
            ]
    problems += _common_rows(subject, notes)
    fitted_to = {name: frozenset(note.train_content) for name, note in notes.items() if note.train_content}
    if fitted_to and not problems:
        counts, total = dict.fromkeys(fitted_to, 0), len(subject.keys)
        pictures = (part.images.decoded(encoded) for part in subject.parts for _, encoded in part.images.images())
        for picture in track(pictures, "checking for training images of the models", total, _REPORTED_EVERY):
            if picture is not None:
                content = pixels_sha256(picture)
                for name, contents in fitted_to.items():
                    counts[name] += content in contents
        problems = [
            f"model {name!r} was fitted to {count:,} of the {total:,} images of {subject.source}, or to edits of them"
            for name, count in counts.items()
            if count
        ]
    if problems:
        raise UserError(problems, _HINT)


def _common_rows(subject: Subject, notes: Mapping[str, MendedNote]) -> list[str]:
    """Return a line for each dataset of edits a model was mended with that shares rows with the scored edits."""
    edited = [
        (name, dataset, dataset.edits)
        for name, note in notes.items()
        for dataset in note.datasets
        if dataset.edits is not None
    ]
    if not edited or subject.recipe is None or subject.directory is None:
        return []
    scored = edits_of(subject.directory, subject.recipe, subject.pins, subject.parts[0].images.keys)
    lines = []
    for name, one, edits in edited:
        if scored is not None and (edits.pool, edits.split) == (scored.pool, scored.split):
            common = sorted(set(edits.rows) & set(scored.rows))
            if common and one.content not in {part.images.content for part in subject.parts}:
                lines.append(
                    f"model {name!r} was mended with {one.name}, and {subject.source} has edits of {len(common):,} of"
                    f" the same rows, such as row {common[0]} of {scored.split}"
                )
    return lines


def edits_of(directory: Path, recipe: Recipe, pins: Mapping[str, Any], keys: Sequence[str]) -> EditsOf | None:
    """Return the rows that the images of these keys are edits of; None if they are no edits."""
    if not recipe.kind.alters_rows:
        return None
    rows = sorted(set(rows_in_pool(directory, recipe, keys)))
    # A hash that two pools of the same rows share: of a folder's content, wherever it lies, or a name and a commit.
    pool, pin = pool_of(recipe), SourcePin.of(pins.get("pool"))
    if pin is None:
        called = sha256_json([pool.dataset, pool.revision, pool.config])
    else:
        called = sha256_json([pin.content or [pin.dataset, pin.revision], pool.config])
    return EditsOf(called, recipe.generator.split, tuple(rows))


def rows_in_pool(directory: Path, recipe: Recipe, keys: Sequence[str]) -> list[int]:
    """Return the row of the pool that each image is, or is an edit of. Raise UserError if a row is unknown."""
    if not recipe.kind.takes_rows:
        raise ValueError(f"the images of {recipe.name} are not rows")
    row_of: dict[str, int] = {}
    form = TableForm.of(recipe)
    for receipt in read_receipts(directory):
        row_of |= {
            data_row["key"]: data_row[ROW] for data_row in read_shard(directory, receipt, ["key", ROW], form=form)
        }
    pool_rows = [row_of.get(key) for key in keys]
    unknown = [key for key, row in zip(keys, pool_rows, strict=True) if row is None or row < 0]
    if unknown:
        raise UserError(
            f"{directory}: {ROW} of {unknown[0]} is not a row of a pool; the same holds for"
            f" {len(unknown) - 1:,} more images",
            f"See what is wrong with it: counterfoil verify {directory}",
        )
    return [row for row in pool_rows if row is not None]
