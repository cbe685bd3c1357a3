"""Which attributes of the wardrobe's world a description names, by its words; and the world's own
descriptions."""

from __future__ import annotations

import re

from bugs_proof.truth import Claims
from counterfoil.lab.vocabulary import ATTRIBUTES, CLASSES
from counterfoil.mining.methods.bugs.descriptions import CLASS, Description, pieces_of
from lab_training.captions import caption_of, tellable

# Value → the words that name it in any phrase, where it is not its own name: a brick wall is not a
# plain wall.
_WORDS = {"wood": "wooden|wood", "wall": "(?<!brick )wall"}
_UNSAID = ("clear", "day", "none", "photo")
_BLACK_AND_WHITE = re.compile(r"\bblack and white\b")
_PLAIN = {"pattern": "plain", "weather": "clear", "light": "day", "companion": "none"}
# "a photo of a …", as `lab.captions` writes it.
_PHOTO = f"a photo of a {CLASS}"


def named(description: Description) -> Claims:
    """Return the claims of a description, sorted; empty if it says something that the world has no
    word for.

    Two values of one attribute are both given: no scene has them both.
    """
    text = _BLACK_AND_WHITE.sub(" ", " ".join(piece.words for piece in description.pieces).lower())
    claims = {
        (attribute, value)
        for attribute, values in ATTRIBUTES.items()
        for value in values
        if attribute != "class"
        and value not in _UNSAID
        and re.search(rf"\b(?:{_WORDS.get(value, value)})\b", text)
    }
    return tuple(sorted(claims))


def renderable(claims: Claims) -> bool:
    """Return whether there are claims and a scene can have them all."""
    return bool(claims) and len({attribute for attribute, _ in claims}) == len(claims)


def contexts(label: int) -> dict[tuple[str, str], Description]:
    """Return (attribute, value) → description, for all that a caption can say beyond a plain photo
    of a class."""
    name = CLASSES[label]
    descriptions = {}
    for attribute, values in ATTRIBUTES.items():
        for value in values if attribute != "class" else ():
            attributes = {"class": name, "style": "photo"} | {attribute: value}
            if tellable(_PLAIN | attributes).get(attribute) != value:
                continue
            pieces = pieces_of(caption_of(attributes), _PHOTO, name)
            if pieces:
                descriptions[attribute, value] = Description(pieces)
    return descriptions
