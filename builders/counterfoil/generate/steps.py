"""Change the steps of a pipeline's call: guidance in some steps, later prompts, and shifted images beside their bases.

A call for pairs has bases in its first half and their shifted images in the second; the stored base is drawn in another
call, alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from counterfoil.errors import RunFailure
from counterfoil.recipe.schema_output import first_compared

if TYPE_CHECKING:
    import torch

    from counterfoil.models.generators.family import Family
    from counterfoil.recipe.schema_inputs import Generator

# The guidance scale of a step without guidance: at 1 a pipeline does not double its batch.
_OFF = 1.0


def guidance_of(generator: Generator, embeddings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pipeline's arguments for guidance in a part of the steps, from the call's encoded prompts."""
    if generator.guidance_interval is None or "negative_prompt_embeds" not in embeddings:
        return {"guidance_scale": generator.guidance}
    switch = _Switch(generator.guidance, generator.guidance_interval, embeddings)
    names = ["prompt_embeds"]
    if "negative_pooled_prompt_embeds" in embeddings:
        names += ["add_text_embeds", "add_time_ids"]
    return {
        "guidance_scale": generator.guidance if switch.guided(0, 1) else _OFF,
        "callback_on_step_end": switch,
        "callback_on_step_end_tensor_inputs": names,
    }


class _Switch:
    """A callback at the end of a step, which turns guidance of the next step on or off."""

    def __init__(self, guidance: float, interval: tuple[float, float], embeddings: Mapping[str, Any]) -> None:
        self.guidance = guidance
        self.interval = interval
        # The tensors that precede those of the prompts under guidance, by their names in a step.
        self.negative = {
            "prompt_embeds": embeddings["negative_prompt_embeds"],
            "add_text_embeds": embeddings.get("negative_pooled_prompt_embeds"),
        }

    def guided(self, step: int, steps: int) -> bool:
        """Return whether a step has guidance: the fraction of steps before it is in the interval."""
        begin, end = self.interval
        return begin <= step / steps < end

    def __call__(self, pipeline: Any, step: int, timestep: Any, tensors: Mapping[str, Any]) -> dict[str, Any]:
        # A scheduler of second order calls the model twice a step, except in the last. Both calls get equal guidance.
        order = getattr(pipeline.scheduler, "order", 1)
        steps = -(-pipeline.num_timesteps // order)
        now, then = self.guided(step // order, steps), self.guided((step + 1) // order, steps)
        if now == then:
            return {}
        pipeline._guidance_scale = self.guidance if then else _OFF
        return {
            name: self._doubled(name, tensor) if then else tensor[len(tensor) // 2 :]
            for name, tensor in tensors.items()
        }

    def _doubled(self, name: str, tensor: Any) -> Any:
        import torch

        before = self.negative.get(name)
        # Sizes and crops (`add_time_ids`) are the same for both.
        return torch.cat([tensor if before is None else before.to(tensor), tensor])


@contextlib.contextmanager
def paired_attention(pipeline: Any, family: Family, half: int) -> Iterator[None]:
    """Let row half + i of a call also attend to row i: the rows are `half` bases, then as many shifted images.

    Under guidance the model gets all rows twice. Raise RunFailure if an attention of the model cannot be extended.
    """
    model = pipeline.unet if family.pairs == "unet" else pipeline.transformer
    before = dict(model.attn_processors)
    text = _TextTokens()
    met: list[bool] = []

    def beside(processor: Any) -> Any:
        if family.pairs == "unet":
            return _BesideBase(processor, half, met)
        return _BesideBaseJointly(processor, half, family.pairs == "flux", text)

    model.set_attn_processor({name: beside(processor) for name, processor in before.items()})
    try:
        yield
        if family.pairs == "unet" and not met:
            raise _alone(type(model).__name__)
    finally:
        model.set_attn_processor(before)


def _alone(what: str) -> RunFailure:
    return RunFailure(f"{what} computes attention in a way that pairs cannot share", "Set samples.pairs to noise.")


class _BesideBase:
    """A self-attention of a UNet, whose keys and values are computed from the argument for text."""

    def __init__(self, processor: Any, half: int, met: list[bool]) -> None:
        self.processor = processor
        self.half = half
        self.met = met

    def __call__(
        self, attn: Any, hidden_states: torch.Tensor, encoder_hidden_states: Any = None, *given: Any, **named: Any
    ) -> torch.Tensor:
        import torch

        if encoder_hidden_states is not None:
            return self.processor(attn, hidden_states, encoder_hidden_states, *given, **named)
        self.met.append(True)
        lots = hidden_states.unflatten(0, (-1, 2 * self.half))
        base, shifted = (part.flatten(0, 1) for part in lots.split(self.half, dim=1))
        alone = self.processor(attn, base, None, *given, **named)
        beside = self.processor(attn, shifted, torch.cat([shifted, base], dim=1), *given, **named)
        return torch.cat([part.unflatten(0, (-1, self.half)) for part in (alone, beside)], dim=1).flatten(0, 1)


class _TextTokens:
    """The number of text tokens before the image tokens, from the last block that separates them."""

    count = 0


class _BesideBaseJointly:
    """A transformer's attention over image and text tokens; the shifted image also attends to the base's image tokens.

    Only torch's attention is replaced: projections, norms and positions differ by model and release.
    """

    def __init__(self, processor: Any, half: int, text_first: bool, text: _TextTokens) -> None:
        self.processor = processor
        self.half = half
        self.text_first = text_first
        self.text = text

    def __call__(
        self, attn: Any, hidden_states: torch.Tensor, encoder_hidden_states: Any = None, *given: Any, **named: Any
    ) -> Any:
        count = hidden_states.shape[1]
        if encoder_hidden_states is not None:
            self.text.count = encoder_hidden_states.shape[1]
        elif self.text_first:  # later blocks, with text and image in one sequence
            count -= self.text.count
        image = slice(-count, None) if self.text_first else slice(0, count)
        with _extending(self.half, image) as calls:
            out = self.processor(attn, hidden_states, encoder_hidden_states, *given, **named)
        if not calls:
            raise _alone(type(self.processor).__name__)
        return out


@contextlib.contextmanager
def _extending(half: int, image: slice) -> Iterator[list[None]]:
    """Append the keys and values of bases to those of shifted rows in torch's attention; yield a list of its calls."""
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    attention = functional.scaled_dot_product_attention
    calls: list[None] = []

    class Extending(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
        ) -> Any:
            named = dict(kwargs or {})
            if func is not attention:
                return func(*args, **named)
            query, key, value = (args + (None,) * 3)[:3]
            query, key, value = named.pop("query", query), named.pop("key", key), named.pop("value", value)
            rest, mask = args[3:], named.get("attn_mask")
            if rest or mask is not None:
                return func(query, key, value, *rest, **named)
            calls.append(None)

            def halves(part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                base, shifted = part.unflatten(0, (-1, 2 * half)).split(half, dim=1)
                return base.flatten(0, 1), shifted.flatten(0, 1)

            (q_base, q), (k_base, k), (v_base, v) = halves(query), halves(key), halves(value)
            k = torch.cat([k, k_base[..., image, :]], dim=-2)
            v = torch.cat([v, v_base[..., image, :]], dim=-2)
            drawn = func(q_base, k_base, v_base, **named), func(q, k, v, **named)
            return torch.cat([part.unflatten(0, (-1, half)) for part in drawn], dim=1).flatten(0, 1)

    with Extending():
        yield calls


# Side of the square of latents over which differences are averaged.
_AROUND = 3


class HeldParts:
    """A callback at the end of a step, which resets a part of each shifted image to its base.

    The fraction `share` of each image is held, until the fraction `until` of the steps.
    """

    def __init__(self, half: int, share: float, until: float) -> None:
        self.half = half
        self.share = share
        self.until = until
        self._held: torch.Tensor | None = None

    def __call__(self, pipeline: Any, step: int, timestep: Any, tensors: Mapping[str, Any]) -> dict[str, Any]:
        import torch

        steps = pipeline.num_timesteps
        if not first_compared(steps) <= step + 1 <= self.until * steps + 1e-6:
            return {}
        base, shifted = tensors["latents"].split(self.half)
        if self._held is None:
            self._held = least_changed(base, shifted, self.share)
        return {"latents": torch.cat([base, torch.where(self._held, base, shifted)])}


def called_back(call: Mapping[str, Any], back: Callable[..., dict[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Return a call's arguments with `back`, which reads the tensors `names`, after the callback that they have."""
    other, others = call.get("callback_on_step_end"), call.get("callback_on_step_end_tensor_inputs", ())

    def both(pipeline: Any, step: int, timestep: Any, tensors: Mapping[str, Any]) -> dict[str, Any]:
        if other is None:
            return back(pipeline, step, timestep, tensors)
        changed = other(pipeline, step, timestep, {name: tensors[name] for name in others})
        return changed | back(pipeline, step, timestep, {**tensors, **changed})

    return {
        **call,
        "callback_on_step_end": both,
        "callback_on_step_end_tensor_inputs": list(dict.fromkeys((*others, *names))),
    }


# The names of a prompt's tensors: in a call → in a step.
_OF_STEP = {"prompt_embeds": "prompt_embeds", "pooled_prompt_embeds": "add_text_embeds"}


class LaterPrompts:
    """A callback at the end of a step, which gives each row its encoded prompt after the fraction `begin` of steps."""

    def __init__(self, prompts: Mapping[str, Any], begin: Sequence[float]) -> None:
        self.prompts = {step: prompts[name] for name, step in _OF_STEP.items() if name in prompts}
        self.begin = begin

    def __call__(self, pipeline: Any, step: int, timestep: Any, tensors: Mapping[str, Any]) -> dict[str, Any]:
        import torch

        order = getattr(pipeline.scheduler, "order", 1)  # the next step, as `_Switch` counts them
        passed = ((step + 1) // order) / -(-pipeline.num_timesteps // order)
        changed = {}
        for name, prompts in self.prompts.items():
            # Under guidance the negative prompts precede the prompts.
            negative, now = tensors[name][: -len(prompts)], tensors[name][-len(prompts) :]
            rows = [prompts[row] if begin <= passed + 1e-6 else now[row] for row, begin in enumerate(self.begin)]
            changed[name] = torch.cat([negative, torch.stack(rows)])
        return changed


def least_changed(base: torch.Tensor, shifted: torch.Tensor, share: float) -> torch.Tensor:
    """Return a bool mask of the fraction `share` of each image in which two batches of latents differ least.

    Latents are [n, channels, height, width], or square images as [n, positions, channels]; the mask broadcasts to them.
    """
    import torch
    from torch.nn import functional

    packed = base.dim() == 3
    changed = (shifted.float() - base.float()).abs().mean(2 if packed else 1)
    side = round(changed.shape[1] ** 0.5) if packed else changed.shape[1]
    grid = changed.reshape(len(changed), 1, side, -1)
    smooth = functional.avg_pool2d(grid, _AROUND, 1, _AROUND // 2, count_include_pad=False)
    limit = smooth.flatten(1).quantile(share, dim=1)[:, None, None, None]
    mask = smooth < limit if share < 1 else torch.ones_like(smooth, dtype=torch.bool)
    return mask.reshape(*changed.shape, 1) if packed else mask
