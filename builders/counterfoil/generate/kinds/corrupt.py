"""Kind `corrupt`: take rows of the input dataset, unchanged for the base and corrupted for each
shift.

A row is usable if its image decodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from counterfoil.corrupting.corrupt import SMALLEST_SIDE
from counterfoil.data.pins import SourcePin
from counterfoil.data.pool import (
    Partners,
    licences_of_rows,
    matched_partners,
    pool_rows,
    rows_of_classes,
    truth_of,
    units_of_rows,
)
from counterfoil.data.tables import Rows
from counterfoil.errors import ProblemLine, UserError, some_of
from counterfoil.generate.kinds.kind import (
    ChosenTable,
    ImageMaker,
    Materials,
    in_drawn_order,
    pool_of_rows,
)
from counterfoil.generate.rows import CorruptedRows
from counterfoil.plan.layout import RowTable, rows_wanted
from counterfoil.progress import report_progress
from counterfoil.recipe import Recipe
from counterfoil.recipe.rows_table import PoolRow
from counterfoil.report.words import format_count

_MOST_NAMED = 10


def _decodes(row: int, holders: Sequence[Rows | Partners]) -> bool:
    """Return whether the pool and all partners have an image of a row, the pool's large enough."""
    try:
        picture, *_ = [holder.image(row) for holder in holders]
    except UserError:
        return False
    return min(picture.size) >= SMALLEST_SIDE


class CorruptMaker(ImageMaker):
    """Computes images from rows of the input dataset."""

    def notes(self, recipe: Recipe) -> tuple[str, ...]:
        return recipe.task.notes([shift.corruption for shift in recipe.all_shifts()])

    def choose_rows(
        self,
        recipe: Recipe,
        pool: SourcePin,
        models: Mapping[str, Any],
        device: str,
        *,
        decode: bool = True,
    ) -> ChosenTable:
        """Choose rows that decode, or without `decode` the rows that a build tries first.

        A class with fewer rows than candidates gives all its rows.
        """
        rows = pool_rows(recipe, pool)
        # Report invalid boxes and missing units before any image is made.
        truth = truth_of(recipe, rows)
        units_of_rows(recipe, rows)
        of_class = rows_of_classes(recipe, rows)
        wanted = rows_wanted(recipe)
        matched = matched_partners(recipe, pool, rows)
        labels_of = {shift.name: shift.class_labels for shift in recipe.all_shifts()}
        table = dict[str, list[PoolRow]]()
        few = list[str]()
        unreadable = 0
        done = 0
        most = sum(wanted.values())
        for cls in recipe.classes:
            chosen = table[cls.id] = []
            paired = []
            for name, partner in matched.items():
                if cls.label in labels_of[name]:
                    paired.append(partner)
            most_rows = wanted.get(cls.id, 0)
            for row in in_drawn_order(of_class(cls), recipe.samples.seed):
                if len(chosen) == most_rows:
                    break
                if any(row not in partner.row_of for partner in paired):
                    continue
                if not decode or _decodes(row, [rows, *paired]):
                    chosen.append(PoolRow(row))
                else:
                    unreadable += 1
            if len(chosen) < most_rows:
                few.append(cls.name)
            done += most_rows
            report_progress("reading rows", done, most)
        lacks = " that decodes"
        if matched:
            lacks += " and has a partner under every shift"
        empty = []
        for cls in recipe.classes:
            if cls.id in wanted and not table[cls.id]:
                class_name = f"class '{cls.id}' ({cls.name})"
                problem = ProblemLine(f"{class_name} has no image in {rows.place}{lacks}")
                empty.append(problem.at("source"))
        if empty:
            raise UserError(
                empty, "Drop the class from source.classes, or name another split: generator.split."
            )
        rows_of_first = [chosen.row for chosen in table[recipe.classes[0].id]]
        checked = truth.checked(recipe.source, rows, rows_of_first)
        edited = RowTable.of(
            {(None, class_id): chosen for class_id, chosen in table.items() if chosen}, "edited"
        )
        notes = list(truth.notes)
        notes += [f"{rows.place}: {note}" for note in rows.notes]
        notes += checked
        if unreadable:
            what = f"the image does not decode, or has a side of less than {SMALLEST_SIDE} pixels"
            notes.append(f"{format_count(unreadable, 'row')} left out: {what}")
        if few and recipe.task.by_class:
            verb = "has" if len(few) == 1 else "have"
            notes.append(
                f"{some_of(few, _MOST_NAMED)} {verb} fewer images than the recipe asks for, and the"
                " dataset has all of them"
            )
        return ChosenTable(edited, {"sha256": edited.sha256}, tuple(notes))

    def renderer(self, materials: Materials) -> CorruptedRows:
        recipe = materials.recipe
        pool, table = materials.rows
        rows = pool_of_rows(recipe, pool, table, labels=True)
        partners = matched_partners(recipe, pool, rows)
        matched = {shift: partner.image for shift, partner in partners.items()}
        truth = truth_of(recipe, rows)
        licences = licences_of_rows(recipe, rows, pool)
        units = units_of_rows(recipe, rows)
        return CorruptedRows(recipe, rows.image, licences, matched, truth, units)
