"""Kandinsky 2.2's decoder, which draws from a CLIP image embedding alone, without a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterfoil.models.generators.family import Family

if TYPE_CHECKING:
    import torch


def _conditioned(vectors: torch.Tensor, guided: bool) -> dict[str, Any]:
    import torch

    # Kandinsky's prior uses the embedding of a black image. Its image encoder is not loaded here,
    # so zeros are used.
    return {"image_embeds": vectors, "negative_image_embeds": torch.zeros_like(vectors)}


KANDINSKY = Family(
    name="Kandinsky 2.2",
    pipelines=("KandinskyV22Pipeline",),
    prompts="none",
    takes_negative=False,
    takes="every",
    conditioned=_conditioned,
    width=lambda unet: unet.get("encoder_hid_dim"),
    output="np",  # its only output in the range 0 … 1
)
