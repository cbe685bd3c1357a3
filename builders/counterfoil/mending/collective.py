"""Several models of one run beside each other: how alike they fail, and what is kept of their own repairs' gains.

Chegini 2023, sections 5.2.2 and 5.3.2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from counterfoil.evaluation.families import family_of
from counterfoil.mending.arms import RETRAINED
from counterfoil.mending.document import HELDOUT, TEST, ArmResult, Collective, GainKept, SetMeasured
from counterfoil.mending.one_model import MendedModel
from counterfoil.mending.prepared import Prepared


def collective_of(prepared: Prepared, found: Sequence[MendedModel]) -> Collective | None:
    """None of one model. Failures are those of the confirm half, which no image was chosen by."""
    if len(found) < 2:
        return None
    overlap = failure_overlap(np.stack([one.failed[one.confirm] for one in found]))
    kept = []
    for one in found:
        own_names = {arm.name for arm in prepared.own.get(one.told.name, ()) if arm.role == "mended"}
        own = next((arm for arm in one.told.arms if arm.name in own_names), None)
        own_gain = None if own is None else _gain(own.of_set(HELDOUT))
        own_over = None if own is None else _over_retrained(own)
        for arm in one.told.arms:
            if arm.role != "mended":
                continue
            gain, over = _gain(arm.of_set(HELDOUT)), _over_retrained(arm)
            kept.append(
                GainKept(
                    model=one.told.name,
                    arm=arm.name,
                    own=arm.name in own_names,
                    images=arm.images,
                    heldout=gain,
                    test=_gain(arm.of_set(TEST)),
                    kept=None if gain is None or own_gain is None else kept_gain(own_gain, gain),
                    # What retraining alone gains is kept by any images.
                    over_retrained=over,
                    kept_over_retrained=None if over is None or own_over is None else kept_gain(own_over, over),
                )
            )
    return Collective(
        models=tuple(one.told.name for one in found),
        families=tuple(family_of(one.told.architecture, one.told.name) for one in found),
        failures=tuple(int(one.failed[one.confirm].sum()) for one in found),
        overlap=tuple(tuple(None if np.isnan(value) else float(value) for value in row) for row in overlap),
        kept=tuple(kept),
    )


def _gain(measured: SetMeasured | None) -> float | None:
    return None if measured is None else measured.gain


def _over_retrained(arm: ArmResult) -> float | None:
    return next((one.difference for one in arm.comparisons if (one.against, one.set) == (RETRAINED, HELDOUT)), None)


def failure_overlap(failed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(m, m) intersection over union of the failures of m models on the same n rows, failed (m, n); NaN of none."""
    counted = failed.astype(np.float64)
    both = counted @ counted.T
    each = counted.sum(axis=1)
    either = each[:, None] + each[None, :] - both
    return np.divide(both, either, out=np.full_like(both, np.nan), where=either > 0)


def kept_gain(own: float, other: float) -> float | None:
    """The gain by another's images as a share of the gain by its own; None where its own gained nothing to keep."""
    return other / own if own > 0 else None
