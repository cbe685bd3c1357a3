"""`mend.csv`: every set of rows that every head was judged on, and the differences to controls, one line each."""

from __future__ import annotations

from counterfoil.csv_text import csv_text
from counterfoil.mending.document import Mended

COLUMNS = (
    "model", "arm", "role", "against", "lambda", "images", "set", "rows", "units", "before", "after", "gain", "low",
    "high", "gained", "lost", "p",
)  # fmt: skip


def mend_csv(mended: Mended) -> str:
    """The table: without `against` the gain over the model as it was, with it the difference of gains to a control.

    A context or a class of few rows has no line. A control at the λ of what it controls says so behind its kind.
    gained, lost and p are of rows; in lines with `against` of units, of which more, or fewer, rows are right.
    """
    lines: list[list[object]] = []
    for model in mended.models:
        for arm in model.arms:
            begin = [model.name, arm.name, arm.role]
            for one in (one for one in arm.measured if one.listed):
                lines.append(
                    [*begin, "", arm.lam, arm.images, one.set, one.rows, one.units, one.before, one.after, one.gain,
                     one.low, one.high, one.gained, one.lost, one.p]
                )  # fmt: skip
            for one in arm.comparisons:
                numbers = [one.difference, one.low, one.high]
                lines.append(
                    [*begin, one.against, arm.lam, arm.images, one.set, one.rows, "", "", "", *numbers,
                     one.ahead, one.behind, one.p]
                )  # fmt: skip
    return csv_text((dict(zip(COLUMNS, line, strict=True)) for line in lines), COLUMNS)
