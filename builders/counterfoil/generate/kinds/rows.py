"""Kind `rows`: take the rows of a pool that the recipe lists.

Other makers that take rows unchanged inherit from this maker.
"""

from __future__ import annotations

from counterfoil.data.pins import SourcePin
from counterfoil.data.pool import licences_of_rows
from counterfoil.generate.kinds.kind import ImageMaker, Materials, pool_of_rows
from counterfoil.generate.rows import PoolRows
from counterfoil.recipe import Recipe


class RowsMaker(ImageMaker):
    def check_rows(self, recipe: Recipe, pool: SourcePin) -> None:
        if recipe.generator.get("rows") is not None:
            pool_of_rows(recipe, pool, None, labels=recipe.generator.reads_labels)

    def renderer(self, materials: Materials) -> PoolRows:
        recipe = materials.recipe
        pool = materials.pool
        assert pool is not None  # a lock pins it
        rows = pool_of_rows(recipe, pool, materials.table, labels=False)
        return PoolRows(rows.image, licences_of_rows(recipe, rows, pool))
