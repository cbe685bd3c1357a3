"""Pictures of the proofs: as Pillow has them, as files, prepared for classifiers, and drawn by the
lab's Stable Diffusion."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

if TYPE_CHECKING:
    import torch

    from counterfoil.models.classifiers import Classifier

Pixels: TypeAlias = NDArray[np.uint8]
"""(n, 64, 64, 3) of pictures."""
BATCH = 64
# As the lab's recipes draw.
_STEPS = 12
_GUIDANCE = 3.0
_DRAWN = 25


def images_of(pixels: Iterable[Pixels]) -> list[Image.Image]:
    """Return pictures as Pillow has them."""
    return [Image.fromarray(picture) for picture in pixels]


def pixels_of(content: bytes) -> Pixels:
    """Return the colours of an encoded picture, (height, width, 3)."""
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def png_of(pixels: Pixels) -> bytes:
    """Return one picture as a PNG file."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def batches_for(
    classifier: Classifier, pixels: Pixels, size: int = BATCH
) -> Iterator[torch.Tensor]:
    """Yield batches of pictures, each through the classifier's own transform."""
    import torch

    transform = classifier.transform()
    for start in range(0, len(pixels), size):
        images = images_of(pixels[start : start + size])
        yield torch.stack([transform(image) for image in images])


def draw_pictures(
    pipeline: Any,
    prompt: str,
    seeds: Sequence[int],
    options: Callable[[int], dict[str, Any]] | None = None,
) -> Pixels:
    """Draw a picture of a prompt for each seed. options: of the pipeline, by the size of a batch."""
    import torch

    parts = []
    for start in range(0, len(seeds), _DRAWN):
        batch = seeds[start : start + _DRAWN]
        more = {} if options is None else options(len(batch))
        with torch.inference_mode():
            images = pipeline(
                prompt=[prompt] * len(batch),
                num_inference_steps=_STEPS,
                guidance_scale=_GUIDANCE,
                generator=[torch.Generator().manual_seed(seed) for seed in batch],
                output_type="np",
                **more,
            ).images
        parts.append(np.rint(np.clip(images, 0, 1) * 255).astype(np.uint8))
    return np.concatenate(parts)
