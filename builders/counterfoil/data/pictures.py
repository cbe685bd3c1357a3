"""Find images of an input dataset that change when they are read: 16-bit grey, EXIF rotations,
transparent pixels, several frames, damaged files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from counterfoil.corrupting.corruptions import SMALL_BELOW
from counterfoil.progress import report_progress
from counterfoil.report.words import format_count
from counterfoil.store.decoding import UnreadableImage, exif_orientation, load_image, open_image

if TYPE_CHECKING:
    from PIL import Image

_Item = TypeVar("_Item")
# Pillow's modes of greyscale images with more than 8 bits.
_DEEP = frozenset(("I", "I;16", "I;16B", "I;16L", "I;16N", "F"))
MOST_LOOKED_AT = 1000
# Decoding ten photographs of a camera takes about a second.
MOST_BYTES = 200_000_000
# Decoding so many pixels of PNG files takes about two seconds.
MOST_PIXELS_FOR_ALPHA = 100_000_000


@dataclass(slots=True)
class SourcePictures:
    """Counts over the opened images of a dataset.

    sides: (width, height). damaged: why an image cannot be read, by its name. deep: the number of
    greyscale images with more than 8 bits. turned: the number of images with an EXIF rotation.
    transparent: the number of images with a pixel that is not opaque. perhaps_transparent: the
    number of further images, whose pixels were not decoded. moving: the number of images with
    several frames or pages. jpeg_sides: the shorter side of each JPEG.
    """

    sides: list[tuple[int, int]] = field(default_factory=list)
    damaged: dict[str, str] = field(default_factory=dict)
    deep: int = 0
    turned: int = 0
    transparent: int = 0
    perhaps_transparent: int = 0
    moving: int = 0
    jpeg_sides: list[int] = field(default_factory=list)

    def of(self, total: int) -> str:
        """Return how many images were opened, as words after a count; empty if all were."""
        looked = len(self.sides) + len(self.damaged)
        return "" if looked == total else f" of the {looked:,} that were opened"

    def twice_compressed(self, total: int) -> list[str]:
        """Return a warning if small JPEG files of a dataset of `total` images would be compressed
        again.

        Small pictures get the qualities of CIFAR-10-C from `jpeg_compression`. When photographs of
        CIFAR-10 were saved at quality 75 first, a ResNet-20 had accuracies of 82, 76, 70, 64 and 70
        % at severities 1 to 5.
        """
        small = sum(side < SMALL_BELOW for side in self.jpeg_sides)
        if not small:
            return []
        return [
            f"{format_count(small, 'image')}{self.of(total)} {'is' if small == 1 else 'are'} JPEG"
            " already and under"
            f" {SMALL_BELOW} pixels, so jpeg_compression takes less than from lossless ones, and a"
            " higher severity may"
            " take less than a lower one"
        ]

    def notes(self, total: int, *, applied: bool = False) -> list[str]:
        """Return warnings for a dataset of `total` images. applied: whether EXIF rotations are
        applied."""
        of = self.of(total)
        notes = []
        if self.deep:
            notes.append(
                f"{format_count(self.deep, 'image')}{of} {'is' if self.deep == 1 else 'are'} grey of 16"
                " or 32 bits. Values"
                " above 255 become white, and fractions of 1 black, as in torchvision. Convert them"
                " to 8 bits"
            )
        if self.turned and not applied:
            notes.append(
                f"{format_count(self.turned, 'image')}{of} {'has' if self.turned == 1 else 'have'} an"
                " EXIF tag that turns"
                " the picture. It is ignored, as torchvision and timm do; datasets and transformers"
                " turn the picture."
                " To turn them, set source.exif to apply in the recipe"
            )
        if self.transparent:
            least = "at least " if self.perhaps_transparent else ""
            notes.append(
                f"{least}{format_count(self.transparent, 'image')}{of}"
                f" {'has' if self.transparent == 1 else 'have'} transparent pixels. Models see the"
                " colours that are stored there, as with torchvision and timm, and not a background."
                " Lay such images over the background that your model will meet"
            )
        if self.moving:
            notes.append(
                f"{format_count(self.moving, 'image')}{of} {'has' if self.moving == 1 else 'have'}"
                " several frames or pages. The first one is read, and no other"
            )
        return notes


def look_at_pictures(
    images: Iterable[tuple[str, bytes | None]], count: int, *, decode: bool
) -> SourcePictures:
    """Open `count` named images. With `decode` all pixels are decoded, otherwise only the headers
    are read, and the pixels of the first images that may be transparent."""
    pictures = SourcePictures()
    to_decode = MOST_PIXELS_FOR_ALPHA
    for number, (name, encoded) in enumerate(images):
        if number % 50 == 0:
            report_progress("opening images", number, count)
        try:
            with open_image(encoded, photograph=True) as picture:
                if decode:
                    load_image(picture)
                if picture.has_transparency_data:
                    if to_decode > 0:
                        to_decode -= picture.width * picture.height
                        pictures.transparent += _is_transparent(picture)
                    else:
                        pictures.perhaps_transparent += 1
                pictures.sides.append(picture.size)
                if picture.format == "JPEG":
                    pictures.jpeg_sides.append(min(picture.size))
                pictures.deep += picture.mode in _DEEP
                pictures.turned += exif_orientation(picture) != 1
                pictures.moving += _is_moving(picture)
        except UnreadableImage as error:
            pictures.damaged[name] = str(error)
    report_progress("opening images", count, count)
    return pictures


def _is_moving(picture: Image.Image) -> bool:
    """Check whether an image has several frames or pages."""
    # Phones store a preview or a depth map behind a photograph (MPO).
    if picture.format == "MPO":
        return False
    try:
        return getattr(picture, "is_animated", False)
    except Exception:  # a damaged frame behind the first, which is the one that is read
        return True


def _is_transparent(picture: Image.Image) -> bool:
    """Check whether a pixel is not opaque. Raise UnreadableImage for a damaged image."""
    try:
        alpha = load_image(picture).convert("RGBA").getchannel("A")
    except (OSError, ValueError, MemoryError) as error:
        raise UnreadableImage(str(error)) from error
    *not_opaque, _ = alpha.histogram()
    return any(not_opaque)


def evenly_spread(items: Sequence[_Item], most: int) -> list[_Item]:
    """Return at most `most` items, evenly spread over all items, in order."""
    if len(items) <= most:
        return list(items)
    return [items[index * len(items) // most] for index in range(most)]
