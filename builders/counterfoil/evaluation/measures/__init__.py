"""Every number that an evaluation gives of answers: a measure is a file here and a line in this table.

Its key is its name everywhere: in rows, in measures.csv and results.json, as a column in pandas and robustness.csv.
"""

from __future__ import annotations

from collections.abc import Mapping

from counterfoil.evaluation.measures import (
    accuracy,
    calibration,
    comparison,
    distances,
    drop,
    findings,
    labels,
    published,
    reference,
    severity,
    transfer,
)
from counterfoil.evaluation.scores import EVERYWHERE, Measure, NestedMeasure

MEASURES: Mapping[str, Measure | NestedMeasure] = {
    **accuracy.MEASURES,
    **drop.MEASURES,
    **accuracy.MORE_MEASURES,
    **calibration.MEASURES,
    # What nests in the document of results, by its name there; the order is that of rows.
    "findings": NestedMeasure(findings.measure_findings),
    "transfer": NestedMeasure(transfer.measure_transfer),
    "severity": NestedMeasure(severity.measure_severity),
    "label_checks": NestedMeasure(labels.measure_labels),
    "reference": NestedMeasure(reference.measure_reference),
    "distances": NestedMeasure(distances.measure_distances),
    "published": NestedMeasure(published.measure_published),
    "comparison": NestedMeasure(comparison.compare_models),
}

__all__ = ["EVERYWHERE", "MEASURES", "Measure", "NestedMeasure"]
