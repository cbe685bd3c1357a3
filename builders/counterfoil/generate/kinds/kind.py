"""Make the images of a kind of generator: pin its models, choose its rows, and load its renderer.

`recipe/kinds/` describes the kinds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from counterfoil.data.pool import pool_rows, rows_of_classes
from counterfoil.errors import UserError
from counterfoil.recipe.names import ROWS

if TYPE_CHECKING:
    import torch

    from counterfoil.arrays import Bools
    from counterfoil.data.pins import SourcePin
    from counterfoil.data.tables import Rows
    from counterfoil.generate.image_embeddings import ImageEmbeddings
    from counterfoil.generate.pictures import ImageRenderer
    from counterfoil.plan.layout import RowTable
    from counterfoil.recipe import Recipe


_MOST_PROBLEMS = 20


class ChosenTable(NamedTuple):
    """The rows that a build chose, the pin of these rows in the lock, and notes for people."""

    table: RowTable
    pin: Mapping[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Materials:
    """The inputs of a renderer, as a lock pins them."""

    recipe: Recipe
    """The recipe, with the paths of models and rows on this machine."""
    device: str = "cpu"
    tokens: Mapping[str, tuple[torch.Tensor, ...]] | None = None
    """The vectors of each class token by placeholder."""
    revision: str | None = None
    adapter_revision: str | None = None
    """The pinned revisions of the model and of its adapter; None stands for the revision in the
    recipe."""
    loras: Mapping[str, Any] = field(default_factory=dict)
    """The pins of LoRA weights by name."""
    embeddings: ImageEmbeddings | None = None
    pool: SourcePin | None = None
    """The source of rows."""
    table: RowTable | None = None
    """The chosen rows."""

    @property
    def rows(self) -> tuple[SourcePin, RowTable]:
        assert self.pool is not None and self.table is not None
        return self.pool, self.table


class ImageMaker:
    """Makes the images of one kind of generator. A method that a kind does not override does
    nothing."""

    def check(self, recipe: Recipe, device: str | None = None) -> None:
        """Raise UserError for settings that the kind's models, or this machine's `device`, do not
        support."""

    def embeddings(self, recipe: Recipe) -> ImageEmbeddings | None:
        """Return the image embeddings that samples are drawn from, or None. Raise UserError for
        invalid ones."""
        return None

    def pins(self, recipe: Recipe) -> dict[str, Any]:
        """Return the pins of the kind's models."""
        return {}

    def check_rows(self, recipe: Recipe, pool: SourcePin) -> None:
        """Raise UserError with all rows in the recipe that the pool lacks, or whose label is
        another class."""

    def device_of_rows(self, recipe: Recipe, device: str) -> str:
        """Return the device on which a build that renders on `device` chooses its rows."""
        return "cpu"

    def choose_rows(
        self,
        recipe: Recipe,
        pool: SourcePin,
        models: Mapping[str, Any],
        device: str,
    ) -> ChosenTable:
        """Choose the rows of a kind that has a table of rows.

        `models` holds the pins of models in the lock. Raise UserError if there are too few rows.
        """
        raise NotImplementedError

    def notes(self, recipe: Recipe) -> tuple[str, ...]:
        """Return notes on the pool. A build shows them also when its rows were chosen before."""
        return ()

    def renderer(self, materials: Materials) -> ImageRenderer:
        """Load the renderer of samples.

        Raise UserError for an invalid table, because a table may come from a stranger.
        """
        raise NotImplementedError


def pool_of_rows(recipe: Recipe, pin: SourcePin, table: RowTable | None, *, labels: bool) -> Rows:
    """Return the rows of a pool, after a check of the rows that the table names, or the recipe
    without a table.

    Raise UserError with the named rows that the pool lacks. With `labels`, also raise it for rows
    of another class.
    """
    rows = pool_rows(recipe, pin)
    of_class = rows_of_classes(recipe, rows) if labels else None
    classes = {cls.id: cls for cls in recipe.classes}
    problems: list[str] = []
    for where, class_id, numbers in _named_rows(recipe, table):
        right = None if of_class is None else of_class(classes[class_id])
        beyond = [row for row in numbers if row >= rows.count]
        if beyond:
            problems.append(
                f"{where}: found row {beyond[0]}, and {rows.place} has {rows.count:,} rows"
            )
        elif right is not None:
            others = [row for row in numbers if not right[row]]
            many = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
            if others:
                problems.append(
                    f"{where}: row {others[0]}{many} of {rows.place} has the label of another class"
                )
    if problems:
        pool = "input dataset" if recipe.kind.alters_rows else "pool"
        hint = f"Name the {pool} that the rows were chosen from, at the same revision."
        if table is None:
            hint = "Correct generator.rows: each row of a cell must be an image of its class."
        raise UserError(problems[:_MOST_PROBLEMS], hint)
    return rows


def _named_rows(recipe: Recipe, table: RowTable | None) -> Iterator[tuple[str, str, Sequence[int]]]:
    """Yield, for each list of rows, the place that names them, the class id, and the row
    numbers."""
    if table is None:
        for shift, cells in (recipe.generator.get("rows") or {}).items():
            for class_id, numbers in cells.items():
                yield f"generator.rows.{shift}.{class_id}", class_id, numbers
        return
    for (shift, class_id), chosen in table.rows.items():
        cell = "" if shift is None else f"'{shift}' of "
        yield f"{ROWS}: {cell}class '{class_id}'", class_id, [row.row for row in chosen]


def in_drawn_order(of_class: Bools, seed: int) -> list[int]:
    """Return the rows of a class in the order of a hash of the seed and the row number.

    The order does not depend on the number of rows.
    """
    import numpy as np

    def order(row: int) -> bytes:
        return hashlib.sha256(f"{seed}\n{row}".encode()).digest()

    return sorted(np.flatnonzero(of_class).tolist(), key=order)


def left_out(count: int, what: str) -> str:
    if count == 1:
        return f"1 of the first rows has {what}; other rows replace it"
    return f"{count:,} of the first rows have {what}; other rows replace them"
