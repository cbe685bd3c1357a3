"""How a kind of generator makes its images: what it pins, which rows it takes, what renders them, how a card names it.

What a recipe asks of a kind stands in `recipe/kinds/`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from counterfoil.data.pool import pool_rows, rows_of_classes
from counterfoil.errors import UserError
from counterfoil.recipe.names import ROWS, without_folders

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from counterfoil.data.pins import SourcePin
    from counterfoil.data.tables import Rows
    from counterfoil.generate.image_embeddings import ImageEmbeddings
    from counterfoil.generate.render import Renderer
    from counterfoil.generate.rows import PoolRows
    from counterfoil.plan import RowTable
    from counterfoil.recipe import Recipe
    from counterfoil.recipe.schema_inputs import Lora


_MOST_PROBLEMS = 20


class ChosenTable(NamedTuple):
    """The rows that a build chose, what the lock says of them, and what people must know of it."""

    table: RowTable
    pin: Mapping[str, Any]
    notes: tuple[str, ...] = ()


# An input of a dataset on its card: what it does, its name, and what the lock says of it.
NamedInput = tuple[str, str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Materials:
    """What a renderer is made from, as a lock pins it.

    recipe: it says where models, and rows that are altered, lie here. tokens: by placeholder. revision,
    adapter_revision: of the model and its adapter; None for the recipe's own. loras: by name, and their pins. pool,
    table: what rows are taken from, and which.
    """

    recipe: Recipe
    device: str = "cpu"
    tokens: Mapping[str, tuple[torch.Tensor, ...]] | None = None
    revision: str | None = None
    adapter_revision: str | None = None
    loras: tuple[Mapping[str, Lora], Mapping[str, Any]] = ({}, {})
    embeddings: ImageEmbeddings | None = None
    pool: SourcePin | None = None
    table: RowTable | None = None

    @property
    def rows(self) -> tuple[SourcePin, RowTable]:
        """Return the pool and the table of chosen rows."""
        assert self.pool is not None and self.table is not None
        return self.pool, self.table


class ImageMaker:
    """How images of a kind are made. Where a method says nothing else, it does nothing, and its value is empty.

    tags: on the Hub, before and after those that every dataset has. annotations: who made the labels, in the Hub's
    words. names_pool: whether the pool is a source dataset there.
    """

    tags: ClassVar[tuple[tuple[str, ...], tuple[str, ...]]] = (("synthetic",), ())
    annotations: ClassVar[str] = "machine-generated"
    names_pool: ClassVar[bool] = False

    def check(self, recipe: Recipe, device: str | None = None) -> None:
        """Raise UserError for settings that the kind's models or this machine (`device`, if known) do not have."""

    def embeddings(self, recipe: Recipe) -> ImageEmbeddings | None:
        """Return the vectors that samples are drawn from, or None. UserError for unfit ones."""
        return None

    def pins(self, recipe: Recipe) -> dict[str, Any]:
        """Return the pins of the kind's models. Raises as pinning does."""
        return {}

    def check_rows(self, recipe: Recipe, pool: SourcePin) -> None:
        """Raise UserError, collected, for rows of the recipe that the pool does not have, or of another class."""

    def device_of_rows(self, recipe: Recipe, device: str) -> str:
        """Return the device that chooses rows in a build on `device`."""
        return "cpu"

    def choose_rows(self, recipe: Recipe, pool: SourcePin, models: Mapping[str, Any], device: str) -> ChosenTable:
        """Return the rows of a recipe whose kind has a `table`; `models` are the lock's.

        UserError where there are too few.
        """
        raise NotImplementedError

    def notes(self, recipe: Recipe) -> tuple[str, ...]:
        """Return notes on the pool, whenever its rows were chosen."""
        return ()

    def renderer(self, materials: Materials) -> Renderer | PoolRows:
        """Return what gives batches of samples their images.

        Raises what loading raises; UserError for a stranger's table.
        """
        raise NotImplementedError

    def inputs(self, recipe: Recipe, pinned: Mapping[str, Any]) -> list[NamedInput]:
        """Return the inputs that the kind itself has, for the card; `pinned` are those of the lock, any part absent."""
        pool = pinned.get("pool") or {}
        name = f"{without_folders(recipe.generator.dataset or recipe.source.dataset)}, split {recipe.generator.split}"
        return [("pool", name, {**pool, "sha256": pool.get("content")})]


def pool_of_rows(recipe: Recipe, pin: SourcePin, table: RowTable | None, *, labels: bool) -> Rows:
    """Return the rows of a pool, of which a table, or the recipe, names some.

    UserError, collected, for named rows that the pool does not have, or where `labels` are compared, of another class:
    a table may be a stranger's. Raises as `pool_rows`.
    """
    rows = pool_rows(recipe, pin)
    of_class = rows_of_classes(recipe, rows) if labels else None
    classes = {cls.id: cls for cls in recipe.classes}
    problems: list[str] = []
    for where, class_id, own in _named_rows(recipe, table):
        right = None if of_class is None else of_class(classes[class_id])
        if beyond := [row for row in own if row >= rows.count]:
            problems.append(f"{where}: found row {beyond[0]}, and {rows.place} has {rows.count:,} rows")
        elif right is not None and (others := [row for row in own if not right[row]]):
            many = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
            problems.append(f"{where}: row {others[0]}{many} of {rows.place} has the label of another class")
    if problems:
        pool = "input dataset" if recipe.kind.alters_rows else "pool"
        hint = f"Name the {pool} that the rows were chosen from, at the same revision."
        if table is None:
            hint = "Correct generator.rows: each row of a cell must be an image of its class."
        raise UserError(problems[:_MOST_PROBLEMS], hint)
    return rows


def _named_rows(recipe: Recipe, table: RowTable | None) -> Iterator[tuple[str, str, Sequence[int]]]:
    """Yield the place of listed rows, their class id and their numbers."""
    if table is None:
        for shift, cells in (recipe.generator.rows or {}).items():
            yield from ((f"generator.rows.{shift}.{class_id}", class_id, own) for class_id, own in cells.items())
        return
    for (name, class_id), chosen in table.rows.items():
        place = f"{ROWS}: " + ("" if name is None else f"'{name}' of ") + f"class '{class_id}'"
        yield place, class_id, [row.row for row in chosen]


def in_drawn_order(of_class: NDArray[np.bool_], seed: int) -> list[int]:
    """Return the rows of a class in the order of a hash of seed and row, so that counts change no other row."""
    import numpy as np

    rows = np.flatnonzero(of_class).tolist()
    return sorted(rows, key=lambda row: hashlib.sha256(f"{seed}\n{row}".encode()).digest())


def left_out(count: int, what: str) -> str:
    rows = "1 of the first rows has" if count == 1 else f"{count:,} of the first rows have"
    return f"{rows} {what}; other rows replace {'it' if count == 1 else 'them'}"
