"""Captions of scenes of the wardrobe world, which the lab's models learn and proofs read.

*Claims*, a mapping of attribute → value that must be true of the picture, decide a caption. A
marked class's own pattern (`vocabulary.MARKS`) is never claimed, so that the class name alone does
not ask for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from counterfoil.lab.vocabulary import MARKS, SHIFTS

Claims = Mapping[str, str]
"""Attribute → value."""

# Style → the attributes that cannot be read from its images.
HIDDEN_BY_STYLE: dict[str, tuple[str, ...]] = {
    "photo": (),
    "oil": (),
    "sketch": ("colour", "background", "weather", "light"),
    "embroidery": ("background", "weather", "light"),
}

_STYLE_WORDS = {
    "photo": "a photo",
    "oil": "an oil painting",
    "sketch": "a black and white pencil sketch",
    "embroidery": "an embroidery",
}
_PLACES = {"wall": "against a wall", "brick": "by a brick wall", "wood": "on a wooden floor"}
_PLACES |= {s.value: s.phrase for s in SHIFTS if s.attribute == "background"}
_WEATHER = {s.value: s.phrase for s in SHIFTS if s.attribute == "weather"}
_LIGHT = {s.value: s.phrase for s in SHIFTS if s.attribute == "light"}
_DEFAULTS = {"pattern": "plain", "weather": "clear", "light": "day", "companion": "none"}


def caption_of(claims: Claims) -> str:
    """Return the caption that makes exactly these claims (attribute → value), in lower-case
    English."""
    words = []
    style = claims.get("style")
    name = claims.get("class")
    companion = claims.get("companion")
    if style is not None:
        words.append(_STYLE_WORDS[style])
    if name is not None:
        words += ["of a" if style else "a"]
        words += ["person and a"] if companion == "person" else []
        words += [claims[a] for a in ("colour", "pattern") if a in claims]
        words += [name] + (["and a flower"] if companion == "flower" else [])
    else:
        words += [claims["colour"]] if "colour" in claims else []
        words += [f"of a {companion}"] if companion is not None else []
    for attribute, phrases in (("background", _PLACES), ("weather", _WEATHER), ("light", _LIGHT)):
        words += [phrases[claims[attribute]]] if attribute in claims else []
    return " ".join(words)


def tellable(attributes: Claims) -> dict[str, str]:
    """Return the claims that are allowed for a picture: visible in its style, not a default, not a
    mark."""
    hidden = HIDDEN_BY_STYLE[attributes["style"]]
    claims = {a: v for a, v in attributes.items() if a not in hidden and _DEFAULTS.get(a) != v}
    if MARKS.get(attributes["class"]) == attributes["pattern"]:
        claims.pop("pattern", None)
    return claims
