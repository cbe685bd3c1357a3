"""Further numbers of a model under a shift, beside accuracy and drop: each is a file here and a line in this table.

A metric's name is its column in tables and pandas, and its key in `Score.metrics`.
"""

from __future__ import annotations

from collections.abc import Mapping

from counterfoil.evaluation.metrics.measurement import Metric, ShiftMeasurement
from counterfoil.evaluation.metrics.relative_drop import relative_drop

METRICS: Mapping[str, Metric] = {
    "relative_drop": relative_drop,
}

__all__ = ["METRICS", "Metric", "ShiftMeasurement"]
