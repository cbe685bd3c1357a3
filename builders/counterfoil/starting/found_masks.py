"""Look at the masks of a newcomer's images: which numbers they have, how often, and what is wrong with
some.

A picture of some images with their masks laid over is written beside the recipe, because no number
shows that masks belong to other images.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from counterfoil.arrays import Ints
from counterfoil.data.coco_folders import SEGMENTATION
from counterfoil.data.folders import folder_listing
from counterfoil.data.labelled_sources import NamedDataset
from counterfoil.data.mask_folders import (
    MaskFolder,
    OutlinedFolder,
    read_mask_folder,
    read_outlined_folder,
)
from counterfoil.data.masks import (
    BACKGROUND,
    MaskCounts,
    SourceMasks,
    class_colours,
    column_masks,
)
from counterfoil.data.messages import message
from counterfoil.data.open_source import open_source
from counterfoil.data.pictures import evenly_spread
from counterfoil.data.pins import SourcePin
from counterfoil.data.tables import Outline, Rows
from counterfoil.data.written_objects import ObjectFolder
from counterfoil.errors import CounterfoilError, UserError
from counterfoil.recipe.names import is_local, plain_name
from counterfoil.recipe.tasks.masks import MASK, UNLABELLED, MasksSource
from counterfoil.recipe.tasks.objects import categories_problem
from counterfoil.regular_files import read_regular
from counterfoil.report.words import format_count, format_list
from counterfoil.starting.found_objects import (
    SHOWN,
    TILE,
    Exif,
    FoundTruth,
    notes_on_exif,
    picture_sheet,
    tile_of,
)
from counterfoil.store.decoding import UnreadableImage, picture_sides

if TYPE_CHECKING:
    from PIL import Image

# Masks that are read, and photographs that are opened.
_MOST_LOOKED_AT = 1000
_MOST_NAMED = 12
# Names of columns of masks on the Hub.
_COLUMNS = (
    MASK, "masks", "label", "labels", "annotation", "annotations", "segmentation", "segmentation_mask",
    "semantic_segmentation", "label_mask", "semantic_mask", "seg", "seg_mask", "gt", "target",
)  # fmt: skip
# A file beside the folders with the name of a class on each line, in the order of their numbers.
NAMES = "classes.txt"
_MOST_BYTES = 1 << 20
_WHITE = (0, UNLABELLED)


@dataclass(frozen=True, kw_only=True)
class FoundMasks(FoundTruth):
    """The masks of a split. numbers: those of the classes, if they are not 0, 1 and so on."""

    task: ClassVar = MasksSource()
    keys_file: ClassVar = "keys.csv"
    answers: ClassVar = "predictions:FOLDER"
    models: ClassVar = (
        "predictions:answers (a folder with KEY.png for each image), transformers:./my-model,"
        " onnx:./my-model"
    )
    about_names: ClassVar = (
        "Classes are in the order of their numbers in the masks. Call them as your segmenter calls"
        " them. If a number means no class, as 0 does in ADE20K, leave its class out, and give the"
        " numbers of the others in the same order: numbers: [1, 2]."
    )

    numbers: tuple[int, ...] = ()

    @property
    def keys(self) -> dict[str, Any]:
        """The recipe's keys of `source` that say what images show."""
        column = {} if self.column == MASK else {"column": self.column}
        numbers = {"numbers": list(self.numbers)} if self.numbers else {}
        return {"masks": {**column, "classes": list(self.names), **numbers}}


def mask_folder(origin: NamedDataset, column: str) -> MaskFolder | OutlinedFolder | None:
    """Return a folder of images and masks, or of COCO files; None for any other dataset. Raises as
    `read_mask_folder`."""
    folder = Path(origin.dataset)
    if not is_local(origin.dataset) or not folder.is_dir() or origin.config is not None:
        return None
    listing = folder_listing(folder)
    folder = folder.resolve()
    masks = read_mask_folder(folder, listing, column)
    return masks or read_outlined_folder(folder, listing, column)


def masks_beside(boxes: ObjectFolder) -> str | None:
    """Return the column of masks that a folder with boxes has too: PNG files, or the outlines of its
    objects."""
    with contextlib.suppress(CounterfoilError):
        if read_mask_folder(boxes.folder, folder_listing(boxes.folder), MASK) is not None:
            return MASK
    return SEGMENTATION if boxes.outlined else None


def masks_column(outline: Outline) -> str | None:
    """Return the column of masks beside a column of images, by its name."""
    images = []
    masks = []
    for name, kind in outline.columns.items():
        if kind != "image":
            continue
        if name.lower() in _COLUMNS:
            masks.append(name)
        else:
            images.append(name)
    return masks[0] if images and len(masks) == 1 else None


def find_masks(
    origin: NamedDataset,
    pin: SourcePin,
    split: str,
    column: str,
    folder: MaskFolder | OutlinedFolder | None,
) -> FoundMasks:
    """Look at the masks of a split. Raise UserError for masks that cannot be used."""
    rows = open_source(origin, pin=pin).rows(split, labelled=False)
    groups = frozenset[str]()
    listed: list[str] = []
    if isinstance(folder, OutlinedFolder):
        groups = folder.objects.groups
    elif folder is not None:
        listed = _listed_names(folder.folder)
    categories = []
    for name in rows.class_names(column) or ():
        if name not in groups:
            categories.append(name)
    if len(categories) >= UNLABELLED:
        raise UserError(
            f"{rows.place} has {len(categories):,} categories, and masks have at most {UNLABELLED}"
            f" classes with the {BACKGROUND}",
            "Write the recipe by hand, with some of them as source.masks.classes.",
        )
    # Masks with numbers are read with names for all, to see which numbers there are.
    names = [""] * UNLABELLED
    if categories:
        known = map(plain_name, categories)
        names = categories if BACKGROUND in known else [BACKGROUND, *categories]
    masks = column_masks(rows, column, names)
    looked = evenly_spread(range(rows.count), _MOST_LOOKED_AT)
    exif = _turning(masks, looked)
    if exif == "apply":
        turned = open_source(replace(origin, exif=exif), pin=pin)
        masks = column_masks(turned.rows(split, labelled=False), column, names)
    counts = masks.counted(looked)
    counts.refuse()
    notes = [
        "masks are drawn from the outlines of a COCO file: of two objects the smaller is above,"
        f" crowds have no class, and the {BACKGROUND} is what is outside all outlines"
    ]
    numbers = tuple(range(len(names)))
    if not categories:
        of_table = column if folder is None else ""
        names, numbers = _numbered(masks, counts.pixels, listed)
        notes = [*_notes_on_numbers(of_table, numbers, listed)]
    notes += [*_notes_on_counts(counts, names, numbers), *counts.notes]
    notes += _notes_on_rows(rows, looked, exif)
    side = None
    if counts.sides:
        side = median_low(counts.sides)
    positions = tuple(range(len(names)))
    return FoundMasks(
        column=column,
        names=tuple(names),
        numbers=() if numbers == positions else numbers,
        images=rows.count,
        notes=tuple(notes),
        picture=_picture(masks, names, numbers),
        side=side,
        exif=exif,
    )


def _turning(masks: SourceMasks, looked: Sequence[int]) -> Exif | None:
    """Return how photographs are read if an EXIF tag turns one: `ignore` if a mask is as large as
    the photograph that is not turned, else `apply`, as programs show them."""
    turned = False
    for row, encoded in zip(looked, masks.rows.images(looked), strict=True):
        with contextlib.suppress(UnreadableImage):
            sides = picture_sides(encoded)
            turned |= sides.turned
            if sides.upright != sides.stored == masks.written_size(row):
                return "ignore"
    return "apply" if turned else None


def _listed_names(folder: Path) -> list[str]:
    """Return the names in `classes.txt`, by number; empty without such a file. Raise UserError for
    names that are none."""
    try:
        content = read_regular(folder / NAMES, _MOST_BYTES, follow=False)
    except OSError:
        return []
    lines = content.decode("utf-8-sig", "replace").splitlines()
    stripped = [line.strip() for line in lines]
    names = [line for line in stripped if line]
    problem = categories_problem(names)
    if problem is not None:
        raise UserError(
            f"{folder / NAMES}: {problem}", "Write the name of a class on each line, by number."
        )
    return names


def _numbered(
    masks: SourceMasks, pixels: Ints, listed: Sequence[str]
) -> tuple[list[str], tuple[int, ...]]:
    """Return the names and the numbers of classes in masks of which `pixels` have each number."""
    used = tuple(np.flatnonzero(pixels[:UNLABELLED]).tolist())
    # Masks of one class are often black and white.
    if used == (0,) and pixels[UNLABELLED]:
        used = (0, UNLABELLED)
    if not used:
        raise UserError(
            f"{masks.rows.place}: no pixel of its masks has a class: all have the number"
            f" {UNLABELLED}",
            message.advice[masks.code],
        )
    if not listed:
        return [f"class_{number}" for number in used], used
    for first in (0, 1):
        numbers = tuple(range(first, first + len(listed)))
        if used[-1] <= numbers[-1]:
            return [*listed], numbers
    if len(listed) == len(used):
        return [*listed], used
    raise UserError(
        f"{masks.rows.place}: masks have the number {used[-1]}, and {NAMES} has"
        f" {format_count(len(listed), 'name')}",
        "Write the name of each class on a line, in the order of their numbers, from 0 on.",
    )


def _notes_on_numbers(column: str, numbers: Sequence[int], listed: Sequence[str]) -> Iterator[str]:
    """Yield sentences on where masks are, and what says the names of their numbers. column: that of
    a table, or nothing."""
    if column:
        yield (
            f"masks are the column {column}: to test a classifier instead, name a column of labels"
            " with --label-column"
        )
    if not listed:
        beside = "" if column else f", or one on each line of {NAMES} beside the folders"
        yield f"the numbers in masks have no names here: write names into the recipe{beside}"
    if tuple(numbers) == _WHITE:
        yield (
            f"masks have the numbers 0 and {UNLABELLED} alone, so {UNLABELLED} is read as a class. If"
            " it means no class, remove it from the recipe with its name"
        )


def _notes_on_counts(
    counts: MaskCounts, names: Sequence[str], numbers: Sequence[int]
) -> Iterator[str]:
    total = counts.pixels.sum()
    classes = []
    absent = []
    for name, number in zip(names, numbers, strict=True):
        if not counts.pixels[number]:
            absent.append(name)
            continue
        share = counts.pixels[number] / total
        images = format_count(int(counts.images[number]), "image")
        classes.append(f"{name} ({share:.1%} of pixels, in {images})")
    yield f"{format_count(len(classes), 'class', 'classes')}: {format_list(classes, _MOST_NAMED)}"
    if absent:
        which = format_count(len(absent), "class", "classes")
        yield f"no pixel has {which}: {format_list(absent, _MOST_NAMED)}"
    unlabelled = total - counts.pixels[list(numbers)].sum()
    if unlabelled:
        yield f"{unlabelled / total:.1%} of pixels have no class"


def _notes_on_rows(rows: Rows, looked: Sequence[int], exif: Exif | None) -> Iterator[str]:
    if len(looked) < rows.count:
        yield f"{len(looked):,} of {rows.count:,} masks were read; a build reads all"
    yield from rows.notes
    yield from notes_on_exif(exif, "masks")


_LINE = 16  # pixels
_LINES = 16  # of four classes each


def _picture(masks: SourceMasks, names: Sequence[str], numbers: Sequence[int]) -> bytes:
    """Return a PNG of some images with their masks laid over, and the colours of the classes. Pixels
    without a class are dark."""
    from PIL import Image

    position = np.full(UNLABELLED + 1, UNLABELLED)
    position[list(numbers)] = np.arange(len(numbers))
    colours = class_colours()
    tiles = []
    for row in evenly_spread(range(masks.rows.count), SHOWN):
        try:
            picture = masks.rows.image(row)
            numbered = masks.of_image(row, picture.size)
        except UserError:
            continue
        over = Image.fromarray(colours[position[numbered]])
        # Colours over grey are those of the legend.
        tile = tile_of(picture.convert("L"))
        over = over.resize(tile.size, Image.Resampling.NEAREST)
        tiles.append(Image.blend(tile, over, 0.5))
    return picture_sheet(tiles, _legend(names))


def _legend(names: Sequence[str]) -> Image.Image:
    """Return a strip with the colours of the first classes."""
    from PIL import Image, ImageDraw

    shown = names[: 4 * _LINES]
    lines = -(-len(shown) // 4)
    size = 4 * TILE, _LINE * (lines + 1)
    legend = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(legend)
    colours = class_colours()
    for number, name in enumerate(shown):
        left = 4 + TILE * (number % 4)
        top = _LINE * (number // 4)
        right = left + _LINE - 4
        bottom = top + _LINE - 4
        colour = tuple(colours[number].tolist())
        draw.rectangle((left, top, right, bottom), fill=colour)
        text = name[:40].encode("ascii", "replace").decode()
        draw.text((left + _LINE, top), text, fill="black")
    return legend
