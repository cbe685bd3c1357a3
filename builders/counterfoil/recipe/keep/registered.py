"""Keep edits that show everything where the edited row shows it: editors move and zoom pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from counterfoil.recipe.keep.rule import Column, KeepRule, Verdict, as_stored

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRANSLATION_X = "translation_x"
TRANSLATION_Y = "translation_y"
ZOOM = "zoom"
CONFIDENCE = "registration_confidence"
# The bounds of what `registration.register` gives: 30 % of a side and a pixel of its own, and the
# zooms that it tries.
_TRANSLATIONS = (-0.31, 0.31)
_ZOOMS = (0.68, 1.43)


class RegisteredRule(KeepRule):
    """Keep edits that are registered with their row within limits. Without a setting, it only
    measures.

    With a limit, an edit whose registration is not known is dropped too.
    """

    reasons = ("not_registered", "moved", "zoomed")
    measures: ClassVar[Mapping[str, tuple[float, float]]] = {
        TRANSLATION_X: _TRANSLATIONS,
        TRANSLATION_Y: _TRANSLATIONS,
        ZOOM: _ZOOMS,
        CONFIDENCE: (0, 1),
    }
    may_lack = (TRANSLATION_X, TRANSLATION_Y, ZOOM)
    compares = True

    translation: float | None = Field(default=None, ge=0, le=0.3)
    """Largest translation, as a share of the width or the height; null: only measured."""
    zoom: float | None = Field(default=None, ge=1, le=1.4)
    """Largest zoom in either direction: 1.05 keeps 1/1.05 to 1.05; null: only measured."""

    def scores(self) -> tuple[str, ...]:
        return tuple(self.measures)

    def columns(self) -> dict[str, Column]:
        unknown = "empty if the registration is not known"
        return {
            TRANSLATION_X: Column(
                "float32",
                f"How far the edit moved its row to the right, as a share of the width; {unknown}.",
            ),
            TRANSLATION_Y: Column(
                "float32", f"How far it moved the row down, as a share of the height; {unknown}."
            ),
            ZOOM: Column(
                "float32",
                f"How many times as large it shows the row, about the middle; {unknown}.",
            ),
            CONFIDENCE: Column(
                "float32",
                "How clearly one registration of the edit and its row fits best, from 0 to 1.",
            ),
        }

    def measure_against(self, pixels: NDArray[Any], original: NDArray[Any]) -> dict[str, float]:
        from counterfoil.registration import register

        registration = register(pixels, original)
        # The last bits of a Fourier transform differ between processors.
        columns = {CONFIDENCE: as_stored(round(registration.confidence, 4))}
        if registration.known:
            columns[TRANSLATION_X] = as_stored(round(registration.right, 4))
            columns[TRANSLATION_Y] = as_stored(round(registration.down, 4))
            columns[ZOOM] = as_stored(round(registration.zoom, 4))
        return columns

    def reason_of(self, verdict: Verdict) -> str | None:
        if self.translation is None and self.zoom is None:
            return None
        right = verdict.scores.get(TRANSLATION_X)
        down = verdict.scores.get(TRANSLATION_Y)
        zoom = verdict.scores.get(ZOOM)
        if right is None or down is None or zoom is None:
            return "not_registered"
        if self.translation is not None:
            farthest = as_stored(self.translation)
            if max(abs(right), abs(down)) > farthest:
                return "moved"
        if self.zoom is not None:
            largest = as_stored(self.zoom)
            if zoom > largest or zoom < as_stored(1 / self.zoom):
                return "zoomed"
        return None


def least_iou(side: float, translation: float, zoom: float) -> float:
    """Return the smallest IoU of a square box in a square image and of its object, once the edit
    moved by `translation` in both directions and zoomed by `zoom`.

    side: of the box, as a share of the image's. The box lies in a corner, where a zoom moves most.
    """
    ious = []
    for factor in (zoom, 1 / zoom):
        moved = translation + abs(factor - 1) * (1 - side) / 2
        of_object = side * factor
        overlap = max(0.0, min(side, of_object, (side + of_object) / 2 - moved))
        common = overlap**2
        ious.append(common / (side**2 + of_object**2 - common))
    return min(ious)
