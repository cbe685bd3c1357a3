"""The unit of each image, where images that share one (frames of a video, scans of a patient) are no independent data.

Rows hold a number instead of the input dataset's own text, which may name a patient.
"""

from __future__ import annotations

from counterfoil.recipe.keep import Column

UNIT = "unit"


def unit_columns(unit_column: str | None, whole_images: bool) -> dict[str, Column]:
    """Return the column of units that images with objects or several labels have, if a recipe names their units."""
    if unit_column is None or not whole_images:
        return {}
    return {UNIT: Column("int64", "Number of the unit that images share in the input dataset (`source.unit_column`).")}
