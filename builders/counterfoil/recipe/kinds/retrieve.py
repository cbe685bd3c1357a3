"""Kind `retrieve`: the rows of a pool that a CLIP ranks nearest to each prompt, each row once unless
rows may repeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from counterfoil.recipe.keep.rule import Column
from counterfoil.recipe.kinds.kind import RETRIEVAL, KindInputs, PoolKind
from counterfoil.recipe.messages import message
from counterfoil.recipe.names import nameless_problem, without_folders
from counterfoil.recipe.section import NonEmpty, Section, field_check

if TYPE_CHECKING:
    from counterfoil.recipe.schema import Recipe

# The columns of a row's cosine with the prompt, and of its rank in the pool by this cosine.
RANK = "retrieval_rank"
SCORE = "retrieval_score"


class RetrievalClip(Section):
    """The CLIP that ranks a pool."""

    model: NonEmpty
    """As screen.model."""
    weights: str | None = None
    """As screen.weights."""

    _has_a_name = field_check("model", by=nameless_problem)


class RetrieveKind(PoolKind):
    """The rows of a pool that a CLIP ranks nearest to each prompt, each row once unless rows may
    repeat."""

    table = "retrieved"
    models = (RETRIEVAL,)
    tags = ((), ())
    names_pool = True
    no_tokens = message("wrong-kind.retrieved-tokens")
    row_columns: ClassVar[Mapping[str, Column]] = {
        **PoolKind.row_columns,
        RANK: Column(
            "int64",
            "Place of the row among all images of the pool, the nearest to the prompt first; 1 is"
            " the nearest.",
        ),
        SCORE: Column(
            "float32", "Cosine of the row and the prompt in the CLIP that ranked the pool."
        ),
    }

    meanings: ClassVar[Mapping[str, str]] = {
        "prompt": "Prompt that the image was retrieved with.",
        "seed": "Without meaning: nothing was drawn.",
    }

    kind: Literal["retrieve"] = "retrieve"
    clip: RetrievalClip | None = None
    """The CLIP that ranks the pool; null: the screen's."""
    repeats: bool = False
    """Whether a row may be retrieved for several prompts, as in Dataset Interfaces; by default each
    row is retrieved once."""

    def inputs(self, recipe: Recipe, pinned: Mapping[str, Any]) -> KindInputs:
        clip = recipe.ranking_clip
        models = pinned.get("models") or {}
        name = without_folders(clip.model) + (f" ({clip.weights})" if clip.weights else "")
        return [*super().inputs(recipe, pinned), ("retrieval", name, models.get(RETRIEVAL) or {})]
