"""What rows of an input dataset show beside a class: a base for what each task reads of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from counterfoil.data.messages import refusal

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

    def square_columns(self, row: int, size: Size, side: int) -> dict[str, Any]:
        """Return the columns of the middle square of a row's image, which is stored with a side."""
        return {}


def refuse_unclear_turns(turned: int, rows: Rows, marks: str) -> None:
    """Raise UserError if EXIF tags turn some photographs. turned: their number in a source that
    does not say `exif`. marks: what is drawn on them, such as boxes."""
    if turned:
        raise refusal("unclear-exif", f"source.exif: {rows.place}", turned, marks=marks)
