"""Every number that an evaluation gives of answers: a measure is a file here and a line in this table.

Its key is its name everywhere: in rows, in measures.csv and results.json, as a column in pandas and robustness.csv.
"""

from __future__ import annotations

from collections.abc import Mapping

from counterfoil.evaluation.measures.accuracy import (
    ACCURACY,
    BASE_ACCURACY,
    CHANCE,
    CONFUSION,
    PRECISION,
    RECALL,
    TOP1,
    TOP_K,
)
from counterfoil.evaluation.measures.calibration import CALIBRATION, CALIBRATION_ERROR, CONFIDENCE_OF_BINS
from counterfoil.evaluation.measures.comparison import COMPARISON
from counterfoil.evaluation.measures.distances import DISTANCES
from counterfoil.evaluation.measures.drop import (
    AVERAGE_DROP,
    DROP,
    IMPACT,
    INTERCEPT,
    PAIRS_DROP,
    R_SQUARED,
    RELATIVE_DROP,
    SLOPE,
)
from counterfoil.evaluation.measures.findings import FINDINGS
from counterfoil.evaluation.measures.labels import LABEL_CHECKS
from counterfoil.evaluation.measures.reference import REFERENCE
from counterfoil.evaluation.measures.transfer import TRANSFERS
from counterfoil.evaluation.scores import EVERYWHERE, Measure, NestedMeasure

MEASURES: Mapping[str, Measure | NestedMeasure] = {
    "top1": TOP1,
    "top_k": TOP_K,
    "accuracy": ACCURACY,
    "base_accuracy": BASE_ACCURACY,
    "drop": DROP,
    "relative_drop": RELATIVE_DROP,
    "pairs_drop": PAIRS_DROP,
    "average_drop": AVERAGE_DROP,
    "impact": IMPACT,
    "slope": SLOPE,
    "intercept": INTERCEPT,
    "r_squared": R_SQUARED,
    "chance": CHANCE,
    "recall": RECALL,
    "precision": PRECISION,
    "confusion": CONFUSION,
    "calibration_error": CALIBRATION_ERROR,
    "calibration": CALIBRATION,
    "confidence": CONFIDENCE_OF_BINS,
    # What nests in the document of results, by its name there; the order is that of rows.
    "findings": FINDINGS,
    "transfer": TRANSFERS,
    "label_checks": LABEL_CHECKS,
    "reference": REFERENCE,
    "distances": DISTANCES,
    "comparison": COMPARISON,
}

__all__ = ["EVERYWHERE", "MEASURES", "Measure", "NestedMeasure"]
