"""Kind `corrupt`: take rows of the input dataset, unchanged for the base and corrupted for each shift.

A row is usable if its image decodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from counterfoil.data.labels import ConditionLabels, conditions_of
from counterfoil.data.objects import SourceObjects, objects_of
from counterfoil.data.pins import SourcePin
from counterfoil.data.pool import licences_of_rows, partners, pool_rows, rows_of_classes
from counterfoil.data.tables import Rows
from counterfoil.errors import UserError, some_of
from counterfoil.generate.corruptions import SMALLEST_SIDE
from counterfoil.generate.kinds.kind import ChosenTable, ImageMaker, Materials, in_drawn_order, pool_of_rows
from counterfoil.generate.rows import CorruptedRows
from counterfoil.plan import RowTable, rows_wanted
from counterfoil.progress import report
from counterfoil.recipe import Recipe
from counterfoil.recipe.names import plain_name
from counterfoil.recipe.objects import object_notes
from counterfoil.recipe.rows_table import PoolRow
from counterfoil.report.words import counted
from counterfoil.store.decoding import UnreadableImage, picture_sides

_MOST_NAMED = 10


class CorruptMaker(ImageMaker):
    """Computes images from rows of the input dataset."""

    def notes(self, recipe: Recipe) -> tuple[str, ...]:
        if recipe.source.objects is None:
            return ()
        return object_notes([shift.corruption for shift in recipe.all_shifts()])

    def choose_rows(
        self, recipe: Recipe, pool: SourcePin, models: Mapping[str, Any], device: str, *, decode: bool = True
    ) -> ChosenTable:
        """Choose rows that decode, or without `decode` the rows that a build tries first.

        A class with fewer rows than candidates gives all its rows.
        """
        rows = pool_rows(recipe, pool)
        # Report invalid boxes before any image is made.
        objects = None if recipe.source.objects is None else objects_of(rows, recipe.source)
        notes: list[str] = []
        if recipe.source.multilabel:
            notes += _conditions(recipe, rows).notes
        _units(recipe, rows)  # report missing units before any image is made
        of_class, wanted, image = rows_of_classes(recipe, rows), rows_wanted(recipe), rows.image
        matched = partners(recipe, pool, rows)
        labels_of = {shift.name: shift.class_labels for shift in recipe.all_shifts()}
        table: dict[str, list[PoolRow]] = {}
        unreadable, done, most = 0, 0, sum(wanted.values())
        for cls in recipe.classes:
            chosen = table[cls.id] = []
            paired = [partner for name, partner in matched.items() if cls.label in labels_of[name]]
            for row in in_drawn_order(of_class(cls), recipe.samples.seed):
                if len(chosen) == wanted.get(cls.id, 0):
                    break
                if any(row not in partner.row_of for partner in paired):
                    continue
                if not decode:
                    chosen.append(PoolRow(row))
                    continue
                try:
                    pictures = [image(row), *(partner.image(row) for partner in paired)]
                except UserError:
                    pictures = []
                if pictures and min(pictures[0].size) >= SMALLEST_SIDE:
                    chosen.append(PoolRow(row))
                else:
                    unreadable += 1
            done += wanted.get(cls.id, 0)
            report("reading rows", done, most)
        if empty := [cls for cls in recipe.classes if cls.id in wanted and not table[cls.id]]:
            lacks = " that decodes" + (" and has a partner under every shift" if matched else "")
            named = [f"source: class '{cls.id}' ({cls.name}) has no image in {rows.place}{lacks}" for cls in empty]
            raise UserError(named, "Drop the class from source.classes, or name another split: generator.split.")
        if objects is not None:
            _check_objects(recipe, rows, objects, [chosen.row for chosen in table[recipe.classes[0].id]])
        edited = RowTable.of({(None, class_id): chosen for class_id, chosen in table.items() if chosen}, "edited")
        few = [cls.name for cls in recipe.classes if len(table[cls.id]) < wanted.get(cls.id, 0)]
        notes += [f"{rows.place}: {note}" for note in rows.notes]
        if objects is not None:
            notes += _order_notes(recipe, rows)
        if unreadable:
            what = f"the image does not decode, or has a side of less than {SMALLEST_SIDE} pixels"
            notes.append(f"{counted(unreadable, 'row')} left out: {what}")
        if few and not recipe.source.whole_images:
            names = f"{some_of(few, _MOST_NAMED)} {'has' if len(few) == 1 else 'have'}"
            notes.append(f"{names} fewer images than the recipe asks for, and the dataset has all of them")
        return ChosenTable(edited, {"sha256": edited.sha256}, tuple(notes))

    def renderer(self, materials: Materials) -> CorruptedRows:
        recipe, (pool, table) = materials.recipe, materials.rows
        rows = pool_of_rows(recipe, pool, table, labels=True)
        matched = {shift: partner.image for shift, partner in partners(recipe, pool, rows).items()}
        objects = None if recipe.source.objects is None else objects_of(rows, recipe.source)
        conditions = _conditions(recipe, rows) if recipe.source.multilabel else None
        licences, units = licences_of_rows(recipe, rows, pool), _units(recipe, rows)
        return CorruptedRows(recipe, rows.image, licences, matched, objects, conditions, units)


def _order_notes(recipe: Recipe, rows: Rows) -> list[str]:
    """Return a note if categories are not those of the data in their order, and nothing says their numbers."""
    names = rows.class_names(recipe.source.objects or "")
    if names is None or recipe.source.category_ids:
        return []
    of_data = tuple(map(plain_name, names))
    of_recipe = tuple(map(plain_name, recipe.source.categories))
    # An empty first category may group the others.
    if of_recipe in (of_data, of_data[1:]):
        return []
    return [
        "source.categories are not all categories of the dataset in their order: predictions by number would count the"
        " recipe's, so write names in predictions, or numbers as source.category_ids in the recipe"
    ]


def _check_objects(recipe: Recipe, rows: Rows, objects: SourceObjects, chosen: Sequence[int]) -> None:
    """Raise UserError if no chosen image has an object, or if nothing says whether boxes are of turned photographs."""
    side = (1, 1)
    if not any(objects.of_image(row, side, side)["bbox"] for row in chosen):
        raise UserError(
            f"source.objects: none of {counted(len(chosen), 'image')} of {rows.place} has an object of the recipe's"
            f" {counted(len(recipe.source.categories), 'category', 'categories')}",
            "Check that images and labels belong together and that source.categories are those of the dataset. A"
            " detector has no AP on images without objects.",
        )
    if "exif" in recipe.source.model_fields_set or rows.rendered is not None:
        return
    turned = 0
    for encoded in rows.images([row for row in chosen if objects.cells[row]["bbox"]]):
        with contextlib.suppress(UnreadableImage):
            turned += picture_sides(encoded).turned
    if turned:
        raise UserError(
            f"source.exif: an EXIF tag turns {counted(turned, 'photograph')} of {rows.place}, and the recipe does not"
            " say whether boxes are of the photographs as turned or as stored",
            "Set source.exif to apply if boxes were drawn on upright photographs, as most programs show them and"
            " Ultralytics reads them, and to ignore if they were drawn on photographs as stored.",
        )


def _conditions(recipe: Recipe, rows: Rows) -> ConditionLabels:
    assert recipe.source.conditions is not None
    return conditions_of(rows, recipe.source.label_column, recipe.source.conditions)


def _units(recipe: Recipe, rows: Rows) -> tuple[int, ...] | None:
    """Return the number of each row's unit, in the order in which units first occur; None if rows store no unit."""
    column = recipe.source.unit_column
    if column is None or not recipe.source.whole_images:
        return None
    rows.need(unit_column=column)
    units = rows.texts(column, "unit_column")
    numbers = {unit: number for number, unit in enumerate(dict.fromkeys(units))}
    return tuple(numbers[unit] for unit in units)
