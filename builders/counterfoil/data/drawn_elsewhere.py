"""Images that were drawn elsewhere (by a workflow, a service, a renderer). Each image becomes a
sample of a recipe.

Two images of one class under different shifts form a pair if they share an index. They share an
index only if their seeds are equal, and their numbers too if the table has numbers.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from counterfoil.data.labels import labels_of
from counterfoil.data.messages import message, refusal
from counterfoil.data.pins import SourcePin
from counterfoil.data.pool import pool_rows
from counterfoil.errors import Problems, UserError, some_of
from counterfoil.plan.layout import RowTable
from counterfoil.progress import track
from counterfoil.recipe.prompts import BASE
from counterfoil.recipe.rows_table import (
    LONGEST_PROMPT,
    MOST_BYTES,
    MOST_LINES,
    MOST_SEED,
    PoolRow,
    one_line,
)
from counterfoil.report.words import format_count

if TYPE_CHECKING:
    from counterfoil.data.tables import Rows
    from counterfoil.recipe import Recipe


# pandas writes whole numbers as floats if a cell of the column is empty. Floats beyond 2**53 have
# lost digits.
_WHOLE = re.compile(r"(\d{1,19})(\.0*)?", re.ASCII)
_MOST_OF_FLOAT = 2**53
_REPORTED_EVERY = 100


class GivenRows(NamedTuple):
    table: RowTable
    notes: tuple[str, ...]


class _Image(NamedTuple):
    """An image of a cell: its row in the table, and its number and seed if the table has them."""

    row: int
    number: int | None
    seed: int | None

    @property
    def identity(self) -> tuple[int, bool, int]:
        """Return a key for sorting the images of a class. Images with equal keys share an index. An
        image without a seed has a key of its own.
        """
        number = self.number or 0
        if self.seed is None:
            return number, True, self.row
        return number, False, self.seed


def given_rows(recipe: Recipe, pin: SourcePin) -> GivenRows:
    """Return the images of every cell of a recipe, by number and seed, and notes.

    If a cell has too many images, the images whose number and seed occur in most shifts are kept,
    so that pairs stay. Raise UserError with every problem.
    """
    rows = pool_rows(recipe, pin)
    if rows.count > MOST_LINES:
        raise refusal(
            "too-much-data.rows",
            rows.place,
            rows.count,
            MOST_LINES,
        )
    columns = _Columns(recipe, rows)
    cells = _cells(recipe, rows, columns)
    if not columns.problems.count:
        _add_repeated(cells, columns)
    columns.problems.refuse(message.advice["unfit-column.given"])
    wanted = {shift.name: shift.candidates for shift in recipe.all_shifts()}
    table: dict[tuple[str | None, str], list[PoolRow]] = {}
    indexed = _by_index(cells, seeded=columns.seeds is not None)
    shared: Counter[tuple[str, int]] = Counter()
    for (_, class_id), image_at in indexed.items():
        shared.update((class_id, index) for index in image_at)
    for (shift, class_id), image_at in indexed.items():
        by_frequency = sorted(image_at, key=lambda index: (-shared[class_id, index], index))
        rows_of_cell = []
        for index in sorted(by_frequency[: wanted[shift]]):
            row, _, seed = image_at[index]
            prompt = columns.prompts[row]
            rows_of_cell.append(PoolRow(row, index=index, seed=seed, prompt=prompt))
        table[shift, class_id] = rows_of_cell
    pairs, shifted = _pairs(table)
    if recipe.samples.noise == "paired" and not pairs and shifted:
        name = "unfit-column.shared-seeds" if columns.seeds else "unfit-column.seeds"
        raise refusal(name, f"samples.noise: {rows.place}")
    given = RowTable.of(table, "given")
    size = len(given.content)
    if size > MOST_BYTES:
        raise refusal("too-much-data.table", rows.place, size, MOST_BYTES)
    notes = _notes(recipe, rows, cells, table, columns)
    return GivenRows(given, tuple(notes))


class _Columns:
    """The prompt of each row, its seed and number if the table has these columns, and the problems
    of single values."""

    def __init__(self, recipe: Recipe, rows: Rows) -> None:
        self.problems = Problems(message)
        self._rows = rows
        generator: Any = recipe.generator
        self.prompts = [""] * rows.count
        if generator.prompt_column in rows.columns:
            self.prompts = self._texts(generator.prompt_column)
        self.seeds: list[int | None] | None = None
        if generator.seed_column in rows.columns:
            seeds = self._whole_numbers(generator.seed_column)
            if any(value is not None for value in seeds):
                self.seeds = seeds
        self.numbers: list[int | None] | None = None
        if generator.index_column is not None:
            self.numbers = self._whole_numbers(generator.index_column, needed=True)

    def image(self, row: int) -> _Image:
        number = None if self.numbers is None else self.numbers[row]
        seed = None if self.seeds is None else self.seeds[row]
        return _Image(row, number, seed)

    def _texts(self, column: str) -> list[str]:
        texts = []
        for value in self._rows.column(column):
            texts.append(one_line(value) if isinstance(value, str) else "")
        long = [row for row, text in enumerate(texts) if len(text) > LONGEST_PROMPT]
        self.add_wrong(column, long, f"at most {LONGEST_PROMPT:,} characters")
        return texts

    def _whole_numbers(self, column: str, *, needed: bool = False) -> list[int | None]:
        """Return a column of whole numbers. needed: whether an empty cell is wrong."""
        numbers = []
        wrong = []
        for row, value in enumerate(self._rows.column(column)):
            number = _whole_number(value)
            numbers.append(number)
            # NaN, the only value that differs from itself, is an empty cell too.
            is_empty = value is None or value != value or not str(value).strip()
            if number is None and (needed or not is_empty):
                wrong.append(row)
        self.add_wrong(column, wrong, f"a whole number from 0 to {MOST_SEED:,}")
        return numbers

    def add_wrong(self, column: str, rows: Sequence[int], expected: str) -> None:
        """Add a problem for the rows in which a column has a wrong value, if there are any."""
        if not rows:
            return
        first = self._rows.column(column)[rows[0]]
        more = len(rows) - 1
        name = "unfit-column.given-rows" if more else "unfit-column.given"
        where = f"{self._rows.place}: column '{column}'"
        self.problems.add(name, where, first, expected, more=more)


def _whole_number(value: Any) -> int | None:
    """Parse a whole number that can be stored. Return None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    match = _WHOLE.fullmatch(str(value).strip())
    if match is None:
        return None
    number = int(match[1])
    most = MOST_SEED if match[2] is None else _MOST_OF_FLOAT
    return number if number <= most else None


_Cells = Mapping[tuple[str, str], Sequence[_Image]]


def _cells(recipe: Recipe, rows: Rows, columns: _Columns) -> _Cells:
    """Return the images of each cell in the table's order, and a problem for every unknown class or
    shift."""
    generator: Any = recipe.generator
    classes = recipe.classes
    values = list(rows.column(generator.shift_column))
    unfit = []
    for row, value in enumerate(values):
        if value is None:
            values[row] = ""
        elif not isinstance(value, int | str):
            unfit.append(row)
    columns.add_wrong(generator.shift_column, unfit, "text")
    try:
        labels = labels_of(rows, generator.label_column)
        positions = labels.places(classes, rows.place).tolist()
    except UserError as error:
        columns.problems.add_all(error)
        return {}
    if unfit:
        return {}
    names = dict(enumerate(rows.class_names(generator.shift_column) or ()))
    cells: dict[tuple[str, str], list[_Image]] = {}
    for shift in recipe.all_shifts():
        cells |= {(shift.name, classes[label].id): [] for label in shift.class_labels}
    known = {shift for shift, _ in cells}
    unknown: Counter[tuple[str, str, str]] = Counter()
    for row, (position, value) in enumerate(zip(positions, values, strict=True)):
        shift = value if isinstance(value, str) else names.get(value, str(value))
        shift = shift.strip()
        if position < 0:
            unknown["label", labels.shown(row), ""] += 1
            continue
        class_id = classes[position].id
        if (shift, class_id) in cells:
            cells[shift, class_id].append(columns.image(row))
        elif shift in known:
            unknown["class", shift, class_id] += 1
        else:
            unknown["shift", shift, ""] += 1
    label_names = []
    for cls in classes:
        label_names += (cls.id, cls.name)
    shift_names = sorted(known)
    problems = columns.problems
    for (what, value, class_id), count in unknown.items():
        expected = {"label": label_names, "shift": shift_names, "class": class_id}
        name = f"unknown-label.given-{what}"
        problems.add(name, rows.place, value, expected[what], rows=count)
    empty = []
    for (shift, class_id), images in cells.items():
        if not images:
            empty.append(f"'{shift}' of '{class_id}'")
    if empty:
        shown = some_of(empty, 10)
        problems.add("no-images.cells", rows.place, len(empty), len(cells), cells=shown)
    return cells


def _add_repeated(cells: _Cells, columns: _Columns) -> None:
    """Add a problem for each cell in which two images have one number, or one seed if the table has
    no numbers."""
    numbered = columns.numbers is not None
    name = "image-list.index" if numbered else "image-list.seed"
    for (shift, class_id), images in cells.items():
        times: Counter[int | None] = Counter()
        for image in images:
            times[image.number if numbered else image.seed] += 1
        del times[None]
        repeated = [value for value, count in times.items() if count > 1]
        if repeated:
            where = f"'{shift}' of '{class_id}'"
            columns.problems.add(name, where, repeated[0])


def _by_index(cells: _Cells, *, seeded: bool) -> Mapping[tuple[str, str], dict[int, _Image]]:
    """Return each cell's images by index. With seeds, equal identities have equal indices in all
    shifts."""
    identities = defaultdict[str, set[tuple[int, bool, int]]](set)
    for (_, class_id), images in cells.items():
        identities[class_id].update(image.identity for image in images)
    indices = {}
    for class_id, of_class in identities.items():
        indices[class_id] = {identity: index for index, identity in enumerate(sorted(of_class))}
    by_index = {}
    for (shift, class_id), images in cells.items():
        if seeded:
            index_of = indices[class_id]
            by_index[shift, class_id] = {index_of[image.identity]: image for image in images}
        else:
            in_order = sorted(images, key=lambda image: image.identity)
            by_index[shift, class_id] = dict(enumerate(in_order))
    return by_index


def _pairs(table: Mapping[tuple[str | None, str], Sequence[PoolRow]]) -> tuple[int, int]:
    """Count the images of shifts that are paired with a base image, and all images of shifts."""
    paired = shifted = 0
    for (shift, class_id), rows in table.items():
        if shift == BASE:
            continue
        shifted += len(rows)
        base = {row.index for row in table.get((BASE, class_id), ())}
        for row in rows:
            paired += row.seed is not None and row.index in base
    return paired, shifted


def _notes(
    recipe: Recipe,
    rows: Rows,
    cells: _Cells,
    table: Mapping[tuple[str | None, str], Sequence[PoolRow]],
    columns: _Columns,
) -> Iterator[str]:
    """Yield notes for people: pairs, cells with few images, unused and unreadable images."""
    images = sum(map(len, table.values()))
    pairs, shifted = _pairs(table)
    paired = "pairs are not asked for"
    if recipe.samples.noise == "paired":
        paired = (
            f"{pairs:,} of {shifted:,} images of shifts are paired with a base image of their"
            " class and seed"
        )
    elif columns.seeds is None:
        paired = "no seed is known, so no image is paired"
    yield f"{rows.place}: {images:,} images in {len(table):,} cells; {paired}"
    most = {shift.name: shift.candidates for shift in recipe.all_shifts()}
    few = []
    for (shift, class_id), of_cell in cells.items():
        if len(of_cell) < most[shift]:
            few.append((len(of_cell), f"{shift} of {class_id}"))
    if few:
        named = some_of(f"{cell} ({count})" for count, cell in sorted(few))
        yield (
            f"{len(few):,} of {len(cells):,} cells have fewer images than the recipe allows:"
            f" {named}"
        )
    unused = sum(map(len, cells.values())) - images
    if unused:
        yield f"{format_count(unused, 'image')} beyond what samples allows in a cell, not used"
    chosen = sorted(row.row for row in chain.from_iterable(table.values()))
    unreadable = list(_unreadable(rows, chosen))
    if unreadable:
        opened = (
            f"{format_count(len(unreadable), 'image')} that cannot be opened, counted as failed"
        )
        yield f"{opened}: {some_of(unreadable)}"


def _unreadable(rows: Rows, chosen: Sequence[int]) -> Iterator[str]:
    """Yield the rows whose image is missing, too large, or has no image header. No pixel is
    decoded."""
    from counterfoil.store.decoding import UnreadableImage, open_image

    paths = rows.paths()
    images = zip(chosen, rows.images(chosen), strict=True)
    for row, image in track(
        images,
        "looking at images",
        len(chosen),
        _REPORTED_EVERY,
    ):
        try:
            open_image(image, photograph=True).close()
        except UnreadableImage:
            yield f"row {row}" if paths is None else paths[row]
