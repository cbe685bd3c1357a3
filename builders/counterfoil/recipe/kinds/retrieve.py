"""Kind `retrieve`: the rows of a pool that a CLIP ranks nearest to each prompt, each row once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from counterfoil.recipe.keep.rule import Column
from counterfoil.recipe.kinds.kind import RETRIEVAL
from counterfoil.recipe.kinds.rows import POOL, RowsKind
from counterfoil.recipe.names import without_folders

if TYPE_CHECKING:
    from counterfoil.recipe.schema import Recipe
    from counterfoil.recipe.schema_inputs import Generator

# The columns of a row's cosine with the prompt, and of its rank in the pool by this cosine.
RANK, SCORE = "retrieval_rank", "retrieval_score"


class RetrieveKind(RowsKind):
    """Real images that a CLIP finds in a pool."""

    keys = (*POOL, "clip")
    table = "retrieved"
    models = (RETRIEVAL,)
    tags = ((), ())
    names_pool = True
    no_tokens = "a pool is searched by class names, and a CLIP knows no class token, expected null"
    row_columns: ClassVar[Mapping[str, Column]] = {
        **RowsKind.row_columns,
        RANK: Column(
            "int64", "Place of the row among all images of the pool, the nearest to the prompt first; 1 is the nearest."
        ),
        SCORE: Column("float32", "Cosine of the row and the prompt in the CLIP that ranked the pool."),
    }

    meanings: ClassVar[Mapping[str, str]] = {
        "prompt": "Prompt that the image was retrieved with.",
        "seed": "Without meaning: nothing was drawn.",
    }

    def problem(self, generator: Generator) -> str | None:
        return None

    def reads_labels(self, generator: Generator) -> bool:
        return False

    def inputs(self, recipe: Recipe, pinned: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
        clip, models = recipe.ranking_clip, pinned.get("models") or {}
        name = without_folders(clip.model) + (f" ({clip.weights})" if clip.weights else "")
        return [*super().inputs(recipe, pinned), ("retrieval", name, models.get(RETRIEVAL) or {})]
