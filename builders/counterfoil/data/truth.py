"""What rows of an input dataset show beside a class: a base for what each task reads of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterfoil.data.tables import Rows
    from counterfoil.data.written_objects import Size
    from counterfoil.recipe.schema_inputs import Source


class RowTruth:
    """What every row of a split shows beside its class; nothing by default."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes on what was read."""
        return ()

    def checked(self, source: Source, rows: Rows, chosen: Sequence[int]) -> Sequence[str]:
        """Return notes on what the chosen rows show. Raise UserError if it cannot be used."""
        return ()

    def columns(self, row: int, size: Size, stored: Size) -> dict[str, Any]:
        """Return the columns of a row, whose image has a size, and another one as it is stored."""
        return {}
