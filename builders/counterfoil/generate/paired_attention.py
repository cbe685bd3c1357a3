"""Pairs that share attention: a shifted image attends to the keys and values of the base that is drawn beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from counterfoil.models.generators import Family

if TYPE_CHECKING:
    import torch


@contextlib.contextmanager
def paired_attention(pipeline: Any, family: Family, half: int) -> Iterator[None]:
    """Inside, a call with 2·half images [base…, shifted…] has image half + i see the keys and values of image i.

    They are appended to its own. Guidance, which doubles a batch, is seen through. ValueError for a family without
    pairs.
    """
    if family.pairs != "unet":
        raise ValueError(f"{family.name} has no pairs that share attention")
    unet = pipeline.unet
    before = dict(unet.attn_processors)
    paired = {name: _Paired(own, half) if name.endswith("attn1.processor") else own for name, own in before.items()}
    unet.set_attn_processor(paired)
    try:
        yield
    finally:
        unet.set_attn_processor(before)


class _Paired:
    """A processor of self-attention that shows the second half of each pass the first half's states as well."""

    def __init__(self, own: Any, half: int) -> None:
        self.own = own
        self.half = half

    def __call__(
        self, attn: Any, hidden_states: torch.Tensor, encoder_hidden_states: Any = None, *rest: Any, **named: Any
    ) -> torch.Tensor:
        import torch

        passes = hidden_states.unflatten(0, (-1, 2 * self.half))
        base, shifted = (part.flatten(0, 1) for part in passes.split(self.half, 1))
        seen = self.own(attn, base, None, *rest, **named)
        sees = self.own(attn, shifted, torch.cat([shifted, base], 1), *rest, **named)
        shape = (-1, self.half)
        return torch.cat([seen.unflatten(0, shape), sees.unflatten(0, shape)], 1).flatten(0, 1)
