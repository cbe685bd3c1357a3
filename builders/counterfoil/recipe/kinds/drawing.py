"""The base of kinds whose images a diffusion model draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator, model_validator

from counterfoil.recipe.kinds.kind import GENERATOR, GeneratorKind, SideInPixels
from counterfoil.recipe.kinds.pipeline_options import OPTIONS_SCHEMA, checked_options
from counterfoil.recipe.names import nameless_problem, quoted, without_folders
from counterfoil.recipe.section import checked

if TYPE_CHECKING:
    from counterfoil.recipe.schema import Recipe


class DrawingKind(GeneratorKind):
    """A kind whose images a diffusion model draws."""

    draws = True
    models = (GENERATOR,)

    model: str = Field(min_length=1, description="`lab:sd`, a Hub id, or a folder of a diffusers pipeline.")
    scheduler: str | None = Field(
        default=None, description="diffusers scheduler without the word Scheduler (`DDIM`); null keeps the model's."
    )
    steps: int = Field(default=50, ge=1, le=1000, description="Denoising steps.")
    guidance: float = Field(default=7.5, ge=0, description="Classifier-free guidance scale; 1 or less turns it off.")
    size: SideInPixels | None = Field(default=None, description="Rendered side in pixels; null: the model's.")
    negative_prompt: str | None = Field(default=None, description="Text to steer away from.")
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Further arguments of the pipeline call, by its own names (`max_sequence_length: 256`):"
        " numbers, text, true, false, null and lists of these.",
        json_schema_extra=OPTIONS_SCHEMA,
    )
    offload: Literal["none", "model", "sequential"] = Field(
        default="none",
        description="Where unused weights stay: on the GPU (`none`), or in main memory, moved part by part"
        " (`model`) or layer by layer (`sequential`, slow). It changes no image.",
    )
    quantize: Literal["bnb-8bit", "bnb-4bit", "torchao-int8"] | None = Field(
        default=None,
        description="Quantise the weights to fewer bits. The first part of the value names the library, which is"
        " an optional extra.",
    )

    _model_has_a_name = checked("model", by=nameless_problem)

    @property
    def side(self) -> int | None:
        return self.size

    @property
    def adapter_name(self) -> str | None:
        """Return the IP-Adapter with which the model takes image embeddings, if there is one."""
        return None

    @property
    def guided_part(self) -> tuple[float, float] | None:
        """Return the part of the steps that are guided, or None for every step."""
        return None

    @property
    def captioned(self) -> bool:
        """Return whether rows have captions, for prompts to use."""
        return False

    def named_models(self) -> dict[str, str]:
        return {"generator.model": self.model}

    def inputs(self, recipe: Recipe, pinned: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
        models = pinned.get("models") or {}
        return [("generator", without_folders(self.model), models.get(GENERATOR) or {})]

    @field_validator("options")
    @classmethod
    def _plain_values(cls, value: dict[str, Any]) -> dict[str, Any]:
        return checked_options(value)

    @field_validator("scheduler")
    @classmethod
    def _short_name(cls, value: str | None) -> str | None:
        if value is not None and value.endswith("Scheduler"):
            raise ValueError(f"found {quoted(value)}, expected it short: {quoted(value.removesuffix('Scheduler'))}")
        return value

    @model_validator(mode="after")
    def _stored_as_drawn_or_smaller(self) -> DrawingKind:
        if self.size is not None and self.saved_size is not None and self.saved_size > self.size:
            raise ValueError(f"saved_size is {self.saved_size}, expected at most size ({self.size})")
        return self
