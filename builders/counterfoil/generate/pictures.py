"""Round drawn pixels to pictures, encode them as they are stored, and compare them."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from counterfoil.store.decoding import rgb_image

if TYPE_CHECKING:
    import torch
    from PIL import Image as PILImage

    from counterfoil.plan.layout import Sample
    from counterfoil.recipe import Recipe

# A `DrawnAhead` waits for pictures and returns them. Each picture is uint8 [height, width, 3], or
# None if some of its numbers were not finite.
DrawnAhead = Callable[[], list["np.ndarray | None"]]


class ImageRenderer:
    """Makes the images of samples, a batch at a time. Each kind of generator has its own."""

    def ahead(self, samples: Sequence[Sample]) -> DrawnAhead:
        """Start to make the images of a batch. The returned function waits for them."""
        raise NotImplementedError

    def render(self, samples: Sequence[Sample]) -> list[np.ndarray | None]:
        """Return a uint8 array [height, width, 3] for each sample, or None if its image cannot be
        made.

        Raise ValueError for more samples than a batch holds. Raise RunFailure if memory runs out or
        the model fails.
        """
        return self.ahead(samples)()

    def sources(self, samples: Sequence[Sample]) -> list[PILImage.Image | None]:
        """Return the image that each sample is an edit of, or None."""
        return [None] * len(samples)

    def values(self, samples: Sequence[Sample]) -> list[dict[str, Any]]:
        """Return the kind's columns for each sample."""
        return [{} for _ in samples]


T = TypeVar("T")


def padded_to(count: int, items: Sequence[T]) -> list[T]:
    """Return the items, and the last of them again until there are `count`."""
    missing = count - len(items)
    return [*items, *[items[-1]] * missing]


def as_pictures(pixels: torch.Tensor) -> DrawnAhead:
    """Round pixels [n, 3, height, width] from 0 to 1 to levels. The returned function waits for the
    levels.

    The rounding is in float32, with halves to even. On a GPU the levels are copied to pinned memory
    on the stream that draws, so the thread that draws does not wait.
    """
    import torch

    numbers = pixels.float()
    finite = torch.isfinite(numbers).flatten(1).all(1)
    # Numbers that are not finite become 0 here, and the function below drops their picture.
    within = numbers.nan_to_num(0.0).clamp(0, 1)
    rounded = (within * 255).round().to(torch.uint8)
    levels = rounded.permute(0, 2, 3, 1).contiguous()
    wait = None
    if pixels.is_cuda:
        levels = _pinned(levels)
        finite = _pinned(finite)
        copied = torch.cuda.Event(blocking=True)
        copied.record(torch.cuda.current_stream(pixels.device))
        wait = copied.synchronize

    def pictures() -> list[np.ndarray | None]:
        if wait is not None:
            wait()
        images: list[np.ndarray | None] = list(levels.numpy())
        for index, kept in enumerate(finite.tolist()):
            if not kept:
                images[index] = None
        return images

    return pictures


def _pinned(part: torch.Tensor) -> torch.Tensor:
    import torch

    pinned = torch.empty(part.shape, dtype=part.dtype, pin_memory=True)
    return pinned.copy_(part, non_blocking=True)


# A thread encodes three PNG files of 1024 x 1024 pixels a second, so `_MOST_THREADS` threads are
# faster than any GPU renders.
_MOST_THREADS = 8


def encoding_threads(device: str) -> int:
    """Return the number of threads with which a worker encodes images.

    On a CPU the number is 1, because each core has a worker. On a GPU it is the share of the cores
    for this GPU, less two.
    """
    if not device.startswith("cuda"):
        return 1
    import torch

    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    cores_a_gpu = cores // max(1, torch.cuda.device_count())
    return max(1, min(_MOST_THREADS, cores_a_gpu - 2))


def encode_image(picture: PILImage.Image, recipe: Recipe) -> bytes:
    """Encode a picture as PNG, JPEG or WebP. Equal pixels give equal bytes with the same version of
    Pillow."""
    from PIL import Image

    side = recipe.generator.saved_size
    if side is not None and picture.size != (side, side):
        picture = picture.resize((side, side), Image.Resampling.LANCZOS)
    settings = recipe.output.image
    quality = settings.encoding_quality
    stream = io.BytesIO()
    if settings.format == "png":
        picture.save(stream, "PNG")
    elif settings.format == "jpg":
        # Keep chroma at full resolution. At the usual 4:2:0 the edges of saturated colours would be
        # lost.
        picture.save(stream, "JPEG", quality=quality, subsampling=0)
    else:
        picture.save(stream, "WEBP", quality=quality, method=4)
    return stream.getvalue()


def decode_image(encoded: bytes) -> np.ndarray:
    """Decode an image to uint8 [height, width, 3]. Raise UnreadableImage if this is impossible."""
    return np.asarray(rgb_image(encoded))


def psnr(pixels: np.ndarray, other: np.ndarray) -> float:
    """Return the peak signal-to-noise ratio in dB of two uint8 arrays of one shape. For equal
    arrays it is infinite."""
    differences = pixels.astype(np.float64) - other.astype(np.float64)
    error = float(np.mean(differences**2))
    if error == 0:
        return math.inf
    return 10 * math.log10(255**2 / error)
