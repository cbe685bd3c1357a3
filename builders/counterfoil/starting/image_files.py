"""What lies in a folder of images beside what is read: hidden files, other files, and images that do not open.

A folder may be anybody's and of any size: only names are listed, and at most `MOST_DECODED` images are decoded, spread
over all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from counterfoil.regular_files import read_regular
from counterfoil.store.decoding import UnreadableImage, rgb_image
from counterfoil.store.inside import list_files

MOST_DECODED = 1000
# A folder of more is no folder of images that somebody wants a recipe for in this hour.
MOST_FILES = 5_000_000
_LARGEST_IMAGE = 1 << 28
_MOST_SHOWN = 5
# What `datasets` takes for an image, of what is decoded here, and what it takes for images that are packed.
_IMAGES = frozenset((".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".jfif", ".jpe"))
_PACKED = frozenset((".parquet", ".arrow", ".tar"))
# What names the images that `datasets` reads, and their columns, in place of folders.
_METADATA = frozenset(("metadata.csv", "metadata.jsonl"))


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """The files of a folder: image files by path, sorted, how many are hidden, how many are of another kind.

    listed: whether tables say which images there are, so that folders need not.
    """

    folder: Path
    images: tuple[str, ...]
    hidden: int
    others: int
    listed: bool


def image_files(folder: Path) -> ImageFiles:
    """List a folder. RunFailure for one of more than `MOST_FILES` files."""
    listing = list_files(folder, hidden=True, most=MOST_FILES)
    shown = [name for name in listing.files if not _is_hidden(name)]
    kinds = [PurePosixPath(name).suffix.lower() for name in shown]
    return ImageFiles(
        folder=folder,
        images=tuple(name for name, kind in zip(shown, kinds, strict=True) if kind in _IMAGES),
        hidden=len(listing.files) - len(shown),
        others=sum(kind not in _IMAGES for kind in kinds),
        listed=any(kind in _PACKED for kind in kinds) or any(PurePosixPath(n).name in _METADATA for n in shown),
    )


def unreadable_notes(files: ImageFiles) -> Iterator[str]:
    """What to say of a folder's hidden, other and unreadable files; a line each, none where there are none."""
    if files.hidden:
        yield f"{_counted(files.hidden, 'hidden file')} left alone"
    if files.others:
        yield f"{_counted(files.others, 'file')} of other kinds left alone"
    looked = spread(files.images, MOST_DECODED)
    damaged = [name for name in looked if not _is_readable(files.folder / name)]
    if damaged:
        more = f" and {len(damaged) - _MOST_SHOWN} more" if len(damaged) > _MOST_SHOWN else ""
        yield (
            f"{_counted(len(damaged), 'image')} cannot be read, and a build would stop at them: remove or replace"
            f" {', '.join(damaged[:_MOST_SHOWN])}{more}"
        )
    if len(looked) < len(files.images):
        yield f"{len(looked):,} of {len(files.images):,} images were opened to see whether they can be read"


def spread(items: Sequence[str], most: int) -> list[str]:
    """At most so many items, evenly spread over all, in order."""
    if len(items) <= most:
        return list(items)
    return [items[place * len(items) // most] for place in range(most)]


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _is_hidden(name: str) -> bool:
    return any(part.startswith((".", "__")) for part in PurePosixPath(name).parts)


def _is_readable(path: Path) -> bool:
    try:
        rgb_image(read_regular(path, _LARGEST_IMAGE), photograph=True)
    except (UnreadableImage, OSError):
        return False
    return True
