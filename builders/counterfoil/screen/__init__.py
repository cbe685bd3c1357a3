"""Floor 4: CLIP scores, thresholds and keep rules: which candidates are accepted, and why the others are not."""

from counterfoil.screen.keep import KEEP_RULES, Verdict, decide_cell
from counterfoil.screen.scores import Captions, Scorer, shift_scores
from counterfoil.screen.thresholds import FewImages, Thresholds, open_shifts, percentile_of, resolve_thresholds

__all__ = [
    "KEEP_RULES",
    "Captions",
    "FewImages",
    "Scorer",
    "Thresholds",
    "Verdict",
    "decide_cell",
    "open_shifts",
    "percentile_of",
    "resolve_thresholds",
    "shift_scores",
]
