"""Kind `rows`: rows of a pool that the recipe names, decoded as they are, as retrieved and given rows are too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from counterfoil.data.pool import licences_of_rows
from counterfoil.generate.kinds.kind import ImageMaker, Materials, pool_of_rows
from counterfoil.generate.rows import PoolRows

if TYPE_CHECKING:
    from counterfoil.data.pins import SourcePin
    from counterfoil.recipe import Recipe


class RowsMaker(ImageMaker):
    """Takes rows of a pool."""

    def check_rows(self, recipe: Recipe, pool: SourcePin) -> None:
        """Check rows; compare labels unless the recipe says that they are predicted."""
        if recipe.generator.rows is not None:
            pool_of_rows(recipe, pool, None, labels=recipe.kind.reads_labels(recipe.generator))

    def renderer(self, materials: Materials) -> PoolRows:
        recipe, pool = materials.recipe, materials.pool
        assert pool is not None  # a lock pins it
        rows = pool_of_rows(recipe, pool, materials.table, labels=False)
        return PoolRows(rows.image, licences_of_rows(recipe, rows, pool))
