"""What keep rules are said to have measured of images: there where a rule of the shift asks, and possible."""

from __future__ import annotations

from collections.abc import Sequence

from counterfoil.plan import Plan
from counterfoil.verification.row_faults import Row, RowFaults, shown_value


def check_measured(rows: Sequence[Row], plan: Plan, faults: RowFaults) -> None:
    """Rows of one cell. The numbers themselves are taken on trust, as scores and judges' answers are."""
    known = {name for shift in plan.recipe.all_shifts() for rule in shift.keep for name in rule.measures}
    for row in rows if known else ():
        asked = {name: ends for rule in plan.shift(row["shift"]).keep for name, ends in rule.measures.items()}
        for name in sorted(known):
            value = row[name]
            if value is None:
                # An image whose scores are no numbers may still have been measured.
                wrong = name in asked and row["object_score"] is not None
            else:
                wrong = name not in asked or not asked[name][0] <= value <= asked[name][1]
            if wrong:
                expected = f"from {asked[name][0]} to {asked[name][1]}" if name in asked else "none"
                faults.add(name, row["key"], f"{name} is {shown_value(value)}, expected {expected}")
