"""Kind `rows` without `rows`: images of a folder or table that were drawn elsewhere, as its columns
describe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from counterfoil.recipe.kinds.kind import KindInputs
from counterfoil.recipe.kinds.rows import RowsKind
from counterfoil.recipe.messages import message
from counterfoil.recipe.names import without_folders
from counterfoil.recipe.section import written_keys

if TYPE_CHECKING:
    from counterfoil.recipe.prompts import Shift
    from counterfoil.recipe.schema import Recipe


class DrawnElsewhereKind(RowsKind):
    """Images that are given with class and shift, and perhaps with prompt, seed and index."""

    key = "drawn_elsewhere"
    drawn_elsewhere = True
    table = "given"
    counts_rows = True
    fewer_rows = True
    prompted = False
    noiseless = False
    holds = "images drawn elsewhere"
    names_pool = True
    meanings: ClassVar[Mapping[str, str]] = {
        "prompt": "Prompt that the image was given with; empty if unknown.",
        "seed": "Seed that the image was given with; -1 if unknown.",
    }

    def problem(self) -> str | None:
        if self.dataset is None:
            return super().problem()
        return message("wrong-kind.labels") if written_keys(self, ("labels",)) else None

    @property
    def reads_labels(self) -> bool:
        return False

    def inputs(self, recipe: Recipe, pinned: Mapping[str, Any]) -> KindInputs:
        # The one input of rows is their pool, which here holds the images.
        ((_, _, images),) = super().inputs(recipe, pinned)
        return [("drawn images", without_folders(self.dataset or ""), images)]

    @classmethod
    def made_by(cls, shift: Shift) -> str:
        return "drawn elsewhere" if shift.prompt is None else super().made_by(shift)
