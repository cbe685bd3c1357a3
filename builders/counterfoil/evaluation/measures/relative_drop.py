"""The share of its base accuracy that a model loses under a shift."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from counterfoil.evaluation.measures.measure import Measure
from counterfoil.evaluation.scores import AllAnswers
from counterfoil.evaluation.statistics import Drops
from counterfoil.report.results import ResultRow, row
from counterfoil.stats import Estimate, percentile_interval


def relative_drop(found: Drops, model: int) -> Estimate | None:
    """Drop over base accuracy, with the percentile interval of the ratio; None for a base accuracy of 0.

    1 is a model that knows nothing any more. Of a base near chance it says little: its interval is wide, and there is
    none where the base accuracy of a draw is 0. What every draw gives the same is opened as the drop's interval is.
    """
    base = float(found.base_accuracy[model])
    if base == 0:
        return None
    with np.errstate(invalid="ignore", divide="ignore"):
        replicates = found.replicates[:, model] / found.base_replicates[:, model]
    value = float(found.drop[model]) / base
    if (found.base_replicates[:, model] == 0).any():
        return Estimate(value)
    agreed = float(found.agreed[0][model]) / base, float(found.agreed[1][model]) / base
    return percentile_interval(value, replicates, agreed, least=-np.inf)


def _rows(answered: AllAnswers) -> Iterator[ResultRow]:
    for place in answered.shifts if answered.subject.base else ():
        found = answered.drops(place)
        for model, name in enumerate(answered.models):
            if found is not None and (own := relative_drop(found, model)) is not None:
                yield row("relative_drop", own, model=name, group=answered.group(place).name)


RELATIVE_DROP = Measure(
    _rows, "Relative drop", "share", "The share of its accuracy on the base that a model loses.", shown=()
)
