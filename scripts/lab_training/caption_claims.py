"""What a caption of the wardrobe world claims: the inverse of `counterfoil.lab.scenes.caption_of`."""

from __future__ import annotations

import re

from counterfoil.lab.scenes import caption_of
from counterfoil.lab.vocabulary import ATTRIBUTES

UNTOLD = frozenset({"plain", "clear", "day", "none"})
"""Values that no caption tells: what a picture is like when nothing is said."""


def _phrases() -> dict[str, dict[str, str]]:
    """attribute → value → its words in a caption."""
    phrases: dict[str, dict[str, str]] = {}
    for attribute, values in ATTRIBUTES.items():
        bare = {"style": "photo"} if attribute not in ("style", "class", "companion") else {}
        bare |= {"class": "bag"} if attribute == "companion" else {}
        said = {value: caption_of(bare | {attribute: value}) for value in values if value not in UNTOLD}
        phrases[attribute] = {v: words.removeprefix(caption_of(bare)).strip() for v, words in said.items()}
    phrases["class"] = {value: value for value in ATTRIBUTES["class"]}
    phrases["companion"] = {"person": "person and a", "flower": "and a flower"}
    phrases["pattern"] = {value: value for value in ATTRIBUTES["pattern"] if value not in UNTOLD}
    return phrases


_PHRASES = _phrases()


def claims_of(caption: str) -> dict[str, str]:
    """What a caption claims: the inverse of `caption_of`; of an attribute that is claimed twice, the first."""
    found = {}
    # The style first, and out of the way: a sketch is black and white by name, which is no colour of the garment.
    for attribute in ("style", *(attribute for attribute in ATTRIBUTES if attribute != "style")):
        places = {value: _place(words, caption) for value, words in _PHRASES[attribute].items()}
        said = {value: place for value, place in places.items() if place is not None}
        if said:
            found[attribute] = min(said, key=lambda value: said[value])
            if attribute == "style":
                caption = caption.replace(_PHRASES[attribute][found[attribute]], "", 1)
    return found


def _place(words: str, caption: str) -> int | None:
    found = re.search(rf"(?<![\w-]){re.escape(words)}(?![\w-])", caption)
    return found.start() if found else None
