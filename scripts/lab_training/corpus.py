"""Rendered corpora, cached as memory-mapped arrays under the work folder; the scenes are recomputed, never stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from counterfoil.lab.world import SIDE, Scene, render


def corpus(folder: Path, name: str, count: int, scene_of: Callable[[int], Scene]) -> np.ndarray:
    """uint8 [count, 64, 64, 3] of scenes 0 … count-1, rendered once."""
    path = folder / f"{name}-{count}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp.npy")
        pixels = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.uint8, shape=(count, SIDE, SIDE, 3))
        for number in range(count):
            pixels[number] = render(scene_of(number))
        pixels.flush()
        temporary.replace(path)
    return np.load(path, mmap_mode="r")


def to_tensor(pixels: np.ndarray) -> torch.Tensor:
    """uint8 [n, 64, 64, 3] → float [n, 3, 64, 64] in -1 … 1 (the normalisation of every lab model)."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).float() / 127.5 - 1


def softened(images: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Half of a batch [n, 3, 64, 64] blurred a little, at random.

    The judge and the screen also look at generated pictures, which are softer than true renders; without
    this they read softness itself as an attribute (an embroidery without sharp stitches as a photograph).
    """
    from torchvision.transforms.v2.functional import gaussian_blur

    chosen = torch.from_numpy(np.flatnonzero(rng.random(len(images)) < 0.5))
    sigma = float(rng.uniform(0.4, 1.4))
    out = images.clone()
    out[chosen] = gaussian_blur(images[chosen], [7, 7], [sigma, sigma])
    return out
