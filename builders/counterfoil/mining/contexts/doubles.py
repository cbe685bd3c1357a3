"""Which contexts of a class say the same as an earlier one: by their words, and by what CLIP makes of them. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

_WORD = re.compile(r"[^\W_]+")
_ARTICLES = frozenset({"a", "an", "the"})
# How far from 1 the length of a unit vector in float32 may be.
_UNIT = 1e-3


@dataclass(frozen=True, slots=True)
class Double:
    """The context at `place` was dropped for the one at `kept`, by its words or by the cosine of the two."""

    place: int
    kept: int
    why: Literal["words", "similarity"]
    cosine: float | None = None


class Distinct(NamedTuple):
    """Places of what stays, in order, and what was dropped for which."""

    kept: tuple[int, ...]
    doubles: tuple[Double, ...]


def same_words(text: str) -> str:
    """The normal form of a text: contexts of one form are one. Case, punctuation and articles are nothing in it."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("'", "").replace("’", "")
    words = _WORD.findall(folded)
    plain = [word for word in words if word not in _ARTICLES]
    return " ".join(plain or words)


def without_same_words(contexts: Sequence[str]) -> Distinct:
    """The contexts without those whose words an earlier one has; the first one stays."""
    first: dict[str, int] = {}
    doubles = []
    for place, text in enumerate(contexts):
        kept = first.setdefault(same_words(text), place)
        if kept != place:
            doubles.append(Double(place, kept, "words"))
    return Distinct(tuple(first.values()), tuple(doubles))


def without_doubles(contexts: Sequence[str], vectors: NDArray[np.floating], similarity: float) -> Distinct:
    """The contexts without those that say what an earlier one says; the first one stays.

    vectors: (n, d), CLIP's unit vectors of the contexts' captions. A context is dropped for the first one that stays
    and has its words, or else for the nearest one that stays, where their cosine is above `similarity`: chains of
    neighbours do not fall together. Raises ValueError for vectors that are not n, not finite or not of unit length.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or len(rows) != len(contexts):
        raise ValueError(f"{len(contexts)} contexts and vectors of shape {rows.shape}")
    if not np.isfinite(rows).all() or np.any(np.abs(np.linalg.norm(rows, axis=1) - 1) > _UNIT):
        raise ValueError("vectors of contexts that are not finite and of unit length")
    by_words = without_same_words(contexts)
    doubles, kept = list(by_words.doubles), []
    for place in by_words.kept:
        cosines = rows[kept] @ rows[place] if kept else np.zeros(0)
        nearest = int(cosines.argmax()) if kept else 0
        if kept and cosines[nearest] > similarity:
            doubles.append(Double(place, kept[nearest], "similarity", float(cosines[nearest])))
        else:
            kept.append(place)
    # What has the words of one that was dropped is dropped for what that one was dropped for.
    standing = {double.place: double.kept for double in doubles if double.why == "similarity"}
    final = (
        Double(double.place, standing.get(double.kept, double.kept), double.why, double.cosine) for double in doubles
    )
    return Distinct(tuple(kept), tuple(sorted(final, key=lambda double: double.place)))
