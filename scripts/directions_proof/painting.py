"""Pictures by the lab's Stable Diffusion, from a caption alone or from a vector of CLIP's beside
it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from counterfoil.arrays import AnyFloats
from proof_files import Facts
from proof_pictures import Pixels, draw_pictures

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

    pipeline = _pipeline()
    seeds = range(seed * 10_000, seed * 10_000 + count)
    if vector is None:
        return draw_pictures(pipeline, caption, seeds)
    row = np.asarray(vector, np.float32)

    def options(number: int) -> Facts:
        return by_adapter(torch.from_numpy(np.tile(row, (number, 1))), True)

    with _adapter().used():
        return draw_pictures(pipeline, caption, seeds, options)
