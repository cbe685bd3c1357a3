"""What a method of mining is: a function from arrays and settings to hypotheses; it loads and renders nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class DiscoverHalf:
    """The rows that hypotheses are found on; what is found is tested on the other half.

    features: (n, width), a row's embedding. labels: (n,), positions in the recipe's classes. failed: (n,) bool, whether
    the failure rule calls the target's answer wrong. answers: (n, k), the target's outputs, most probable first.
    """

    features: NDArray[np.floating]
    labels: NDArray[np.int64]
    failed: NDArray[np.bool_]
    answers: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """Classes and words of which a method says that they fail together.

    labels: positions in the recipe's classes. words: as a prompt or caption would say it. evidence: rows of the
    discover half, best first; scores: (len(evidence),), what they are ordered by, high first.
    """

    labels: tuple[int, ...]
    words: str
    evidence: NDArray[np.int64]
    scores: NDArray[np.float64]


class Method(Protocol):
    """How hypotheses are found. The same half and settings give the same hypotheses, in the same order."""

    def __call__(self, half: DiscoverHalf, settings: Mapping[str, Any]) -> Iterable[Hypothesis]: ...
