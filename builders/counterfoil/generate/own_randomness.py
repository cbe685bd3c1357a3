"""Torch's global random state for one picture alone: some pipelines sample words from it, whatever generator they have.

Prompts that a language model rewrites are sampled so (ERNIE-Image, LongCat-Image), and so is GLM-Image's own plan of a
picture, which seeds the global state besides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@contextlib.contextmanager
def own_randomness(seed: int, device: torch.device) -> Iterator[None]:
    """Inside, torch's global generators begin at `seed`, on the CPU and on `device`; afterwards they are as before."""
    import torch

    if device.type in ("cpu", "meta"):
        with torch.random.fork_rng([]):
            torch.default_generator.manual_seed(seed)
            yield
        return
    module = torch.get_device_module(device)
    place = device.index if device.index is not None else torch.accelerator.current_device_index()
    with torch.random.fork_rng([place], device_type=device.type), torch.accelerator.device_index(place):
        # Not torch.manual_seed, which seeds every GPU: only what is set back may change.
        torch.default_generator.manual_seed(seed)
        module.manual_seed(seed)
        yield
