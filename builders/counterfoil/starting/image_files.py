"""What lies in a folder of images beside what is read: hidden files, other files, and images that do not open.

A folder may be anybody's and of any size: only names are listed, and at most `MOST_DECODED` images (or `MOST_BYTES` of
them) are decoded, spread over all of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

from counterfoil.progress import report
from counterfoil.regular_files import read_regular
from counterfoil.report.words import counted
from counterfoil.sources.folder_content import folder_listing
from counterfoil.store.decoding import UnreadableImage, rgb_image

MOST_DECODED = 1000
# Photographs of a camera take a second for every ten.
MOST_BYTES = 200_000_000
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

    listed: whether tables say which images there are, so that folders need not. unfit: links and the like, with what
    they are. linked: folders that are links, with where they lead.
    """

    folder: Path
    images: tuple[str, ...]
    hidden: int
    others: int
    listed: bool
    unfit: Mapping[str, str]
    linked: Mapping[str, Path]


def image_files(folder: Path) -> ImageFiles:
    """List a folder. Raises as `folder_listing`."""
    listing = folder_listing(folder)
    shown = [name for name in listing.files if not _is_hidden(name)]
    kinds = [os.path.splitext(name)[1].lower() for name in shown]  # noqa: PTH122 (a Path each takes seconds)
    return ImageFiles(
        folder=folder,
        images=tuple(name for name, kind in zip(shown, kinds, strict=True) if kind in _IMAGES),
        hidden=len(listing.files) - len(shown),
        others=sum(kind not in _IMAGES for kind in kinds),
        listed=any(kind in _PACKED for kind in kinds) or any(n.rpartition("/")[2] in _METADATA for n in shown),
        unfit=listing.unfit,
        linked=listing.linked,
    )


@dataclass(frozen=True, slots=True)
class Looked:
    """What is to be said of a folder's files; and the median shorter side of those of its images that were opened."""

    notes: list[str]
    side: int | None


def look_at_files(files: ImageFiles, *, stops: bool = True) -> Looked:
    """Open some images. A line each for links, hidden, other and unreadable files; none where there are none.

    stops: whether a build stops at an image that cannot be read, and takes no other in its place.
    """
    notes = [f"{name} is a link: its images are those of {target}" for name, target in files.linked.items()]
    if len(notes) > _MOST_SHOWN:
        notes[_MOST_SHOWN:] = [f"and {len(notes) - _MOST_SHOWN:,} more folders are links"]
    if files.hidden:
        notes.append(f"{counted(files.hidden, 'hidden file')} left alone")
    if files.others:
        notes.append(f"{counted(files.others, 'file')} of other kinds left alone")
    looked, damaged, sides = spread(files.images, MOST_DECODED), [], list[int]()
    size = sum(path.stat().st_size for path in (files.folder / name for name in looked) if path.exists())
    if size > MOST_BYTES:
        looked = spread(looked, max(1, len(looked) * MOST_BYTES // size))
    for number, name in enumerate(looked):
        if number % 50 == 0:
            report("opening images", number, len(looked))
        side = _shorter_side(files.folder / name)
        if side is None:
            damaged.append(name)
        else:
            sides.append(side)
    report("opening images", len(looked), len(looked))
    if damaged:
        more = f" and {len(damaged) - _MOST_SHOWN} more" if len(damaged) > _MOST_SHOWN else ""
        notes.append(
            f"{counted(len(damaged), 'image')} cannot be read, and a build"
            f" {'would stop there: remove or replace' if stops else 'leaves out'}"
            f" {', '.join(damaged[:_MOST_SHOWN])}{more}"
        )
    if len(looked) < len(files.images):
        notes.append(f"{len(looked):,} of {len(files.images):,} images were opened to see whether they can be read")
    return Looked(notes, median_low(sides) if sides else None)


def spread(items: Sequence[str], most: int) -> list[str]:
    """At most so many items, evenly spread over all, in order."""
    if len(items) <= most:
        return list(items)
    return [items[place * len(items) // most] for place in range(most)]


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "__")) or "/." in name or "/__" in name


def _shorter_side(path: Path) -> int | None:
    """In pixels; None for an image that cannot be read."""
    try:
        return min(rgb_image(read_regular(path, _LARGEST_IMAGE), photograph=True).size)
    except (UnreadableImage, OSError):
        return None
