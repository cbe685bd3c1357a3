"""Encoded images of datasets: format and size are read from the header, and judged, before a pixel is allocated.

A PNG of 40 kB may unfold to half a gigabyte. Only the formats that a recipe may ask for are opened, so Pillow's other
decoders never meet a stranger's file.

Every image that the package did not just draw is decoded here. What does not open is UnreadableImage, which says why
and not where: who knows the place and what to do tells it (cards and pages, input datasets, verification). Where one
of many may be missing (predictions, embeddings, thresholds), `readable_image` gives None, and the image is counted.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from counterfoil.recipe.schema_inputs import LARGEST_SIDE

if TYPE_CHECKING:
    from PIL import Image

T = TypeVar("T")

# The recipe's name of a format, and Pillow's.
FORMATS = {"png": "PNG", "jpg": "JPEG", "webp": "WEBP"}
MOST_PIXELS = LARGEST_SIDE**2
# Photographs of input datasets may be larger than what is rendered: what Pillow itself takes without a warning.
MOST_PHOTOGRAPHED = 89_478_485
# Not TGA, which has no signature: damaged bytes would be a picture. An AVIF whose header lies is held to 2^28 pixels by
# its library.
_PHOTOGRAPHS = (*FORMATS.values(), "BMP", "GIF", "TIFF", "AVIF", "PPM")  # a JPEG of several pictures is one as well
# What files of these formats are called.
PHOTOGRAPH_ENDINGS = frozenset(
    (".png", ".apng", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".dib", ".gif", ".tif", ".tiff", ".avif",
     ".ppm", ".pgm", ".pbm", ".pnm")
)  # fmt: skip
# Each scan of a progressive JPEG is a pass over all pixels; encoders write about ten.
_SCAN, _MOST_SCANS = b"\xff\xda", 100
_TILE_WIDTH, _TILE_LENGTH = 322, 323  # TIFF's tags
_ORIENTATION = 274  # EXIF's
_MOST_DECODERS = 8


class UnreadableImage(ValueError):
    """Bytes that are no image of a dataset; the text says why."""


def open_image(encoded: Any, *, photograph: bool = False) -> Image.Image:
    """An image whose header is read and whose pixels are not. UnreadableImage for anything else than a dataset's.

    A `photograph` is an input dataset's: of more formats, and larger.
    """
    from PIL import Image

    if not isinstance(encoded, bytes) or not encoded:
        raise UnreadableImage("it is empty")
    try:
        picture = Image.open(io.BytesIO(encoded), formats=_PHOTOGRAPHS if photograph else list(FORMATS.values()))
    except Exception as error:  # Pillow raises a dozen kinds of errors for damaged files
        raise UnreadableImage(_shown(error)) from error
    width, height = picture.size
    most = MOST_PHOTOGRAPHED if photograph else MOST_PIXELS
    if width * height > most:
        raise UnreadableImage(f"it declares {width}×{height} pixels, expected at most {most:,}")
    if picture.format in ("JPEG", "MPO") and (scans := encoded.count(_SCAN)) > _MOST_SCANS:
        raise UnreadableImage(f"it has {scans:,} scans, expected at most {_MOST_SCANS}")
    # A TIFF's tile is unpacked whole, however small the image is.
    tags = getattr(picture, "tag_v2", {})
    across, down = tags.get(_TILE_WIDTH, 0), tags.get(_TILE_LENGTH, 0)
    if isinstance(across, int) and isinstance(down, int) and across * down > most:
        raise UnreadableImage(f"it declares a tile of {across * down:,} pixels, expected at most {most:,}")
    return picture


def orientation(picture: Image.Image) -> int:
    """How EXIF says that an opened image is still to be turned: 1 for not at all, to 8."""
    if picture.format == "TIFF":
        return 1  # Pillow turns it as it loads it, for torchvision too
    try:
        value = picture.getexif().get(_ORIENTATION, 1)
    except Exception:  # of tags of any content; an image whose tags cannot be read is shown as it is
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def load_image(picture: Image.Image) -> Image.Image:
    """The image of `open_image`, decoded to its last pixel. UnreadableImage where it is damaged."""
    try:
        picture.load()
    except Exception as error:
        raise UnreadableImage(_shown(error)) from error
    return picture


def rgb_image(encoded: Any, *, photograph: bool = False) -> Image.Image:
    """An encoded image as RGB. UnreadableImage for what is none; `photograph` as for `open_image`."""
    with open_image(encoded, photograph=photograph) as picture:
        try:
            return load_image(picture).convert("RGB")
        except (OSError, ValueError, MemoryError) as error:
            raise UnreadableImage(_shown(error)) from error


def upright(encoded: bytes | None) -> bytes | None:
    """A photograph turned as its EXIF says, as PNG of the same pixels; as it is where nothing is to turn."""
    from PIL import ImageOps

    try:
        with open_image(encoded, photograph=True) as picture:
            if orientation(picture) == 1:
                return encoded
            turned = ImageOps.exif_transpose(load_image(picture)).convert("RGB")
    except (UnreadableImage, OSError, ValueError, MemoryError):
        return encoded  # whoever decodes it says what is wrong
    stream = io.BytesIO()
    turned.save(stream, "PNG", compress_level=1)
    return stream.getvalue()


def readable_image(encoded: Any, *, photograph: bool = False) -> Image.Image | None:
    """As `rgb_image`, and None for what is none: for those who count such images and go on."""
    try:
        return rgb_image(encoded, photograph=photograph)
    except UnreadableImage:
        return None


def decoded_batches(
    images: Iterable[bytes | None], decode: Callable[[bytes | None], T], batch_size: int, device: str
) -> Iterator[list[T]]:
    """What `decode` makes of each image, in order, a batch at a time; `device` is where the batches are computed.

    A GPU computes one batch while threads decode the next. A CPU does one after the other, each on all of its cores:
    decoders beside torch's threads only make these wait, and a pass over small images takes up to 1.7 times as long.
    """
    stream = iter(images)
    if device == "cpu":
        import torch

        decoders = min(_MOST_DECODERS, torch.get_num_threads())  # one in a worker, which has one core
        if decoders == 1:
            while batch := [decode(one) for one in islice(stream, batch_size)]:
                yield batch
            return
        with ThreadPoolExecutor(decoders) as pool:
            while batch := list(pool.map(decode, islice(stream, batch_size))):
                yield batch
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    with ThreadPoolExecutor(min(_MOST_DECODERS, cores)) as pool:
        ahead = [pool.submit(decode, one) for one in islice(stream, batch_size)]
        while ahead:
            current, ahead = ahead, [pool.submit(decode, one) for one in islice(stream, batch_size)]
            yield [future.result() for future in current]


def _shown(error: Exception) -> str:
    # The address of the stream, which some messages hold, tells nobody anything.
    return f"{type(error).__name__}: {str(error).partition(' <')[0]}"


def pixels_sha256(picture: Image.Image) -> str:
    """sha256 of an image's size and its pixels, as `readable_image` gives them: equal for one picture in two files."""
    return hashlib.sha256(f"{picture.size}".encode() + picture.tobytes()).hexdigest()
