"""Objects as a folder's files write them, and their boxes in pixels of the images that are in the
folder.

Files of COCO, YOLO and Pascal VOC differ in how they are found and written; what their boxes mean
on an image is decided here. Boxes in pixels are [x, y, width, height] from the top left. An image
is opened only if the folder's own listing has its name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeGuard, TypeVar

from counterfoil.data.image_folders import file_column, memory_table
from counterfoil.data.messages import failure, refusal
from counterfoil.errors import quoted
from counterfoil.recipe.tasks.objects import OBJECTS, objects_feature
from counterfoil.regular_files import read_regular
from counterfoil.report.words import format_count
from counterfoil.store.decoding import PictureSides, UnreadableImage, picture_sides

T = TypeVar("T")
ObjectLists = dict[str, list[Any]]
Size = tuple[int, int]
# The limit of a file of labels, of a list of images and of an image.
_MOST_TEXT = 16_000_000
_MOST_IMAGE = 1 << 28
# A declared size may be rounded by this number of pixels.
_ROUNDING = 1
_WHOLE = re.compile("0|[1-9][0-9]{0,17}")
# A table's description begins with this word if it holds notes on how boxes or masks were read.
_MARK = "boxes:\n"


@dataclass(frozen=True)
class WrittenObjects:
    """The objects of an image as a file writes them.

    path: of the image. lists: the parts of the objects; boxes are in pixels of the written size, or
    in the form of YOLO. size: width and height of the image as the file has it, if it does.
    """

    path: str
    lists: ObjectLists
    size: Size | None = None


@dataclass(frozen=True)
class ObjectFolder:
    """A folder of images with boxes."""

    folder: Path
    """Its path."""
    form: Literal["COCO", "YOLO", "Pascal VOC"]
    """How its files write objects."""
    names: tuple[str, ...]
    """The categories, in the order of their numbers."""
    splits: Mapping[str, Sequence[WrittenObjects]]
    """Split → the images and their objects."""
    absent: Mapping[str, int]
    """Split → the number of listed images that the folder lacks."""
    groups: frozenset[str] = frozenset()
    """Categories without objects that only group others."""
    ids: tuple[int, ...] = ()
    """The numbers of the categories in the files, if these are not 1, 2 and so on for categories
    that are no groups."""
    notes: tuple[str, ...] = ()
    """Sentences on what was read."""
    exif: Literal["apply", "ignore"] = "ignore"
    """`apply` if photographs are turned as their EXIF tag says."""
    outlined: bool = False
    """Whether each object has an outline too, so that masks can be drawn."""

    def objects(self, split: str) -> tuple[list[ObjectLists], tuple[str, ...]]:
        """Return the objects of a split's images, with boxes in pixels of each image, and notes.

        Raise UserError if the sizes in a file are not those of the images.
        """
        written = self.splits[split]
        if self.form == "YOLO":
            return [self._from_shares(image) for image in written], ()
        ratio, note = self._ratio(written)
        if ratio == 1:
            return [image.lists for image in written], ()
        return [_scaled(image.lists, ratio) for image in written], (note,)

    def table(self, split: str, *, measured: bool = True) -> Any:
        """Return a split's rows as a table of `datasets`. measured: whether the boxes are needed;
        without, no image is opened, and rows have no objects.
        """
        import datasets
        import pyarrow

        rows = rows_of_split(self.folder, self.splits, split)
        objects: Sequence[ObjectLists | None] = [None] * len(rows)
        notes: tuple[str, ...] = ()
        if measured:
            objects, notes = self.objects(split)
        described = {"image": {"_type": "Image"}, OBJECTS: objects_feature(self.names)}
        features = datasets.Features.from_dict(described)
        paths = [image.path for image in rows]
        objects_type = features.arrow_schema.field(OBJECTS).type
        columns = {
            "image": file_column(self.folder, paths),
            OBJECTS: pyarrow.array(objects, objects_type),
        }
        return described_table(columns, features, (*self.notes_on(split), *notes), split)

    def notes_on(self, split: str) -> tuple[str, ...]:
        """Return sentences on what was read, and on the images that a split lacks."""
        absent = self.absent.get(split)
        if not absent:
            return self.notes
        lacking = f"{format_count(absent, 'listed image')} not in the folder, and left out"
        return (*self.notes, lacking)

    def turning(self, split: str) -> Literal["apply", "ignore"] | None:
        """Return the `source.exif` that suits the boxes of a split: `ignore` if written sizes are
        those of photographs that are not turned, else `apply`; None if no photograph has an EXIF
        tag that turns it.
        """
        turned = False
        for image in self.splits[split]:
            sides = self._sides(image.path)
            if sides is None or not sides.turned:
                continue
            turned = True
            size = image.size
            if size and agree(sides.stored, size) and not agree(sides.upright, size):
                return "ignore"
        return "apply" if turned else None

    def _sides(self, path: str) -> PictureSides | None:
        """Return an image's sides, or None if it cannot be opened: it is left out when rows are
        chosen."""
        try:
            return picture_sides(file_content(self.folder / path, _MOST_IMAGE))
        except UnreadableImage:
            return None

    def _from_shares(self, image: WrittenObjects) -> ObjectLists:
        if not image.lists["bbox"]:
            return image.lists
        sides = self._sides(image.path)
        if sides is None:
            return {name: [] for name in image.lists}
        size = sides.read(self.exif)
        boxes = [from_shares(box, *size) for box in image.lists["bbox"]]
        areas = [box[2] * box[3] for box in boxes]
        return image.lists | {"bbox": boxes, "area": areas}

    def _ratio(self, written: Sequence[WrittenObjects]) -> tuple[float, str]:
        """Return the images' sides over the written ones, and a note. Raise UserError unless one
        ratio explains all."""
        low = 0.0
        high = math.inf
        has_total = wrote_total = 0
        unlike = []
        turned = []
        for image in written:
            if image.size is None:
                continue
            sides = self._sides(image.path)
            if sides is None:
                continue
            size = sides.read(self.exif)
            if size != image.size:
                says = f"{image.size[0]} × {image.size[1]}"
                unlike.append(
                    f"{quoted(image.path)} has {size[0]} × {size[1]} pixels, and the file says"
                    f" {says}"
                )
                of_turned = any(agree(other, image.size) for other in sides[:2])
                if of_turned and not agree(size, image.size):
                    turned.append(image.path)
            for has, wrote in zip(size, image.size, strict=True):
                low = max(low, (has - _ROUNDING) / wrote)
                high = min(high, (has + _ROUNDING) / wrote)
                has_total += has
                wrote_total += wrote
        if not unlike or low <= 1 <= high:
            return 1.0, ""
        if turned:
            wanted = "apply"
            state = "turned"
            if self.exif == "apply":
                wanted = "ignore"
                state = "stored"
            raise refusal(
                "unclear-exif.file",
                self.folder,
                turned[0],
                wanted,
                photographs=len(turned),
                state=state,
            )
        if low > high:
            name = "invalid-boxes.sizes"
            first = unlike[0]
            raise refusal(name, self.folder, len(unlike), len(written), first=first)
        ratio = min(max(has_total / wrote_total, low), high)
        return (
            ratio,
            f"boxes are multiplied by {ratio:.4g}, because images have another size: {unlike[0]}",
        )


def rows_of_split(folder: Path, splits: Mapping[str, Sequence[T]], split: str) -> Sequence[T]:
    """Return the rows of a folder's split. Raise UserError if the folder has no such split."""
    if split not in splits:
        raise refusal("unknown-split.dataset", f"source: '{folder}'", split, splits)
    return splits[split]


def described_table(
    columns: Mapping[str, Any],
    features: Any,
    notes: Sequence[str],
    split: str,
) -> Any:
    """Return a split's columns as a table of `datasets`, with notes on how they were read."""
    description = _MARK + "\n".join(notes)
    return memory_table(columns, features, description, split)


def notes_of(description: str | None) -> tuple[str, ...]:
    """Return the notes on how boxes were read, from the description of a table."""
    if description is None or not description.startswith(_MARK):
        return ()
    return tuple(line for line in description.removeprefix(_MARK).splitlines() if line)


def agree(size: Size, written: Size) -> bool:
    """Return whether a written size is that of an image, but for rounding."""
    return all(abs(has - says) <= _ROUNDING for has, says in zip(size, written, strict=True))


def _scaled(lists: ObjectLists, ratio: float) -> ObjectLists:
    scaled = dict(lists)
    scaled["bbox"] = []
    for box in lists["bbox"]:
        scaled["bbox"].append([value * ratio for value in box])
    scaled["area"] = [area * ratio**2 for area in lists["area"]]
    return scaled


def from_shares(centre: Sequence[float], width: int, height: int) -> list[float]:
    """Return [x, y, width, height] in pixels for a box whose centre and size are fractions of the
    image."""
    across, down, wide, high = centre
    left = across - wide / 2
    top = down - high / 2
    return [left * width, top * height, wide * width, high * height]


def add_object(lists: ObjectLists, **parts: Any) -> None:
    """Add an object: its id, bbox, category, area and iscrowd."""
    for name, value in parts.items():
        lists[name].append(value)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number and not a bool."""
    return type(value) in (int, float) and abs(value) < 1e15


def is_box(value: Any) -> TypeGuard[list[float]]:
    """Return whether a value is a list of four finite numbers."""
    return isinstance(value, list | tuple) and len(value) == 4 and all(map(is_number, value))


def is_rotated(degrees: Any) -> bool:
    """Return whether an attribute of a box, as CVAT writes it, says that the box is rotated."""
    try:
        angle = float(degrees)
    except (TypeError, ValueError):
        return False
    return math.isfinite(angle) and 1 <= angle % 360 <= 359


def rotated_notes(count: int) -> tuple[str, ...]:
    """Return a sentence on rotated boxes, if there are any."""
    if not count:
        return ()
    boxes = format_count(count, "box is", "boxes are")
    return (
        f"{boxes} rotated, as the attribute rotation says, and read as before the rotation: a box"
        " around the object has other sides",
    )


def written_id(value: Any) -> int | str | None:
    """Return an id as a number if it is a whole number, also as text or 3.0, else as text; None for
    anything else."""
    if type(value) is float and value.is_integer():
        return int(value)
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value) else value
    return value if type(value) is int else None


def file_text(path: Path) -> str:
    """Read a file of text. Raise RunFailure if it cannot be read."""
    return file_content(path, _MOST_TEXT).decode("utf-8-sig", "replace")


def file_content(path: Path, most: int) -> bytes:
    """Read at most `most` bytes of a file. Raise RunFailure if it cannot be read."""
    try:
        return read_regular(path, most, follow=False)
    except OSError as error:
        raise failure("unreadable-data", path, error) from error
