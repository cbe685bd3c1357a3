"""Every number that an evaluation gives of answers: a measure is a file here and a line in this table.

Its key is its name everywhere: in rows, in measures.csv and results.json, as a column in pandas and robustness.csv.
"""

from __future__ import annotations

from collections.abc import Mapping

from counterfoil.evaluation.measures.accuracy import ACCURACY, BASE_ACCURACY, CHANCE, TOP1, TOP_K
from counterfoil.evaluation.measures.by_class import CONFUSION, PRECISION, RECALL
from counterfoil.evaluation.measures.calibration import CALIBRATION, CALIBRATION_ERROR, CONFIDENCE_OF_BINS
from counterfoil.evaluation.measures.drop import AVERAGE_DROP, DROP, IMPACT, PAIRS_DROP
from counterfoil.evaluation.measures.measure import EVERYWHERE, Measure
from counterfoil.evaluation.measures.relative_drop import RELATIVE_DROP
from counterfoil.evaluation.measures.slope import INTERCEPT, R_SQUARED, SLOPE

MEASURES: Mapping[str, Measure] = {
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
}

__all__ = ["EVERYWHERE", "MEASURES", "Measure"]
