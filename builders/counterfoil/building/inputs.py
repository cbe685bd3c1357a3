"""Resolve what a recipe's names stand for, before the first image: pins, tokens, thresholds, and the lock of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.generate.tokens import ClassTokens, read_class_tokens
from counterfoil.models import pin_model
from counterfoil.models.clip import load_clip, pin_clip
from counterfoil.models.devices import one_thread
from counterfoil.models.sources import load_source, pin_source
from counterfoil.recipe import screen_hash, sha256_json
from counterfoil.screen.scores import ValidationScores
from counterfoil.screen.thresholds import Thresholds, needs_validation, resolve_thresholds
from counterfoil.store.lock import read_lock

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe

THRESHOLDS = "thresholds.json"


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything a build depends on beside its recipe, pinned; `document` goes into lock.json and is hashed."""

    document: Mapping[str, Any]
    thresholds: Thresholds
    tokens: ClassTokens | None

    @property
    def hash(self) -> str:
        return sha256_json(self.document)

    def attachments(self) -> dict[str, bytes]:
        """Files that travel with the dataset, so that its recipe and lock are enough to make it again."""
        files = {THRESHOLDS: self.thresholds.content()}
        if self.tokens is not None:
            files |= {f"tokens/{class_id}.safetensors": content for class_id, content in self.tokens.files.items()}
        return files


def resolve_inputs(recipe: Recipe, out: Path, device: str) -> Inputs:
    """Pin models, source and tokens, and turn every threshold into a number.

    Thresholds of a directory that was begun with the same pins are read from it, never computed again.
    """
    tokens = read_class_tokens(recipe)
    pins: dict[str, Any] = {
        "models": {
            "generator": pin_model(recipe.generator.model, recipe.generator.revision).document(),
            "screen": pin_clip(recipe.screen.model, recipe.screen.weights).document(),
        },
        "source": asdict(pin_source(recipe.source)),
        "tokens": None if tokens is None else tokens.hashes(),
    }
    thresholds = _kept_thresholds(recipe, out, pins) or _new_thresholds(recipe, device)
    pins["thresholds"] = {"sha256": hashlib.sha256(thresholds.content()).hexdigest()}
    return Inputs(pins, thresholds, tokens)


def _kept_thresholds(recipe: Recipe, out: Path, pins: Mapping[str, Any]) -> Thresholds | None:
    lock, file = read_lock(out), out / THRESHOLDS
    if lock is None or not file.is_file() or lock.hashes.get("screen") != screen_hash(recipe):
        return None
    there = {name: value for name, value in lock.inputs.items() if name != "thresholds"}
    content = file.read_bytes()
    pinned = (lock.inputs.get("thresholds") or {}).get("sha256")
    if there != dict(pins) or hashlib.sha256(content).hexdigest() != pinned:
        return None
    return Thresholds.read(content)


def _new_thresholds(recipe: Recipe, device: str) -> Thresholds:
    if not needs_validation(recipe):
        return resolve_thresholds(recipe, None)
    split = load_source(recipe.source, recipe.source.validation_split)
    with one_thread():
        clip = load_clip(recipe.screen.model, recipe.screen.weights, device)
        return resolve_thresholds(recipe, ValidationScores(recipe, clip, split))
