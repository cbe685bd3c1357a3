"""The pool of a set of rows: pinned, its rows looked at before the first image is taken, and read by workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.errors import UserError
from counterfoil.generate import PoolRows
from counterfoil.recipe.rows_table import rows_csv
from counterfoil.sources.class_matching import labels_of
from counterfoil.sources.condition_labels import conditions_of
from counterfoil.sources.input_datasets import image_of, read_rows
from counterfoil.sources.pins import SourcePin, loadable_pin, pin_source
from counterfoil.store.layout import ROWS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from counterfoil.plan import Retrieved
    from counterfoil.recipe import Recipe, RecipeClass
    from counterfoil.recipe.schema_conditions import Conditions
    from counterfoil.sources.rows import Rows

_MOST_PROBLEMS = 20
# What a column of licences may hold: a name or an address of one.
_LONGEST_LICENCE = 500


@dataclass(frozen=True, slots=True)
class Pool:
    """Where the pool of a recipe is and what its columns are called (a `sources.InputDataset`)."""

    dataset: str
    config: str | None
    revision: str | None
    image_column: str
    label_column: str
    unit_column: str | None = None
    conditions: Conditions | None = None

    @classmethod
    def of(cls, recipe: Recipe) -> Pool:
        """The pool that a recipe names, or its input dataset."""
        own = recipe.generator.dataset is None
        chosen = recipe.source if own else recipe.generator
        dataset = recipe.generator.dataset or recipe.source.dataset
        conditions = recipe.source.conditions if own else None
        columns = chosen.image_column, chosen.label_column
        return cls(dataset, chosen.config, chosen.revision, *columns, conditions=conditions)


def pin_pool(recipe: Recipe, recorded: Any) -> SourcePin:
    """What the pool's name stands for; `recorded` is what a lock says of it."""
    return pin_source(Pool.of(recipe), recorded)


def loadable_pool(recipe: Recipe, recorded: Any) -> SourcePin:
    """The pool that a lock pins, wherever a branch has gone since."""
    return loadable_pin(Pool.of(recipe), recorded)


def check_rows(recipe: Recipe, pin: SourcePin) -> None:
    """UserError, collected, for rows that the pool does not have, or whose label is not their class's.

    Labels are compared unless the recipe says that they are predicted. Retrieved rows need no label, and are of the
    pool by the way they are found.
    """
    if recipe.generator.kind == "retrieve":
        return
    rows = _rows(recipe, pin)
    of_class = _rows_of_classes(recipe, rows) if recipe.generator.labels == "column" else None
    problems = [problem for _, problem in zip(range(_MOST_PROBLEMS), _wrong_rows(recipe, rows, of_class), strict=False)]
    if problems:
        raise UserError(problems, "Correct generator.rows: each row of a cell must be an image of its class.")


def rows_of_pool(recipe: Recipe, pin: SourcePin, retrieved: Retrieved | None = None) -> PoolRows:
    """The pool as what gives samples their images; `retrieved` are the rows that a plan of a retrieval takes.

    UserError, collected, for rows that the pool does not have: a table may be a stranger's.
    """
    rows = _rows(recipe, pin)
    beyond = _retrieved_beyond(retrieved, rows) if retrieved is not None else _wrong_rows(recipe, rows, None)
    if problems := [problem for _, problem in zip(range(_MOST_PROBLEMS), beyond, strict=False)]:
        raise UserError(problems, "Name the pool that the rows were chosen from, at its revision of then.")
    image = image_of(Pool.of(recipe), recipe.generator.split, rows)
    column = recipe.generator.license_column
    if column is None:
        return PoolRows(image, None)
    licences = rows.column(column)

    def licence(row: int) -> str | None:
        value = licences[row]
        return None if value is None else str(value)[:_LONGEST_LICENCE]

    return PoolRows(image, licence)


def rows_file(recipe: Recipe) -> bytes | None:
    """The rows as a file that travels with the dataset; None where images are rendered."""
    return None if recipe.generator.rows is None else rows_csv(recipe.generator.rows)


def _rows(recipe: Recipe, pin: SourcePin) -> Rows:
    labelled = recipe.generator.kind == "rows" and recipe.generator.labels == "column"
    rows = read_rows(Pool.of(recipe), recipe.generator.split, pin, labelled=labelled)
    rows.need(license_column=recipe.generator.license_column)
    return rows


def _rows_of_classes(recipe: Recipe, rows: Rows) -> Callable[[RecipeClass], NDArray[np.bool_]]:
    """Which rows of the pool are of a class by its labels; a row with conditions is of several."""
    pool = Pool.of(recipe)
    if pool.conditions is not None:
        found = conditions_of(rows, pool.label_column, pool.conditions)
        return lambda cls: found.of_label(cls.source_label)
    # The recipe's own input dataset says by number which class a label is, any other by name where it has names.
    own = recipe.generator.dataset is None
    places = labels_of(rows, pool.label_column).places(recipe.classes, rows.place, numbers=own)
    return lambda cls: places == cls.label


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
