"""Thresholds resolved to numbers: values as they stand, percentiles from the class's own validation images."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.errors import UserError
from counterfoil.recipe import object_caption_for

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe, ThresholdSpec

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Per shift and class id: {"value", "percentile", "n", "source"} for the object and for the shift.

    `source` is "recipe" for a given value and "validation" for a percentile; `n` the images behind it.
    """

    object: Mapping[str, Mapping[str, Entry]]
    shift: Mapping[str, Mapping[str, Entry]]

    def of(self, shift: str, class_id: str) -> tuple[float | None, float | None]:
        """Object and shift threshold of a cell; None where it is not screened."""
        entry = self.shift.get(shift, {}).get(class_id)
        return self.object[shift][class_id]["value"], None if entry is None else entry["value"]

    def document(self) -> dict[str, Any]:
        return {"object": _plain(self.object), "shift": _plain(self.shift)}

    def content(self) -> bytes:
        """thresholds.json as bytes."""
        return (json.dumps(self.document(), indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def read(cls, content: bytes) -> Thresholds:
        document = json.loads(content)
        return cls(document["object"], document["shift"])


def percentile_of(scores: np.ndarray, percentile: float) -> float:
    """The percentile of scores [n], linear between neighbours; float32, as scores are stored."""
    if scores.size == 0:
        raise ValueError("no scores to take a percentile of")
    return float(np.float32(np.percentile(scores.astype(np.float64), percentile, method="linear")))


def needs_validation(recipe: Recipe) -> bool:
    """Whether any threshold is a percentile, so that validation images must be read."""
    specs = [s for shift in recipe.all_shifts() for s in (shift.object_threshold, shift.threshold)]
    return any(spec is not None and spec.percentile is not None for spec in specs)


def resolve_thresholds(
    recipe: Recipe, validation_scores: Callable[[str], Mapping[str, np.ndarray]] | None
) -> Thresholds:
    """Every threshold as a number.

    `validation_scores(caption)` gives class id → cosines [n] between the class's own validation images and a
    caption that may hold `{class}`; it may be None where no threshold is a percentile.
    UserError for a class without validation images.
    """
    problems: list[str] = []
    objects: dict[str, dict[str, Entry]] = {}
    shifts: dict[str, dict[str, Entry]] = {}
    seen: dict[str, Mapping[str, np.ndarray]] = {}

    def entry(spec: ThresholdSpec, caption: str, class_id: str) -> Entry:
        if spec.value is not None:
            return {"value": float(np.float32(spec.value)), "percentile": None, "n": 0, "source": "recipe"}
        if validation_scores is None:
            raise ValueError("a percentile needs validation scores")
        if caption not in seen:
            seen[caption] = validation_scores(caption)
        scores = seen[caption].get(class_id, np.empty(0))
        if scores.size == 0:
            problems.append(f"class '{class_id}' has no validation image to take percentile {spec.percentile:g} of")
            return {"value": 0.0, "percentile": spec.percentile, "n": 0, "source": "validation"}
        value = percentile_of(scores, spec.percentile or 0.0)
        return {"value": value, "percentile": spec.percentile, "n": int(scores.size), "source": "validation"}

    for shift in recipe.all_shifts():
        chosen = [recipe.classes[label] for label in shift.class_labels]
        objects[shift.name] = {c.id: entry(shift.object_threshold, shift.object_caption, c.id) for c in chosen}
        if shift.caption is not None and shift.threshold is not None:
            shifts[shift.name] = {c.id: entry(shift.threshold, shift.caption, c.id) for c in chosen}
    if problems:
        raise UserError(
            sorted(set(problems)),
            "Give these classes validation images, drop them, or set screen.object_threshold by value.",
        )
    return Thresholds(objects, shifts)


def caption_texts(recipe: Recipe) -> tuple[str, ...]:
    """Every caption that the screen encodes, once, in order."""
    texts: dict[str, None] = {}
    for shift in recipe.all_shifts():
        for label in shift.class_labels:
            texts[object_caption_for(shift, recipe.classes[label])] = None
        if shift.caption is not None:
            texts[shift.caption] = None
    return tuple(texts)


def _plain(table: Mapping[str, Mapping[str, Entry]]) -> dict[str, dict[str, Entry]]:
    return {shift: {cls: dict(entry) for cls, entry in entries.items()} for shift, entries in table.items()}
