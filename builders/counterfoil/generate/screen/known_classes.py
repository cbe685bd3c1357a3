"""Measure whether the screening CLIP knows the classes.

The measurement asks which caption is nearest to each validation image of a class. The result is
reported and decides nothing, so it is in no hash. It is stored with measured thresholds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from counterfoil.arrays import AnyFloats, Floats
from counterfoil.models.config_files import is_integer
from counterfoil.recipe import Recipe
from counterfoil.stats import chance_line, wilson_interval

_ROWS_AT_ONCE = 1024  # rows of a matrix of images × captions in float64
_LONGEST_CAPTION = 10_000
_MOST_CLASSES = 1_000_000


@dataclass(frozen=True, slots=True)
class KnownClass:
    """The answers of CLIP to the `n` validation images of a class."""

    n: int
    right: int
    """The number of images that are nearer to the caption of their class than to every other
    caption. A tie does not count."""
    margin: float
    """The mean, over the images, of the cosine with the caption of the class minus the best cosine
    with another caption."""
    taken_for: str | None
    """The class whose caption is most often nearest to the wrong images, if there are any."""


@dataclass(frozen=True, slots=True)
class KnownClasses:
    """The answers of the screening model, which chooses among the object captions of `captions`
    classes."""

    caption: str
    """The object caption of the base, with `{class}`."""
    captions: int
    classes: Mapping[str, KnownClass]
    """The classes with validation images, by id."""

    @property
    def n(self) -> int:
        return sum(cls.n for cls in self.classes.values())

    @property
    def right(self) -> int:
        return sum(cls.right for cls in self.classes.values())

    @property
    def chance(self) -> float:
        """Return the accuracy of a guess among the captions."""
        return 1 / self.captions

    def is_near_chance(self, right: int, n: int) -> bool:
        """Return whether the 95 % confidence interval for `right` of `n` images begins near
        chance."""
        low, _ = wilson_interval(right, n)
        return low < chance_line(self.chance)

    def is_of(self, recipe: Recipe) -> bool:
        """Return whether the answers are about the classes and the captions of this recipe."""
        texts = own_captions(recipe)
        if self.caption != base_caption(recipe) or self.captions != len(texts):
            return False
        named: set[str | None] = set(self.classes)
        named.update(known.taken_for for known in self.classes.values())
        return named - {None} <= texts.keys()

    def document(self) -> dict[str, Any]:
        return {
            "caption": self.caption,
            "captions": self.captions,
            "n": self.n,
            "right": self.right,
            "classes": {class_id: asdict(known) for class_id, known in self.classes.items()},
        }

    @classmethod
    def read(cls, document: Any) -> KnownClasses:
        """Read a document, which may come from a stranger.

        Raise ValueError for a form that `document` does not write.
        """
        keys = {"caption", "captions", "n", "right", "classes"}
        if not isinstance(document, dict) or document.keys() != keys:
            raise ValueError("not thresholds: `known` does not have the expected form")
        caption = document["caption"]
        captions = document["captions"]
        classes = document["classes"]
        sound = isinstance(caption, str) and len(caption) <= _LONGEST_CAPTION
        sound = sound and is_integer(captions, 2, _MOST_CLASSES)
        sound = sound and isinstance(classes, dict) and 1 <= len(classes) <= captions
        sound = sound and all(_is_class(id, entry) for id, entry in classes.items())
        if not sound:
            raise ValueError("not thresholds: an entry of `known` does not have the expected form")
        answers = {class_id: KnownClass(**entry) for class_id, entry in classes.items()}
        known = cls(caption, captions, answers)
        if (document["n"], document["right"]) != (known.n, known.right):
            raise ValueError("not thresholds: the counts of `known` do not add up")
        return known


def base_caption(recipe: Recipe) -> str:
    """Return the object caption of the base, with `{class}`."""
    return recipe.all_shifts()[0].object_caption


def own_captions(recipe: Recipe) -> dict[str, str]:
    """Return class id → object caption.

    Classes are left out if the caption uses a parent or a category that they do not have.
    """
    caption = base_caption(recipe)
    return {cls.id: cls.text(caption) for cls in recipe.classes if cls.has_words_for(caption)}


def known_classes(
    caption: str,
    texts: Mapping[str, str],
    captions: AnyFloats,
    images: Mapping[str, AnyFloats],
) -> KnownClasses | None:
    """Measure which classes CLIP knows. Return None if there are fewer than two classes, or no
    images.

    texts: class id → the caption of the class. captions: the unit embeddings of these captions in
    the same order, [classes, width]. images: class id → the embeddings of the validation images,
    [n, width], for some or all classes.
    """
    seen = [class_id for class_id in texts if len(images.get(class_id, ()))]
    if len(texts) < 2 or not seen:
        return None
    # Classes with the same name share a caption and a column, so that their scores are equal to the
    # last bit.
    column_of: dict[str, int] = {}
    named: list[list[str]] = []
    first = []
    for index, (class_id, text) in enumerate(texts.items()):
        if text not in column_of:
            column_of[text] = len(named)
            named.append([])
            first.append(index)
        named[column_of[text]].append(class_id)
    different = captions[first].astype(np.float64)
    classes = {}
    for class_id in seen:
        column = column_of[texts[class_id]]
        classes[class_id] = _known(class_id, column, images[class_id], different, named)
    return KnownClasses(caption, len(texts), classes)


def _known(
    class_id: str,
    column: int,
    images: AnyFloats,
    captions: Floats,
    named: Sequence[Sequence[str]],
) -> KnownClass:
    """Return the answers to the images of a class.

    `named` holds, for each caption, the ids of the classes that share it.
    """
    margins: list[Floats] = []
    taken = np.zeros(len(named), dtype=np.int64)
    for start in range(0, len(images), _ROWS_AT_ONCE):
        # Compare in float32, because scores are stored as float32. So equal stored scores are a tie
        # here too.
        batch = images[start : start + _ROWS_AT_ONCE].astype(np.float64)
        cosines = batch @ captions.T
        scores = cosines.astype(np.float32)
        own_score = scores[:, column].astype(np.float64)
        if len(named[column]) == 1:
            scores[:, column] = -np.inf
        best = scores.argmax(axis=1)
        best_score = scores[np.arange(len(scores)), best]
        margin = own_score - best_score.astype(np.float64)
        np.add.at(taken, best[margin <= 0], 1)
        margins.append(margin)
    every = np.concatenate(margins)
    right = int((every > 0).sum())
    taken_for = None
    if right < len(every):
        most_taken = named[int(taken.argmax())]
        taken_for = next(other for other in most_taken if other != class_id)
    # Round, because the last bits of a sum depend on the machine.
    mean_margin = round(float(every.mean()), 6)
    return KnownClass(len(every), right, mean_margin, taken_for)


def _is_class(class_id: str, entry: Any) -> bool:
    if not isinstance(entry, dict) or entry.keys() != {"n", "right", "margin", "taken_for"}:
        return False
    n = entry["n"]
    right = entry["right"]
    margin = entry["margin"]
    if not is_integer(n, 1, 2**53) or not is_integer(right, 0, n):
        return False
    # rounded cosines, no NaN
    if type(margin) not in (int, float) or not -2.001 <= margin <= 2.001:
        return False
    taken_for = entry["taken_for"]
    if right < n:
        return isinstance(taken_for, str) and taken_for != class_id
    return taken_for is None
