"""Look at the objects of a newcomer's images: how boxes are written, and what is wrong with some.

The most common mistake is the wrong form of boxes. No number shows it, so a picture of some boxes
is written beside the recipe.
"""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from counterfoil.data.folders import folder_listing
from counterfoil.data.labelled_sources import NamedDataset
from counterfoil.data.object_folders import read_object_folder
from counterfoil.data.objects import BoxForm, cells_of, in_image, in_pixels
from counterfoil.data.pictures import evenly_spread
from counterfoil.data.tables import Outline, Rows
from counterfoil.data.written_objects import ObjectFolder, Size
from counterfoil.errors import UserError
from counterfoil.recipe.names import is_local
from counterfoil.recipe.tasks.objects import OBJECTS, ObjectsSource, categories_problem
from counterfoil.recipe.tasks.task import PlacedTruth
from counterfoil.report.words import format_count, format_list
from counterfoil.store.decoding import UnreadableImage, picture_sides

if TYPE_CHECKING:
    from PIL import Image

# The number of images whose size is looked up, and the number of images in the picture.
_MOST_LOOKED_AT = 500
SHOWN = 12
_MOST_NAMED = 12
_WRITTEN: Mapping[BoxForm, str] = {
    "coco": "[x, y, width, height] in pixels, as COCO",
    "yolo": "centre and size as shares of the image, as YOLO",
    "pascal": "two corners in pixels, as Pascal VOC",
}
_WRITTEN_IN_FOLDERS = {
    "COCO": _WRITTEN["coco"],
    "YOLO": _WRITTEN["yolo"],
    "Pascal VOC": _WRITTEN["pascal"],
}
Exif = Literal["apply", "ignore"]
_TOLERANCE = 1.0  # pixels by which rounding may push a box out
_NEAR = 0.01  # by which rounding may change a share, and an area
_MANY = 0.05  # the share of boxes that leave their images in a wrong form
_SHARES = {"coco": "[x, y, width, height]", "pascal": "two corners"}


@dataclass(frozen=True, kw_only=True)
class FoundTruth:
    """What the images of a split show beside a class, such as boxes. A subclass says its task, how
    a model of it is named, and how answers are written."""

    task: ClassVar[PlacedTruth]
    keys_file: ClassVar[str]
    answers: ClassVar[str]
    models: ClassVar[str]
    about_names: ClassVar[str]

    column: str
    names: tuple[str, ...]
    images: int
    notes: tuple[str, ...]
    """Sentences."""
    picture: bytes
    """PNG of some images with what they show."""
    side: int | None
    exif: Exif | None = None
    """How photographs are read, None if no EXIF tag turns one."""

    @property
    def keys(self) -> dict[str, Any]:
        """The keys of a recipe's `source` that say what images show."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class FoundObjects(FoundTruth):
    """The objects of a split."""

    task: ClassVar = ObjectsSource()
    keys_file: ClassVar = "keys.json"
    answers: ClassVar = "predictions:FILE"
    models: ClassVar = (
        "predictions:answers.json (COCO results), transformers:./my-model, onnx:model.onnx"
    )
    about_names: ClassVar = (
        "Objects of other categories are left out. Call categories as your detector calls them, in"
        " this order."
    )

    form: BoxForm
    """How boxes are written."""
    ids: tuple[int, ...] = ()
    """Numbers of the categories, if they are not 1, 2 and so on."""

    @property
    def keys(self) -> dict[str, Any]:
        return {
            "objects": self.column,
            "boxes": None if self.form == "coco" else self.form,
            "categories": list(self.names),
            "category_ids": list(self.ids) or None,
        }


def object_folder(origin: NamedDataset) -> ObjectFolder | None:
    """Return a folder of COCO, YOLO or Pascal VOC files; None for any other dataset. Raises as
    `read_object_folder`."""
    folder = Path(origin.dataset)
    if not is_local(origin.dataset) or not folder.is_dir() or origin.config is not None:
        return None
    return read_object_folder(folder.resolve(), folder_listing(folder))


def objects_column(outline: Outline) -> str | None:
    # In a CSV file objects are text, so only the column's name shows them.
    columns = [
        name
        for name, kind in outline.columns.items()
        if kind == "objects" or (name, kind) == (OBJECTS, "text")
    ]
    if len(columns) > 1:
        raise UserError(
            f"several columns hold boxes: {', '.join(columns)[:300]}",
            "Keep one, or write the recipe by hand.",
        )
    return columns[0] if columns else None


def turned_photographs(rows: Rows) -> Exif | None:
    """Return `apply`, as programs show photographs, if an EXIF tag turns one of a split's
    photographs, else None."""
    if rows.rendered is not None:
        return None
    for encoded in rows.images(evenly_spread(range(rows.count), _MOST_LOOKED_AT)):
        with contextlib.suppress(UnreadableImage):
            if picture_sides(encoded).turned:
                return "apply"
    return None


def notes_on_exif(exif: Exif | None, marks: str) -> Iterator[str]:
    if exif is not None:
        state = "turned" if exif == "apply" else "stored"
        yield (
            f"an EXIF tag turns some photographs: source.exif is {exif}, so {marks} are of"
            f" photographs as {state}"
        )


def find_objects(
    rows: Rows, column: str, folder: ObjectFolder | None, exif: Exif | None
) -> FoundObjects:
    """Look at the objects of a split. UserError for what is not an object, and for categories
    without names."""
    cells = cells_of(rows, column)
    used = Counter(category for cell in cells for category in cell["category"])
    names = rows.class_names(column)
    if names is None:
        if any(not isinstance(category, str) for category in used):
            raise UserError(
                f"{rows.place}: categories are numbers without names",
                "Declare their names (a ClassLabel), or write names instead of numbers.",
            )
        names = tuple(sorted(used))
    problem = categories_problem(names) if names else "no image has an object"
    if problem is not None:
        raise UserError(f"{rows.place}: categories: {problem}")
    with_boxes = [row for row, cell in enumerate(cells) if cell["bbox"]]
    looked = evenly_spread(with_boxes, _MOST_LOOKED_AT)
    sizes = _sizes(rows, looked)
    form: BoxForm = "coco"
    unclear: tuple[str, ...] = ()
    if folder is None:
        form, unclear = _form_of(rows, cells, sizes)
        written = _WRITTEN[form]
    else:
        written = _WRITTEN_IN_FOLDERS[folder.form]
    counted = []
    for category, count in used.most_common():
        name = names[category] if isinstance(category, int) else category
        counted.append(f"{name} ({count:,})")
    notes = [
        f"boxes are read as {written} writes them",
        *unclear,
        f"{format_count(used.total(), 'object')} of"
        f" {format_count(len(used), 'category', 'categories')}:"
        f" {format_list(counted, _MOST_NAMED)}",
        *_odd_boxes(cells, sizes, form),
    ]
    empty = len(cells) - len(with_boxes)
    if empty:
        notes.append(f"{format_count(empty, 'image has', 'images have')} no object")
    notes += rows.notes
    notes += notes_on_exif(exif, "boxes")
    sides = sorted(min(size) for size in sizes.values())
    side = sides[len(sides) // 2] if sides else None
    categories = names
    ids = ()
    if folder is not None:
        categories = tuple(name for name in names if name not in folder.groups)
        ids = folder.ids
    picture = _picture(rows, cells, names, form)
    return FoundObjects(
        column=column,
        names=categories,
        images=rows.count,
        notes=tuple(notes),
        picture=picture,
        side=side,
        exif=exif,
        form=form,
        ids=ids,
    )


def _sizes(rows: Rows, chosen: Sequence[int]) -> dict[int, Size]:
    sizes: dict[int, Size] = {}
    for row in chosen:
        if rows.rendered is not None:
            sizes[row] = rows.image(row).size
            continue
        try:
            # The EXIF orientation is already applied where it is to be.
            sizes[row] = picture_sides(next(rows.images([row]))).stored
        except UnreadableImage:
            continue
    return sizes


def _form_of(
    rows: Rows, cells: Sequence[Mapping[str, list[Any]]], sizes: Mapping[int, Size]
) -> tuple[BoxForm, tuple[str, ...]]:
    """Return the form in which boxes fit their images best, and a note if two forms fit. Of two equal
    forms, the one of COCO, as on the Hub. Raise UserError for shares that are no form of YOLO."""
    boxes = []
    areas: list[float | None] = []
    for row, size in sizes.items():
        cell = cells[row]
        boxes += [(box, size) for box in cell["bbox"]]
        areas += cell["area"] or [None] * len(cell["bbox"])

    def outside(form: BoxForm, scaled: bool = False) -> int:
        count = 0
        for box, size in boxes:
            numbers = [value * side for value, side in zip(box, size * 2, strict=True)]
            count += _is_outside(in_pixels(numbers if scaled else box, form, size), size)
        return count

    def of_areas(form: BoxForm) -> int:
        count = 0
        for (box, size), area in zip(boxes, areas, strict=True):
            _, _, width, height = in_pixels(box, form, size)
            count += area is not None and abs(width * height - area) <= _NEAR * area
        return count

    if boxes and all(-_NEAR <= value <= 1 + _NEAR for box, _ in boxes for value in box):
        beyond = outside("yolo")
        for form in ("pascal", "coco"):
            if beyond > _MANY * len(boxes) and not outside(form, scaled=True):
                raise UserError(
                    f"{rows.place}: boxes are shares of the image as {_SHARES[form]}, and"
                    f" {beyond:,} of {len(boxes):,} would leave their image as centre and size,"
                    " which source.boxes: yolo is",
                    "Multiply the numbers of each box by its image's width and height, so that they"
                    " are pixels.",
                )
        return "yolo", ()
    corners = outside("pascal") - outside("coco")
    if not corners:
        corners = of_areas("coco") - of_areas("pascal")
    note = ""
    if boxes and not corners:
        note = (
            "boxes fit their images as two corners too: if they are corners, write source.boxes:"
            " pascal into the recipe"
        )
    return "pascal" if corners < 0 else "coco", (note,) if note else ()


def _is_outside(box: Sequence[float], size: Size) -> bool:
    x, y, width, height = box
    beyond = max(-x, -y, x + width - size[0], y + height - size[1])
    return beyond > _TOLERANCE or width < 0 or height < 0


def _odd_boxes(
    cells: Sequence[Mapping[str, list[Any]]], sizes: Mapping[int, Size], form: BoxForm
) -> list[str]:
    """Return sentences on boxes that extend beyond their image, are empty, or mark crowds."""
    outside = empty = total = 0
    for row, size in sizes.items():
        for box in cells[row]["bbox"]:
            box_in_pixels = in_pixels(box, form, size)
            total += 1
            if in_image(box_in_pixels, size) is None:
                empty += 1
            elif _is_outside(box_in_pixels, size):
                outside += 1
    crowds = sum(bool(crowd) for cell in cells for crowd in cell["iscrowd"])
    notes = []
    where = f"of {format_count(total, 'box', 'boxes')} in {format_count(len(sizes), 'image')}"
    if outside:
        notes.append(f"{where}, {outside:,} leave their image, and are kept as they are")
    if empty:
        notes.append(
            f"{where}, {empty:,} have no area in their image, and count as objects that nothing"
            " finds"
        )
    if crowds:
        notes.append(
            f"{format_count(crowds, 'box is', 'boxes are')} of crowds, which are neither found nor"
            " missed"
        )
    if total and (outside + empty) / total > _MANY:
        notes.append(
            "so many boxes leave their images that they may be in another form: look at the picture"
        )
    return notes


TILE = 320  # pixels
_EDGE = 4
_COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#800000")


def _picture(
    rows: Rows, cells: Sequence[Mapping[str, list[Any]]], names: Sequence[str], form: BoxForm
) -> bytes:
    from PIL import ImageDraw

    with_boxes = [row for row, cell in enumerate(cells) if cell["bbox"]]
    tiles = []
    for row in evenly_spread(with_boxes, SHOWN):
        try:
            picture = rows.image(row)
        except UserError:
            continue
        size = picture.size
        scale = _scale(size)
        tile = tile_of(picture)
        draw = ImageDraw.Draw(tile)
        for box, category in zip(cells[row]["bbox"], cells[row]["category"], strict=True):
            visible = in_image(in_pixels(box, form, size), size)
            if visible is None:
                continue
            x, y, width, height = (value * scale for value in visible)
            number = category if isinstance(category, int) else list(names).index(category)
            colour = _COLOURS[number % len(_COLOURS)]
            draw.rectangle((x, y, x + width, y + height), outline=colour, width=2)
            text = names[number][:24].encode("ascii", "replace").decode()
            top = max(0, y - 11)
            right = x + 6 * len(text) + 4
            draw.rectangle((x, top, right, max(11, y)), fill=colour)
            draw.text((x + 2, top), text, fill="white")
        tiles.append(tile)
    return picture_sheet(tiles)


def _scale(size: Size) -> float:
    return (TILE - 2 * _EDGE) / max(size)


def tile_of(picture: Image.Image) -> Image.Image:
    """Return a photograph in the size of a tile of a sheet."""
    scale = _scale(picture.size)
    width, height = (max(1, round(side * scale)) for side in picture.size)
    return picture.convert("RGB").resize((width, height))


def picture_sheet(tiles: Sequence[Image.Image], legend: Image.Image | None = None) -> bytes:
    """Return a PNG of tiles, four in a row, above a legend."""
    from PIL import Image

    columns = min(4, len(tiles)) or 1
    lines = -(-max(1, len(tiles)) // columns)
    below = 0 if legend is None else legend.height
    sheet = Image.new("RGB", (columns * TILE, lines * TILE + below), "white")
    for index, tile in enumerate(tiles):
        sheet.paste(tile, (index % columns * TILE + _EDGE, index // columns * TILE + _EDGE))
    if legend is not None:
        sheet.paste(legend, (0, lines * TILE))
    stream = io.BytesIO()
    sheet.save(stream, "PNG")
    return stream.getvalue()
