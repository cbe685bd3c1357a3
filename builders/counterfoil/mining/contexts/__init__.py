"""Contexts of classes (Chegini 2023): proposed by people's lists or a chat model, each once a class."""

from __future__ import annotations

from counterfoil.mining.contexts.doubles import Distinct, Double, same_words, without_doubles
from counterfoil.mining.contexts.lists import ContextList, load_contexts
from counterfoil.mining.contexts.proposing import Proposed, proposed_contexts

__all__ = [
    "ContextList",
    "Distinct",
    "Double",
    "Proposed",
    "load_contexts",
    "proposed_contexts",
    "same_words",
    "without_doubles",
]
