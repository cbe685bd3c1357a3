"""Rows of a table stand in the order of what they lose."""

from __future__ import annotations

from counterfoil.evaluation.resampled_page import largest_drop_first
from counterfoil.report.words import TableCell, TableRow, points_cell


def test_rows_stand_in_the_order_of_their_drops_and_those_without_one_last() -> None:
    drops = {"gains": -0.3, "none": None, "keeps": 0.0, "loses": 0.2}
    rows = [TableRow((TableCell(name), points_cell(drop))) for name, drop in drops.items()]
    largest_drop_first(rows, ("category", "drop"), "drop")
    assert [row.cells[0].text for row in rows] == ["loses", "keeps", "gains", "none"]
