"""What judges are said to have answered, against what their pins call right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from counterfoil.keep.failure_names import PARENT, TOP1, answered_class
from counterfoil.keep.misclassified import ANSWER, CONFIDENCE, FAILED, RIGHT, judge_column
from counterfoil.plan import Plan
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.names import without_folders
from counterfoil.verification.row_faults import Row, RowFaults, shown_value

# By a judge's name without folders, as the lock has it.
JudgePins = Mapping[str, Mapping[str, Any]]
NOBODY: JudgePins = {}


def check_judged(rows: Sequence[Row], plan: Plan, pins: JudgePins, faults: RowFaults) -> None:
    """Rows of one cell: an answer where its shift's rules or the screen ask for one, and right as the pin says."""
    for name in plan.recipe.judges if rows else ():
        rule = plan.recipe.failure_asked(plan.shift(rows[0]["shift"]), name)
        pinned = _targets(pins.get(without_folders(name)), len(plan.recipe.classes))
        answer, confidence, right, failed = (judge_column(name, what) for what in (ANSWER, CONFIDENCE, RIGHT, FAILED))
        told = [answer, confidence, right] + ([] if rule in (None, TOP1) else [failed])
        for row in rows:
            found = [row[column] for column in told]
            # A label of no class is told elsewhere.
            targets = pinned if row["label"] in range(len(plan.recipe.classes)) else None
            if failed not in told and row.get(failed) is not None:
                faults.add(failed, row["key"], f"{failed} is {shown_value(row[failed])}, expected none")
            # An image whose scores are no numbers may still have been looked at.
            if all(value is None for value in found):
                if rule is not None and row["object_score"] is not None:
                    faults.add(answer, row["key"], f"{answer} is none, expected the judge's answer")
            elif rule is None:
                faults.add(answer, row["key"], f"{answer} is {shown_value(row[answer])}, expected none")
            elif None in found or not 0 < row[confidence] <= 1:
                faults.add(
                    confidence, row["key"], f"{confidence} is {shown_value(row[confidence])}, expected a probability"
                )
            elif targets is not None and row[right] != (row[answer] in targets[row["label"]]):
                faults.add(right, row["key"], f"{right} is {shown_value(row[right])}, which the answer contradicts")
            elif targets is not None and failed in told:
                told_by_first = _told_by_first(rule or TOP1, row[answer], row["label"], plan.recipe.classes, targets)
                if told_by_first is not None and row[failed] != told_by_first:
                    faults.add(
                        failed, row["key"], f"{failed} is {shown_value(row[failed])}, which the answer contradicts"
                    )


def _told_by_first(
    rule: str, answer: int, label: int, classes: Sequence[RecipeClass], targets: Sequence[Sequence[int]]
) -> bool | None:
    """Whether a judge fails, where its first answer decides it, which alone is recorded; None where it does not."""
    asked = answered_class(rule)
    if asked is not None:
        given = next((one.label for one in classes if one.id == asked), None)
        return None if given is None else label != given and answer in targets[given]
    kin = [one.label for one in classes if one.parent == classes[label].parent] if rule == PARENT else [label]
    return False if any(answer in targets[one] for one in kin) else None


def _targets(pin: Mapping[str, Any] | None, classes: int) -> Sequence[Sequence[int]] | None:
    """The right answers by label; None where the lock does not tell them."""
    targets = pin.get("targets") if isinstance(pin, Mapping) else None
    sound = isinstance(targets, list) and len(targets) == classes and all(isinstance(own, list) for own in targets)
    return targets if sound else None
