"""Kind `edit`: a diffusion model re-renders rows of the input dataset, under the prompts of base
and shifts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from counterfoil.recipe.kinds.drawing import DrawingKind
from counterfoil.recipe.kinds.kind import AlteringKind
from counterfoil.recipe.messages import message
from counterfoil.recipe.names import nameless_problem
from counterfoil.recipe.parts import RecipeParts, RecipeProblem, embedding_specs
from counterfoil.recipe.section import NonEmpty, field_check


class EditKind(DrawingKind, AlteringKind):
    """Rows of the input dataset, re-rendered under the base's prompt and under every shift's."""

    levels = ("mix",)
    tags = (("synthetic",), ("edited",))
    meanings: ClassVar[Mapping[str, str]] = {"seed": "Seed of the random part of the edit."}

    kind: Literal["edit"] = "edit"
    caption_column: NonEmpty | None = None
    """Column of the input dataset with a caption per row, for `{caption}` in prompts."""
    captioner: NonEmpty | None = None
    """The captioner that writes captions if no column holds them, named like the captioners of
    `mine`."""

    _captioner_has_a_name = field_check("captioner", by=nameless_problem)

    def problem(self) -> str | None:
        if self.caption_column is not None and self.captioner is not None:
            return message("conflicting-keys.captioner")
        return super().problem()

    @classmethod
    def problems(cls, parts: RecipeParts) -> Iterator[RecipeProblem]:
        yield from super().problems(parts)
        for path, _ in embedding_specs(parts.recipe):
            yield path, message("wrong-kind.edited")
