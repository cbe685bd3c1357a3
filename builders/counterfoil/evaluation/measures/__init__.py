"""Every number that an evaluation gives of answers: a measure is a file here and a line in this table.

Its key is its name everywhere: in rows, in measures.csv and results.json, as a column in pandas and robustness.csv.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from counterfoil.evaluation.measures import accuracy, calibration, drop
from counterfoil.evaluation.scores import EVERYWHERE, Measure, NestedMeasure
from counterfoil.report.results import NESTED

MEASURES: Mapping[str, Measure] = {
    **accuracy.MEASURES,
    **drop.MEASURES,
    **accuracy.MORE_MEASURES,
    **calibration.MEASURES,
}
NESTED_MEASURES: Mapping[str, NestedMeasure] = {name: import_module(f"{__name__}.{name}").MEASURE for name in NESTED}

__all__ = ["EVERYWHERE", "MEASURES", "NESTED_MEASURES", "Measure", "NestedMeasure"]
