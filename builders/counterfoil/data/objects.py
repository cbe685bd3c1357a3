"""The objects of a split's rows: boxes in pixels of the image, and categories numbered by the
recipe's own list.

A column of objects is a struct of lists or a list of structs, with `bbox` and `category` (or as
`_KEYS` spells them).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from counterfoil.data.messages import message, refusal
from counterfoil.data.truth import RowTruth, refuse_unclear_turns
from counterfoil.data.written_objects import (
    Size,
    add_object,
    agree,
    from_shares,
    is_box,
    is_number,
    written_id,
)
from counterfoil.documents import parse_json
from counterfoil.errors import Problems, quoted
from counterfoil.recipe.names import plain_name
from counterfoil.recipe.tasks.objects import MOST_OBJECTS, OBJECTS, no_objects
from counterfoil.report.words import format_count
from counterfoil.store.decoding import UnreadableImage, picture_sides

if TYPE_CHECKING:
    from counterfoil.data.tables import Rows
    from counterfoil.recipe.schema_inputs import Source

BoxForm = Literal["coco", "yolo", "pascal"]
# How datasets of the Hub spell the keys of an object's parts.
_KEYS = {
    "bbox": ("bbox", "bboxes", "box", "boxes"),
    "category": ("category", "categories", "category_id", "label", "labels", "class"),
    "area": ("area", "areas"),
    # VOC's difficult objects are neither found nor missed, as crowds.
    "iscrowd": ("iscrowd", "is_crowd", "difficult", "is_difficult"),
    "id": ("id", "bbox_id", "ids"),
}
# Texts and numbers of an object that is no crowd and not difficult.
_UNMARKED = ("", "0", "0.0", "false", "none", "unspecified")
# Columns of a table beside the objects.
_SIDES = ("width", "height")
# A cell may have a list for each of its parts too.
_SPARE_LISTS = 100


@dataclass(frozen=True)
class SourceObjects(RowTruth):
    """The objects of every row. cells: the parts of a row's objects by name; each part is a list.
    places: category in the data → number.
    """

    cells: Sequence[Mapping[str, list[Any]]]
    places: Mapping[Any, int]
    form: BoxForm

    def columns(self, row: int, size: Size, stored: Size) -> dict[str, Any]:
        return {OBJECTS: self.of_image(row, size, stored)}

    def square_columns(self, row: int, size: Size, side: int) -> dict[str, Any]:
        """Return the objects in the middle square, with boxes cut at its edge.

        An object of which less than half lies in the square is `iscrowd`: no detection of it is
        right or wrong.
        """
        whole = self.of_image(row, size, size)
        square = min(size)
        scale = side / square
        left = (size[0] - square) / 2
        top = (size[1] - square) / 2
        objects = no_objects()
        for index, (x, y, width, height) in enumerate(whole["bbox"]):
            first_x = max(x, left)
            first_y = max(y, top)
            across = min(x + width, left + square) - first_x
            down = min(y + height, top + square) - first_y
            if across <= 0 or down <= 0:
                continue
            share = across * down / (width * height)
            box = (first_x - left, first_y - top, across, down)
            add_object(
                objects,
                id=whole["id"][index],
                bbox=[value * scale for value in box],
                category=whole["category"][index],
                area=whole["area"][index] * share * scale**2,
                iscrowd=whole["iscrowd"][index] or share < 0.5,
            )
        return {OBJECTS: objects}

    def checked(self, source: Source, rows: Rows, chosen: Sequence[int]) -> Sequence[str]:
        """Raise UserError if no chosen image has an object, or if nothing says whether boxes are of
        turned photographs.

        Notes say if images have another size than columns say, if categories are not those of the
        data in their order and nothing says their numbers, and if numbers may count from 1.
        """
        side = (1, 1)
        if not any(self.of_image(row, side, side)["bbox"] for row in chosen):
            where = f"source.objects: {rows.place}"
            raise refusal("no-images.objects", where, len(chosen), len(source.categories))
        notes = []
        turned = 0
        unclear = "exif" not in source.model_fields_set
        sized = self.form != "yolo" and set(_SIDES) <= set(rows.columns)
        if (unclear or sized) and rows.rendered is None:
            with_boxes = [row for row in chosen if self.cells[row]["bbox"]]
            turned, unlike = _sides_of(rows, with_boxes)
            if unlike and sized:
                notes.append(
                    f"{format_count(len(unlike), 'image has', 'images have')} another size than the"
                    f" columns width and height say ({unlike[0]}): boxes may be of that size"
                )
        if unclear:
            refuse_unclear_turns(turned, rows, "boxes")
        names = rows.class_names(source.objects or "")
        of_data = None if names is None else tuple(map(plain_name, names))
        of_recipe = tuple(map(plain_name, source.categories))
        # An empty first category may group the others.
        if (
            of_data is not None
            and not source.category_ids
            and of_recipe not in (of_data, of_data[1:])
        ):
            notes.append(
                "source.categories are not all categories of the dataset in their order: predictions by"
                " number would count"
                " the recipe's, so write names in predictions, or numbers as source.category_ids in the"
                " recipe"
            )
        used = {category for cell in self.cells for category in cell["category"]}
        if names is None and 0 not in used and all(type(each) is int for each in used):
            notes.append(
                f"no object has the category 0, {quoted(source.categories[0])}: if the numbers count"
                " from 1, subtract 1 from each"
            )
        return notes

    def of_image(self, row: int, size: Size, stored: Size) -> dict[str, list[Any]]:
        """Return a row's objects for an image that is resized. Boxes are [x, y, width, height].

        No box is cut at the edge of the image, because detections are not cut either.
        """
        cell = self.cells[row]
        objects = no_objects()
        across = stored[0] / size[0]
        down = stored[1] / size[1]
        for index, box in enumerate(cell["bbox"]):
            category = self.places.get(cell["category"][index])
            if category is None:
                continue
            x, y, width, height = in_pixels(box, self.form, size)
            object_area = cell["area"][index] if cell["area"] else width * height
            if self.form == "yolo" and object_area <= 1:
                # The area too is a share of the image.
                object_area *= size[0] * size[1]
            add_object(
                objects,
                id=cell["id"][index] if cell["id"] else index,
                bbox=[x * across, y * down, width * across, height * down],
                category=category,
                area=object_area * across * down,
                iscrowd=cell["iscrowd"][index] if cell["iscrowd"] else False,
            )
        return objects


def objects_of(rows: Rows, source: Source) -> SourceObjects:
    """Return the objects of rows by a recipe's `source`. Raise UserError for unsuitable columns and
    categories."""
    column = source.objects or ""
    rows.need(objects=column)
    cells = cells_of(rows, column, source.boxes)
    places = _places(rows, cells, rows.class_names(column), source.categories)
    return SourceObjects(cells, places, source.boxes)


def _sides_of(rows: Rows, chosen: Sequence[int]) -> tuple[int, list[str]]:
    """Return how many photographs an EXIF tag turns, and words on each whose size is not that of
    the columns width and height, if a table has them."""
    written = []
    if set(_SIDES) <= set(rows.columns):
        columns = [rows.column(side) for side in _SIDES]
        written = list(zip(*columns, strict=True))
    turned = 0
    unlike = []
    for row, encoded in zip(chosen, rows.images(chosen), strict=True):
        try:
            sides = picture_sides(encoded)
        except UnreadableImage:
            continue
        turned += sides.turned
        if not written:
            continue
        width, height = map(written_id, written[row])
        if not isinstance(width, int) or not isinstance(height, int):
            continue
        says = width, height
        if min(says) > 0 and not agree(sides.stored, says):
            has = f"{sides.stored[0]} × {sides.stored[1]}"
            unlike.append(f"row {row}: {has} and not {width} × {height}")
    return turned, unlike


def cells_of(rows: Rows, column: str, form: BoxForm | None = None) -> list[Mapping[str, list[Any]]]:
    """Return the parts of each row's objects. Every part is a list. Raise UserError with every
    malformed row.

    form: the form of boxes, of which none may then have a side below 0.
    """
    problems = Problems(message)
    cells: list[Mapping[str, list[Any]]] = []
    for row, value in enumerate(rows.column(column)):
        where = f"source.objects: {rows.place}, row {row}"
        cell = _parts(value, where, problems)
        cells.append(cell)
        if form is None:
            continue
        for box in cell["bbox"]:
            _, _, *sides = in_pixels(box, form, (1, 1))
            if min(sides) < 0:
                problems.add("invalid-boxes.side", where, box, form=form)
                break
    problems.refuse()
    return cells


def _parts(value: Any, where: str, problems: Problems) -> dict[str, list[Any]]:
    """Return the parts of one row's objects by name. What is wrong with them goes to `problems`."""
    empty = no_objects()
    if isinstance(value, str):  # a cell of a CSV file is text
        lists = value.count("[")
        if lists > MOST_OBJECTS + _SPARE_LISTS:
            problems.add("invalid-boxes.lists", where, lists, MOST_OBJECTS)
            return empty
        try:
            value = parse_json(value.encode()) if value.strip() else None
        except ValueError:
            problems.add("invalid-boxes.json", where, value)
            return empty
    if value is None:
        return empty
    if isinstance(value, list | tuple):
        if not all(isinstance(entry, Mapping) for entry in value):
            problems.add("invalid-boxes.objects", where, value)
            return empty
        keys = list(dict.fromkeys(key for entry in value for key in entry))
        if not keys:
            return empty
        columns = {}
        for key in keys:
            columns[key] = [entry.get(key) for entry in value]
        value = columns
    if not isinstance(value, Mapping):
        problems.add("invalid-boxes.objects", where, type(value).__name__)
        return empty
    cell = {}
    for name, spellings in _KEYS.items():
        stored = [value.get(key) for key in spellings]
        values = next((list(part) for part in stored if isinstance(part, list | tuple)), [])
        if all(part is None for part in values):
            values = []
        cell[name] = values
    boxes = cell["bbox"]
    categories = cell["category"]
    if len(boxes) > MOST_OBJECTS:
        problems.add("invalid-boxes.many", where, len(boxes), MOST_OBJECTS)
        return empty
    if len(categories) != len(boxes):
        problems.add("invalid-boxes.counts", where, len(boxes), len(categories))
        return empty
    for name in ("area", "iscrowd", "id"):
        if len(cell[name]) != len(boxes):
            cell[name] = []
    odd = next((box for box in boxes if not is_box(box)), None)
    if odd:
        problems.add("invalid-boxes.box", where, odd)
        return empty
    if any(type(category) not in (int, str) for category in categories):
        problems.add("invalid-boxes.category", where)
        return empty
    if not all(is_number(area) and area >= 0 for area in cell["area"]):
        cell["area"] = []
    cell["iscrowd"] = [str(mark).strip().lower() not in _UNMARKED for mark in cell["iscrowd"]]
    if not all(type(number) is int and abs(number) < 1 << 63 for number in cell["id"]):
        cell["id"] = []
    return cell


def _places(
    rows: Rows,
    cells: Iterable[Mapping[str, list[Any]]],
    names: Sequence[str] | None,
    categories: Sequence[str],
) -> dict[Any, int]:
    """Return category in the data → index in `categories`. Categories match by name, or by number
    if the data has no names.
    """
    where = f"source.categories: {rows.place}"
    used = {category for cell in cells for category in cell["category"]}
    if names is None and all(type(category) is int for category in used):
        beyond = sorted(category for category in used if not 0 <= category < len(categories))
        if beyond:
            raise refusal("unknown-label.number", where, beyond[0], len(categories))
        return {index: index for index in range(len(categories))}
    name_of = dict(zip(used, used, strict=True)) if names is None else dict(enumerate(names))
    of_data = sorted(map(str, used)) if names is None else names
    known = {category: plain_name(str(name)) for category, name in name_of.items()}
    lacking = [name for name in categories if plain_name(name) not in known.values()]
    # If no names are declared, a missing category may just have no object in this split.
    if names is None and len(lacking) < len(categories):
        lacking = []
    problems = Problems(message)
    for name in lacking:
        problems.add("unknown-label.category", where, name, of_data)
    problems.refuse()
    index_of = {plain_name(name): index for index, name in enumerate(categories)}
    return {category: index_of[name] for category, name in known.items() if name in index_of}


def in_pixels(box: Sequence[float], form: BoxForm, size: Size) -> list[float]:
    """Return a box as [x, y, width, height] in pixels."""
    if form == "yolo":
        return from_shares(box, *size)
    if form == "pascal":
        left, top, right, bottom = box
        return [left, top, right - left, bottom - top]
    return [*map(float, box)]


def in_image(box: Sequence[float], size: Size) -> list[float] | None:
    """Return the part of a box inside an image. Return None if no part is inside, or the part has
    no area."""
    x, y, width, height = box
    left = max(0.0, x)
    top = max(0.0, y)
    right = min(float(size[0]), x + width)
    bottom = min(float(size[1]), y + height)
    if right <= left or bottom <= top:
        return None
    return [left, top, right - left, bottom - top]
