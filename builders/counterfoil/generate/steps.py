"""What happens within the steps of a call that diffusers has no setting for.

Guidance in a part of the steps, a picture of a pair that attends to its base, and the part of it that stays its base's.

Half of a call are bases, half their shifted images, which for some steps also have the part of the base that they
change least. The base that is stored is drawn by itself, as it always was. Samples by prompt and in pairs never share
a call, and none of a pair is drawn from an embedding. In spans and estimates such a sample is two images.
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

# What a step multiplies its difference by where it asks once: at 1 a pipeline does not double its batch.
_OFF = 1.0


def guidance_of(generator: Generator, embeddings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a call of a pipeline takes for its guidance: the scale, and where a part of the steps has it, what
    switches.

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
        """Return whether a step has guidance: the share of steps before it is in the interval."""
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


@contextlib.contextmanager
def paired_attention(pipeline: Any, family: Family, half: int) -> Iterator[None]:
    """Inside, a call for `half` bases and then as many shifted images has row half + i attend to row i as well.

    Under guidance a model is asked for all images twice, one lot after the other, and each lot is paired in itself.
    RunFailure where an attention of the model is not computed in a way that can be extended.
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
    """A self-attention of a UNet, where keys and values are made of what is given as the text."""

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
    """How many tokens of text stand before an image's, as the last block said that had them apart."""

    count = 0


class _BesideBaseJointly:
    """An attention of a transformer over an image and its text together; the base lends its image's tokens alone.

    What the processor does before and after (projections, norms, places, splitting) differs by model and release, so
    it stays as it is, and its one call of torch's attention is answered here.
    """

    def __init__(self, processor: Any, half: int, text_first: bool, text: _TextTokens) -> None:
        self.processor = processor
        self.half = half
        self.text_first = text_first
        self.text = text

    def __call__(
        self, attn: Any, hidden_states: torch.Tensor, encoder_hidden_states: Any = None, *given: Any, **named: Any
    ) -> Any:
        if encoder_hidden_states is not None:
            self.text.count = encoder_hidden_states.shape[1]
            alone = hidden_states.shape[1]
        elif self.text_first:  # blocks behind those: text and image as one
            alone = hidden_states.shape[1] - self.text.count
        else:  # an attention of the image alone
            alone = hidden_states.shape[1]
        image = slice(-alone, None) if self.text_first else slice(0, alone)
        with _extending(self.half, image) as extended:
            out = self.processor(attn, hidden_states, encoder_hidden_states, *given, **named)
        if not extended():
            raise _alone(type(self.processor).__name__)
        return out


@contextlib.contextmanager
def _extending(half: int, image: slice) -> Iterator[Callable[[], bool]]:
    """Append inside the block the bases' keys and values to those of shifted rows in torch's attention."""
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    attention = functional.scaled_dot_product_attention
    answered: list[bool] = []

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
            answered.append(True)

            def lots(part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                base, shifted = part.unflatten(0, (-1, 2 * half)).split(half, dim=1)
                return base.flatten(0, 1), shifted.flatten(0, 1)

            (q_base, q), (k_base, k), (v_base, v) = lots(query), lots(key), lots(value)
            k, v = (torch.cat([own, base[..., image, :]], dim=-2) for own, base in ((k, k_base), (v, v_base)))
            drawn = func(q_base, k_base, v_base, **named), func(q, k, v, **named)
            return torch.cat([part.unflatten(0, (-1, half)) for part in drawn], dim=1).flatten(0, 1)

    with Extending():
        yield lambda: bool(answered)


# Latents around one whose differences are averaged with its own, as the side of a square.
_AROUND = 3


class HeldParts:
    """Called at the end of every step: puts the held part of each shifted image back onto its base.

    Rows are `half` bases and then as many shifted images. `share` of each picture is held, `until` that share of steps.
    """

    def __init__(self, half: int, share: float, until: float) -> None:
        self.half = half
        self.share = share
        self.until = until
        self._held: torch.Tensor | None = None

    def __call__(self, pipeline: Any, place: int, timestep: Any, tensors: Mapping[str, Any]) -> dict[str, Any]:
        import torch

        steps = pipeline.num_timesteps
        if not first_compared(steps) <= place + 1 <= self.until * steps + 1e-6:
            return {}
        base, shifted = tensors["latents"].split(self.half)
        if self._held is None:
            self._held = least_changed(base, shifted, self.share)
        return {"latents": torch.cat([base, torch.where(self._held, base, shifted)])}


def called_back(call: Mapping[str, Any], back: Callable[..., dict[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Return what a call takes for its steps' ends, with `back` after whatever it is called back for already.

    `names` are the tensors that `back` looks at.
    """
    other, others = call.get("callback_on_step_end"), call.get("callback_on_step_end_tensor_inputs", ())

    def both(pipeline: Any, place: int, timestep: Any, tensors: Mapping[str, Any]) -> dict[str, Any]:
        if other is None:
            return back(pipeline, place, timestep, tensors)
        found = other(pipeline, place, timestep, {name: tensors[name] for name in others})
        return found | back(pipeline, place, timestep, {**tensors, **found})

    return {
        **call,
        "callback_on_step_end": both,
        "callback_on_step_end_tensor_inputs": list(dict.fromkeys((*others, *names))),
    }


# A prompt's tensors by the names that a step has for them, beside those of a call.
_OF_STEP = {"prompt_embeds": "prompt_embeds", "pooled_prompt_embeds": "add_text_embeds"}


class LaterPrompts:
    """Called at the end of every step: gives each row its own prompt once its share of the steps has gone by.

    `prompts` are those of a call's rows, and each begins at the first step that has `begin` of the steps before it.
    """

    def __init__(self, prompts: Mapping[str, Any], begin: Sequence[float]) -> None:
        self.own = {step: prompts[name] for name, step in _OF_STEP.items() if name in prompts}
        self.begin = begin

    def __call__(self, pipeline: Any, place: int, timestep: Any, tensors: Mapping[str, Any]) -> dict[str, Any]:
        import torch

        order = getattr(pipeline.scheduler, "order", 1)  # the next step, as `_Switch` counts them
        passed = ((place + 1) // order) / -(-pipeline.num_timesteps // order)
        found = {}
        for name, own in self.own.items():
            # Under guidance what is led away from stands before the prompts' own.
            led, now = tensors[name][: -len(own)], tensors[name][-len(own) :]
            rows = [own[row] if begin <= passed + 1e-6 else now[row] for row, begin in enumerate(self.begin)]
            found[name] = torch.cat([led, torch.stack(rows)])
        return found


def least_changed(base: torch.Tensor, shifted: torch.Tensor, share: float) -> torch.Tensor:
    """Return where two batches of latents differ least: bool, for `share` of each picture, of a shape that goes with
    theirs.

    Latents are [n, channels, height, width], or a square's places in rows, [n, places, channels].
    """
    import torch
    from torch.nn import functional

    packed = base.dim() == 3
    changed = (shifted.float() - base.float()).abs().mean(2 if packed else 1)
    side = round(changed.shape[1] ** 0.5) if packed else changed.shape[1]
    grid = changed.reshape(len(changed), 1, side, -1)
    smooth = functional.avg_pool2d(grid, _AROUND, 1, _AROUND // 2, count_include_pad=False)
    limit = smooth.flatten(1).quantile(share, dim=1)[:, None, None, None]
    found = smooth < limit if share < 1 else torch.ones_like(smooth, dtype=torch.bool)
    return found.reshape(*changed.shape, 1) if packed else found
