"""Encode a rendered image as the file that is stored, resized to the size that the recipe saves."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image as PILImage

    from counterfoil.recipe import Recipe


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
