"""What edits or corrupts the rows of a table, of the input dataset as it is pinned."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from counterfoil.errors import UserError
from counterfoil.generate.edited_rows import EditRenderer
from counterfoil.generate.pool_rows import CorruptedRows
from counterfoil.recipe.names import ROWS
from counterfoil.sources.pins import SourcePin
from counterfoil.sources.pool import images_of_rows, licences_of_rows, partners, pool_rows, rows_of_classes

if TYPE_CHECKING:
    from counterfoil.plan import Edited
    from counterfoil.recipe import Recipe
    from counterfoil.sources.rows import Rows

_MOST_PROBLEMS = 20


def edit_renderer(pipeline: Any, recipe: Recipe, pin: SourcePin, edited: Edited) -> EditRenderer:
    """Draws the rows of a table anew. Raises as `corrupted_rows`."""
    rows = _rows_of(recipe, pin, edited)
    return EditRenderer(pipeline, recipe, images_of_rows(recipe, rows), licences_of_rows(recipe, rows, pin))


def corrupted_rows(recipe: Recipe, pin: SourcePin, edited: Edited) -> CorruptedRows:
    """Gives the rows of a table as they are, and corrupted; a match reads the row's partner under its shift.

    UserError, collected, for rows that the dataset does not have, or of another class: a table may be a stranger's.
    """
    rows = _rows_of(recipe, pin, edited)
    matched = {name: found.image for name, found in partners(recipe, pin, rows).items()}
    return CorruptedRows(recipe, images_of_rows(recipe, rows), licences_of_rows(recipe, rows, pin), matched)


def _rows_of(recipe: Recipe, pin: SourcePin, edited: Edited) -> Rows:
    rows = pool_rows(recipe, pin)
    if problems := list(islice(_wrong_rows(recipe, edited, rows), _MOST_PROBLEMS)):
        raise UserError(problems, "Name the input dataset that the rows were chosen from, at its revision of then.")
    return rows


def _wrong_rows(recipe: Recipe, edited: Edited, rows: Rows) -> Iterator[str]:
    of_class = rows_of_classes(recipe, rows)
    for cls in recipe.classes:
        own = [one.row for one in edited.rows.get(cls.id, ())]
        if beyond := [row for row in own if row >= rows.count]:
            yield f"{ROWS}: class '{cls.id}': found row {beyond[0]}, and {rows.place} has {rows.count:,} rows"
            continue
        right = of_class(cls)
        if others := [row for row in own if not right[row]]:
            yield f"{ROWS}: class '{cls.id}': row {others[0]} of {rows.place} has the label of another class"
