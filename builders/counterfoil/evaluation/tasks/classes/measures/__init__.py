"""All measures of a model's answers. Each measure is a file in this package and a line in the table below.

The key in the table is the measure's name everywhere: in rows, measures.csv, results.json, pandas and robustness.csv.
"""

from __future__ import annotations

from collections.abc import Mapping

from counterfoil.evaluation.tasks.classes.answers import EVERYWHERE, Measure, NestedMeasure
from counterfoil.evaluation.tasks.classes.measures import (
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

MEASURES: Mapping[str, Measure] = {
    **accuracy.MEASURES,
    **drop.MEASURES,
    **accuracy.MORE_MEASURES,
    **calibration.MEASURES,
}
# What a line of a gate can name: accuracy averaged over classes leads, and the others are resampled.
IN_GATES: Mapping[str, Measure] = {
    "accuracy": MEASURES["accuracy"],
    **{name: measure for name, measure in MEASURES.items() if measure.resampled is not None},
}
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

__all__ = ["EVERYWHERE", "IN_GATES", "MEASURES", "NESTED_MEASURES", "Measure", "NestedMeasure"]
