"""Resolve the names in a recipe to pins, tokens, rows and thresholds, before the first image is
made."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from counterfoil.building.asked_models import pin_asked_models
from counterfoil.building.judges import pin_judges, validation_answers, validation_images
from counterfoil.building.realised_levels import realised_scales, with_scales
from counterfoil.data.open_source import open_source
from counterfoil.data.pins import SourcePin
from counterfoil.data.pool import pin_pool
from counterfoil.documents import sha256_json
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
from counterfoil.models.arithmetic import one_thread
from counterfoil.models.clip import load_clip, pin_clip
from counterfoil.models.loras import check_loras, pin_lora
from counterfoil.models.names import Pin
from counterfoil.plan.layout import RowTable
from counterfoil.prediction.embedding import clip_embedder, embed
from counterfoil.recipe import Recipe
from counterfoil.recipe.kinds import GENERATOR
from counterfoil.recipe.names import without_folders
from counterfoil.recipe.rows_table import MOST_BYTES, ChosenKind, rows_csv
from counterfoil.report.words import format_count
from counterfoil.store.inside import read_inside
from counterfoil.store.layout import EMBEDDINGS, ROWS, THRESHOLDS
from counterfoil.store.lock import LEVELS, VALIDATION, Lock, read_lock, without_validation

_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Inputs:
    """The pinned inputs of a build, apart from its recipe."""

    document: Mapping[str, Any]
    """The pins of the inputs, for lock.json and for the hash of inputs."""
    thresholds: Thresholds
    tokens: ClassTokens | None
    rows: bytes | None = None
    embeddings: ImageEmbeddings | None = None
    notes: tuple[str, ...] = ()
    """Sentences about what could not be measured."""

    @property
    def hash(self) -> str:
        return sha256_json(self.document)

    def table(self, recipe: Recipe) -> RowTable | None:
        """Return the table of rows that the build chose, or None for a kind without a table."""
        kind = recipe.kind.table
        if self.rows is None or kind is None:
            return None
        return RowTable.read(self.rows, ROWS, kind)

    def settled(self, recipe: Recipe) -> Recipe:
        """Return the recipe with the scales that were measured for its realised levels."""
        return with_scales(recipe, self.document.get(LEVELS))

    def commit(self, model: str) -> str | None:
        """Return the pinned commit of the `generator`, the `screen` or the `adapter`, if it has
        one."""
        pin = self.document["models"].get(model) or {}
        return pin.get("revision")

    @property
    def placeholders(self) -> Mapping[str, str] | None:
        return None if self.tokens is None else self.tokens.placeholders

    @property
    def pool(self) -> SourcePin | None:
        """Return the pin of the images from which rows are taken."""
        return SourcePin.of(self.document.get("pool"))

    def attachments(self) -> dict[str, bytes]:
        """Return the files, by path, that a dataset includes so that it can be rebuilt."""
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
    """Pin the models, the source, the tokens and the embeddings, choose rows, and resolve
    thresholds.

    Without `learn`, this function reads class tokens that were learned before. If the directory was
    begun with the same pins, this function reads the thresholds of the directory and does not
    compute them again.
    """
    maker = maker_of(recipe)
    maker.check(recipe, None if engine.elsewhere else device)
    embeddings = maker.embeddings(recipe)  # report mistakes before tokens are learned
    tokens = class_tokens(recipe, out, device, engine, learn=learn)
    lock = read_lock(out)
    pinned_source = None if lock is None else lock.inputs.get("source")
    source = open_source(recipe.source, pinned_source).pin
    pins = pins_of(recipe, tokens, source, lock, embeddings)
    begun = None  # the lock, if its directory was begun alike: then its measurements still hold
    if lock is not None and lock.hashes.get("screen") == recipe.screen_hash:
        locked = dict(lock.inputs)
        for measured in ("thresholds", LEVELS, *get_args(ChosenKind)):
            locked.pop(measured, None)
        if isinstance(locked.get("judges"), Mapping):
            locked["judges"] = without_validation(locked["judges"])
        if locked == pins:
            begun = lock
    if any(shift.realised for shift in recipe.all_shifts()):
        scales = None
        if begun is not None and begun.hashes.get("plan") == recipe.plan_hash:
            # the lock has another form
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
                scales = with_scales(recipe, begun.inputs[LEVELS]).scales
        if scales is None:
            scales = called_on(device, realised_scales, recipe, device, pins, tokens)
        pins[LEVELS] = scales
    rows, row_notes = _rows_of(recipe, out, begun, pins, device)
    entries = {}
    classes = None
    if begun is not None:
        entries, classes = _measured_before(out, begun)
    screen = None
    if recipe.screen.model is not None:
        screen = Pin(**pins["models"]["screen"])
    # On a GPU this is a separate process, so that the memory of the GPU is free for the workers
    # afterwards.
    on = device if needs_validation(recipe, entries) else "cpu"
    thresholds = called_on(
        on,
        thresholds_of,
        recipe,
        entries,
        on,
        screen,
        source,
        classes,
    )
    notes = _with_judge_errors(pins, recipe, begun, source, device)
    pins["thresholds"] = thresholds.pin()
    return Inputs(pins, thresholds, tokens, rows, embeddings, (*row_notes, *notes))


def pins_of(
    recipe: Recipe,
    tokens: ClassTokens | None,
    source: SourcePin,
    lock: Lock | None,
    embeddings: ImageEmbeddings | None = None,
) -> dict[str, Any]:
    """Return the pins of the names in a recipe.

    These pins lack the thresholds and the second judge's answers to validation images.
    """
    maker = maker_of(recipe)
    models = dict(maker.pins(recipe))
    if recipe.screen.model is not None:
        screen = pin_clip(recipe.screen.model, recipe.screen.weights)
        models["screen"] = screen.document()
    pins: dict[str, Any] = {
        "models": models,
        "source": source.document(),
        "tokens": None if tokens is None else tokens.hashes(),
    }
    loras = recipe.generator.get("lora")
    if loras:
        lora_pins = {}
        for name, lora in loras.items():
            lora_pins[name] = pin_lora(name, lora).document()
        if lock is None:
            revision = models[GENERATOR]["revision"]
            check_loras(recipe.drawing.model, revision, loras, lora_pins)
        pins["loras"] = lora_pins
    if embeddings is not None:
        pins["embeddings"] = embeddings.hashes()
    if recipe.judges:
        pins["judges"] = pin_judges(recipe)
    if recipe.asking_rules:
        pins["asked"] = pin_asked_models(recipe)
    if recipe.plugins:
        packages = {}
        for what, plugin in recipe.plugins.items():
            packages[what] = plugin.package
        pins["plugins"] = packages
    if recipe.kind.takes_rows:
        pinned_pool = None if lock is None else lock.inputs.get("pool")
        pool = pin_pool(recipe, pinned_pool)
        maker.check_rows(recipe, pool)
        pins["pool"] = pool.document()
    return pins


def _rows_of(
    recipe: Recipe,
    out: Path,
    begun: Lock | None,
    pins: dict[str, Any],
    device: str,
) -> tuple[bytes | None, tuple[str, ...]]:
    """Return the file of rows for the dataset, and notes. Add the pin of rows that the build
    chose."""
    kind = recipe.kind.table
    pool = SourcePin.of(pins.get("pool"))
    maker = maker_of(recipe)
    if kind is None or pool is None:
        return rows_file(recipe), ()
    rows = None
    pin = None if begun is None else begun.inputs.get(kind)
    if isinstance(pin, Mapping):  # a directory that was begun before pins its rows
        # If they cannot be read, rows are chosen again, and the store refuses them if they differ.
        with contextlib.suppress(OSError, CounterfoilError):
            content = read_inside(out, ROWS, MOST_BYTES)
            table = RowTable.read(content, ROWS, kind)
            same = table.sha256 == pin.get("sha256")
            if same and not any(table.problems(recipe)):
                rows = ChosenTable(table, pin)
    if rows is None:
        # With a GPU, use a separate process, as for thresholds.
        on = maker.device_of_rows(recipe, device)
        rows = called_on(on, maker.choose_rows, recipe, pool, pins["models"], on)
    pins[kind] = dict(rows.pin)
    return rows.table.content, (*maker.notes(recipe), *rows.notes)


def rows_file(recipe: Recipe) -> bytes | None:
    """Return the content of a file with the rows that a recipe lists, or None if it lists no
    rows."""
    rows = recipe.generator.get("rows")
    return None if rows is None else rows_csv(rows)


def thresholds_of(
    recipe: Recipe,
    known: Mapping[Measured, ThresholdEntry],
    device: str,
    screen: Pin | None,
    source: SourcePin | None,
    classes: KnownClasses | None = None,
) -> Thresholds:
    """Return every threshold of a recipe.

    Only unknown percentiles need the pinned CLIP and the pinned input dataset, so they are not
    loaded otherwise. The embeddings of validation images are cached. These embeddings also show
    whether CLIP knows the classes, unless `classes` was measured before.
    """
    if screen is None or not needs_validation(recipe, known):
        thresholds = resolve_thresholds(recipe, None, known)
        return thresholds.with_known(classes, recipe)
    import numpy as np

    images = validation_images(recipe, source)
    with one_thread():
        clip = load_clip(
            recipe.screen.clip,
            recipe.screen.weights,
            device,
            revision=screen.revision,
        )
        embedder = clip_embedder(clip, screen, recipe.screen.weights)
        # Compute in full precision, because the build compares the scores of rows with a
        # percentile.
        embeddings = embed(images, embedder, precision="float32")
        unreadable = np.isnan(embeddings).any(axis=1)
        rows = np.flatnonzero(unreadable)
        keys = [images.keys[row] for row in rows]
        damaged = images.shown(keys)
        if damaged:
            count = format_count(len(damaged), "unreadable image")
            raise UserError(
                f"source: {images.name}: {count}: {some_of(damaged, _MOST_SHOWN)}",
                "Remove or replace these rows of the input dataset; a name is its split and its"
                " row, or its file.",
            )
        scores = ValidationScores(recipe, clip, images.labels, embeddings)
        thresholds = resolve_thresholds(recipe, scores, known)
        return thresholds.with_known(classes or scores.known_classes(), recipe)


def _with_judge_errors(
    pins: dict[str, Any],
    recipe: Recipe,
    begun: Lock | None,
    source: SourcePin,
    device: str,
) -> tuple[str, ...]:
    """Add the second judge's answers to validation images to the pin of this judge, and return
    notes.

    The answers come from the lock, or are counted now.
    """
    judge = recipe.screen.judge
    if judge is None:
        return ()
    name = without_folders(judge)
    reason = None
    if begun is not None:
        counts = begun.inputs["judges"][name].get(VALIDATION)
    else:
        counts, reason = called_on(
            device,
            validation_answers,
            recipe,
            judge,
            source,
            device,
        )
    pin = dict(pins["judges"][name])
    pin[VALIDATION] = counts
    pins["judges"] = {**pins["judges"], name: pin}
    if counts is not None:
        return ()
    note = f"The error rate of the judge {name} is unknown, so its plain disagreement is reported"
    if reason:
        note += f": {reason}"
    return (note,)


def _measured_before(
    directory: Path,
    lock: Lock,
) -> tuple[Mapping[Measured, ThresholdEntry], KnownClasses | None]:
    """Return the measured thresholds and the known classes of a directory.

    Return none if thresholds.json does not match its pin in the lock.
    """
    try:
        thresholds = Thresholds.read(read_inside(directory, THRESHOLDS))
        if thresholds.pin() != lock.inputs.get("thresholds"):
            return {}, None
        captions = {}
        for shift in lock.screen["shifts"]:
            captions[shift["shift"]] = shift["object_caption"]
        return thresholds.measured(captions), thresholds.known
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}, None
