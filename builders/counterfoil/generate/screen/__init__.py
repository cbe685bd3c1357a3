"""Screen images by CLIP scores and thresholds, and doubt a CLIP that may not know the classes."""

from counterfoil.generate.screen.doubts import ScreenDoubts, screen_doubts, warn_of_screen
from counterfoil.generate.screen.scores import Scorer, shift_scores
from counterfoil.generate.screen.thresholds import (
    FewImages,
    Thresholds,
    open_shifts,
    percentile_of,
    resolve_thresholds,
    stored_thresholds,
)

__all__ = [
    "FewImages", "Scorer", "ScreenDoubts", "Thresholds", "open_shifts", "percentile_of", "resolve_thresholds",
    "screen_doubts", "shift_scores", "stored_thresholds", "warn_of_screen",
]  # fmt: skip
