"""Images that were drawn elsewhere (by a workflow, a service, a renderer): which sample of a recipe each one is.

Columns say the class, the shift, and where known the prompt, the seed and the index of each image. Within a class, one
index stands for one seed, whatever the shift: so images share an index, and are pairs, only where they have the same
seed, and also the same number where a column gives one. An image without a seed is no partner of any.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from counterfoil.data.labels import labels_of
from counterfoil.data.pins import SourcePin
from counterfoil.data.pool import pool_rows
from counterfoil.errors import UserError, first_of, some_of
from counterfoil.plan import RowTable
from counterfoil.progress import track
from counterfoil.recipe.names import did_you_mean, quoted
from counterfoil.recipe.prompts import BASE
from counterfoil.recipe.rows_table import LONGEST_PROMPT, MOST_BYTES, MOST_LINES, MOST_SEED, PoolRow, one_line
from counterfoil.report.words import counted

if TYPE_CHECKING:
    from counterfoil.data.tables import Rows
    from counterfoil.recipe import Recipe

_CORRECT = "Correct the table or the recipe: images need a class and a shift of the recipe, and every cell an image."
# What pandas makes of whole numbers beside an empty cell. Of more digits a number of that kind has lost some.
_WHOLE, _MOST_OF_FLOAT = re.compile(r"(\d{1,19})(\.0*)?", re.ASCII), 2**53
_REPORTED_EVERY = 100
_MOST_SUGGESTIONS = 20


class GivenRows(NamedTuple):
    """The table of a recipe's images, and what must be known of it."""

    table: RowTable
    notes: tuple[str, ...]


class _Image(NamedTuple):
    """A row of a cell: its number in the table, and its own number and seed where known."""

    row: int
    number: int | None
    seed: int | None

    @property
    def identity(self) -> tuple[int, bool, int]:
        """What images of a class share an index by, in the order of these; no two images without a seed share one."""
        return self.number or 0, self.seed is None, self.row if self.seed is None else self.seed


def given_rows(recipe: Recipe, pin: SourcePin) -> GivenRows:
    """The images of every cell of a recipe, in the order of their numbers and seeds.

    Of a cell with more than `candidates` those whose number and seed most shifts have, so that pairs stay.

    UserError, collected, for labels and shifts that the recipe does not have, cells without an image, seeds and numbers
    that are none, or are there twice, and pairs that the recipe promises and no seed makes. Raises as `pool_rows`.
    """
    rows = pool_rows(recipe, pin)
    if rows.count > MOST_LINES:
        raise UserError(f"{rows.place}: has {rows.count:,} rows, expected at most {MOST_LINES:,}")
    columns = _Columns(recipe, rows)
    cells, problems = _cells(recipe, rows, columns)
    problems += columns.problems
    if not problems:
        problems += _repeated(cells, numbered=columns.numbers is not None)
    if problems:
        raise UserError(first_of(problems), _CORRECT)
    wanted = {shift.name: shift.candidates for shift in recipe.all_shifts()}
    table: dict[tuple[str | None, str], list[PoolRow]] = {}
    indexed = list(_indexed(cells, seeded=columns.seeds is not None))
    shared = Counter((class_id, index) for (_, class_id), index_of in indexed for index in index_of.values())
    for (shift, class_id), index_of in indexed:
        by_index = {index: one for one, index in index_of.items()}
        often = sorted(by_index, key=lambda index: (-shared[class_id, index], index))
        table[shift, class_id] = [
            PoolRow(one.row, index=index, seed=one.seed, prompt=columns.prompts[one.row])
            for index, one in ((index, by_index[index]) for index in sorted(often[: wanted[shift]]))
        ]
    pairs, shifted = _pairs(table)
    if recipe.samples.noise == "paired" and not pairs and shifted:
        why = "no two images have the same class and seed, one of them of the base" if columns.seeds else "has no seeds"
        hint = "Give images of a class the same seeds under every shift, or set samples.noise: independent."
        raise UserError(f"samples.noise: paired, but {rows.place}: {why}; expected independent", hint)
    given = RowTable.of(table, "given")
    if len(given.content) > MOST_BYTES:
        raise UserError(
            f"{rows.place}: the table of images takes {len(given.content):,} bytes, expected at most {MOST_BYTES:,}",
            "Build fewer candidates, classes or shifts, or shorten the prompts.",
        )
    return GivenRows(given, tuple(_notes(recipe, rows, cells, table, columns)))


class _Columns:
    """The prompt of each row, and its seed and number where there are any; `problems` are those of single values."""

    def __init__(self, recipe: Recipe, rows: Rows) -> None:
        self.problems: list[str] = []
        self._rows = rows
        generator = recipe.generator
        prompt, seed = (
            name if name in rows.columns else None for name in (generator.prompt_column, generator.seed_column)
        )
        self.prompts = [""] * rows.count if prompt is None else self._texts(prompt)
        seeds = None if seed is None else self._whole(seed)
        self.seeds = seeds if seeds is not None and any(one is not None for one in seeds) else None
        self.numbers = None if generator.index_column is None else self._whole(generator.index_column, needed=True)

    def image(self, row: int) -> _Image:
        return _Image(row, *(None if one is None else one[row] for one in (self.numbers, self.seeds)))

    def _texts(self, column: str) -> list[str]:
        texts = [one_line(value) if isinstance(value, str) else "" for value in self._rows.column(column)]
        long = [row for row, text in enumerate(texts) if len(text) > LONGEST_PROMPT]
        self.wrong(column, long, f"at most {LONGEST_PROMPT:,} characters")
        return texts

    def _whole(self, column: str, *, needed: bool = False) -> list[int | None]:
        values = list(self._rows.column(column))
        found = list(map(_whole, values))
        without = (row for row, one in enumerate(found) if one is None)
        self.wrong(
            column,
            [row for row in without if needed or not _is_empty(values[row])],
            f"a whole number from 0 to {MOST_SEED:,}",
        )
        return found

    def wrong(self, column: str, rows: Sequence[int], expected: str) -> None:
        if rows:
            value = quoted(str(self._rows.column(column)[rows[0]])[:200])
            more = f"; so are {len(rows) - 1:,} more" if len(rows) > 1 else ""
            self.problems.append(f"{self._rows.place}: column '{column}': found {value}{more}, expected {expected}")


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip()) or value != value  # NaN alone is not itself


def _whole(value: Any) -> int | None:
    """A whole number that can be stored; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    match = _WHOLE.fullmatch(str(value).strip())
    found = int(match[1]) if match else -1
    return found if match and 0 <= found <= (MOST_SEED if match[2] is None else _MOST_OF_FLOAT) else None


_Cells = Mapping[tuple[str, str], Sequence[_Image]]


def _cells(recipe: Recipe, rows: Rows, columns: _Columns) -> tuple[_Cells, list[str]]:
    """The images of each cell in the table's order, and what of classes and shifts is none of the recipe's."""
    generator, classes = recipe.generator, recipe.classes
    values = ["" if value is None else value for value in rows.column(generator.shift_column)]
    strange = [row for row, value in enumerate(values) if not isinstance(value, int | str)]
    columns.wrong(generator.shift_column, strange, "text")
    try:
        labels = labels_of(rows, generator.label_column)
        places = labels.places(classes, rows.place).tolist()
    except UserError as error:
        return {}, list(error.problems)
    if strange:
        return {}, []
    names = rows.class_names(generator.shift_column)
    named = dict(enumerate(names or ()))
    shifts = [(value if isinstance(value, str) else named.get(value, str(value))).strip() for value in values]
    cells: dict[tuple[str, str], list[_Image]] = {
        (shift.name, classes[label].id): [] for shift in recipe.all_shifts() for label in shift.class_labels
    }
    known = {shift for shift, _ in cells}
    others: Counter[tuple[str, str]] = Counter()
    for row, (place, shift) in enumerate(zip(places, shifts, strict=True)):
        class_id = classes[place].id if place >= 0 else None
        if class_id is not None and (own := cells.get((shift, class_id))) is not None:
            own.append(columns.image(row))
        elif class_id is None:
            others["label", labels.shown(row)] += 1
        else:
            others["shift" if shift not in known else f"class '{class_id}' under", shift] += 1
    of = {"label": [each for cls in classes for each in (cls.id, cls.name)], "shift": sorted(known)}
    expected = {"label": "the id or name of a class of the recipe", "shift": "base or a shift of the recipe"}
    problems = [
        f"{rows.place}: {counted(count, 'row')} of the {what} {quoted(value)}, expected"
        f" {expected.get(what, 'another class: prompts.shifts does not list it there')}"
        # Looking for the nearest of thousands takes long, and nobody reads thousands of suggestions.
        f"{did_you_mean(value, of.get(what, ())) if number < _MOST_SUGGESTIONS else ''}"
        for number, ((what, value), count) in enumerate(others.items())
    ]
    empty = [f"'{shift}' of '{class_id}'" for (shift, class_id), own in cells.items() if not own]
    if empty:
        problems.append(
            f"{rows.place}: {len(empty):,} of {len(cells):,} cells have no image: {some_of(empty, 10)}; add images, or"
            " list the classes that a shift has (prompts.shifts.NAME.classes)"
        )
    return cells, problems


def _repeated(cells: _Cells, *, numbered: bool) -> Iterator[str]:
    """Cells in which two images have one number, or one seed where nothing else tells them apart."""
    for (shift, class_id), own in cells.items():
        values = [one.number if numbered else one.seed for one in own]
        twice = [value for value, times in Counter(values).items() if times > 1 and value is not None]
        if twice:
            what = "index" if numbered else "seed"
            hint = "" if numbered else ", or a column that numbers the images of a cell (generator.index_column)"
            yield f"'{shift}' of '{class_id}': {what} {twice[0]} is there twice, expected each once in a cell{hint}"


def _indexed(cells: _Cells, *, seeded: bool) -> Iterator[tuple[tuple[str, str], Mapping[_Image, int]]]:
    """Each cell with the index of its images: of a class, equal identities have equal indices, in every shift.

    Without seeds nothing is shared, and a cell counts for itself.
    """
    of_class: dict[str, set[tuple[int, bool, int]]] = {}
    for (_, class_id), own in cells.items():
        of_class.setdefault(class_id, set()).update(one.identity for one in own)
    ranks = {name: {one: rank for rank, one in enumerate(sorted(found))} for name, found in of_class.items()}
    for cell, own in cells.items():
        if seeded:
            yield cell, {one: ranks[cell[1]][one.identity] for one in own}
        else:
            yield cell, {one: rank for rank, one in enumerate(sorted(own, key=lambda one: one.identity))}


def _pairs(table: Mapping[tuple[str | None, str], Sequence[PoolRow]]) -> tuple[int, int]:
    """How many images of shifts have a base image of their index with a seed, and how many there are."""
    base = {(class_id, one.index) for (shift, class_id), own in table.items() if shift == BASE for one in own}
    shifted = [(cell[1], one) for cell, own in table.items() if cell[0] != BASE for one in own]
    return sum(one.seed is not None and (name, one.index) in base for name, one in shifted), len(shifted)


def _notes(
    recipe: Recipe,
    rows: Rows,
    cells: _Cells,
    table: Mapping[tuple[str | None, str], Sequence[PoolRow]],
    columns: _Columns,
) -> Iterator[str]:
    images = sum(map(len, table.values()))
    pairs, shifted = _pairs(table)
    paired = f"{pairs:,} of {shifted:,} images of shifts are paired with a base image of their class and seed"
    unpaired = "no seed is known, so no image is paired" if columns.seeds is None else "pairs are not asked for"
    yield (
        f"{rows.place}: {images:,} images in {len(table):,} cells;"
        f" {paired if recipe.samples.noise == 'paired' else unpaired}"
    )
    most = {shift.name: shift.candidates for shift in recipe.all_shifts()}
    few = sorted((len(own), f"{cell[0]} of {cell[1]}") for cell, own in cells.items() if len(own) < most[cell[0]])
    if few:
        named = some_of([f"{cell} ({count})" for count, cell in few])
        yield f"{len(few):,} of {len(cells):,} cells have fewer images than the recipe allows: {named}"
    unused = sum(map(len, cells.values())) - images
    if unused:
        yield f"{counted(unused, 'image')} beyond what samples allows in a cell, not used"
    unreadable = list(_unreadable(rows, sorted(one.row for own in table.values() for one in own)))
    if unreadable:
        opened = f"{counted(len(unreadable), 'image')} that cannot be opened, counted as failed"
        yield f"{opened}: {some_of(unreadable)}"


def _unreadable(rows: Rows, chosen: Sequence[int]) -> Iterator[str]:
    """The rows whose image is not there, is too large, or has no header of an image. No pixel is decoded."""
    from counterfoil.store.decoding import UnreadableImage, open_image

    paths, images = rows.paths(), zip(chosen, rows.images(chosen), strict=True)
    for row, image in track(images, "looking at images", len(chosen), _REPORTED_EVERY):
        try:
            open_image(image, photograph=True).close()
        except UnreadableImage:
            yield f"row {row}" if paths is None else paths[row]
