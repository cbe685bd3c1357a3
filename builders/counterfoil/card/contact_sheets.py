"""Contact sheets: an overview of classes by shifts, and a sheet a shift with base and shifted images in pairs.

Sheets are for looking: their number, their size and the images read for them are bounded, however large the
dataset. What is left out is left out evenly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from counterfoil.card.drawing import Sheet, line_height, wrapped
from counterfoil.card.pictures import LARGEST, Pictures, Place, pictures_of
from counterfoil.card.tally import Tally
from counterfoil.recipe.prompts import BASE
from counterfoil.store.rows import unique_names

if TYPE_CHECKING:
    from PIL import Image

    from counterfoil.plan import Plan
    from counterfoil.recipe import Shift
    from counterfoil.store import Receipt

OVERVIEW = "contact-sheet.webp"

MOST_CLASSES = 12
MOST_COLUMNS = 24  # the base and the 23 shifts of Vendrow 2023, Table 1
MOST_SHEETS = 32
PAIRS_A_CLASS = 6

# Pixels; a page shows about half of it, screens of high density all.
WIDEST, TALLEST = 1680, 1080
_MARGIN, _GAP, _TEXT = 16, 3, 13
_LABEL_WIDTH = 96
_PAIR_SIDE = 80

T = TypeVar("T")
Images = Mapping[Place, "Image.Image"]


@dataclass(frozen=True)
class _Cell:
    """What a class shows on the sheet of a shift: (base, shifted) places; no base where it was rejected."""

    name: str
    pairs: tuple[tuple[Place | None, Place], ...]


def sheet_name(shift: str) -> str:
    """The file name of a shift's contact sheet."""
    return f"shift-{shift}.webp"


def contact_sheets(
    directory: Path, plan: Plan, receipts: Sequence[Receipt], tally: Tally
) -> Iterator[tuple[str, bytes]]:
    """(file name, content) of the overview, then of each shift's sheet; none where nothing was accepted."""
    classes = plan.recipe.classes
    names = unique_names([(cls.id, cls.name) for cls in classes])
    seen = {label for _, label in tally.accepted}
    rows = spread(sorted(seen), MOST_CLASSES)
    shifts = [shift for shift in plan.recipe.all_shifts() if _is_seen(shift, tally)]
    if not shifts:
        return
    columns = [*shifts[:1], *spread(shifts[1:], MOST_COLUMNS - 1)]
    grid = {
        place
        for label in rows
        for place in overview_row(tally, label, [shift.name for shift in columns])
        if place is not None
    }
    sheets = {
        shift.name: _cells(tally, shift, names)
        for shift in spread([shift for shift in shifts if shift.name != BASE], MOST_SHEETS)
    }
    on_sheets = [pair for cells in sheets.values() for cell in cells for pair in cell.pairs]
    bases = [base for base, _ in on_sheets if base is not None]
    shown = [*grid, *bases, *(shifted for _, shifted in on_sheets)]
    pictures = pictures_of(directory, plan, receipts, {(place.shift, place.label) for place in shown})
    yield OVERVIEW, _overview({label: names[label] for label in rows}, columns, tally, pictures.read(grid))
    base_images = pictures.read(bases)  # the same ones mostly, so they are read once
    for shift in shifts:
        if shift.name in sheets:
            yield sheet_name(shift.name), _shift_sheet(shift, sheets[shift.name], base_images, pictures)


def spread(items: Sequence[T], most: int) -> list[T]:
    """At most `most` of the items, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    if most == 1:
        return [items[0]]
    return [items[round(number * (len(items) - 1) / (most - 1))] for number in range(most)]


def overview_row(tally: Tally, label: int, shifts: Sequence[str]) -> list[Place | None]:
    """One image of a class a column: an index with its base that is accepted in most columns, else another."""
    times: dict[int, int] = {}
    for shift in shifts:
        for index in tally.indices(shift, label):
            times[index] = times.get(index, 0) + 1
    common = min(times, key=lambda index: (not tally.has(BASE, label, index), -times[index], index), default=0)
    row: list[Place | None] = []
    for shift in shifts:
        index = common if tally.has(shift, label, common) else next(tally.indices(shift, label), None)
        row.append(None if index is None else Place(shift, label, index))
    return row


def pairs_first(tally: Tally, shift: str, label: int) -> tuple[tuple[Place | None, Place], ...]:
    """The images of a cell to show: those whose base is accepted too, then others, by index."""
    paired: list[int] = []
    alone: list[int] = []
    for index in tally.indices(shift, label):
        (paired if tally.has(BASE, label, index) else alone).append(index)
        if len(paired) == PAIRS_A_CLASS:
            break
    alone = alone[: PAIRS_A_CLASS - len(paired)]
    return (
        *((Place(BASE, label, index), Place(shift, label, index)) for index in paired),
        *((None, Place(shift, label, index)) for index in alone),
    )


def _is_seen(shift: Shift, tally: Tally) -> bool:
    return any(tally.count(shift.name, label) for label in shift.class_labels)


def _cells(tally: Tally, shift: Shift, names: Sequence[str]) -> tuple[_Cell, ...]:
    with_images = [label for label in shift.class_labels if tally.count(shift.name, label)]
    return tuple(
        _Cell(names[label], pairs_first(tally, shift.name, label)) for label in spread(with_images, MOST_CLASSES)
    )


def _overview(rows: Mapping[int, str], columns: Sequence[Shift], tally: Tally, images: Images) -> bytes:
    """Rows are classes (label → name), columns the base and the shifts."""
    left = _MARGIN + _LABEL_WIDTH
    across, down = (WIDEST - left - _MARGIN) // len(columns), (TALLEST - 4 * _MARGIN) // len(rows)
    side = min(LARGEST, across - _GAP, down - _GAP)
    size = _TEXT if side > 80 else 10
    titles = [wrapped(_spoken(shift.name), size, side, 3) for shift in columns]
    top = _MARGIN + max(len(lines) for lines in titles) * line_height(size) + 4
    sheet = Sheet.blank(left + len(columns) * (side + _GAP) + _MARGIN, top + len(rows) * (side + _GAP) + _MARGIN)
    for column, lines in enumerate(titles):
        x = left + column * (side + _GAP) + side // 2
        y = top - 4 - len(lines) * line_height(size)
        sheet.text(lines, x, y, size, anchor="ma", bold=column == 0 and columns[0].name == BASE)
    shifts = [shift.name for shift in columns]
    for row, (label, name) in enumerate(rows.items()):
        y = top + row * (side + _GAP)
        lines = wrapped(name, _TEXT, _LABEL_WIDTH - 10, 3)
        middle = y + (side - len(lines) * line_height(_TEXT)) // 2
        sheet.text(lines, left - 10, middle, _TEXT, anchor="ra")
        for column, place in enumerate(overview_row(tally, label, shifts)):
            picture = None if place is None else images[place]
            sheet.picture(picture, left + column * (side + _GAP), y, side)
    return sheet.encoded()


def _shift_sheet(shift: Shift, cells: Sequence[_Cell], base_images: Images, pictures: Pictures) -> bytes:
    """A block a class, two blocks beside each other; in a block the base above, the shift below."""
    images = pictures.read(place for cell in cells for _, place in cell.pairs)
    across = min(2, len(cells))
    block_width = PAIRS_A_CLASS * (_PAIR_SIDE + _GAP) - _GAP
    title = line_height(_TEXT) + 4
    block_height = title + 2 * _PAIR_SIDE + _GAP
    head = line_height(_TEXT) + 10
    down = -(-len(cells) // across)
    width = 2 * _MARGIN + across * block_width + (across - 1) * 2 * _MARGIN
    sheet = Sheet.blank(width, 2 * _MARGIN + head + down * (block_height + _MARGIN) - _MARGIN)
    heading = f"above: base · below: {_spoken(shift.name)}"
    sheet.text(wrapped(heading, _TEXT, width - 2 * _MARGIN, 1), _MARGIN, _MARGIN, _TEXT, faint=True)
    for number, cell in enumerate(cells):
        x = _MARGIN + (number % across) * (block_width + 2 * _MARGIN)
        y = _MARGIN + head + (number // across) * (block_height + _MARGIN)
        sheet.text(wrapped(cell.name, _TEXT, block_width, 1, bold=True), x, y, _TEXT, bold=True)
        for column, (base, shifted) in enumerate(cell.pairs):
            at = x + column * (_PAIR_SIDE + _GAP)
            sheet.picture(None if base is None else base_images[base], at, y + title, _PAIR_SIDE)
            sheet.picture(images[shifted], at, y + title + _PAIR_SIDE + _GAP, _PAIR_SIDE)
    return sheet.encoded()


def _spoken(shift: str) -> str:
    return shift.replace("_", " ")
