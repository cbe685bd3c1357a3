"""Kind `diffusers`: a diffusion model draws each image from noise, by a prompt, an image embedding, or both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from counterfoil.recipe.kinds.kind import GENERATOR, GeneratorKind
from counterfoil.recipe.layering import embedding_specs
from counterfoil.recipe.parts import RecipeParts, RecipeProblem, mapping
from counterfoil.recipe.schema_output import PAIRS_SHARE, HeldFromBase, first_compared


class DiffusersKind(GeneratorKind):
    """Images drawn from noise, each alone or beside its base (`samples.pairs`)."""

    keys = (
        "model", "adapter", "adapter_revision", "lora", "scheduler", "steps", "guidance", "guidance_interval", "size",
        "negative_prompt", "options", "offload", "quantize", "compile",
    )  # fmt: skip
    needed = ("model",)
    draws = True
    takes_rows = False
    models = (GENERATOR,)
    levels = ("prompt", "steps", "lora")

    def problems(self, parts: RecipeParts) -> Iterator[RecipeProblem]:
        if parts.samples.get("pairs") != "attention":
            return
        if parts.samples.get("noise", "paired") != "paired":
            yield ("samples", "noise"), f"{PAIRS_SHARE}: a pair starts from one noise, expected paired"
        size = parts.generator.get("batch_size")
        if isinstance(size, int) and not isinstance(size, bool) and size % 2:
            near = f"{size + 1}" if size == 1 else f"{size - 1} or {size + 1}"
            shared = f"{PAIRS_SHARE}: a batch holds bases and as many shifted images"
            yield ("generator", "batch_size"), f"found {size}; {shared}, expected an even number, such as {near}"
        if parts.generator.get("compile") is True:
            message = f"{PAIRS_SHARE}: compiled blocks attend only to their own image, expected false"
            yield ("generator", "compile"), message
        if parts.generator.get("adapter") is not None:
            message = f"{PAIRS_SHARE}: an adapter has its own attention, expected null (null drops an inherited one)"
            yield ("generator", "adapter"), message
        for path, _ in embedding_specs(parts.recipe):
            yield path, f"{PAIRS_SHARE}: a batch of pairs is drawn only from prompts, expected null"
        yield from _held_problems(parts.samples.get("held"), parts.generator.get("steps"))


def _held_problems(held: Any, steps: Any) -> Iterator[RecipeProblem]:
    """Yield a problem if the held part of the steps ends before the first step."""
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        return
    try:
        settings = HeldFromBase.model_validate(dict(mapping(held)))
    except ValueError:  # the check of the section reports this error
        return
    if settings == HeldFromBase() or not settings.share or not settings.until or settings.holds(steps):
        return
    first = first_compared(steps)
    ends = "one ends" if steps == 1 else f"{first} of {steps} ends"
    message = (
        f"found {settings.until:g}, with which no step holds a part: base and shifted image are first compared as step"
        f" {ends}; expected at least {-(-1000 * first // steps) / 1000:g}, or 0 to hold none"
    )
    yield ("samples", "held", "until"), message
