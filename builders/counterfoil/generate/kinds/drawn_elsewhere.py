"""Kind `rows` without `rows`: images that were drawn elsewhere, which a table of their own tells apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from counterfoil.data.drawn_elsewhere import given_rows
from counterfoil.generate.kinds.kind import ChosenTable, NamedInput
from counterfoil.generate.kinds.rows import RowsMaker
from counterfoil.recipe.layering import without_folders

if TYPE_CHECKING:
    from counterfoil.data.pins import SourcePin
    from counterfoil.recipe import Recipe


class DrawnElsewhereMaker(RowsMaker):
    """Takes images that were given with what each is."""

    names_pool = True

    def choose_rows(self, recipe: Recipe, pool: SourcePin, models: Mapping[str, Any], device: str) -> ChosenTable:
        found = given_rows(recipe, pool)
        return ChosenTable(found.table, {"sha256": found.table.sha256}, found.notes)

    def inputs(self, recipe: Recipe, pinned: Mapping[str, Any]) -> list[NamedInput]:
        ((_, _, images),) = super().inputs(recipe, pinned)
        return [("drawn images", without_folders(recipe.generator.dataset or ""), images)]
