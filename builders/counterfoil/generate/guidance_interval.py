"""Guidance in a part of the steps only; the others ask the model once, without doubling the batch.

Kynkäänniemi et al. 2024, "Applying guidance in a limited interval improves sample and distribution quality": guidance
harms where there is most noise, and does hardly anything where there is least.

diffusers has no setting for it. A pipeline of Stable Diffusion decides anew in every step, by the guidance that it
holds, whether it doubles its batch, and takes the embeddings that a callback gives it back; so a callback sets both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from counterfoil.errors import UserError
from counterfoil.models.pipeline_settings import GUIDED_BY_STEP

if TYPE_CHECKING:
    from counterfoil.recipe.schema_inputs import Generator

# What a step multiplies its difference by where it asks once: at 1 a pipeline does not double its batch.
_OFF = 1.0


def check_interval(pipeline: Any, generator: Generator) -> None:
    """UserError where a recipe asks for guidance in a part of the steps, and this loaded pipeline cannot do it."""
    if generator.guidance_interval is None:
        return
    kind = type(pipeline).__name__
    told = f"generator.guidance_interval: '{generator.model}' is a {kind}, "
    hint = "Leave guidance_interval out: guidance is then as the model has it, in every step."
    if kind not in GUIDED_BY_STEP:
        raise UserError(f"{told}expected Stable Diffusion 1.x, 2.x or XL", hint)
    if pipeline.unet.config.get("time_cond_proj_dim") is not None:
        raise UserError(f"{told}but distilled: its guidance is an input, and every step asks it once", hint)
    sizes = [name for name in generator.options if name.startswith("negative_")]
    if sizes:
        raise UserError(f"generator.guidance_interval: found options {', '.join(sizes)}, expected none beside it", hint)


def guidance_of(generator: Generator, embeddings: Mapping[str, Any]) -> dict[str, Any]:
    """What a call of a pipeline takes for its guidance: the scale, and where a part of the steps has it, what switches.

    `embeddings` are what else the call takes: those of the prompts and, where they are guided, of what to steer from.
    """
    if generator.guidance_interval is None or "negative_prompt_embeds" not in embeddings:
        return {"guidance_scale": generator.guidance}
    switch = _Switch(generator.guidance, generator.guidance_interval, embeddings)
    held = ["prompt_embeds"]
    if "negative_pooled_prompt_embeds" in embeddings:
        held += ["add_text_embeds", "add_time_ids"]
    return {
        "guidance_scale": generator.guidance if switch.guided(0, 1) else _OFF,
        "callback_on_step_end": switch,
        "callback_on_step_end_tensor_inputs": held,
    }


class _Switch:
    """Called at the end of every step: makes the next one guided or not."""

    def __init__(self, guidance: float, interval: tuple[float, float], embeddings: Mapping[str, Any]) -> None:
        self.guidance = guidance
        self.interval = interval
        # By the names that a step has for them: what stands before the prompts' own where both are asked.
        self.negative = {
            "prompt_embeds": embeddings["negative_prompt_embeds"],
            "add_text_embeds": embeddings.get("negative_pooled_prompt_embeds"),
        }

    def guided(self, step: int, steps: int) -> bool:
        """Whether step number `step` of so many has guidance: the share of steps before it is in the interval."""
        begin, end = self.interval
        return begin <= step / steps < end

    def __call__(self, pipeline: Any, place: int, timestep: Any, held: Mapping[str, Any]) -> dict[str, Any]:
        # A scheduler of second order asks the model twice a step, but for the last: both are of one kind.
        order = getattr(pipeline.scheduler, "order", 1)
        steps = -(-pipeline.num_timesteps // order)
        now, then = self.guided(place // order, steps), self.guided((place + 1) // order, steps)
        if now == then:
            return {}
        pipeline._guidance_scale = self.guidance if then else _OFF
        return {name: self._doubled(name, own) if then else own[len(own) // 2 :] for name, own in held.items()}

    def _doubled(self, name: str, own: Any) -> Any:
        import torch

        before = self.negative.get(name)
        # Sizes and crops (`add_time_ids`) are the same for both.
        return torch.cat([own if before is None else before.to(own), own])
