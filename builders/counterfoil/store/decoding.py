"""Decode images. The format and size in an image's header are checked before memory for pixels is
allocated, because a PNG of 40 kB may expand to half a gigabyte.

Only formats that a recipe may name are opened, so no other decoder of Pillow reads a stranger's
file.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from counterfoil.recipe.section import LARGEST_SIDE

if TYPE_CHECKING:
    from PIL import Image

T = TypeVar("T")
Encoded = TypeVar("Encoded")

# The recipe's name of each format, and Pillow's name.
FORMATS = {"png": "PNG", "jpg": "JPEG", "webp": "WEBP"}
MOST_PIXELS = LARGEST_SIDE**2
# Photographs of input datasets may be larger than rendered images. This limit is the size above
# which Pillow warns.
MOST_PHOTOGRAPHED = 89_478_485
# TGA is left out because it has no signature, so that damaged bytes would pass for an image. AVIF's
# library limits the image size in a header to 2^28 pixels.
# a JPEG of several pictures is one as well
_PHOTOGRAPHS = (*FORMATS.values(), "BMP", "GIF", "TIFF", "AVIF", "PPM")
# File endings of these formats.
PHOTOGRAPH_ENDINGS = frozenset(
    (".png", ".apng", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".bmp", ".dib", ".gif", ".tif", ".tiff", ".avif",
     ".ppm", ".pgm", ".pbm", ".pnm")
)  # fmt: skip
# Each scan of a progressive JPEG is a pass over all pixels. Encoders write about ten scans.
_SCAN = b"\xff\xda"
_MOST_SCANS = 100
# tags of TIFF
_TILE_WIDTH = 322
_TILE_LENGTH = 323
# Why an image is left out, for messages that have only its name.
UNREAD = f"damaged, or above {MOST_PHOTOGRAPHED:,} pixels"
_ORIENTATION = 274  # tag of EXIF
_MOST_DECODERS = 8


class UnreadableImage(ValueError):
    """An error for bytes that cannot be read as an image. Its text says why."""


def open_image(encoded: Any, *, photograph: bool = False) -> Image.Image:
    """Open an image and read only its header. Raise UnreadableImage if it fails. photograph: allow
    more formats and larger sizes.
    """
    from PIL import Image

    if not isinstance(encoded, bytes) or not encoded:
        raise UnreadableImage("it is empty")
    formats = _PHOTOGRAPHS if photograph else tuple(FORMATS.values())
    try:
        picture = Image.open(io.BytesIO(encoded), formats=formats)
    except Exception as error:  # Pillow raises a dozen kinds of errors for damaged files
        raise UnreadableImage(_shown(error)) from error
    width, height = picture.size
    most = MOST_PHOTOGRAPHED if photograph else MOST_PIXELS
    if width * height > most:
        raise UnreadableImage(f"it declares {width}×{height} pixels, expected at most {most:,}")
    if picture.format in ("JPEG", "MPO") and (scans := encoded.count(_SCAN)) > _MOST_SCANS:
        raise UnreadableImage(f"it has {scans:,} scans, expected at most {_MOST_SCANS}")
    # A TIFF's tile is unpacked whole, even if it is much larger than the image.
    tags = getattr(picture, "tag_v2", {})
    tile_width = tags.get(_TILE_WIDTH, 0)
    tile_length = tags.get(_TILE_LENGTH, 0)
    if isinstance(tile_width, int) and isinstance(tile_length, int):
        tile = tile_width * tile_length
        if tile > most:
            raise UnreadableImage(
                f"it declares a tile of {tile:,} pixels, expected at most {most:,}"
            )
    return picture


def exif_orientation(picture: Image.Image) -> int:
    """Return the EXIF orientation of an opened image: 1 (upright) to 8."""
    if picture.format == "TIFF":
        return 1  # Pillow rotates a TIFF when it loads the TIFF, also for torchvision
    try:
        value = picture.getexif().get(_ORIENTATION, 1)
    except Exception:  # tags may hold anything; if they are unreadable, the image is not rotated
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


class PictureSides(NamedTuple):
    """Width and height of a photograph."""

    stored: tuple[int, int]
    """As the file stores it."""
    upright: tuple[int, int]
    """As its EXIF orientation turns it."""
    turned: bool
    """Whether it has such an orientation. A half turn changes no side."""

    def read(self, exif: str) -> tuple[int, int]:
        """Return the sides of the picture that is read with `source.exif`: apply or ignore."""
        return self.upright if exif == "apply" else self.stored


def picture_sides(encoded: Any) -> PictureSides:
    """Return the sides of a photograph from its header. Raise UnreadableImage if it cannot be
    opened."""
    with open_image(encoded, photograph=True) as picture:
        turn = exif_orientation(picture)
        # Orientations from 5 on turn a photograph by a quarter.
        upright = picture.size[::-1] if turn >= 5 else picture.size
        return PictureSides(picture.size, upright, turn != 1)


def load_image(picture: Image.Image) -> Image.Image:
    try:
        picture.load()
    except Exception as error:
        raise UnreadableImage(_shown(error)) from error
    return picture


def rgb_image(encoded: Any, *, photograph: bool = False) -> Image.Image:
    """Decode an image as RGB. Raise UnreadableImage if that fails. `photograph` has the same
    meaning as in `open_image`.
    """
    with open_image(encoded, photograph=photograph) as picture:
        try:
            return load_image(picture).convert("RGB")
        except (OSError, ValueError, MemoryError) as error:
            raise UnreadableImage(_shown(error)) from error


def upright_photograph(encoded: bytes | None) -> bytes | None:
    """Rotate a photograph by its EXIF orientation and return it as PNG. An upright or unreadable
    photograph is returned unchanged.
    """
    from PIL import ImageOps

    try:
        with open_image(encoded, photograph=True) as picture:
            if exif_orientation(picture) == 1:
                return encoded
            turned = ImageOps.exif_transpose(load_image(picture)).convert("RGB")
    except (UnreadableImage, OSError, ValueError, MemoryError):
        return encoded  # the caller decodes the image and reports what is wrong
    stream = io.BytesIO()
    turned.save(stream, "PNG", compress_level=1)
    return stream.getvalue()


def readable_image(encoded: Any, *, photograph: bool = False) -> Image.Image | None:
    """Decode an image like `rgb_image`, but return None if it is unreadable."""
    try:
        return rgb_image(encoded, photograph=photograph)
    except UnreadableImage:
        return None


def decoded_batches(
    images: Iterable[Encoded],
    decode: Callable[[Encoded], T],
    batch_size: int,
    device: str,
) -> Iterator[list[T]]:
    """Yield `decode` of each image, in order, in batches; for a GPU, threads decode the next batch
    meanwhile."""
    stream = iter(images)
    if device == "cpu":
        # On a CPU, decoding and computing alternate. Decoding beside torch's threads would slow
        # small images down by up to 1.7 times.
        import torch

        # one decoder in a worker, which has one core
        decoders = min(_MOST_DECODERS, torch.get_num_threads())
        if decoders == 1:
            while batch := [decode(image) for image in islice(stream, batch_size)]:
                yield batch
            return
        with ThreadPoolExecutor(decoders) as pool:
            while batch := list(pool.map(decode, islice(stream, batch_size))):
                yield batch
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    with ThreadPoolExecutor(min(_MOST_DECODERS, cores)) as pool:
        ahead = [pool.submit(decode, image) for image in islice(stream, batch_size)]
        while ahead:
            current = ahead
            ahead = [pool.submit(decode, image) for image in islice(stream, batch_size)]
            yield [future.result() for future in current]


def _shown(error: Exception) -> str:
    # Some messages hold the memory address of the stream, which helps no reader.
    return f"{type(error).__name__}: {str(error).partition(' <')[0]}"


def pixels_sha256(picture: Image.Image) -> str:
    """Hash an image's size and pixels. Two files of the same picture have the same hash."""
    return hashlib.sha256(f"{picture.size}".encode() + picture.tobytes()).hexdigest()
