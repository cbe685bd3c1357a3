"""Other ways to say which rows fail together, and one measure for all: each gives scores of rows, never words."""

from counterfoil.mining.slices.confidence import relative_difficulty, unsureness
from counterfoil.mining.slices.domino import AS_JAIN_SET, DominoSettings, DominoSlices, fit_domino
from counterfoil.mining.slices.ranking import Quality, judged, match, quality, with_complements

__all__ = [
    "AS_JAIN_SET",
    "DominoSettings",
    "DominoSlices",
    "Quality",
    "fit_domino",
    "judged",
    "match",
    "quality",
    "relative_difficulty",
    "unsureness",
    "with_complements",
]
