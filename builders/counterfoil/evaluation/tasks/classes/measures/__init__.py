"""All measures of a model's answers. Each measure is a file in this package and a line in the table
below.

The key in the table is the measure's name everywhere: in rows, measures.csv, results.json, pandas
and robustness.csv.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from counterfoil.evaluation.tasks.classes.answers import (
    EVERYWHERE,
    Measure,
    NestedMeasure,
)
from counterfoil.evaluation.tasks.classes.measures import (
    accuracy,
    calibration,
    comparison,
    corruption_error,
    drop,
    findings,
    label_checks,
    published,
    severity,
    source,
    transfer,
)
from counterfoil.registry import Registry


def _problem(registered: Any) -> str | None:
    if not isinstance(registered, Measure):
        return "no `Measure`"
    return (
        None
        if registered.resampled or registered.rows
        else "without a function `rows` or `resampled`"
    )


# Of our own and of installed plugins.
MEASURES: Registry[Measure] = Registry(
    "counterfoil.measures",
    {
        **accuracy.MEASURES,
        **drop.MEASURES,
        **accuracy.MORE_MEASURES,
        **calibration.MEASURES,
        **corruption_error.MEASURES,
    },
    _problem,
)
# The order here is the order of the rows.
NESTED_MEASURES: Mapping[str, NestedMeasure] = {
    "findings": findings.MEASURE,
    "transfer": transfer.MEASURE,
    "severity": severity.MEASURE,
    "label_checks": label_checks.MEASURE,
    "reference": source.REFERENCE,
    "distances": source.DISTANCES,
    "published": published.MEASURE,
    "comparison": comparison.MEASURE,
}

__all__ = ["EVERYWHERE", "MEASURES", "NESTED_MEASURES", "Measure", "NestedMeasure"]
