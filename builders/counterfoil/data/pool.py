"""The pool of a recipe whose samples are rows, or are made from rows: its location, pin, columns
and images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from counterfoil.corrupting.corruptions import MATCH
from counterfoil.data.labelled_sources import NamedDataset
from counterfoil.data.labels import conditions_of, labels_of
from counterfoil.data.listed_folders import listed_rows
from counterfoil.data.messages import message, refusal
from counterfoil.data.open_source import open_source
from counterfoil.data.pins import SourcePin
from counterfoil.data.truth import RowTruth
from counterfoil.models.names import refuse_elsewhere
from counterfoil.recipe.names import ROWS
from counterfoil.registry import part_named

if TYPE_CHECKING:
    from PIL import Image

    from counterfoil.arrays import Bools
    from counterfoil.data.tables import Rows
    from counterfoil.recipe import Recipe, RecipeClass

# A licence is a name or an address. Longer values are cut.
_LONGEST_LICENCE = 500


def pool_of(recipe: Recipe) -> NamedDataset:
    """Return the pool that a recipe names, or else its input dataset, with the split that rows are
    taken from."""
    source = recipe.source
    generator = recipe.generator
    split = generator.get("split")
    dataset = generator.get("dataset")
    if dataset is None:
        masks = getattr(source, "masks", None)
        return NamedDataset(
            source.dataset,
            split,
            source.revision,
            source.config,
            source.image_column,
            source.label_column,
            conditions=source.conditions,
            exif=source.exif,
            objects=source.objects,
            mask_column=None if masks is None else masks.column,
            numbering_splits=source.numbering_splits,
        )
    return NamedDataset(
        dataset,
        split,
        generator.revision,
        generator.get("config"),
        generator.get("image_column"),
        generator.get("label_column", "label"),
        exif=source.exif,
    )


def pin_pool(recipe: Recipe, recorded: Any) -> SourcePin:
    """Pin the pool. `recorded` is the document of its pin in a lock."""
    return open_source(pool_of(recipe), recorded).pin


def loadable_pool(recipe: Recipe, recorded: Any) -> SourcePin:
    """Return the pool's pin as a lock records it, whatever commit its branch has now."""
    return open_source(pool_of(recipe), recorded, as_recorded=True).pin


def wrong_pool(recipe: Recipe, recorded: Any) -> Iterator[str]:
    """Yield a problem if the pool that a build would load is not the one that a lock pins."""
    pin = loadable_pool(recipe, recorded)
    if pin.document() != recorded:
        key = "source.dataset" if recipe.generator.get("dataset") is None else "generator.dataset"
        yield message("changed-data.pool", key, pin.dataset)


def pool_rows(recipe: Recipe, pin: SourcePin) -> Rows:
    """Return the rows of the split that a recipe takes or edits, at the pinned state."""
    generator = recipe.generator
    split = generator.get("split")
    pool = pool_of(recipe)
    if recipe.kind.drawn_elsewhere:
        refuse_elsewhere(pool.dataset, "generator.dataset")
        rows = listed_rows(pool, pin)
        if rows is None:
            rows = open_source(pool, pin=pin).rows(split, labelled=False)
        # The columns `prompt` and `seed` may be missing; a column of another name was chosen.
        optional = {key: generator.get(key) for key in ("prompt_column", "seed_column")}
        named_columns = {key: name for key, name in optional.items() if f"{name}_column" != key}
        columns = ("label_column", "shift_column", "index_column", "license_column")
        wanted = {key: generator.get(key) for key in columns}
        rows.need("generator", **wanted, **named_columns)
        return rows
    labelled = generator.reads_labels and recipe.task.labelled
    rows = open_source(pool, pin=pin).rows(split, labelled=labelled)
    named_columns = {key: generator.get(key) for key in ("license_column", "caption_column")}
    rows.need(**named_columns, objects=pool.objects)
    return rows


@dataclass(frozen=True, slots=True)
class Partners:
    """The images that are paired with a built dataset's base rows under one shift. row_of: base row
    → row of the partner.
    """

    row_of: Mapping[int, int]
    read: Callable[[int], Image.Image]

    def image(self, row: int) -> Image.Image:
        """Return the partner of a base row. Raise UserError if the row has no partner, or the
        partner cannot be decoded.
        """
        if row not in self.row_of:
            raise refusal("unfit-column.partner", ROWS, row)
        return self.read(self.row_of[row])


def matched_partners(recipe: Recipe, pin: SourcePin, rows: Rows) -> dict[str, Partners]:
    """Return the partners of the base's `rows` for each shift of kind match, by the name of the
    shift."""
    partners_of = {}
    for shift in recipe.all_shifts():
        if shift.corruption != MATCH:
            continue
        pool = replace(pool_of(recipe), config=shift.name)
        split = recipe.generator.get("split")
        shifted = open_source(pool, pin=pin).rows(split, labelled=False)
        row_by_pair: list[dict[str, int]] = []
        for table in (rows, shifted):
            if "pair" not in table.columns:
                raise refusal("missing-column.pair", table.place)
            pairs = enumerate(table.column("pair"))
            row_by_pair.append({pair: row for row, pair in pairs if isinstance(pair, str)})
        base, other = row_by_pair
        row_of = {row: other[pair] for pair, row in base.items() if pair in other}
        partners_of[shift.name] = Partners(row_of, shifted.image)
    return partners_of


def truth_of(recipe: Recipe, rows: Rows) -> RowTruth:
    """Read what the rows of a recipe's input dataset show, by its task. Raise UserError for
    unsuitable columns."""
    reader = recipe.task.reader
    return RowTruth() if reader is None else part_named(reader)(rows, recipe.source)


def rows_of_classes(recipe: Recipe, rows: Rows) -> Callable[[RecipeClass], Bools]:
    """Return a function from a class to its rows of the pool, by label. A row with conditions
    belongs to several classes.
    """
    pool = pool_of(recipe)
    if not recipe.task.by_class:
        import numpy as np

        return lambda cls: np.ones(rows.count, dtype=bool)
    if pool.conditions is not None:
        conditions = conditions_of(rows, pool)
        return lambda cls: conditions.of_label(cls.source_label)
    # Labels of the recipe's own input dataset are matched by number. Labels of another dataset are
    # matched by name if they have names.
    is_source = recipe.generator.get("dataset") is None
    labels = labels_of(rows, pool.label_column, numbered=is_source)
    positions = labels.places(recipe.classes, rows.place, numbers=is_source)
    return lambda cls: positions == cls.label


def licences_of_rows(
    recipe: Recipe, rows: Rows, pin: SourcePin
) -> Callable[[int], str | None] | None:
    """Return a function from a row to its licence, read from a column or, if rows are altered, from
    the dataset. Return None if no licence applies.
    """
    column = recipe.generator.get("license_column")
    if column is None:
        whole = None if pin.license is None else pin.license[:_LONGEST_LICENCE]
        return (lambda _: whole) if recipe.kind.alters_rows else None
    licences = rows.column(column)

    def licence(row: int) -> str | None:
        value = licences[row]
        return None if value is None else str(value)[:_LONGEST_LICENCE]

    return licence


def units_of_rows(recipe: Recipe, rows: Rows) -> tuple[int, ...] | None:
    """Return the number of each row's unit, in the order in which units first occur; None if rows
    store no unit."""
    if recipe.stored_units is None:
        return None
    units = rows.texts(recipe.stored_units, "unit_column")
    numbers = {unit: number for number, unit in enumerate(dict.fromkeys(units))}
    return tuple(numbers[unit] for unit in units)
