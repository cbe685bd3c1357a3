"""The masks of a split's rows: the class of each pixel, numbered by the recipe's own list.

A mask is a PNG of one channel or with a palette, whose values are numbers of classes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.data.truth import RowTruth, refuse_unclear_turns
from counterfoil.errors import MOST_SHOWN, UserError, first_of, some_of
from counterfoil.progress import report_progress
from counterfoil.recipe.tasks import TASKS
from counterfoil.recipe.tasks.masks import MASK, UNLABELLED
from counterfoil.report.words import format_count
from counterfoil.store.decoding import UnreadableImage, load_image, open_image, picture_sides

if TYPE_CHECKING:
    from counterfoil.data.tables import Rows
    from counterfoil.data.written_objects import Size
    from counterfoil.recipe.schema_inputs import Source

PixelClasses = NDArray[np.uint8]
_HINT = (
    "A mask is a PNG of one channel or with a palette, as large as its image. Its values are the"
    " positions of source.masks.classes, or source.masks.numbers; 255 is no class."
)


def decoded_mask(encoded: Any, size: Size | None = None) -> PixelClasses:
    """Return the numbers in a mask, [height, width]. size: the only width and height that are
    decoded.

    Raise UnreadableImage for anything else than a PNG of one channel of 8 bits or with a palette.
    """
    with open_image(encoded, photograph=True) as picture:
        if picture.format != "PNG":
            raise UnreadableImage(f"it is {picture.format}, expected PNG")
        if size is not None and picture.size != size:
            had, expected = ("×".join(map(str, sides)) for sides in (picture.size, size))
            raise UnreadableImage(f"it has {had} pixels, and its image {expected}")
        if picture.mode not in ("1", "L", "P"):
            depth = "16 bits" if picture.mode.startswith("I") else f"the channels {picture.mode}"
            raise UnreadableImage(f"it has {depth}, expected one channel of 8 bits or a palette")
        return np.asarray(load_image(picture)).astype(np.uint8)


def encoded_mask(numbers: PixelClasses) -> bytes:
    """Return class numbers [height, width] as a PNG."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(numbers).save(stream, "PNG")
    return stream.getvalue()


@dataclass(frozen=True)
class SourceMasks(RowTruth):
    """The masks of every row. numbers: that of each class in the data, if not its position; other
    numbers are then no class."""

    rows: Rows
    column: str
    names: tuple[str, ...]
    numbers: tuple[int, ...]

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
        problems = []
        counts = np.zeros(UNLABELLED + 1, np.int64)
        wrong = 0
        turned = 0
        for done, (row, encoded) in enumerate(zip(chosen, rows.images(chosen), strict=True)):
            try:
                sides = picture_sides(encoded)
                turned += sides.turned
                size = sides.read(source.exif)
                counts += np.bincount(self.of_image(row, size).ravel(), minlength=len(counts))
            except UserError as error:
                wrong += 1
                problems += error.problems if wrong <= MOST_SHOWN else ()
            if done % 100 == 0:
                report_progress("reading masks", done, len(chosen))
        if "exif" not in source.model_fields_set and rows.rendered is None:
            refuse_unclear_turns(turned, rows, "masks")
        if wrong:
            raise UserError(first_of(problems, count=wrong), _HINT)
        unlabelled = int(counts[UNLABELLED])
        if unlabelled == counts.sum():
            raise UserError(f"source.masks: no pixel of {rows.place} has a class", _HINT)
        notes = []
        if unlabelled:
            notes.append(f"{unlabelled / counts.sum():.1%} of all pixels have no class")
        absent = [name for name, count in zip(self.names, counts, strict=False) if not count]
        if absent:
            classes = format_count(len(absent), "class", "classes")
            notes.append(f"no pixel has {classes} of the recipe: {some_of(absent, 10)}")
        return notes

    def of_image(self, row: int, size: Size) -> PixelClasses:
        """Return the classes of a row's pixels, whose image has this size. Raise UserError for a
        mask that cannot be used."""
        encoded = next(self.rows.pictures(self.column, [row]))
        where = f"source.masks: {self.rows.place}, row {row}: mask"
        try:
            numbers = decoded_mask(encoded, size)
        except UnreadableImage as error:
            raise UserError(f"{where}: {error}", _HINT) from error
        if not self.numbers:
            beyond = np.unique(numbers[(numbers >= len(self.names)) & (numbers < UNLABELLED)])
            if beyond.size:
                raise UserError(
                    f"{where}: it has the number {beyond[0]}, and the recipe names {len(self.names)}"
                    " classes, from 0 on",
                    _HINT,
                )
            return numbers
        number_of = np.full(UNLABELLED + 1, UNLABELLED, np.uint8)
        number_of[list(self.numbers)] = np.arange(len(self.names))
        return number_of[numbers]


def masks_of(rows: Rows, source: Source) -> SourceMasks:
    """Return the masks of rows by a recipe's `source`. Raise UserError for a missing column."""
    masks = TASKS["masks"].keys(source)
    rows.need("source.masks", column=masks.column)
    return SourceMasks(rows, masks.column, masks.classes, masks.numbers)


def mask_fault(source: Source, row: Mapping[str, Any], size: Size) -> str | None:
    """Return what is wrong with the mask of a stored row, whose image has this width and height, or
    None."""
    try:
        numbers = decoded_mask((row[MASK] or {}).get("bytes"), size)
    except UnreadableImage as error:
        return f"its mask cannot be used: {error}"
    classes = len(TASKS["masks"].names(source))
    beyond = np.unique(numbers[(numbers >= classes) & (numbers < UNLABELLED)])
    if beyond.size:
        return (
            f"its mask has the number {beyond[0]}, expected 0 to {classes - 1}, or {UNLABELLED} for"
            " none"
        )
    return None
