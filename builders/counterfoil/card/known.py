"""What the card says of whether CLIP knows the classes, from thresholds.json, which anybody may have written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.screen import ScreenDoubts, Thresholds, screen_doubts
from counterfoil.screen.known_classes import KnownClasses
from counterfoil.stats import wilson_interval

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe


@dataclass(frozen=True, slots=True)
class KnownRow:
    """The zero-shot answers over all validation images: shares from 0 to 1, and the caption with `{class}`."""

    caption: str
    captions: int
    n: int
    accuracy: float
    low: float
    high: float
    chance: float


def known_of(recipe: Recipe, document: Mapping[str, Any]) -> tuple[KnownRow | None, ScreenDoubts | None]:
    """What was measured, and what speaks against the screen. `document` is thresholds.json, empty where absent."""
    read = KnownClasses.read(document["known"]) if "known" in document else None
    thresholds = Thresholds(document.get("object", {}), document.get("shift", {})).with_known(read, recipe)
    known, doubts = thresholds.known, screen_doubts(recipe, thresholds)
    if known is None:
        return None, doubts
    low, high = wilson_interval(known.right, known.n)
    return KnownRow(known.caption, known.captions, known.n, known.right / known.n, low, high, known.chance), doubts
