"""Change the steps of a pipeline's call.

A call may have guidance in some steps only, change its prompts after some steps, or draw shifted
images together with their bases. A call for pairs has bases in its first half and the shifted
images of these bases in its second half. The base that a dataset stores is drawn in another call
without shifted images.
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
    from counterfoil.recipe.kinds import DrawingKind

# `_OFF` is the guidance scale of a step without guidance. At scale 1 a pipeline does not double its
# batch.
_OFF = 1.0


def guidance_of(generator: DrawingKind, embeddings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with which the pipeline uses guidance in the steps of
    `generator.guidance_interval`."""
    interval = generator.get("guidance_interval")
    if interval is None or "negative_prompt_embeds" not in embeddings:
        return {"guidance_scale": generator.guidance}
    switch = _Switch(generator.guidance, interval, embeddings)
    names = ["prompt_embeds"]
    if "negative_pooled_prompt_embeds" in embeddings:
        names += ["add_text_embeds", "add_time_ids"]
    return {
        "guidance_scale": generator.guidance if switch.guided(0.0) else _OFF,
        "callback_on_step_end": switch,
        "callback_on_step_end_tensor_inputs": names,
    }


def _share_done(pipeline: Any, step: int) -> float:
    """Return the fraction of steps before a call of the model.

    A scheduler of second order calls the model twice in each step except the last. Both calls of a
    step get the same fraction.
    """
    order = getattr(pipeline.scheduler, "order", 1)
    steps = -(-pipeline.num_timesteps // order)
    return step // order / steps


class _Switch:
    """Turns the guidance of the next step on or off, as a callback at the end of each step."""

    def __init__(
        self,
        guidance: float,
        interval: tuple[float, float],
        embeddings: Mapping[str, Any],
    ) -> None:
        self.guidance = guidance
        self.interval = interval
        # Under guidance these negative tensors precede the tensors of the prompts. The keys are the
        # names in a step.
        self.negative = {
            "prompt_embeds": embeddings["negative_prompt_embeds"],
            "add_text_embeds": embeddings.get("negative_pooled_prompt_embeds"),
        }

    def guided(self, share_done: float) -> bool:
        """Return whether a step has guidance, that is, whether the fraction of steps before it is
        in the interval."""
        begin, end = self.interval
        return begin <= share_done < end

    def __call__(
        self,
        pipeline: Any,
        step: int,
        timestep: Any,
        tensors: Mapping[str, Any],
    ) -> dict[str, Any]:
        now = self.guided(_share_done(pipeline, step))
        then = self.guided(_share_done(pipeline, step + 1))
        if now == then:
            return {}
        import torch

        pipeline._guidance_scale = self.guidance if then else _OFF
        changed = {}
        for name, tensor in tensors.items():
            if then:
                before = self.negative.get(name)
                if before is None:
                    # The sizes and crops (`add_time_ids`) are the same for the negative prompt and
                    # the prompt.
                    before = tensor
                changed[name] = torch.cat([before.to(tensor), tensor])
            else:
                changed[name] = tensor[len(tensor) // 2 :]
        return changed


@contextlib.contextmanager
def paired_attention(pipeline: Any, family: Family, half: int) -> Iterator[None]:
    """Let each shifted image in a call also attend to its base, within the block.

    The call has `half` bases, then `half` shifted images, and row half + i also attends to row i.
    Under guidance the model gets all rows twice. Raise RunFailure if an attention of the model
    cannot be extended in this way.
    """
    model = pipeline.unet if family.pairs == "unet" else pipeline.transformer
    before = dict(model.attn_processors)
    text = _TextTokens()
    met: list[bool] = []

    def beside(processor: Any) -> Any:
        if family.pairs == "unet":
            return _BesideBase(processor, half, met)
        return _BesideBaseJointly(processor, half, family.pairs == "flux", text)

    extended = {name: beside(processor) for name, processor in before.items()}
    model.set_attn_processor(extended)
    try:
        yield
        if family.pairs == "unet" and not met:
            raise _alone(type(model).__name__)
    finally:
        model.set_attn_processor(before)


def _alone(what: str) -> RunFailure:
    return RunFailure(
        f"{what} computes attention in a way that pairs cannot share", "Set samples.pairs to noise."
    )


class _BesideBase:
    """Computes attention in a UNet, and lets shifted images attend to their bases in
    self-attention.

    The processor computes keys and values from its argument for text. In self-attention this
    argument is empty, so this class passes both images there.
    """

    def __init__(self, processor: Any, half: int, met: list[bool]) -> None:
        self.processor = processor
        self.half = half
        self.met = met

    def __call__(
        self,
        attn: Any,
        hidden_states: torch.Tensor,
        encoder_hidden_states: Any = None,
        *given: Any,
        **named: Any,
    ) -> torch.Tensor:
        import torch

        if encoder_hidden_states is not None:
            return self.processor(attn, hidden_states, encoder_hidden_states, *given, **named)
        self.met.append(True)
        base, shifted = _halves(hidden_states, self.half)
        alone = self.processor(attn, base, None, *given, **named)
        both = torch.cat([shifted, base], dim=1)
        beside = self.processor(attn, shifted, both, *given, **named)
        return _joined(alone, beside, self.half)


def _halves(rows: torch.Tensor, half: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Split rows, which under guidance are two lots, into bases and shifted images."""
    base, shifted = rows.unflatten(0, (-1, 2 * half)).split(half, dim=1)
    return base.flatten(0, 1), shifted.flatten(0, 1)


def _joined(base: torch.Tensor, shifted: torch.Tensor, half: int) -> torch.Tensor:
    """Undo `_halves`."""
    import torch

    parts = [part.unflatten(0, (-1, half)) for part in (base, shifted)]
    return torch.cat(parts, dim=1).flatten(0, 1)


class _TextTokens:
    """The number of text tokens before the image tokens, as the last block with separate text and
    image had it."""

    count = 0


class _BesideBaseJointly:
    """Computes attention over image and text tokens in a transformer.

    A shifted image also attends to the image tokens of its base. This class replaces only the
    attention function of torch, because projections, norms and positions differ by model and by
    release of diffusers.
    """

    def __init__(self, processor: Any, half: int, text_first: bool, text: _TextTokens) -> None:
        self.processor = processor
        self.half = half
        self.text_first = text_first
        self.text = text

    def __call__(
        self,
        attn: Any,
        hidden_states: torch.Tensor,
        encoder_hidden_states: Any = None,
        *given: Any,
        **named: Any,
    ) -> Any:
        count = hidden_states.shape[1]
        if encoder_hidden_states is not None:
            self.text.count = encoder_hidden_states.shape[1]
        elif self.text_first:  # a later block, with text and image in one sequence
            count -= self.text.count
        image = slice(-count, None) if self.text_first else slice(0, count)
        with _extending(self.half, image) as calls:
            out = self.processor(attn, hidden_states, encoder_hidden_states, *given, **named)
        if not calls:
            raise _alone(type(self.processor).__name__)
        return out


@contextlib.contextmanager
def _extending(half: int, image: slice) -> Iterator[list[None]]:
    """Replace the attention function of torch within the block, and yield a list with an entry for
    each call.

    The replacement appends the keys and values of each base to the keys and values of its shifted
    image.
    """
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode

    attention = functional.scaled_dot_product_attention
    calls: list[None] = []

    class Extending(TorchFunctionMode):
        def __torch_function__(
            self,
            func: Any,
            types: Any,
            args: Any = (),
            kwargs: Mapping[str, Any] | None = None,
        ) -> Any:
            named = dict(kwargs or {})
            if func is not attention:
                return func(*args, **named)
            query, key, value = (args + (None,) * 3)[:3]
            query = named.pop("query", query)
            key = named.pop("key", key)
            value = named.pop("value", value)
            rest = args[3:]
            if rest or named.get("attn_mask") is not None:
                return func(query, key, value, *rest, **named)
            calls.append(None)
            q_base, q = _halves(query, half)
            k_base, k = _halves(key, half)
            v_base, v = _halves(value, half)
            base = func(q_base, k_base, v_base, **named)
            k = torch.cat([k, k_base[..., image, :]], dim=-2)
            v = torch.cat([v, v_base[..., image, :]], dim=-2)
            shifted = func(q, k, v, **named)
            return _joined(base, shifted, half)

    with Extending():
        yield calls


# Differences are averaged over a square of latents whose side is `_AROUND`.
_AROUND = 3


class HeldParts:
    """Resets a part of each shifted image to its base, as a callback at the end of each step.

    The part is the fraction `share` of the image. The resets end after the fraction `until` of the
    steps.
    """

    def __init__(self, half: int, share: float, until: float) -> None:
        self.half = half
        self.share = share
        self.until = until
        self._held: torch.Tensor | None = None

    def __call__(
        self,
        pipeline: Any,
        step: int,
        timestep: Any,
        tensors: Mapping[str, Any],
    ) -> dict[str, Any]:
        import torch

        steps = pipeline.num_timesteps
        if not first_compared(steps) <= step + 1 <= self.until * steps + 1e-6:
            return {}
        base, shifted = tensors["latents"].split(self.half)
        if self._held is None:
            self._held = least_changed(base, shifted, self.share)
        shifted = torch.where(self._held, base, shifted)
        return {"latents": torch.cat([base, shifted])}


def called_back(
    call: Mapping[str, Any],
    back: Callable[..., dict[str, Any]],
    names: Sequence[str],
) -> dict[str, Any]:
    """Return the arguments of a call with one more callback.

    `back` runs after the callback that the arguments already have. It reads the tensors `names`.
    """
    other = call.get("callback_on_step_end")
    others = call.get("callback_on_step_end_tensor_inputs", ())

    def both(pipeline: Any, step: int, timestep: Any, tensors: Mapping[str, Any]) -> dict[str, Any]:
        if other is None:
            return back(pipeline, step, timestep, tensors)
        read = {name: tensors[name] for name in others}
        changed = other(pipeline, step, timestep, read)
        return changed | back(pipeline, step, timestep, {**tensors, **changed})

    return {
        **call,
        "callback_on_step_end": both,
        "callback_on_step_end_tensor_inputs": list(dict.fromkeys((*others, *names))),
    }


# `_OF_STEP` maps the name of each tensor of a prompt in a call to its name in a step.
_OF_STEP = {"prompt_embeds": "prompt_embeds", "pooled_prompt_embeds": "add_text_embeds"}


class LaterPrompts:
    """Gives each row its encoded prompt after a fraction of the steps, as a callback at the end of
    each step.

    `begin` holds the fraction for each row.
    """

    def __init__(self, prompts: Mapping[str, Any], begin: Sequence[float]) -> None:
        self.prompts: dict[str, Any] = {}
        for name, step in _OF_STEP.items():
            if name in prompts:
                self.prompts[step] = prompts[name]
        self.begin = begin

    def __call__(
        self,
        pipeline: Any,
        step: int,
        timestep: Any,
        tensors: Mapping[str, Any],
    ) -> dict[str, Any]:
        import torch

        passed = _share_done(pipeline, step + 1)  # before the next step
        changed = {}
        for name, prompts in self.prompts.items():
            # Under guidance the negative prompts precede the prompts.
            negative = tensors[name][: -len(prompts)]
            now = tensors[name][-len(prompts) :]
            rows = []
            for row, begin in enumerate(self.begin):
                source = prompts if begin <= passed + 1e-6 else now
                rows.append(source[row])
            changed[name] = torch.cat([negative, torch.stack(rows)])
        return changed


def least_changed(base: torch.Tensor, shifted: torch.Tensor, share: float) -> torch.Tensor:
    """Return a bool mask of the places where two batches of latents differ least.

    The mask covers the fraction `share` of each image. Latents are [n, channels, height, width], or
    [n, positions, channels] for square images. The mask broadcasts to the latents.
    """
    import torch
    from torch.nn import functional

    packed = base.dim() == 3
    difference = (shifted.float() - base.float()).abs()
    if packed:
        changed = difference.mean(2)
        side = round(changed.shape[1] ** 0.5)
    else:
        changed = difference.mean(1)
        side = changed.shape[1]
    grid = changed.reshape(len(changed), 1, side, -1)
    smooth = functional.avg_pool2d(grid, _AROUND, 1, _AROUND // 2, count_include_pad=False)
    limit = smooth.flatten(1).quantile(share, dim=1)
    mask = torch.ones_like(smooth, dtype=torch.bool)
    if share < 1:
        mask = smooth < limit[:, None, None, None]
    return mask.reshape(*changed.shape, 1) if packed else mask
