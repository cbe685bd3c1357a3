"""Kind `edit`: a diffusion model re-renders rows of the input dataset, under the prompts of base and shifts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from counterfoil.recipe.kinds.kind import GENERATOR, AlteringKind
from counterfoil.recipe.layering import embedding_specs
from counterfoil.recipe.parts import RecipeParts, RecipeProblem

if TYPE_CHECKING:
    from counterfoil.recipe.schema_inputs import Generator


class EditKind(AlteringKind):
    """Edits of real images. Prompts may contain the captions of these images."""

    keys = (
        "model", "scheduler", "steps", "guidance", "size", "negative_prompt", "options", "offload", "quantize", "split",
        "license_column", "caption_column", "captioner",
    )  # fmt: skip
    needed = ("model",)
    draws = True
    models = (GENERATOR,)
    levels = ("mix",)
    tags = (("synthetic",), ("edited",))
    meanings: ClassVar[Mapping[str, str]] = {"seed": "Seed of the random part of the edit."}

    def problem(self, generator: Generator) -> str | None:
        if generator.caption_column is not None and generator.captioner is not None:
            return "found caption_column and captioner, expected one of them: a row has one caption"
        return None

    def problems(self, parts: RecipeParts) -> Iterator[RecipeProblem]:
        yield from super().problems(parts)
        for path, _ in embedding_specs(parts.recipe):
            yield path, "an edit is rendered from a row and a prompt, not from an embedding; expected null"
