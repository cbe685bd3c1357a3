"""Kandinsky 2.2's decoder: it draws from a CLIP image embedding alone, and no prompt reaches it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from counterfoil.models.generators.family import Family

if TYPE_CHECKING:
    import torch


def _conditioned(vectors: torch.Tensor, guided: bool) -> dict[str, Any]:
    import torch

    # Its prior would give the embedding of a black picture here; that encoder is another model, and is not loaded.
    return {"image_embeds": vectors, "negative_image_embeds": torch.zeros_like(vectors)}


def _width(unet: Mapping[str, Any]) -> Any:
    return unet.get("encoder_hid_dim")


KANDINSKY = Family(
    name="Kandinsky 2.2",
    pipelines=("KandinskyV22Pipeline",),
    prompts="none",
    takes_negative=False,
    takes="every",
    conditioned=_conditioned,
    width=_width,
    output="np",  # only there it brings the numbers to 0 … 1
    usual_steps=100,
    usual_guidance=4.0,
)
