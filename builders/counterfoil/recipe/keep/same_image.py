"""Keep edits whose CLIP embedding is close to the embedding of the edited row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from counterfoil.recipe.keep.rule import Column, KeepRule, Verdict, as_stored

if TYPE_CHECKING:
    import numpy as np

SOURCE_SIMILARITY = "source_similarity"


class SameImageRule(KeepRule):
    """Keep edits that still resemble the image that was edited. Without a setting, it only
    measures.

    The base is an edit too, under the base's prompt: what it loses is due to editing, not to a
    shift.
    """

    reasons = ("other_image",)
    # The screen's CLIP fills this column, and no pixels are measured.
    measures: ClassVar[Mapping[str, tuple[float, float]]] = {SOURCE_SIMILARITY: (-1, 1)}
    compares = True

    similarity: float | None = Field(default=None, ge=-1, le=1)
    """Lowest cosine of the image and its row in the screen's CLIP; null: only measured."""

    def scores(self) -> tuple[str, ...]:
        return (SOURCE_SIMILARITY,)

    def columns(self) -> dict[str, Column]:
        description = (
            "Cosine of the image and the prepared row that it is an edit of, in the screen's CLIP."
        )
        return {SOURCE_SIMILARITY: Column("float32", description)}

    def reason_of(self, verdict: Verdict) -> str | None:
        cosine = verdict.scores.get(SOURCE_SIMILARITY)
        # A candidate without a cosine is not dropped.
        if self.similarity is None or cosine is None:
            return None
        return "other_image" if cosine < as_stored(self.similarity) else None


def similarity(image: np.ndarray, source: np.ndarray) -> float:
    """Return the cosine of two unit embeddings [width], summed in float64, as a float32 number from
    -1 to 1."""
    import numpy as np

    cosine = np.float32(image.astype(np.float64) @ source.astype(np.float64))
    return float(np.clip(cosine, -1, 1))
