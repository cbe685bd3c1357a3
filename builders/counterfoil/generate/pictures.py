"""Round drawn pixels to pictures, encode them as they are stored, and compare them."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.store.decoding import rgb_image

if TYPE_CHECKING:
    import torch
    from PIL import Image as PILImage

    from counterfoil.recipe import Recipe

# Waits for pictures, uint8 [height, width, 3] each; None for one whose numbers were not all finite.
DrawnAhead = Callable[[], list["np.ndarray | None"]]


def as_pictures(pixels: torch.Tensor) -> DrawnAhead:
    """Round pixels [n, 3, height, width] from 0 to 1 in float32, half to even; the returned function waits for them.

    On a GPU the levels are copied to pinned memory on the drawing's stream, so the thread that draws does not wait.
    """
    import torch

    numbers = pixels.float()
    finite = torch.isfinite(numbers).flatten(1).all(1)
    # A picture with numbers that are not finite is dropped below.
    levels = (numbers.nan_to_num(0.0).clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()
    wait = None
    if pixels.is_cuda:
        levels, finite = (_pinned(part) for part in (levels, finite))
        copied = torch.cuda.Event(blocking=True)
        copied.record(torch.cuda.current_stream(pixels.device))
        wait = copied.synchronize

    def pictures() -> list[np.ndarray | None]:
        if wait is not None:
            wait()
        kept = finite.tolist()
        return [image if kept[index] else None for index, image in enumerate(levels.numpy())]

    return pictures


def _pinned(part: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(part, non_blocking=True)


# A thread encodes three PNGs of 1024 pixels a second: more threads than these outrun any GPU.
_MOST_THREADS = 8


def encoding_threads(device: str) -> int:
    """Return a worker's encoding threads: one on a CPU, where each core has a worker; else its GPU's share less two."""
    if not device.startswith("cuda"):
        return 1
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_MOST_THREADS, cores // max(1, torch.cuda.device_count()) - 2))


def encode_image(picture: PILImage.Image, recipe: Recipe) -> bytes:
    """Encode as PNG, JPEG or WebP; the same bytes for the same pixels and Pillow version."""
    from PIL import Image

    side = recipe.generator.saved_size
    if side is not None and picture.size != (side, side):
        picture = picture.resize((side, side), Image.Resampling.LANCZOS)
    settings = recipe.output.image
    stream = io.BytesIO()
    if settings.format == "png":
        picture.save(stream, "PNG")
    elif settings.format == "jpg":
        # Full chroma: at the usual 4:2:0 a saturated shift would lose its edges.
        picture.save(stream, "JPEG", quality=settings.encoding_quality, subsampling=0)
    else:
        picture.save(stream, "WEBP", quality=settings.encoding_quality, method=4)
    return stream.getvalue()


def decoded(encoded: bytes) -> np.ndarray:
    """Return uint8 [height, width, 3]. Raise UnreadableImage if an image cannot be decoded."""
    return np.asarray(rgb_image(encoded))


def psnr(pixels: np.ndarray, other: np.ndarray) -> float:
    """Return the peak signal-to-noise ratio in dB of two uint8 arrays of one shape; infinite if equal."""
    error = float(np.mean((pixels.astype(np.float64) - other.astype(np.float64)) ** 2))
    return math.inf if error == 0 else 10 * math.log10(255**2 / error)
