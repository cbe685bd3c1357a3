"""What a dataset says it is made from: recipe, lock, thresholds and class tokens, read one by one and compared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.errors import CounterfoilError
from counterfoil.plan import Plan, make_plan
from counterfoil.recipe import Recipe, canonical_json, load_own_recipe, plan_inputs, screen_inputs, sha256_json
from counterfoil.screen import Thresholds, resolve_thresholds
from counterfoil.screen.thresholds import Measured, ThresholdEntry, needs_validation
from counterfoil.store.differences import differences
from counterfoil.store.inside import read_inside
from counterfoil.store.layout import LOCK, RECIPE, THRESHOLDS, TOKENS
from counterfoil.store.lock import HASHES, Lock, read_lock
from counterfoil.store.manifest import Entry as FileEntry
from counterfoil.tokens.class_tokens import ClassTokens, read_token_folder
from counterfoil.verification.judged import JudgePins
from counterfoil.verification.problems import Findings

_MOST_DIFFERENCES = 3


@dataclass(frozen=True, slots=True)
class Described:
    """What can be relied on; None for what is missing, unreadable or contradicts the rest.

    `plan` holds the tokens' placeholders where `tokens` could be read; `prompts_known` says whether its prompts are
    those that the dataset was rendered from.
    """

    lock: Lock | None
    recipe: Recipe | None
    plan: Plan | None
    thresholds: Thresholds | None
    tokens: ClassTokens | None

    @property
    def judges(self) -> JudgePins:
        """What the lock pins of the classifiers that keep rules ask."""
        pins = self.lock.inputs.get("judges") if self.lock is not None else None
        return pins if isinstance(pins, Mapping) else {}

    @property
    def prompts_known(self) -> bool:
        return self.recipe is not None and (self.recipe.tokens is None or self.tokens is not None)


def read_described(directory: Path, found: Mapping[str, FileEntry], findings: Findings) -> Described:
    """Read recipe, lock, thresholds and tokens; what is wrong with each goes to `findings`."""
    lock = _lock(directory, findings)
    recipe = _recipe(directory, lock, findings)
    if recipe is None:
        findings.note(f"rows were not compared with the plan, which {RECIPE} does not give")
        return Described(lock, None, None, None, None)
    thresholds = _thresholds(directory, recipe, lock, findings)
    tokens = _tokens(directory, recipe, lock, found, findings)
    return Described(lock, recipe, make_plan(recipe, tokens.placeholders if tokens else None), thresholds, tokens)


def told(error: CounterfoilError, path: Path) -> str:
    """An error about a file, without the path that it begins with."""
    shown = "; ".join(error.problems[:_MOST_DIFFERENCES])
    for place in (f"{path} ", f"{path}: "):
        shown = shown.removeprefix(place)
    more = len(error.problems) - _MOST_DIFFERENCES
    return shown + (f"; and {more} more" if more > 0 else "")


def _lock(directory: Path, findings: Findings) -> Lock | None:
    path = directory / LOCK
    try:
        lock = read_lock(path.parent)
    except (CounterfoilError, OSError, RecursionError) as error:
        findings.add(LOCK, told(error, path) if isinstance(error, CounterfoilError) else f"cannot be read: {error}")
        return None
    if lock is None:
        findings.add(LOCK, "is missing")
        return None
    parts: dict[str, Any] = {name: getattr(lock, name) for name in (*HASHES, "hashes", "stack")}
    wrong = [name for name, part in parts.items() if not isinstance(part, Mapping)]
    wrong += [name for name in HASHES if not wrong and lock.hashes.get(name) != _hash(parts[name])]
    for name in wrong:
        findings.add(LOCK, f"is changed: what it says of '{name}' is not what its hash was taken of")
    return None if wrong else lock


def _hash(document: Any) -> str | None:
    try:
        return sha256_json(document)
    except ValueError:
        return None


def _recipe(directory: Path, lock: Lock | None, findings: Findings) -> Recipe | None:
    path = directory / RECIPE
    if not path.exists():
        findings.add(RECIPE, "is missing")
        return None
    try:
        recipe = load_own_recipe(directory)
        documents = {"plan": plan_inputs(recipe), "screen": screen_inputs(recipe)}
    except (CounterfoilError, OSError, ValueError, RecursionError) as error:
        findings.add(RECIPE, f"cannot be read: {told(error, path) if isinstance(error, CounterfoilError) else error}")
        return None
    lines: list[str] = []
    for name, document in documents.items() if lock is not None else ():
        here = json.loads(canonical_json(document))
        if lock is not None and lock.hashes[name] != sha256_json(here):
            lines += differences(getattr(lock, name), here) or [f"its {name} hash"]
    if lines:
        shown = "; ".join(lines[:_MOST_DIFFERENCES])
        findings.add(RECIPE, f"is not the recipe that {LOCK} was written for ({LOCK} there, {RECIPE} here): {shown}")
        return None
    plan = make_plan(recipe)
    groups = {shard.group: shard.of for shard in plan.shards}
    if lock is not None and list(lock.groups.items()) != list(groups.items()):
        findings.add(LOCK, "is changed: its groups and their shards are not those of the plan")
    return recipe


def _thresholds(directory: Path, recipe: Recipe, lock: Lock | None, findings: Findings) -> Thresholds | None:
    """The thresholds that the rows must have: of the recipe, and as measured where the lock pins that."""
    there: Thresholds | None = None
    known: Mapping[Measured, ThresholdEntry] = {}
    try:
        there = Thresholds.read(read_inside(directory, THRESHOLDS))
        pin = there.pin()
        if lock is not None and pin != lock.inputs.get("thresholds"):
            findings.add(THRESHOLDS, f"is changed: its measured thresholds are not those that {LOCK} pins")
        else:
            known = there.measured({shift.name: shift.object_caption for shift in recipe.all_shifts()})
    except FileNotFoundError:
        findings.add(THRESHOLDS, "is missing")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        there = None
        findings.add(THRESHOLDS, f"cannot be read: {type(error).__name__}: {error}")
    if needs_validation(recipe, known):
        if there is not None and not findings.is_damaged(THRESHOLDS):
            findings.add(THRESHOLDS, "lacks thresholds that the recipe takes of validation images")
        return None
    expected = resolve_thresholds(recipe, None, known)
    if there is not None and there.document() != expected.document():
        shown = differences(expected.document(), there.document())[:_MOST_DIFFERENCES]
        findings.add(THRESHOLDS, f"is not what the recipe says (“there”): {'; '.join(shown)}")
    return expected


def _tokens(
    directory: Path, recipe: Recipe, lock: Lock | None, found: Mapping[str, FileEntry], findings: Findings
) -> ClassTokens | None:
    """The class tokens, where every one is as the lock pins it."""
    if recipe.tokens is None:
        return None
    pins = (lock.inputs.get("tokens") if lock is not None else None) or {}
    sound = True
    for cls in recipe.classes:
        path = f"{TOKENS}/{cls.id}.safetensors"
        pinned = pins.get(cls.id) if isinstance(pins, Mapping) else None
        if path not in found:
            sound = False
            findings.add(path, "is missing")
        elif lock is not None and found[path].sha256 != pinned:
            sound = False
            if not findings.is_damaged(path):
                shown = f"sha256 {found[path].sha256[:12]}…, expected {str(pinned)[:12]}… by {LOCK}"
                findings.add(path, f"is changed: {shown}")
    if sound:
        try:
            return read_token_folder(recipe, directory / TOKENS)
        except CounterfoilError as error:
            findings.add(TOKENS, f"cannot be read: {told(error, directory / TOKENS)}")
    findings.note("prompts were not compared with the plan, since class tokens are damaged")
    return None
