"""What is known of a candidate when it is decided: its scores by name and the thresholds that they must reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The two cosines of Vendrow 2023, section 3.1. Others have names beside them.
OBJECT = "object"
SHIFT = "shift"
CLIP_SCORES = (OBJECT, SHIFT)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Scores and thresholds of one candidate, by the score's name; None where there is none.

    The object's score is None where rendering failed, the shift's where the shift is not screened (the base); where
    nothing is screened both are, and so is the object's threshold. `open` says that the shift's threshold is not known
    yet: a percentile over candidates that are still being made.
    """

    scores: Mapping[str, float | None]
    thresholds: Mapping[str, float | None]
    open: bool = False

    @property
    def failed(self) -> bool:
        """Whether there is nothing to decide: the image was not rendered, or its scores are no numbers."""
        return self.scores.get(OBJECT) is None and self.thresholds.get(OBJECT, 0.0) is not None

    def is_low(self, name: str) -> bool:
        """Whether a score misses its threshold; a score or threshold that is not there misses nothing."""
        score, threshold = self.scores.get(name), self.thresholds.get(name)
        return score is not None and threshold is not None and score < threshold
