"""Every number that an evaluation gives of answers: a measure is a file here and a line in this table.

Its key is its name everywhere: in rows, in measures.csv and results.json, as a column in pandas and robustness.csv.
"""

from __future__ import annotations

from collections.abc import Mapping

from counterfoil.evaluation.measures import (
    accuracy,
    calibration,
    comparison,
    drop,
    findings,
    label_checks,
    published,
    severity,
    source,
    transfer,
)
from counterfoil.evaluation.scores import EVERYWHERE, Measure, NestedMeasure

MEASURES: Mapping[str, Measure] = {
    **accuracy.MEASURES,
    **drop.MEASURES,
    **accuracy.MORE_MEASURES,
    **calibration.MEASURES,
}
# In the order of their rows.
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
