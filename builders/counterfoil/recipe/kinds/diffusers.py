"""Kind `diffusers`: a diffusion model draws each image from noise, by a prompt, an image embedding,
or both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from counterfoil.recipe.kinds.drawing import DrawingKind
from counterfoil.recipe.kinds.kind import KindInputs
from counterfoil.recipe.messages import message
from counterfoil.recipe.names import class_id_problem, nameless_problem, without_folders
from counterfoil.recipe.parts import RecipeParts, RecipeProblem, as_mapping, embedding_specs
from counterfoil.recipe.schema_output import HeldFromBase, first_compared
from counterfoil.recipe.section import NonEmpty, Section, field_check

if TYPE_CHECKING:
    from counterfoil.recipe.schema import Recipe

# Sliders are published for scales up to 5; above this pictures are noise.
_LARGEST_SCALE = 20.0
_MOST_LORAS = 16


class Lora(Section):
    """LoRA weights that are added to layers of the generator."""

    path: NonEmpty
    """A safetensors file, a folder with one, a Hub id, or a Hub id with the file in it
    (`user/name/weights/snow.safetensors`)."""
    revision: str | None = None
    """Branch, tag or commit on the Hub; the lock pins it."""
    scale: float = Field(default=1.0, ge=-_LARGEST_SCALE, le=_LARGEST_SCALE)
    """What the weights are multiplied by."""


def _interval_problem(interval: tuple[float, float]) -> str | None:
    begin, end = interval
    if 0 <= begin < end <= 1:
        return None
    return f"found [{begin:g}, {end:g}], expected two shares of the steps, rising from 0 to 1"


def _loras_problem(loras: Mapping[str, Lora]) -> str | None:
    if len(loras) > _MOST_LORAS:
        return f"found {len(loras)}, expected at most {_MOST_LORAS}"
    for name, lora in loras.items():
        problem = class_id_problem(name) or nameless_problem(lora.path)
        if problem is not None:
            return problem
    return None


class DiffusersKind(DrawingKind):
    """Images drawn from noise, each alone or beside its base (`samples.pairs`)."""

    takes_rows = False
    levels = ("prompt", "steps", "lora")

    kind: Literal["diffusers"] = "diffusers"
    adapter: NonEmpty | None = None
    """IP-Adapter with which the model takes image embeddings: `lab:decoder`, a Hub id, a Hub id
    with the file in it (`user/name/models/adapter.safetensors`), or a folder. Only samples with an
    embedding use it."""
    adapter_revision: str | None = None
    """Branch, tag or commit of the adapter on the Hub; the lock pins it."""
    lora: dict[str, Lora] = Field(default_factory=dict)
    """LoRA weights by name, used together, each at its scale. They need `counterfoil[lora]`."""
    guidance_interval: tuple[float, float] | None = None
    """Guide only in this part of the steps, such as `[0.2, 0.8]`; null: in every step. A step
    without guidance takes half the time (Stable Diffusion 1, 2 and XL)."""
    compile: bool = False
    """Compile the model's repeated blocks when a worker renders its first image. It is faster on
    CUDA, but gives other bytes, so it counts as another stack. On a CPU it needs a C++ compiler."""

    _adapter_has_a_name = field_check("adapter", by=nameless_problem)
    _shares = field_check("guidance_interval", by=_interval_problem)
    _lora_names = field_check("lora", by=_loras_problem)

    def named_models(self) -> dict[str, str]:
        adapter = {} if self.adapter is None else {"generator.adapter": self.adapter}
        loras = {f"generator.lora.{name}.path": lora.path for name, lora in self.lora.items()}
        return super().named_models() | adapter | loras

    def inputs(self, recipe: Recipe, pinned: Mapping[str, Any]) -> KindInputs:
        models = pinned.get("models") or {}
        loras = pinned.get("loras") or {}
        rows = super().inputs(recipe, pinned)
        if self.adapter is not None:
            rows.append(("adapter", without_folders(self.adapter), models.get("adapter") or {}))
        for name, lora in self.lora.items():
            shown = f"{without_folders(lora.path)} ({name}, scale {lora.scale:g})"
            rows.append(("LoRA", shown, loras.get(name) or {}))
        return rows

    @classmethod
    def problems(cls, parts: RecipeParts) -> Iterator[RecipeProblem]:
        if parts.samples.pairs != "attention":
            return
        if parts.samples.get("noise", "paired") != "paired":
            yield ("samples", "noise"), message("pairs-conflict.noise")
        size = parts.generator.batch_size
        # `True` is an int.
        if type(size) is int and size % 2:
            even = f"{size + 1}" if size == 1 else f"{size - 1} or {size + 1}"
            problem = message("pairs-conflict.batch", found=size, expected=even)
            yield ("generator", "batch_size"), problem
        if parts.generator.compile is True:
            yield ("generator", "compile"), message("pairs-conflict.compile")
        if parts.generator.adapter is not None:
            yield ("generator", "adapter"), message("pairs-conflict.adapter")
        for path, _ in embedding_specs(parts.recipe):
            yield path, message("pairs-conflict.embedding")
        yield from _held_problems(parts.samples.held, parts.generator.steps)

    def problem(self) -> str | None:
        if self.compile and self.offload == "sequential":
            return (
                "compile is true and offload is sequential, which loads a block layer by layer;"
                " expected offload model or none"
            )
        if self.guidance_interval is None:
            return super().problem()
        # Guidance in a part of the steps is above 1 and covers a step.
        begin, end = self.guidance_interval
        shown = f"guidance_interval is [{begin:g}, {end:g}]"
        if self.guidance <= 1:
            return f"{shown} and guidance {self.guidance:g} turns guidance off: drop one of them"
        if self.adapter is not None:
            return (
                f"{shown}, and images drawn by an adapter are guided in every step: drop one of"
                " them"
            )
        if not any(begin <= step / self.steps < end for step in range(self.steps)):
            return f"{shown}, but none of the {self.steps} steps begins in it"
        return super().problem()


def _held_problems(held: Any, steps: Any) -> Iterator[RecipeProblem]:
    """Yield a problem if the held part of the steps ends before the first step."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        return
    try:
        settings = HeldFromBase.model_validate(dict(as_mapping(held)))
    except ValueError:  # the check of the section reports this error
        return
    holds_nothing = settings == HeldFromBase() or not settings.share or not settings.until
    if holds_nothing or settings.holds(steps):
        return
    first = first_compared(steps)
    ends = "one ends" if steps == 1 else f"{first} of {steps} ends"
    least = math.ceil(1000 * first / steps) / 1000
    problem = message(
        "out-of-range.held",
        found=settings.until,
        ends=ends,
        least=least,
    )
    yield ("samples", "held", "until"), problem
