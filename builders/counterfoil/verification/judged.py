"""What judges are said to have answered, against what their pins call right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from counterfoil.keep.misclassified import ANSWER, CONFIDENCE, RIGHT, judge_column
from counterfoil.plan import Plan
from counterfoil.recipe.layering import without_folders
from counterfoil.verification.row_faults import Row, RowFaults, shown_value

# By a judge's name without folders, as the lock has it.
JudgePins = Mapping[str, Mapping[str, Any]]
NOBODY: JudgePins = {}


def check_judged(rows: Sequence[Row], plan: Plan, pins: JudgePins, faults: RowFaults) -> None:
    """Rows of one cell: an answer where a rule of its shift asks for one, none elsewhere, and right as the pin says."""
    for name in plan.recipe.judges if rows else ():
        asked = any(name in rule.judges() for rule in plan.shift(rows[0]["shift"]).keep)
        targets = _targets(pins.get(without_folders(name)), len(plan.recipe.classes))
        answer, confidence, right = (judge_column(name, what) for what in (ANSWER, CONFIDENCE, RIGHT))
        for row in rows:
            found = (row[answer], row[confidence], row[right])
            # An image whose scores are no numbers may still have been looked at.
            if found == (None, None, None):
                if asked and row["object_score"] is not None:
                    faults.add(answer, row["key"], f"{answer} is none, expected the judge's answer")
            elif not asked:
                faults.add(answer, row["key"], f"{answer} is {shown_value(row[answer])}, expected none")
            elif None in found or not 0 < row[confidence] <= 1:
                faults.add(
                    confidence, row["key"], f"{confidence} is {shown_value(row[confidence])}, expected a probability"
                )
            elif targets is not None and row[right] != (row[answer] in targets[row["label"]]):
                faults.add(right, row["key"], f"{right} is {shown_value(row[right])}, which the answer contradicts")


def _targets(pin: Mapping[str, Any] | None, classes: int) -> Sequence[Sequence[int]] | None:
    """The right answers by label; None where the lock does not tell them."""
    targets = pin.get("targets") if isinstance(pin, Mapping) else None
    sound = isinstance(targets, list) and len(targets) == classes and all(isinstance(own, list) for own in targets)
    return targets if sound else None
