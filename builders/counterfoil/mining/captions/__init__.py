"""Candidate captions: grammars that make them, all of them once, their scores along a direction, and plain words."""

from __future__ import annotations

from counterfoil.mining.captions.gathering import Gathered, gather
from counterfoil.mining.captions.grammar import (
    ANY,
    CaptionGrammar,
    CaptionNoun,
    ClassCaptions,
    bundled_captions,
    load_captions,
)
from counterfoil.mining.captions.scoring import caption_scores, extreme_captions
from counterfoil.mining.captions.wording import words_of

__all__ = [
    "ANY",
    "CaptionGrammar",
    "CaptionNoun",
    "ClassCaptions",
    "Gathered",
    "bundled_captions",
    "caption_scores",
    "extreme_captions",
    "gather",
    "load_captions",
    "words_of",
]
