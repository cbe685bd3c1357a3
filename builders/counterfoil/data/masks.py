"""The masks of a split's rows: the class of each pixel, numbered by the recipe's own list.

A mask is a PNG of one channel or with a palette, whose values are numbers of classes, or is drawn
from the outlines of COCO annotations.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import Ints
from counterfoil.data.mask_folders import OUTLINES
from counterfoil.data.messages import message, refusal
from counterfoil.data.outlines import drawn, inside_of
from counterfoil.data.truth import RowTruth, refuse_unclear_turns
from counterfoil.documents import parse_json
from counterfoil.errors import Problems, UserError, some_of
from counterfoil.progress import report_progress
from counterfoil.recipe.names import plain_name
from counterfoil.recipe.tasks import TASKS
from counterfoil.recipe.tasks.masks import MASK, UNLABELLED
from counterfoil.report.words import format_count
from counterfoil.store.decoding import UnreadableImage, load_image, open_image, picture_sides

if TYPE_CHECKING:
    from counterfoil.data.tables import Rows
    from counterfoil.data.written_objects import Size
    from counterfoil.recipe.schema_inputs import Source

PixelClasses = NDArray[np.uint8]

# The class of COCO's pixels outside all outlines, if a recipe has it.
BACKGROUND = "background"
# COCO has 1 % of crowds. Programs that mark every object with run lengths as one have more.
_MANY_CROWDS = 0.1
# Colours are far apart for neighbouring numbers, and hold for 255 classes.
_GOLDEN = 0.618034


def decoded_mask(encoded: Any, size: Size | None = None) -> PixelClasses:
    """Return the numbers in a mask, [height, width]. size: the only width and height that are
    decoded.

    Raise UnreadableImage for anything else than a PNG of one channel or with a palette, and for
    numbers above 255.
    """
    numbers, _ = _decoded(encoded, size)
    return numbers


def _decoded(encoded: Any, size: Size | None) -> tuple[PixelClasses, bytes]:
    """Return what `decoded_mask` does, and the palette: red, green and blue of each number, or
    nothing."""
    with open_image(encoded, photograph=True) as picture:
        if picture.format != "PNG":
            raise UnreadableImage(f"it is {picture.format}, expected PNG")
        if size is not None and picture.size != size:
            raise UnreadableImage(
                f"it has {_sides(picture.size)} pixels, and its image {_sides(size)}"
            )
        if picture.mode not in ("1", "L", "P", "I", "I;16"):
            raise UnreadableImage(
                f"it has the channels {picture.mode}, expected one channel or a palette"
            )
        palette = b""
        if picture.mode == "P" and picture.palette is not None:
            _, palette = picture.palette.getdata()
        numbers = np.asarray(load_image(picture))
        if numbers.dtype.kind != "b" and numbers.max(initial=0) > UNLABELLED:
            raise UnreadableImage(f"it has the number {numbers.max()}, expected at most 255")
        return numbers.astype(np.uint8), bytes(palette)


def _sides(size: Size) -> str:
    width, height = size
    return f"{width}×{height}"


def encoded_mask(numbers: PixelClasses) -> bytes:
    """Return class numbers [height, width] as a PNG."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(numbers).save(stream, "PNG")
    return stream.getvalue()


def class_colours() -> NDArray[np.uint8]:
    """Return the colour of each class, (256, 3); unlabelled pixels are black."""
    import colorsys

    colours = []
    for number in range(UNLABELLED):
        hue = number * _GOLDEN % 1
        saturation = 0.55 + 0.35 * (number % 2)
        value = 0.95 - 0.15 * (number % 3)
        colours.append(colorsys.hsv_to_rgb(hue, saturation, value))
    shares = np.array([*colours, (0, 0, 0)])
    return np.round(255 * shares).astype(np.uint8)


def _no_counts() -> Ints:
    return np.zeros(UNLABELLED + 1, np.int64)


def _colour(palette: bytes, number: int) -> bytes:
    return palette[3 * number : 3 * number + 3]


@dataclass
class MaskCounts(Problems):
    """The pixels of each number in some masks, the images that have it, (256,), and the problems of
    masks that cannot be used.

    turned: how many photographs an EXIF tag turns. sides: the shorter side of each image, in
    pixels. outlines, empty, crowds: how many outlines there are, how many cover no pixel, and how
    many are crowds. numbers: colour → the first number that has it in a palette, and this palette.
    """

    pixels: Ints = field(default_factory=_no_counts)
    images: Ints = field(default_factory=_no_counts)
    turned: int = 0
    sides: list[int] = field(default_factory=list)
    outlines: int = 0
    empty: int = 0
    crowds: int = 0
    numbers: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)

    def add_palette(self, where: str, pixels: PixelClasses, palette: bytes) -> None:
        """Add the problem of a mask in which a colour has another number than in earlier ones.

        Programs that reduce colours or files order the colours of each file anew.
        """
        for number in np.flatnonzero(np.bincount(pixels.ravel())).tolist():
            colour = _colour(palette, number)
            if not colour:
                continue
            first, palette_of_first = self.numbers.setdefault(colour, (number, palette))
            # two numbers of one palette may have one colour
            others = _colour(palette, first), _colour(palette_of_first, number)
            if colour not in others:
                self.add("invalid-mask.palette", where, number, first, colour=f"{[*colour]}")
                return

    @property
    def notes(self) -> list[str]:
        """Sentences on outlines without a pixel, and on crowds if there are many."""
        outlines = format_count(self.outlines, "outline")
        notes = []
        if self.empty:
            notes.append(
                f"{self.empty:,} of {outlines} cover no pixel of the image, and are in no mask"
            )
        if self.crowds > _MANY_CROWDS * self.outlines:
            notes.append(
                f"{self.crowds:,} of {outlines} are crowds (iscrowd: 1), whose pixels have no class."
                " Some programs mark every mask so: if these are objects, write iscrowd: 0"
            )
        return notes


@dataclass(frozen=True)
class SourceMasks(RowTruth):
    """The masks of every row, which are PNG. numbers: that of each class in the data, if not its
    position; other numbers are then no class."""

    rows: Rows
    column: str
    names: tuple[str, ...]
    numbers: tuple[int, ...]

    code: ClassVar[str] = "invalid-mask"
    """The code of problems with its masks."""

    def columns(self, row: int, size: Size, stored: Size) -> dict[str, Any]:
        numbers = self.of_image(row, size)
        if stored != size:
            from PIL import Image

            small = Image.fromarray(numbers).resize(stored, Image.Resampling.NEAREST)
            numbers = np.asarray(small)
        return {MASK: encoded_mask(numbers)}

    def checked(self, source: Source, rows: Rows, chosen: Sequence[int]) -> Sequence[str]:
        """Raise UserError with all masks that cannot be used, if nothing says whether masks are of
        turned photographs, and if no mask has a pixel with a class.

        Notes say how many pixels have no class, and which classes no pixel has.
        """
        counts = self.counted(chosen)
        if "exif" not in source.model_fields_set and rows.rendered is None:
            refuse_unclear_turns(counts.turned, rows, "masks")
        counts.refuse()
        pixels = counts.pixels
        unlabelled = int(pixels[UNLABELLED])
        if unlabelled == pixels.sum():
            raise refusal(f"{self.code}.empty", f"source.masks: {rows.place}")
        is_white = unlabelled and len(self.names) == 2 and not pixels[1]
        if is_white and not self.numbers and not counts.outlines:
            where = f"source.masks.numbers: {rows.place}"
            raise refusal("invalid-mask.white", where, self.names[1])
        notes = counts.notes
        if unlabelled:
            notes.append(f"{unlabelled / pixels.sum():.1%} of all pixels have no class")
        absent = [name for name, count in zip(self.names, pixels, strict=False) if not count]
        if absent:
            classes = format_count(len(absent), "class", "classes")
            notes.append(f"no pixel has {classes} of the recipe: {some_of(absent, 10)}")
        return notes

    def counted(self, chosen: Sequence[int]) -> MaskCounts:
        """Count the classes of the chosen rows. Photographs that cannot be opened are left out."""
        counts = MaskCounts(message)
        images = zip(chosen, self.rows.images(chosen), strict=True)
        for done, (row, encoded) in enumerate(images):
            if done % 100 == 0:
                report_progress("reading masks", done, len(chosen))
            with contextlib.suppress(UnreadableImage):
                sides = picture_sides(encoded)
                counts.turned += sides.turned
                # Photographs are turned already where they are to be.
                counts.sides.append(min(sides.stored))
                try:
                    numbers = self.of_image(row, sides.stored, counts)
                except UserError as error:
                    counts.add_all(error)
                    continue
                of_image = np.bincount(numbers.ravel(), minlength=UNLABELLED + 1)
                counts.pixels += of_image
                counts.images += of_image > 0
        return counts

    def written_size(self, row: int) -> Size | None:
        """Return the width and height that a row's mask is for; None if nothing says it."""
        encoded = next(self.rows.pictures(self.column, [row]))
        try:
            return picture_sides(encoded).stored
        except UnreadableImage:
            return None

    def where(self, row: int) -> str:
        """Return the beginning of an error about a row's mask."""
        paths = self.rows.paths()
        file = "" if paths is None else f", {paths[row]}"
        return f"source.masks: {self.rows.place}, row {row}{file}: mask"

    def of_image(self, row: int, size: Size, counts: MaskCounts | None = None) -> PixelClasses:
        """Return the classes of a row's pixels, whose image has this size. counts: learns of
        palettes and outlines. Raise UserError for a mask that cannot be used."""
        encoded = next(self.rows.pictures(self.column, [row]))
        where = self.where(row)
        try:
            numbers, palette = _decoded(encoded, size)
        except UnreadableImage as error:
            raise refusal("invalid-mask", where, error) from error
        if counts is not None and palette:
            counts.add_palette(where, numbers, palette)
        if not self.numbers:
            beyond = _beyond(numbers, len(self.names))
            if beyond is not None:
                raise refusal("invalid-mask.number", where, beyond, len(self.names))
            return numbers
        number_of = np.full(UNLABELLED + 1, UNLABELLED, np.uint8)
        number_of[list(self.numbers)] = np.arange(len(self.names))
        return number_of[numbers]


@dataclass(frozen=True)
class OutlinedMasks(SourceMasks):
    """The masks of every row, drawn from outlines. cells: the parts of a row's outlines by name.
    number_of: the number of each category in the data."""

    cells: Sequence[Any]
    number_of: Sequence[int]

    code: ClassVar[str] = "invalid-outline"

    def written_size(self, row: int) -> Size | None:
        written = self.cells[row]["size"]
        return (written[0], written[1]) if len(written) == 2 else None

    def of_image(self, row: int, size: Size, counts: MaskCounts | None = None) -> PixelClasses:
        where = self.where(row)
        cell = self.cells[row]
        categories, crowds, outlines, _ = (cell[name] for name in OUTLINES)
        written = self.written_size(row)
        if written is not None and written != size:
            raise refusal("invalid-outline.size", where, _sides(written), _sides(size))
        insides = []
        for number, outline in enumerate(outlines):
            of_object = f"{where}: object {number}"
            try:
                insides.append(inside_of(parse_json(outline.encode()), size))
            except ValueError as error:
                raise refusal("invalid-outline.json", of_object, error) from error
            except UserError as error:
                raise error.at(of_object) from error
        if counts is not None:
            counts.outlines += len(insides)
            counts.empty += sum(inside.is_empty for inside in insides)
            counts.crowds += sum(crowds)
        numbers = [self.number_of[category] for category in categories]
        names = [*map(plain_name, self.names)]
        empty = UNLABELLED
        if BACKGROUND in names:
            empty = names.index(BACKGROUND)
        try:
            return drawn(insides, numbers, crowds, size, empty)
        except UserError as error:
            raise error.at(where) from error


def masks_of(rows: Rows, source: Source) -> SourceMasks:
    """Return the masks of rows by a recipe's `source`. Raise UserError for a missing column, and for
    classes that outlines do not have."""
    masks = TASKS["masks"].keys(source)
    return column_masks(rows, masks.column, masks.classes, masks.numbers)


def mask_fault(source: Source, row: Mapping[str, Any], size: Size) -> str | None:
    """Return what is wrong with the mask of a stored row, whose image has this width and height, or
    None."""
    try:
        numbers = decoded_mask((row[MASK] or {}).get("bytes"), size)
    except UnreadableImage as error:
        return f"its mask cannot be used: {error}"
    classes = len(TASKS["masks"].names(source))
    beyond = _beyond(numbers, classes)
    if beyond is not None:
        return (
            f"its mask has the number {beyond}, expected 0 to {classes - 1}, or {UNLABELLED} for"
            " none"
        )
    return None


def _beyond(numbers: PixelClasses, classes: int) -> int | None:
    """Return the smallest number of a pixel that is no class, or None."""
    wrong = numbers[(numbers >= classes) & (numbers < UNLABELLED)]
    return int(wrong.min()) if wrong.size else None


def column_masks(
    rows: Rows,
    column: str,
    classes: Sequence[str],
    numbers: Sequence[int] = (),
) -> SourceMasks:
    """Return the masks in a column, with the names and numbers of classes. Raises as `masks_of`."""
    rows.need("source.masks", column=column)
    categories = rows.class_names(column)
    if categories is None:
        return SourceMasks(rows, column, tuple(classes), tuple(numbers))
    if numbers:
        raise refusal("invalid-outline.numbers", f"source.masks.numbers: {rows.place}")
    known = {plain_name(name): number for number, name in enumerate(categories)}
    lacking = Problems(message)
    number_of = [UNLABELLED] * len(categories)
    for number, name in enumerate(classes):
        category = known.get(plain_name(name))
        if category is not None:
            number_of[category] = number
        elif plain_name(name) != BACKGROUND:
            where = f"source.masks.classes: {rows.place}"
            lacking.add("unknown-label.mask-class", where, name, categories)
    lacking.refuse()
    cells = rows.column(column)
    for row, cell in enumerate(cells):
        if _is_outlined(cell, categories):
            continue
        raise refusal("unfit-column.masks", f"source.masks: {rows.place}, row {row}", column)
    return OutlinedMasks(rows, column, tuple(classes), (), cells, number_of)


def _is_outlined(cell: Any, categories: Sequence[str]) -> bool:
    """Return whether a cell has the parts of outlines: a stranger's table may hold anything."""
    if not isinstance(cell, Mapping) or set(cell) != set(OUTLINES):
        return False
    parts = [cell[name] for name in OUTLINES]
    for part in parts:
        if not isinstance(part, list):
            return False
    numbers, crowds, outlines, _ = parts
    for number in numbers:
        if type(number) is not int or not 0 <= number < len(categories):
            return False
    for outline in outlines:
        if not isinstance(outline, str):
            return False
    return len(numbers) == len(crowds) == len(outlines)
