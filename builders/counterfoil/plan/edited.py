"""Rows that a plan edits or corrupts: a table that travels with its dataset, and whether it is one of that plan."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from counterfoil.recipe import Recipe
from counterfoil.recipe.prompts import asks_caption
from counterfoil.recipe.rows_table import EditedRows, edited_csv, read_edited_table


@dataclass(frozen=True, slots=True)
class Edited:
    """Class id → the rows of a class by index, the same under every shift, and the file that says so."""

    rows: EditedRows
    content: bytes

    @classmethod
    def of(cls, rows: EditedRows) -> Edited:
        """With the file of these rows."""
        return cls(rows, edited_csv(rows))

    @classmethod
    def read(cls, content: bytes, place: str) -> Edited:
        """Of a file's content. UserError for what is no such table."""
        return cls(read_edited_table(content, place), content)

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def problems(self, recipe: Recipe) -> Iterator[str]:
        """How it is no table of a recipe: a class has a row for each candidate, none twice, with what prompts ask.

        Of rows that are corrupted a class may have fewer.
        """
        fewer = recipe.generator.kind == "corrupt"
        wanted, captioned = rows_wanted(recipe), captions_asked(recipe)
        for class_id in self.rows.keys() - wanted.keys():
            yield f"'{class_id[:80]}' is no class of the recipe"
        for class_id, count in wanted.items():
            own = self.rows.get(class_id, ())
            if not (1 <= len(own) <= count if fewer else len(own) == count):
                yield f"the class '{class_id}' has {len(own):,} rows, expected {'1 to ' if fewer else ''}{count:,}"
            if len({one.row for one in own}) < len(own):
                yield f"the class '{class_id}' has a row more than once"
            without = [one.row for one in own if one.caption is None]
            if captioned and without:
                yield f"the class '{class_id}': row {without[0]} has no caption, which the prompts ask for"


def rows_wanted(recipe: Recipe) -> dict[str, int]:
    """Class id → how many rows are edited: as many as the largest of its cells has candidates."""
    found: dict[str, int] = {}
    for shift in recipe.all_shifts():
        for label in shift.class_labels:
            class_id = recipe.classes[label].id
            found[class_id] = max(found.get(class_id, 0), shift.candidates)
    return found


def captions_asked(recipe: Recipe) -> bool:
    """Whether any prompt asks for the caption of a row."""
    return any(asks_caption(shift.prompt) for shift in recipe.all_shifts())
