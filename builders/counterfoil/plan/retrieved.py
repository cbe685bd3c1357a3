"""Rows that were retrieved for a plan: a table that travels with its dataset, and whether it is one of that plan."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from counterfoil.recipe import Recipe
from counterfoil.recipe.rows_table import RetrievedRows, read_retrieved_table, retrieved_csv


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Shift → class id → the rows of a cell by index, and the file that says so."""

    rows: RetrievedRows
    content: bytes

    @classmethod
    def of(cls, rows: RetrievedRows) -> Retrieved:
        """With the file of these rows."""
        return cls(rows, retrieved_csv(rows))

    @classmethod
    def read(cls, content: bytes, place: str) -> Retrieved:
        """Of a file's content. UserError for what is no such table."""
        return cls(read_retrieved_table(content, place), content)

    def pin(self) -> dict[str, Any]:
        """As lock.json holds it: the sha256 of the file."""
        return {"sha256": hashlib.sha256(self.content).hexdigest()}

    def problems(self, recipe: Recipe) -> Iterator[str]:
        """How it is no table of a recipe: each cell has a row for each candidate, and no row is used twice."""
        wanted = {
            (shift.name, recipe.classes[label].id): shift.candidates
            for shift in recipe.all_shifts()
            for label in shift.class_labels
        }
        found = {(shift, class_id): own for shift, cells in self.rows.items() for class_id, own in cells.items()}
        for shift, class_id in found.keys() - wanted.keys():
            yield f"'{shift[:80]}' of class '{class_id[:80]}' is no cell of the recipe"
        for cell, count in wanted.items():
            if len(found.get(cell, ())) != count:
                rows = len(found.get(cell, ()))
                yield f"'{cell[0]}' of class '{cell[1]}' has {rows:,} rows, expected {count:,}"
        every = [one.row for own in found.values() for one in own]
        if len(set(every)) < len(every):
            yield f"{len(every) - len(set(every)):,} rows are there more than once"
