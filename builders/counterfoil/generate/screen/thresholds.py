"""Resolve thresholds to numbers, which are given values or percentiles over the validation images
of a class.

The percentile of a shift score is over all candidates of the shift. It has no number until these
candidates are made, and until then the shift is called open.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.documents import parse_json, sha256_json
from counterfoil.errors import RunFailure, UserError
from counterfoil.generate.screen.known_classes import KnownClasses
from counterfoil.recipe import ObjectThresholdSpec, Recipe
from counterfoil.recipe.keep.rule import OBJECT, SHIFT
from counterfoil.store.inside import read_inside
from counterfoil.store.layout import THRESHOLDS

ThresholdEntry = dict[str, Any]
# A `Measured` is everything in a recipe on which a measured threshold depends: the object caption
# (with `{class}`), the class id and the percentile.
Measured = tuple[str, str, float]

FROM_RECIPE = "recipe"
FROM_VALIDATION = "validation"
FROM_CANDIDATES = "candidates"


@dataclass(frozen=True, slots=True, order=True)
class FewImages:
    """A class with too few validation images for its percentile.

    With fewer than `needs` images, the percentile is hardly more than the minimum or maximum of
    their scores.
    """

    class_id: str
    percentile: float
    n: int
    needs: int

    def __str__(self) -> str:
        images = "1 validation image" if self.n == 1 else f"{self.n} validation images"
        return (
            f"class '{self.class_id}': percentile {self.percentile:g} of {images}, needs"
            f" {self.needs}"
        )


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The object threshold and the shift threshold for each shift and class id.

    Each entry is {"value", "percentile", "n", "source"}. The source is "recipe" for a given value,
    "validation" for a percentile of `n` validation images, and "candidates" for an open shift. The
    value is None for an open shift, and if there is no screen. An entry also has "needs" if its
    percentile needs more images than `n`. known: the answers of CLIP to the same images, or None if
    no percentile was measured.
    """

    object: Mapping[str, Mapping[str, ThresholdEntry]]
    shift: Mapping[str, Mapping[str, ThresholdEntry]]
    known: KnownClasses | None = None

    def of(self, shift: str, class_id: str) -> dict[str, float | None]:
        """Return the thresholds of a cell by score. A threshold is None if it is open or if there
        is no screen."""
        entry = self.shift.get(shift, {}).get(class_id)
        return {
            OBJECT: self.object[shift][class_id]["value"],
            SHIFT: None if entry is None else entry["value"],
        }

    def is_open(self, shift: str) -> bool:
        """Return whether the threshold of the shift is still to be chosen."""
        entries = self.shift.get(shift, {}).values()
        return any(entry["source"] == FROM_CANDIDATES for entry in entries)

    def few_images(self) -> tuple[FewImages, ...]:
        """Return the classes whose percentile is over fewer validation images than it needs."""
        classes = set()
        for entries in self.object.values():
            for class_id, entry in entries.items():
                if "needs" in entry:
                    few = FewImages(class_id, entry["percentile"], entry["n"], entry["needs"])
                    classes.add(few)
        return tuple(sorted(classes))

    def measured(self, captions: Mapping[str, str]) -> dict[Measured, ThresholdEntry]:
        """Return the measured entries. `captions` holds the object captions by shift."""
        measured = {}
        for shift, class_id, entry in self._measured():
            if shift in captions:
                measured[captions[shift], class_id, entry["percentile"]] = entry
        return measured

    def with_known(self, known: KnownClasses | None, recipe: Recipe) -> Thresholds:
        """Return the thresholds with the known classes, if any threshold was measured."""
        fits = known is not None and self.pin() is not None and known.is_of(recipe)
        return replace(self, known=known if fits else None)

    def pin(self) -> dict[str, str] | None:
        """Return the hash of the measured thresholds, as a pin among the inputs.

        The other thresholds need no pin, because the recipe has them.
        """
        measured: dict[str, dict[str, ThresholdEntry]] = {}
        for shift, class_id, entry in self._measured():
            measured.setdefault(shift, {})[class_id] = entry
        return {"sha256": sha256_json(measured)} if measured else None

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = {"object": self.object, "shift": self.shift}
        if self.known is not None:
            document["known"] = self.known.document()
        return document

    def content(self) -> bytes:
        text = json.dumps(self.document(), indent=1, sort_keys=True)
        return f"{text}\n".encode()

    @classmethod
    def read(cls, content: bytes) -> Thresholds:
        """Read the content of thresholds.json. Raise ValueError for another form."""
        try:
            document = parse_json(content)
            tables = [document["object"], document["shift"]]
            sound = True
            for table in tables:
                for entries in table.values():
                    sound &= all(map(_is_entry, entries.values()))
            known = None
            if "known" in document:
                known = KnownClasses.read(document["known"])
        except (OverflowError, TypeError, KeyError, AttributeError) as error:
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
    """Return the percentile of scores [n], with linear interpolation between neighbours.

    The result is rounded to float32, because scores are stored as float32.
    """
    if scores.size == 0:
        raise ValueError("no scores to take a percentile of")
    value = np.percentile(scores.astype(np.float64), percentile, method="linear")
    return float(np.float32(value))


def images_needed(percentile: float) -> int:
    """Return the number of images with which a percentile is more than their minimum or maximum.

    Percentile 5 needs 20 images.
    """
    tail = min(percentile, 100.0 - percentile)
    if tail <= 0:
        return 1
    # The last bit of 100 / 2.2 must not add an image.
    return max(1, math.ceil(100.0 / tail - 1e-9))


def open_shifts(recipe: Recipe) -> tuple[str, ...]:
    """Return the shifts whose threshold is a percentile over their candidates, in the recipe's
    order."""
    names = []
    for shift in recipe.all_shifts():
        threshold = shift.threshold
        if shift.caption is None or threshold is None:
            continue
        if threshold.percentile is not None:
            names.append(shift.name)
    return tuple(names)


def needs_validation(recipe: Recipe, known: Iterable[Measured] = ()) -> bool:
    """Return whether a percentile that is not `known` needs validation images."""
    measured = set(known)
    for shift in recipe.all_shifts():
        spec = shift.object_threshold
        if spec.percentile is None:
            continue
        for label in shift.class_labels:
            class_id = recipe.classes[label].id
            key = (shift.object_caption, class_id, spec.percentile)
            if spec.of_class(class_id) is None and key not in measured:
                return True
    return False


def resolve_thresholds(
    recipe: Recipe,
    validation_scores: Callable[[str], Mapping[str, np.ndarray]] | None,
    known: Mapping[Measured, ThresholdEntry] | None = None,
) -> Thresholds:
    """Return every threshold as a number, except the thresholds of open shifts.

    validation_scores: a function that takes a caption, which may contain `{class}`, and returns for
    each class id the cosines [n] of the class's own validation images. It is needed only for object
    percentiles that are not `known`. Raise UserError for a class without validation images.
    """
    problems: list[str] = []
    objects: dict[str, dict[str, ThresholdEntry]] = {}
    shifts: dict[str, dict[str, ThresholdEntry]] = {}
    scores_of: dict[str, Mapping[str, np.ndarray]] = {}
    known = known or {}

    def object_entry(spec: ObjectThresholdSpec, caption: str, class_id: str) -> ThresholdEntry:
        percentile = spec.percentile
        value = spec.of_class(class_id)
        if value is not None or percentile is None:
            if value is None:
                value = spec.value
            return _given(None if recipe.screen.model is None else value)
        key = (caption, class_id, percentile)
        if key in known:
            return dict(known[key])
        if validation_scores is None:
            raise ValueError("a percentile needs validation scores")
        if caption not in scores_of:
            scores_of[caption] = validation_scores(caption)
        scores = scores_of[caption].get(class_id, np.empty(0))
        n = scores.size
        if n == 0:
            problems.append(
                f"class '{class_id}' has no validation image to take percentile {percentile:g} of"
            )
            return _entry(0.0, percentile, 0, FROM_VALIDATION)
        value = percentile_of(scores, percentile)
        entry = _entry(value, percentile, n, FROM_VALIDATION)
        needs = images_needed(percentile)
        if n < needs:
            entry["needs"] = needs
        return entry

    for shift in recipe.all_shifts():
        class_ids = [recipe.classes[label].id for label in shift.class_labels]
        of_class = {}
        for class_id in class_ids:
            entry = object_entry(shift.object_threshold, shift.object_caption, class_id)
            of_class[class_id] = entry
        objects[shift.name] = of_class
        threshold = shift.threshold
        if shift.caption is not None and threshold is not None:
            entry = _given(threshold.value)
            if threshold.percentile is not None:
                entry = _entry(None, threshold.percentile, 0, FROM_CANDIDATES)
            shifts[shift.name] = dict.fromkeys(class_ids, entry)
    if problems:
        hint = (
            "Give these classes validation images, drop them, or set screen.object_threshold by"
            " value."
        )
        raise UserError(sorted(set(problems)), hint)
    return Thresholds(objects, shifts)


def _given(value: float | None) -> ThresholdEntry:
    if value is not None:
        value = float(np.float32(value))
    return _entry(value, None, 0, FROM_RECIPE)


def _entry(value: float | None, percentile: float | None, n: int, source: str) -> ThresholdEntry:
    return {"value": value, "percentile": percentile, "n": n, "source": source}


def _is_entry(entry: Any) -> bool:
    keys = {"value", "percentile", "n", "source"}
    if not isinstance(entry, dict) or entry.keys() - {"needs"} != keys:
        return False
    percentile = entry["percentile"]
    for number in (entry["value"], percentile):
        if number is None:
            continue
        if type(number) not in (int, float) or not math.isfinite(number):
            return False
    if "needs" in entry and (type(entry["needs"]) is not int or percentile is None):
        return False
    return type(entry["n"]) is int and isinstance(entry["source"], str)


def stored_thresholds(directory: Path) -> Thresholds | None:
    """Return the thresholds of a directory, or None if it has none.

    Raise RunFailure if their file cannot be read or has another form.
    """
    path = directory / THRESHOLDS
    hint = "It cannot be rebuilt: restore it from a copy, such as the published dataset."
    try:
        return Thresholds.read(read_inside(directory, THRESHOLDS))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunFailure(f"{path} cannot be read: {error.strerror}", hint) from error
    except ValueError as error:
        raise RunFailure(f"{path} is damaged: {error}", hint) from error
