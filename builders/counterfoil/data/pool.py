"""The pool of a recipe whose samples are rows, or are drawn from rows: its name and columns, its pin, its images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from counterfoil.data.labelled_sources import NamedDataset
from counterfoil.data.labels import conditions_of, labels_of
from counterfoil.data.listed_folders import listed_rows
from counterfoil.data.open_source import open_source
from counterfoil.data.pins import SourcePin
from counterfoil.errors import UserError
from counterfoil.models.names import refuse_elsewhere
from counterfoil.recipe.names import LOCK, ROWS
from counterfoil.recipe.prompts import MATCH

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

    from counterfoil.data.tables import Rows
    from counterfoil.recipe import Recipe, RecipeClass

# What a column of licences may hold: a name or an address of one.
_LONGEST_LICENCE = 500


def pool_of(recipe: Recipe) -> NamedDataset:
    """The pool that a recipe names, or its input dataset, and the split of it that rows are taken from."""
    own = recipe.generator.dataset is None
    chosen = recipe.source if own else recipe.generator
    return NamedDataset(
        recipe.generator.dataset or recipe.source.dataset,
        recipe.generator.split,
        chosen.revision,
        chosen.config,
        chosen.image_column,
        chosen.label_column,
        conditions=recipe.source.conditions if own else None,
        exif=recipe.source.exif,
    )


def pin_pool(recipe: Recipe, recorded: Any) -> SourcePin:
    """What the pool's name stands for; `recorded` is what a lock says of it."""
    return open_source(pool_of(recipe), recorded).pin


def loadable_pool(recipe: Recipe, recorded: Any) -> SourcePin:
    """The pool that a lock pins, wherever a branch has gone since."""
    return open_source(pool_of(recipe), recorded, as_recorded=True).pin


def wrong_pool(recipe: Recipe, recorded: Any) -> Iterator[str]:
    """What is said of a pool, as a build would load it, that is not the one that a lock pins."""
    pin = loadable_pool(recipe, recorded)
    if pin.document() != recorded:
        key = "source.dataset" if recipe.generator.dataset is None else "generator.dataset"
        yield f"{key}: {pin.dataset} is not the pool that {LOCK} pins"


def pool_rows(recipe: Recipe, pin: SourcePin) -> Rows:
    """The rows of the split that a recipe takes or edits, as it is pinned. Raises as `OpenSource`."""
    generator, pool = recipe.generator, pool_of(recipe)
    if recipe.kind.drawn_elsewhere:
        refuse_elsewhere(pool.dataset, "generator.dataset")
        rows = listed_rows(pool, pin) or open_source(pool, pin=pin).rows(generator.split, labelled=False)
        optional = {key: getattr(generator, key) for key in ("prompt_column", "seed_column")}
        asked = {key: name for key, name in optional.items() if f"{name}_column" != key}
        columns = ("label_column", "shift_column", "index_column", "license_column")
        rows.need("generator", **{key: getattr(generator, key) for key in columns}, **asked)
        return rows
    rows = open_source(pool, pin=pin).rows(generator.split, labelled=recipe.kind.reads_labels(generator))
    rows.need(license_column=generator.license_column, caption_column=generator.caption_column)
    return rows


@dataclass(frozen=True, slots=True)
class Partners:
    """Of a built dataset's base rows the images of their pairs under one shift. row_of: base row → the shift's row."""

    row_of: Mapping[int, int]
    read: Callable[[int], Image.Image]

    def image(self, row: int) -> Image.Image:
        """The partner of a base row. UserError where it has none, or one that cannot be decoded."""
        if row not in self.row_of:
            raise UserError(f"{ROWS}: row {row} has no partner to match")
        return self.read(self.row_of[row])


def partners(recipe: Recipe, pin: SourcePin, rows: Rows) -> dict[str, Partners]:
    """By the name of each shift that is a match, the partners of the base's `rows`.

    UserError where the dataset has no config of that name, or no column of pairs.
    """
    names = [shift.name for shift in recipe.all_shifts() if shift.corruption == MATCH]
    return {name: _partners(recipe, pin, rows, name) for name in names}


def _partners(recipe: Recipe, pin: SourcePin, rows: Rows, shift: str) -> Partners:
    shifted = open_source(replace(pool_of(recipe), config=shift), pin=pin).rows(recipe.generator.split, labelled=False)
    for table in (rows, shifted):
        if "pair" not in table.columns:
            raise UserError(
                f"{table.place} has no column 'pair'",
                "corruption match takes the pairs of a dataset that `counterfoil build` made.",
            )
    base, other = (
        {pair: row for row, pair in enumerate(table.column("pair")) if isinstance(pair, str)}
        for table in (rows, shifted)
    )
    row_of = {row: other[pair] for pair, row in base.items() if pair in other}
    return Partners(row_of, shifted.image)


def rows_of_classes(recipe: Recipe, rows: Rows) -> Callable[[RecipeClass], NDArray[np.bool_]]:
    """Which rows of the pool are of a class by its labels; a row with conditions is of several."""
    pool = pool_of(recipe)
    if pool.conditions is not None:
        found = conditions_of(rows, pool.label_column, pool.conditions)
        return lambda cls: found.of_label(cls.source_label)
    # The recipe's own input dataset says by number which class a label is, any other by name where it has names.
    own = recipe.generator.dataset is None
    places = labels_of(rows, pool.label_column).places(recipe.classes, rows.place, numbers=own)
    return lambda cls: places == cls.label


def licences_of_rows(recipe: Recipe, rows: Rows, pin: SourcePin) -> Callable[[int], str | None] | None:
    """A function from a row of the pool to its licence.

    Where the recipe names no column of them, that of rows that are altered is the whole dataset's; others have none.
    """
    column = recipe.generator.license_column
    if column is None:
        whole = None if pin.license is None else pin.license[:_LONGEST_LICENCE]
        return (lambda _: whole) if recipe.kind.alters_rows else None
    licences = rows.column(column)

    def licence(row: int) -> str | None:
        value = licences[row]
        return None if value is None else str(value)[:_LONGEST_LICENCE]

    return licence
