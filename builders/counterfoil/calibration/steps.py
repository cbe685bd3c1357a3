"""What each threshold on a slider would do: counts at round steps over the scores. Pure functions on arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Round steps, so that a chosen threshold reads like those of Vendrow 2023, Table 1 (three decimals), and at most
# as many as a slider of a screen's width can show.
_STEPS = (0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01)
MOST_STEPS = 300
DECIMALS = 4


@dataclass(frozen=True, slots=True)
class Steps:
    """Thresholds at equal steps, ascending, and the candidates at or above each: all, accepted, and without image.

    `at_or_above` counts all candidates, `accepted` those whose object passes too, and `missing` those of the
    accepted whose image was not kept. At the first threshold every candidate passes, at the last none.
    """

    thresholds: tuple[float, ...]
    at_or_above: tuple[int, ...]
    accepted: tuple[int, ...]
    missing: tuple[int, ...]


def thresholds_over(scores: np.ndarray) -> tuple[float, ...]:
    """Round thresholds at equal steps over scores [n, float32]: every score reaches the first, none the last."""
    if scores.size == 0:
        return (0.0,)
    low, high = float(scores.min()), float(scores.max())
    # Rounding outwards adds up to two steps, the two ends two more, and there is one threshold more than steps.
    step = next((s for s in _STEPS if (high - low) / s <= MOST_STEPS - 5), _STEPS[-1])
    first, last = int(np.floor(low / step)) - 1, int(np.ceil(high / step)) + 1
    return tuple(round(number * step, DECIMALS) for number in range(first, last + 1))


def steps_of(scores: np.ndarray, object_passes: np.ndarray, has_image: np.ndarray) -> Steps:
    """Steps over scores [n, float32]; compared as a build compares: score >= threshold, both float32."""
    if scores.size == 0:
        return Steps((0.0,), (0,), (0,), (0,))
    thresholds = thresholds_over(scores)
    edges = np.array(thresholds, np.float32)
    return Steps(
        thresholds,
        _at_or_above(scores, edges),
        _at_or_above(scores[object_passes], edges),
        _at_or_above(scores[object_passes & ~has_image], edges),
    )


def _at_or_above(scores: np.ndarray, edges: np.ndarray) -> tuple[int, ...]:
    ordered = np.sort(scores.astype(np.float32))
    return tuple(int(count) for count in ordered.size - np.searchsorted(ordered, edges, side="left"))
