"""Thresholds resolved to numbers: values as they stand, percentiles from the class's own validation images.

A shift's percentile is over all candidates of the shift, so it has no number while they are being made: such
a shift is open.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.errors import RunFailure, UserError
from counterfoil.generate.screen.known_classes import KnownClasses
from counterfoil.recipe import sha256_json
from counterfoil.recipe.keep import OBJECT, SHIFT
from counterfoil.store.inside import read_inside
from counterfoil.store.layout import THRESHOLDS

if TYPE_CHECKING:
    from counterfoil.recipe import ObjectThresholdSpec, Recipe, Shift


ThresholdEntry = dict[str, Any]
# Object caption (with `{class}`), class id and percentile: all that a measured threshold depends on in a recipe.
Measured = tuple[str, str, float]

FROM_RECIPE = "recipe"
FROM_VALIDATION = "validation"
FROM_CANDIDATES = "candidates"


@dataclass(frozen=True, slots=True, order=True)
class FewImages:
    """A class with fewer validation images than its percentile needs to be more than their extreme."""

    class_id: str
    percentile: float
    n: int
    needs: int

    def __str__(self) -> str:
        images = "1 validation image" if self.n == 1 else f"{self.n} validation images"
        return f"class '{self.class_id}': percentile {self.percentile:g} of {images}, needs {self.needs}"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Per shift and class id: {"value", "percentile", "n", "source"} for the object and for the shift.

    `value` is None too where nothing is screened.
    `source` is "recipe" for a given value, "validation" for a percentile of validation images, and "candidates"
    for a percentile of candidates, whose `value` is None: the shift is open. `n` are the images behind a value;
    "needs" stands beside it where they are fewer than the percentile needs. `known` is what CLIP made of the same
    validation images; None where no percentile was taken, or by a version that did not ask.
    """

    object: Mapping[str, Mapping[str, ThresholdEntry]]
    shift: Mapping[str, Mapping[str, ThresholdEntry]]
    known: KnownClasses | None = None

    def of(self, shift: str, class_id: str) -> dict[str, float | None]:
        """Return the thresholds of a cell by score; None if not screened, or open."""
        entry = self.shift.get(shift, {}).get(class_id)
        return {OBJECT: self.object[shift][class_id]["value"], SHIFT: None if entry is None else entry["value"]}

    def is_open(self, shift: str) -> bool:
        """Return whether the shift's threshold is not chosen yet."""
        return any(entry["source"] == FROM_CANDIDATES for entry in self.shift.get(shift, {}).values())

    def few_images(self) -> tuple[FewImages, ...]:
        """Return the classes whose percentile is over fewer validation images than it needs."""
        found = {
            FewImages(class_id, entry["percentile"], entry["n"], entry["needs"])
            for entries in self.object.values()
            for class_id, entry in entries.items()
            if "needs" in entry
        }
        return tuple(sorted(found))

    def measured(self, captions: Mapping[str, str]) -> dict[Measured, ThresholdEntry]:
        """Return the measured entries; `captions` are the object captions by shift."""
        return {
            (captions[shift], class_id, entry["percentile"]): entry
            for shift, class_id, entry in self._measured()
            if shift in captions
        }

    def with_known(self, known: KnownClasses | None, recipe: Recipe) -> Thresholds:
        """Return the thresholds with the known classes, if any threshold was measured."""
        true = known is not None and self.pin() is not None and known.is_of(recipe)
        return replace(self, known=known if true else None)

    def pin(self) -> dict[str, str] | None:
        """Return what the inputs pin: the measured thresholds alone, since the others stand in the recipe.

        Nothing is decided by what is `known`, which a directory of an earlier version lacks.
        """
        found: dict[str, dict[str, ThresholdEntry]] = {}
        for shift, class_id, entry in self._measured():
            found.setdefault(shift, {})[class_id] = entry
        return {"sha256": sha256_json(found)} if found else None

    def document(self) -> dict[str, Any]:
        known = {} if self.known is None else {"known": self.known.document()}
        return {"object": _plain(self.object), "shift": _plain(self.shift), **known}

    def content(self) -> bytes:
        return (json.dumps(self.document(), indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def read(cls, content: bytes) -> Thresholds:
        """Read thresholds.json. ValueError for another form."""
        try:
            document = json.loads(content)
            tables = [document[name] for name in ("object", "shift")]
            sound = all(_is_entry(entry) for table in tables for of in table.values() for entry in of.values())
            known = KnownClasses.read(document["known"]) if "known" in document else None
        except (RecursionError, OverflowError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not thresholds: {type(error).__name__}") from None
        if not sound:
            raise ValueError("not thresholds: an entry does not have the expected form")
        return cls(tables[0], tables[1], known)

    def _measured(self) -> Iterator[tuple[str, str, ThresholdEntry]]:
        for shift, entries in self.object.items():
            for class_id, entry in entries.items():
                if entry["source"] == FROM_VALIDATION:
                    yield shift, class_id, entry


def percentile_of(scores: np.ndarray, percentile: float) -> float:
    """Return the percentile of scores [n], linear between neighbours; float32, as scores are stored."""
    if scores.size == 0:
        raise ValueError("no scores to take a percentile of")
    return float(np.float32(np.percentile(scores.astype(np.float64), percentile, method="linear")))


def images_needed(percentile: float) -> int:
    """Return the images of which a percentile says more than their least or greatest: 20 for percentile 5.

    One is enough for percentiles 0 and 100, which ask for the least and the greatest.
    """
    tail = min(percentile, 100.0 - percentile)
    # 100 / 2.2 must not become one more by the last bit of a float.
    return 1 if tail <= 0 else max(1, math.ceil(100.0 / tail - 1e-9))


def open_shifts(recipe: Recipe) -> tuple[str, ...]:
    """Return the shifts whose threshold is a percentile over their candidates, in the recipe's order."""
    return tuple(shift.name for shift in recipe.all_shifts() if _is_open(shift))


def needs_validation(recipe: Recipe, known: Iterable[Measured] = ()) -> bool:
    """Return whether a percentile that is not `known` needs validation images."""
    there = set(known)
    return any(
        (shift.object_caption, recipe.classes[label].id, shift.object_threshold.percentile) not in there
        for shift in recipe.all_shifts()
        if shift.object_threshold.percentile is not None
        for label in shift.class_labels
        if shift.object_threshold.of_class(recipe.classes[label].id) is None
    )


def resolve_thresholds(
    recipe: Recipe,
    validation_scores: Callable[[str], Mapping[str, np.ndarray]] | None,
    known: Mapping[Measured, ThresholdEntry] | None = None,
) -> Thresholds:
    """Return every threshold as a number, but for open shifts.

    `validation_scores(caption)` gives class id → cosines [n] between the class's own validation images and a
    caption that may hold `{class}`; it may be None where every object percentile is `known`, measured before.
    UserError for a class without validation images.
    """
    problems: list[str] = []
    objects: dict[str, dict[str, ThresholdEntry]] = {}
    shifts: dict[str, dict[str, ThresholdEntry]] = {}
    seen: dict[str, Mapping[str, np.ndarray]] = {}
    known = known or {}

    def object_entry(spec: ObjectThresholdSpec, caption: str, class_id: str) -> ThresholdEntry:
        own = spec.of_class(class_id)
        if own is not None or spec.percentile is None:
            return _given(None if recipe.screen.model is None else spec.value if own is None else own)
        if (caption, class_id, spec.percentile) in known:
            return dict(known[caption, class_id, spec.percentile])
        if validation_scores is None:
            raise ValueError("a percentile needs validation scores")
        if caption not in seen:
            seen[caption] = validation_scores(caption)
        scores = seen[caption].get(class_id, np.empty(0))
        if scores.size == 0:
            problems.append(f"class '{class_id}' has no validation image to take percentile {spec.percentile:g} of")
            return _entry(0.0, spec.percentile, 0, FROM_VALIDATION)
        entry = _entry(percentile_of(scores, spec.percentile), spec.percentile, int(scores.size), FROM_VALIDATION)
        needs = images_needed(spec.percentile)
        return entry if scores.size >= needs else entry | {"needs": needs}

    for shift in recipe.all_shifts():
        chosen = [recipe.classes[label] for label in shift.class_labels]
        objects[shift.name] = {c.id: object_entry(shift.object_threshold, shift.object_caption, c.id) for c in chosen}
        if shift.caption is not None and shift.threshold is not None:
            entry = _entry(None, shift.threshold.percentile, 0, FROM_CANDIDATES) if _is_open(shift) else None
            shifts[shift.name] = {c.id: entry or _given(shift.threshold.value) for c in chosen}
    if problems:
        raise UserError(
            sorted(set(problems)),
            "Give these classes validation images, drop them, or set screen.object_threshold by value.",
        )
    return Thresholds(objects, shifts)


def _is_open(shift: Shift) -> bool:
    return shift.caption is not None and shift.threshold is not None and shift.threshold.percentile is not None


def _given(value: float | None) -> ThresholdEntry:
    return _entry(None if value is None else float(np.float32(value)), None, 0, FROM_RECIPE)


def _entry(value: float | None, percentile: float | None, n: int, source: str) -> ThresholdEntry:
    return {"value": value, "percentile": percentile, "n": n, "source": source}


def _is_entry(entry: Any) -> bool:

    def is_number(value: Any) -> bool:
        return value is None or (type(value) in (int, float) and math.isfinite(value))

    return (
        isinstance(entry, dict)
        and {"value", "percentile", "n", "source"} <= entry.keys() <= {"value", "percentile", "n", "source", "needs"}
        and is_number(entry["value"])
        and is_number(entry["percentile"])
        and type(entry["n"]) is int
        and isinstance(entry["source"], str)
        # What is said of too few images tells the percentile too.
        and ("needs" not in entry or (type(entry["needs"]) is int and entry["percentile"] is not None))
    )


def _plain(table: Mapping[str, Mapping[str, ThresholdEntry]]) -> dict[str, dict[str, ThresholdEntry]]:
    return {shift: {cls: dict(entry) for cls, entry in entries.items()} for shift, entries in table.items()}


def stored_thresholds(directory: Path) -> Thresholds | None:
    """Return the thresholds that a directory holds; None where it has no file of them.

    RunFailure for a file that cannot be read or is not of the form that is written.
    """
    hint = "It cannot be rebuilt: restore it from a copy, such as the published dataset."
    try:
        return Thresholds.read(read_inside(directory, THRESHOLDS))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunFailure(f"{directory / THRESHOLDS} cannot be read: {error.strerror}", hint) from error
    except ValueError as error:
        raise RunFailure(f"{directory / THRESHOLDS} is damaged: {error}", hint) from error
