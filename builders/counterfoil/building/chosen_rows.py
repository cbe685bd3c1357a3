"""The pool of a set of rows: its rows looked at before the first image is taken, and read by workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from counterfoil.errors import UserError
from counterfoil.generate import PoolRows
from counterfoil.recipe.rows_table import rows_csv
from counterfoil.sources.pins import SourcePin
from counterfoil.sources.pool import images_of_rows, licences_of_rows, pool_rows, rows_of_classes
from counterfoil.store.layout import ROWS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from counterfoil.plan import Retrieved
    from counterfoil.recipe import Recipe, RecipeClass
    from counterfoil.sources.rows import Rows

_MOST_PROBLEMS = 20


def check_rows(recipe: Recipe, pin: SourcePin) -> None:
    """UserError, collected, for rows that the pool does not have, or whose label is not their class's.

    Labels are compared unless the recipe says that they are predicted. Rows that a build chooses, to retrieve or to
    edit them, are of the pool by the way they are found.
    """
    if recipe.generator.kind != "rows":
        return
    rows = pool_rows(recipe, pin)
    of_class = rows_of_classes(recipe, rows) if recipe.generator.labels == "column" else None
    problems = [problem for _, problem in zip(range(_MOST_PROBLEMS), _wrong_rows(recipe, rows, of_class), strict=False)]
    if problems:
        raise UserError(problems, "Correct generator.rows: each row of a cell must be an image of its class.")


def rows_of_pool(recipe: Recipe, pin: SourcePin, retrieved: Retrieved | None = None) -> PoolRows:
    """The pool as what gives samples their images; `retrieved` are the rows that a plan of a retrieval takes.

    UserError, collected, for rows that the pool does not have: a table may be a stranger's.
    """
    rows = pool_rows(recipe, pin)
    beyond = _retrieved_beyond(retrieved, rows) if retrieved is not None else _wrong_rows(recipe, rows, None)
    if problems := [problem for _, problem in zip(range(_MOST_PROBLEMS), beyond, strict=False)]:
        raise UserError(problems, "Name the pool that the rows were chosen from, at its revision of then.")
    return PoolRows(images_of_rows(recipe, rows), licences_of_rows(recipe, rows, pin))


def rows_file(recipe: Recipe) -> bytes | None:
    """The rows as a file that travels with the dataset; None where images are rendered."""
    return None if recipe.generator.rows is None else rows_csv(recipe.generator.rows)


def _retrieved_beyond(retrieved: Retrieved, pool: Rows) -> Iterator[str]:
    for shift, cells in retrieved.rows.items():
        for class_id, own in cells.items():
            if beyond := [one.row for one in own if one.row >= pool.count]:
                where = f"{ROWS}: '{shift}' of class '{class_id}'"
                yield f"{where}: found row {beyond[0]}, and {pool.place} has {pool.count:,} rows"


def _wrong_rows(
    recipe: Recipe, pool: Rows, of_class: Callable[[RecipeClass], NDArray[np.bool_]] | None
) -> Iterator[str]:
    classes = {cls.id: cls for cls in recipe.classes}
    for shift, cells in (recipe.generator.rows or {}).items():
        for class_id, own in cells.items():
            where = f"generator.rows.{shift}.{class_id}"
            beyond = [row for row in own if row >= pool.count]
            if beyond:
                yield f"{where}: found row {beyond[0]}, and {pool.place} has {pool.count:,} rows"
                continue
            right = None if of_class is None else of_class(classes[class_id])
            others = [row for row in own if right is not None and not right[row]]
            if others:
                many = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
                yield f"{where}: row {others[0]}{many} of {pool.place} has the label of another class"
