"""Encode a rendered image as the file that is stored, resized to the size that the recipe saves."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image as PILImage

    from counterfoil.recipe import Recipe

# PNGs of 1024 pixels a thread: three a second; more of them than this outrun any GPU.
_MOST_THREADS = 8


def encoding_threads(device: str) -> int:
    """Threads of a worker that encode: one on a CPU, whose cores have a worker each; else its GPU's share of the cores,
    less the two that draw and screen. They change no byte."""
    if not device.startswith("cuda"):
        return 1
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_MOST_THREADS, cores // max(1, torch.cuda.device_count()) - 2))


def encode_image(picture: PILImage.Image, recipe: Recipe) -> bytes:
    """PNG, JPEG or WebP bytes; the same for the same pixels and Pillow version."""
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
