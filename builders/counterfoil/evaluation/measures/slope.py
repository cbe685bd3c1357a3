"""ID/OOD slope: the line of shifted on base accuracy over models (Vendrow 2023, section 6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from counterfoil.evaluation import statistics
from counterfoil.evaluation.measures.measure import Measure
from counterfoil.evaluation.scores import AllAnswers
from counterfoil.evaluation.statistics import Slope
from counterfoil.report.results import ResultRow, row
from counterfoil.stats import Estimate


def _rows(name: str, number: Callable[[Slope], Estimate | float]) -> Callable[[AllAnswers], Iterator[ResultRow]]:
    def rows(answered: AllAnswers) -> Iterator[ResultRow]:
        for place in answered.shifts if answered.subject.base else ():
            found, sound = answered.drops(place), answered.sound
            if found is None:
                continue
            line = statistics.slope(found.base_accuracy[sound].tolist(), found.accuracy[sound].tolist())
            if line is not None:
                yield row(name, number(line), group=answered.group(place).name, n=line.n_models)

    return rows


def _slope(line: Slope) -> Estimate:
    # Where all models are equal under the shift, nothing tells how far the line may be off.
    return Estimate(line.slope, line.low, line.high) if math.isfinite(line.low) else Estimate(line.slope)


SLOPE = Measure(
    _rows("slope", _slope),
    "ID/OOD slope",
    "plain",
    "How accuracy under the shift grows with accuracy on the base, a point a model; models near chance are in no line.",
    shown=(),
)
INTERCEPT = Measure(
    _rows("intercept", lambda line: line.intercept), "Intercept", "points", "Where that line begins.", shown=()
)
R_SQUARED = Measure(
    _rows("r_squared", lambda line: line.r_squared),
    "R²",
    "plain",
    "How much of the variation between models that line tells.",
    shown=(),
)
