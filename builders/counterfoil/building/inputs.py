"""Resolve what a recipe's names stand for, before the first image: pins, tokens, thresholds, and the lock of them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from counterfoil.building.judges import Pins, pin_judges, validation_answers
from counterfoil.building.realised_levels import realised_scales, with_scales
from counterfoil.data.labelled_sources import labelled_split
from counterfoil.data.open_source import open_source
from counterfoil.data.pins import SourcePin
from counterfoil.data.pool import pin_pool
from counterfoil.dataset.label_checks import VALIDATION, without_validation
from counterfoil.engines import Engine
from counterfoil.engines.local import called_on
from counterfoil.errors import CounterfoilError, UserError, some_of
from counterfoil.generate.image_embeddings import ImageEmbeddings
from counterfoil.generate.kinds import ChosenTable, maker_of
from counterfoil.generate.screen.known_classes import KnownClasses
from counterfoil.generate.screen.scores import ValidationScores
from counterfoil.generate.screen.thresholds import (
    Measured,
    ThresholdEntry,
    Thresholds,
    needs_validation,
    resolve_thresholds,
)
from counterfoil.generate.tokens.class_tokens import ClassTokens
from counterfoil.generate.tokens.learn_tokens import class_tokens
from counterfoil.models.clip import load_clip, pin_clip
from counterfoil.models.devices import one_thread
from counterfoil.models.loras import check_loras, pin_lora
from counterfoil.models.names import Pin
from counterfoil.plan import RowTable
from counterfoil.prediction.embedding import clip_embedder, embed
from counterfoil.recipe import sha256_json
from counterfoil.recipe.kinds import GENERATOR
from counterfoil.recipe.names import without_folders
from counterfoil.recipe.rows_table import MOST_BYTES, ChosenKind, rows_csv
from counterfoil.store.inside import read_inside
from counterfoil.store.layout import EMBEDDINGS, ROWS, THRESHOLDS, user_cache
from counterfoil.store.lock import LEVELS, Lock, read_lock

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from counterfoil.data import LabelledImages
    from counterfoil.recipe import Recipe


_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything a build depends on beside its recipe, pinned; `document` goes into lock.json and is hashed.

    notes: what could not be measured, and why, in sentences.
    """

    document: Mapping[str, Any]
    thresholds: Thresholds
    tokens: ClassTokens | None
    rows: bytes | None = None
    embeddings: ImageEmbeddings | None = None
    notes: tuple[str, ...] = ()

    @property
    def hash(self) -> str:
        return sha256_json(self.document)

    def counted(self, recipe: Recipe) -> RowTable | None:
        """The rows that are edited or corrupted, or were drawn elsewhere: of these the recipe says only the most."""
        kind = recipe.kind
        if self.rows is None or kind.table is None or not kind.counts_rows:
            return None
        return RowTable.read(self.rows, ROWS, kind.table)

    def settled(self, recipe: Recipe) -> Recipe:
        """The recipe with what was measured for it before its first image: how far its realised levels go."""
        return with_scales(recipe, self.document.get(LEVELS))

    @property
    def commits(self) -> dict[str, str | None]:
        """The commits that models of the Hub are pinned to, by what they do; None for one that is no repository."""
        # Rows of a pool need no generator, and rows that are corrupted no screen.
        models = self.document["models"]
        return {name: (models.get(name) or {}).get("revision") for name in ("generator", "screen", "adapter")}

    @property
    def loras(self) -> Pins:
        """The pins of LoRA weights by their names."""
        return self.document.get("loras") or {}

    @property
    def judges(self) -> Pins:
        return self.document.get("judges") or {}

    def attachments(self) -> dict[str, bytes]:
        """Files that travel with the dataset, so that its recipe and lock are enough to make it again."""
        files = {THRESHOLDS: self.thresholds.content()}
        if self.tokens is not None:
            files |= self.tokens.attachments()
        if self.rows is not None:
            files[ROWS] = self.rows
        if self.embeddings is not None:
            files[EMBEDDINGS] = self.embeddings.content()
        return files


def resolve_inputs(
    recipe: Recipe,
    out: Path,
    device: str,
    engine: Engine,
    *,
    learn: bool = True,
) -> Inputs:
    """Pin models, source, tokens and embeddings, choose rows to retrieve or edit, turn thresholds into numbers.

    Tokens that are learned tell how far they are, and so does a pool that is ranked.

    Without `learn`, class tokens that a recipe learns are read as they were learned before. Thresholds of a directory
    that was begun with the same pins are read from it, never computed again.
    """
    maker = maker_of(recipe)
    maker.check(recipe, None if engine.elsewhere else device)
    embeddings = maker.embeddings(recipe)  # a mistake should not wait for tokens that are learned
    tokens = class_tokens(recipe, out, device, engine, learn=learn)
    lock = read_lock(out)
    source = open_source(recipe.source, None if lock is None else lock.inputs.get("source")).pin
    pins = pins_of(recipe, tokens, source, lock, embeddings)
    begun = lock if lock is not None and _began_alike(recipe, lock, pins) else None
    if any(shift.realised for shift in recipe.all_shifts()):
        pins[LEVELS] = _scales_of(recipe, begun, device, pins, tokens)
    rows, row_notes = _rows_of(recipe, out, begun, pins, device)
    entries, classes = ({}, None) if begun is None else _measured_before(out, begun)
    screen = None if recipe.screen.model is None else Pin(**pins["models"]["screen"])
    asked = (recipe, entries, device, screen, source, classes)
    # By a process of its own on a GPU: whoever builds holds nothing there, and workers find its memory free.
    measured = needs_validation(recipe, entries)
    thresholds = called_on(device, thresholds_of, *asked) if measured else thresholds_of(*asked)
    notes = _with_judge_errors(pins, recipe, begun, source, device)
    pins["thresholds"] = thresholds.pin()
    return Inputs(pins, thresholds, tokens, rows, embeddings, (*row_notes, *notes))


def _scales_of(
    recipe: Recipe, begun: Lock | None, device: str, pins: Mapping[str, Any], tokens: ClassTokens | None
) -> Mapping[str, Any]:
    """The share of the way for each realised level: as a directory has it that was begun alike, or measured now."""
    if begun is not None and begun.hashes.get("plan") == recipe.plan_hash:
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):  # of another form
            return with_scales(recipe, begun.inputs[LEVELS]).scales
    return called_on(device, realised_scales, recipe, device, pins, tokens)


def pins_of(
    recipe: Recipe,
    tokens: ClassTokens | None,
    source: SourcePin,
    lock: Lock | None,
    embeddings: ImageEmbeddings | None = None,
) -> dict[str, Any]:
    """What the names in a recipe stand for, but for thresholds and what the second judge answers to validation images.

    A key for what it does not have is left out.
    """
    pins: dict[str, Any] = {
        "models": maker_of(recipe).pins(recipe) | _screen_pin(recipe),
        "source": source.document(),
        "tokens": None if tokens is None else tokens.hashes(),
    }
    if recipe.generator.lora:
        loras = {name: pin_lora(name, lora).document() for name, lora in recipe.generator.lora.items()}
        if lock is None:
            generator = pins["models"][GENERATOR]
            check_loras(recipe.generator.model, generator["revision"], recipe.generator.lora, loras)
        pins["loras"] = loras
    if embeddings is not None:
        pins["embeddings"] = embeddings.hashes()
    if recipe.judges:
        pins["judges"] = pin_judges(recipe)
    if recipe.kind.takes_rows:
        pool = pin_pool(recipe, None if lock is None else lock.inputs.get("pool"))
        maker_of(recipe).check_rows(recipe, pool)
        pins["pool"] = pool.document()
    return pins


def _rows_of(
    recipe: Recipe, out: Path, begun: Lock | None, pins: dict[str, Any], device: str
) -> tuple[bytes | None, tuple[str, ...]]:
    """The file of rows that goes along with the dataset, pinned where a build chose them; and what must be said."""
    kind, pool, maker = recipe.kind.table, SourcePin.of(pins.get("pool")), maker_of(recipe)
    if kind is None or pool is None:
        return rows_file(recipe), ()
    rows = _known_rows(recipe, kind, out, begun)
    if rows is None:
        # Models work in a process of their own on a GPU, as where thresholds are measured.
        on = maker.device_of_rows(recipe, device)
        rows = called_on(on, maker.choose_rows, recipe, pool, pins["models"], on)
    pins[kind] = dict(rows.pin)
    return rows.table.content, (*maker.notes(recipe), *rows.notes)


def rows_file(recipe: Recipe) -> bytes | None:
    """The recipe's own rows as a file that travels with the dataset; None where it names none."""
    return None if recipe.generator.rows is None else rows_csv(recipe.generator.rows)


def _known_rows(recipe: Recipe, kind: ChosenKind, out: Path, lock: Lock | None) -> ChosenTable | None:
    """The rows of a directory that was begun, where they are those that its lock pins; else None."""
    pin = None if lock is None else lock.inputs.get(kind)
    if not isinstance(pin, Mapping):
        return None
    try:
        found = RowTable.read(read_inside(out, ROWS, MOST_BYTES), ROWS, kind)
    except (OSError, CounterfoilError):
        return None  # they are chosen again, and refused where they do not come out the same
    same = found.sha256 == pin.get("sha256") and not any(found.problems(recipe))
    return ChosenTable(found, pin) if same else None


def _screen_pin(recipe: Recipe) -> dict[str, Any]:
    model = recipe.screen.model
    return {} if model is None else {"screen": pin_clip(model, recipe.screen.weights).document()}


def thresholds_of(
    recipe: Recipe,
    known: Mapping[Measured, ThresholdEntry],
    device: str,
    screen: Pin | None,
    source: SourcePin | None,
    classes: KnownClasses | None = None,
) -> Thresholds:
    """Every threshold of a recipe; loads CLIP and the input dataset, as pinned, only for unknown percentiles.

    `screen` pins the CLIP model, if there is one, `source` the input dataset. Embeddings of validation images are kept
    in the user's cache, so that another recipe finds them. Where they are at hand it is measured too whether CLIP knows
    the classes, unless `classes` is what was measured before.
    """
    if screen is None or not needs_validation(recipe, known):
        return resolve_thresholds(recipe, None, known).with_known(classes, recipe)
    images = labelled_split(recipe.source, recipe.source.validation_split, recipe.classes, source, units=False)
    with one_thread():
        clip = load_clip(recipe.screen.clip, recipe.screen.weights, device, revision=screen.revision)
        # Not in half precision: a percentile is a number that rows are compared with.
        folder = user_cache() / "embeddings"
        embeddings = embed(images, clip_embedder(clip, screen, recipe.screen.weights), folder, precision="float32")
        _refuse_unreadable(images, embeddings)
        scores = ValidationScores(recipe, clip, images.labels, embeddings)
        thresholds = resolve_thresholds(recipe, scores, known)
        return thresholds.with_known(classes or scores.known_classes(), recipe)


def _refuse_unreadable(images: LabelledImages, embeddings: NDArray[np.floating]) -> None:
    import numpy as np

    damaged = images.shown([images.keys[row] for row in np.flatnonzero(np.isnan(embeddings).any(axis=1))])
    if damaged:
        unreadable = f"{len(damaged)} unreadable {'image' if len(damaged) == 1 else 'images'}"
        raise UserError(
            f"source: {images.name}: {unreadable}: {some_of(damaged, _MOST_SHOWN)}",
            "Remove or replace these rows of the input dataset; a name is its split and its row, or its file.",
        )


def _began_alike(recipe: Recipe, lock: Lock, pins: Mapping[str, Any]) -> bool:
    """Whether a directory has the same screen and pins, so that what it measured before stands."""
    measured = ("thresholds", LEVELS, *get_args(ChosenKind))
    there = {name: value for name, value in lock.inputs.items() if name not in measured}
    if isinstance(there.get("judges"), Mapping):
        there["judges"] = without_validation(there["judges"])
    return lock.hashes.get("screen") == recipe.screen_hash and there == dict(pins)


def _with_judge_errors(
    pins: dict[str, Any], recipe: Recipe, begun: Lock | None, source: SourcePin, device: str
) -> tuple[str, ...]:
    """Add what the second judge answers to validation images to its pin: as the lock has it, or counted now.

    What must be said where there are none.
    """
    judge = recipe.screen.judge
    if judge is None:
        return ()
    name = without_folders(judge)
    if begun is not None:
        counts, why = begun.inputs["judges"][name].get(VALIDATION), None
    else:
        counts, why = called_on(device, validation_answers, recipe, judge, source, device)
    pins["judges"] = {**pins["judges"], name: {**pins["judges"][name], VALIDATION: counts}}
    if counts is not None:
        return ()
    return (
        f"The error rate of the judge {name} is unknown, so its plain disagreement is"
        f" reported{f': {why}' if why else ''}",
    )


def _measured_before(directory: Path, lock: Lock) -> tuple[Mapping[Measured, ThresholdEntry], KnownClasses | None]:
    """What a directory has measured of validation images: thresholds by caption, class and percentile, and what CLIP
    made of the classes. Nothing where thresholds.json is absent, of another form or not as the lock pins it.
    """
    try:
        thresholds = Thresholds.read(read_inside(directory, THRESHOLDS))
        if thresholds.pin() != lock.inputs.get("thresholds"):
            return {}, None
        captions = {shift["shift"]: shift["object_caption"] for shift in lock.screen["shifts"]}
        return thresholds.measured(captions), thresholds.known
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}, None
