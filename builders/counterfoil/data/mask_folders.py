"""Folders of images with masks, read as tables with a column of masks: `images/` and `masks/` with
files of one stem, or images with the outlines of a COCO file.

Further folders are the same on both sides: `images/train/1.jpg` and `masks/train/1.png`, or
`train/images/1.jpg` and `train/masks/1.png`. A folder with the name of a split, such as `val` or
`val2017`, is one. PASCAL VOC has lists of each split's images in ImageSets/Segmentation instead.
"""

from __future__ import annotations

import json
import posixpath
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.data.coco_folders import SEGMENTATION, coco_folder
from counterfoil.data.folder_splits import DEFAULT_SPLIT, SPLIT_OF
from counterfoil.data.image_folders import file_column, visible_files
from counterfoil.data.messages import message, refusal
from counterfoil.data.voc_folders import listed_stem, voc_lists
from counterfoil.data.written_objects import (
    ObjectFolder,
    WrittenObjects,
    described_table,
    rows_of_split,
)
from counterfoil.errors import Problems, quoted
from counterfoil.report.words import format_count

if TYPE_CHECKING:
    from counterfoil.store.inside import Listing

IMAGES = "images"
MASKS = "masks"
# The names of folders in lower case, also those of PASCAL VOC and ADE20K; and those that are read
# where a side has none of these.
_SIDE_OF = {
    "images": IMAGES,
    "jpegimages": IMAGES,
    "masks": MASKS,
    "annotations": MASKS,
    "segmentationclass": MASKS,
}
_ELSE_SIDE_OF = {
    "image": IMAGES,
    "imgs": IMAGES,
    "img": IMAGES,
    "mask": MASKS,
    "labels": MASKS,
    "label": MASKS,
}


@dataclass(frozen=True)
class MaskFolder:
    """A folder of images with masks. splits: split → the paths of each image and its mask. column:
    what the masks are called. notes: sentences on files that have no partner."""

    folder: Path
    splits: Mapping[str, Sequence[tuple[str, str]]]
    column: str
    notes: tuple[str, ...]

    def table(self, split: str) -> Any:
        """Return a split's rows as a table of `datasets`."""
        import datasets

        images, masks = zip(*rows_of_split(self.folder, self.splits, split), strict=True)
        features = datasets.Features({"image": datasets.Image(), self.column: datasets.Image()})
        columns = {
            "image": file_column(self.folder, images),
            self.column: file_column(self.folder, masks),
        }
        return described_table(columns, features, self.notes, split)


def read_mask_folder(folder: Path, listing: Listing, column: str) -> MaskFolder | None:
    """Return a folder of images and masks; None for another one. column: what masks are called.

    Raise UserError for two files of one stem, and for masks that are no PNG.
    """
    images = defaultdict[tuple[str, ...], list[str]](list)
    masks = defaultdict[tuple[str, ...], list[str]](list)
    sides = {IMAGES: images, MASKS: masks}
    names, photographs = visible_files(listing)
    side_of = _sides_of(photographs)
    for path in photographs:
        stem, _ = posixpath.splitext(path)
        *folders, name = stem.split("/")
        side = next((each for each in folders if each.lower() in side_of), None)
        if side is not None:
            folders.remove(side)
            of_side = sides[side_of[side.lower()]]
            of_side[*folders, name].append(path)
    if not images or not masks:
        return None
    problems = Problems(message)
    for side, paths_of in sides.items():
        for paths in paths_of.values():
            if len(paths) > 1:
                two = " and ".join(map(quoted, paths[:2]))
                problems.add("invalid-mask.names", folder, two, side=side)
    for path, *_ in masks.values():
        if not path.lower().endswith(".png"):
            problems.add("invalid-mask.png", folder, path)
    problems.refuse()
    pairs = sorted(images.keys() & masks.keys())
    stems = {key[-1] for key in pairs}
    listed = {}
    for split, written in voc_lists(folder, names, "Segmentation").items():
        listed[split] = stems.intersection(listed_stem(line, stems) for line in written)
    splits: dict[str, list[tuple[str, str]]] = {}
    unlisted = 0
    for key in pairs:
        *folders, name = key
        of_key = [split for split in listed if name in listed[split]]
        if not any(listed.values()):
            called = filter(None, map(_split_called, folders))
            of_key = [next(called, DEFAULT_SPLIT)]
        unlisted += not of_key
        pair = images[key][0], masks[key][0]
        for split in of_key:
            splits.setdefault(split, []).append(pair)
    notes = []
    if unlisted:
        of_pairs = format_count(unlisted, "image")
        notes.append(f"{of_pairs} in no list of ImageSets/Segmentation, and left out")
    for noun, other, lonely in (
        ("image", "a mask", images.keys() - masks.keys()),
        ("mask", "an image", masks.keys() - images.keys()),
    ):
        if lonely:
            notes.append(f"{format_count(len(lonely), noun)} without {other}, and left out")
    if not splits:
        raise refusal("no-images.masks", folder)
    return MaskFolder(folder, splits, column, tuple(notes))


def _sides_of(photographs: Sequence[str]) -> dict[str, str]:
    """Return folder → its side, in lower case."""
    folders = set()
    for path in photographs:
        *above, _ = path.lower().split("/")
        folders.update(above)
    side_of = {name: side for name, side in _SIDE_OF.items() if name in folders}
    known = set(side_of.values())
    for name, side in _ELSE_SIDE_OF.items():
        if side not in known:
            side_of[name] = side
    return side_of


def _split_called(name: str) -> str | None:
    """Return the split that a folder's name is, with a year or without; None for other names."""
    return SPLIT_OF.get(name.lower().rstrip("0123456789-_. "))


# The parts of a cell with outlines. A category is a number of the names that the column declares,
# an outline JSON, and a size width and height, or nothing if the file has none.
OUTLINES = ("category", "iscrowd", SEGMENTATION, "size")


@dataclass(frozen=True)
class OutlinedFolder:
    """A folder of images with outlines. column: what the masks are called."""

    objects: ObjectFolder
    column: str

    @property
    def splits(self) -> Mapping[str, Sequence[WrittenObjects]]:
        return self.objects.splits

    def table(self, split: str) -> Any:
        """Return a split's rows as a table of `datasets`."""
        import datasets
        import pyarrow

        folder = self.objects
        rows = rows_of_split(folder.folder, folder.splits, split)
        category = datasets.ClassLabel(names=list(folder.names))
        crowd = datasets.Value("bool")
        outline = datasets.Value("string")
        side = datasets.Value("int64")
        outlines = {}
        for name, type in zip(OUTLINES, (category, crowd, outline, side), strict=True):
            outlines[name] = datasets.List(type)
        features = datasets.Features({"image": datasets.Image(), self.column: outlines})
        cells = []
        for row in rows:
            lists = row.lists
            written = [json.dumps(each) for each in lists[SEGMENTATION]]
            size = list(row.size or ())
            parts = lists["category"], lists["iscrowd"], written, size
            cell = dict(zip(OUTLINES, parts, strict=True))
            cells.append(cell)
        paths = [row.path for row in rows]
        cell_type = features.arrow_schema.field(self.column).type
        columns = {
            "image": file_column(folder.folder, paths),
            self.column: pyarrow.array(cells, cell_type),
        }
        notes = folder.notes_on(split)
        return described_table(columns, features, notes, split)


def read_outlined_folder(folder: Path, listing: Listing, column: str) -> OutlinedFolder | None:
    """Return a folder of images with COCO files; None for another one. column: what masks are
    called.

    Raise UserError for files that are not COCO's.
    """
    names, images = visible_files(listing)
    if not images:
        return None
    objects = coco_folder(folder, names, images, outlines=True)
    if objects is None:
        return None
    return OutlinedFolder(objects, column)
