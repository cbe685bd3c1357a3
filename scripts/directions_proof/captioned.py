"""Candidate captions of a world's classes, as mining takes them, and what a caption claims of a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from counterfoil.lab.planted import PlantedWorld
from counterfoil.lab.scenes import caption_of
from counterfoil.lab.vocabulary import ATTRIBUTES
from counterfoil.mining.captions import gather, load_captions
from counterfoil.mining.hypotheses import CandidateCaptions
from directions_proof.worlds import AuditedWorld, clip

GRAMMAR = "wardrobe"


@cache
def vector_of(text: str) -> NDArray[np.float32]:
    """(width,) what the lab's CLIP makes of a text."""
    return clip().embed_texts([text])[0]


def captions_of(audited: AuditedWorld) -> CandidateCaptions:
    """The bundled grammar's captions, each encoded once; merged classes are called by what is in them."""
    world = audited.world
    merged = any(len(subtypes) > 1 for subtypes in world.subtypes)
    grammar = load_captions(GRAMMAR)
    if merged:
        grammar = grammar.with_hyponyms(dict(zip(world.class_names, world.subtypes, strict=True)))
    texts, references, candidates = gather(grammar, audited.classes, "hyponyms" if merged else "class")
    return CandidateCaptions(texts, np.stack([vector_of(text) for text in texts]), references, candidates)


def says(caption: str, words: str) -> bool:
    """Whether the words stand in a caption as words: `shirt` does not in `a photo of a t-shirt`."""
    return f" {words} " in f" {caption} "


def says_context(world: PlantedWorld, caption: str) -> bool:
    """Whether a caption tells the planted context, or the planted subtype."""
    return world.context_words is not None and says(caption, world.context_words)


@cache
def _phrases() -> tuple[tuple[str, str, str], ...]:
    """(attribute, value, words) of all that a caption can claim beside the class."""
    found: list[tuple[str, str, str]] = []
    for attribute in ("background", "weather", "light"):
        values = (value for value in ATTRIBUTES[attribute] if value not in ("clear", "day"))
        found += [(attribute, value, caption_of({attribute: value})) for value in values]
    found += [(name, value, value) for name in ("colour", "pattern") for value in ATTRIBUTES[name] if value != "plain"]
    return (*found, ("companion", "person", "person and a"), ("companion", "flower", "and a flower"))


def claims_of(world: PlantedWorld, label: int, caption: str) -> Mapping[str, str]:
    """Attribute → value of what a caption claims of a picture of a class; `class` where it tells the subtype."""
    found = {attribute: value for attribute, value, words in _phrases() if says(caption, words)}
    subtypes = world.subtypes[label]
    named = [name for name in subtypes if says(caption, name)]
    return found | ({"class": named[0]} if len(subtypes) > 1 and named else {})


def holding(world: PlantedWorld, split: str, rows: NDArray[np.int64], claims: Mapping[str, str]) -> NDArray[np.bool_]:
    """(n,) whether every claim holds of each row's scene."""

    def held() -> Iterator[bool]:
        for row in rows.tolist():
            attributes = world.scene(split, row).attributes()
            yield all(attributes[attribute] == value for attribute, value in claims.items())

    return np.fromiter(held(), np.bool_, len(rows))
