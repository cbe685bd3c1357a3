"""Kind `rows` without a list of rows: take images that were drawn elsewhere, and read their own
table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterfoil.data.drawn_elsewhere import given_rows
from counterfoil.data.pins import SourcePin
from counterfoil.generate.kinds.kind import ChosenTable
from counterfoil.generate.kinds.rows import RowsMaker
from counterfoil.recipe import Recipe


class DrawnElsewhereMaker(RowsMaker):
    def choose_rows(
        self,
        recipe: Recipe,
        pool: SourcePin,
        models: Mapping[str, Any],
        device: str,
    ) -> ChosenTable:
        given = given_rows(recipe, pool)
        return ChosenTable(given.table, {"sha256": given.table.sha256}, given.notes)
