"""Pictures by the lab's Stable Diffusion, from a caption alone or from a vector of CLIP's beside
it."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import Any

import numpy as np

from counterfoil.arrays import AnyFloats
from proof_files import Facts, Pixels

# as the lab's recipes draw
_STEPS = 12
_GUIDANCE = 3.0
_BATCH = 25
_GENERATOR = "lab:sd"
_ADAPTER = "lab:decoder"


@cache
def _pipeline() -> Any:
    from counterfoil.models.diffusion import load_pipeline

    return load_pipeline(_GENERATOR, dtype="float32")


@cache
def _adapter() -> Any:
    from counterfoil.models.adapters import load_adapter

    return load_adapter(_pipeline(), _ADAPTER)


def painted(caption: str, count: int, seed: int, vector: AnyFloats | None = None) -> Pixels:
    """Draw uint8 [count, 64, 64, 3]. Equal seeds give equal noise, whatever the caption and the
    vector (width,)."""
    import torch

    from counterfoil.models.generators.family import by_adapter

    parts = []
    for start in range(0, count, _BATCH):
        numbers = range(start, min(start + _BATCH, count))
        options: Facts = {}
        if vector is not None:
            options = by_adapter(
                torch.from_numpy(np.tile(np.asarray(vector, np.float32), (len(numbers), 1))), True
            )
        with (
            torch.inference_mode(),
            contextlib.nullcontext() if vector is None else _adapter().used(),
        ):
            images = _pipeline()(
                prompt=[caption] * len(numbers),
                num_inference_steps=_STEPS,
                guidance_scale=_GUIDANCE,
                generator=[
                    torch.Generator().manual_seed(seed * 10_000 + number) for number in numbers
                ],
                output_type="np",
                **options,
            ).images
        parts.append(np.rint(np.clip(images, 0, 1) * 255).astype(np.uint8))
    return np.concatenate(parts)
