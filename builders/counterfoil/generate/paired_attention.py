"""Pairs that keep their object: a shifted image is drawn beside its base, and attends to what its base attends to.

The keys and values of the base are appended to the shifted image's own in every self-attention, never put in their
place: so what the shift's prompt asks for is still drawn, and what both prompts say is drawn alike. Nothing is trained.
Sharing keys and values in a batch is how story and style are kept in Tewel et al. 2024 (ConsiStory) and Hertz et al.
2024 (StyleAligned); theirs share among all images, and here one of two sees the other, which sees nobody.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from counterfoil.errors import RunFailure

if TYPE_CHECKING:
    import torch

    from counterfoil.models.generators.family import Family


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
    """Inside, torch's attention of shifted rows has the image's keys and values of their bases appended.

    What is given tells whether there was any.
    """
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
