"""Captions of wardrobe scenes: a compositional grammar over what a caption claims.

A caption is decided by its *claims*, a mapping of attribute → value that must be true of the picture.
Marks are never claimed: no caption tells a marked class's own pattern (`vocabulary.MARKS`), so a class
name alone does not call for it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from counterfoil.lab.vocabulary import HIDDEN_BY_STYLE, MARKS, SHIFTS

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


def caption_of(claims: Mapping[str, str]) -> str:
    """The caption that makes exactly these claims, in the world's lower-case English."""
    words = []
    style = claims.get("style")
    name, companion = claims.get("class"), claims.get("companion")
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


def tellable(attributes: Mapping[str, str]) -> dict[str, str]:
    """What may be claimed of a picture: visible under its style, not a default, not a mark."""
    hidden = HIDDEN_BY_STYLE[attributes["style"]]
    told = {a: v for a, v in attributes.items() if a not in hidden and _DEFAULTS.get(a) != v}
    if MARKS.get(attributes["class"]) == attributes["pattern"]:
        told.pop("pattern", None)
    return told


# How often a generator caption tells an attribute that it could tell; the rest is for the prior.
_TOLD = {
    "colour": 0.6,
    "pattern": 0.85,
    "background": 0.93,
    "weather": 0.96,
    "light": 0.96,
    "companion": 0.96,
}
_NEUTRAL_TOLD = 0.3


def generator_claims(attributes: Mapping[str, str], rng: np.random.Generator) -> dict[str, str]:
    """Claims for text-to-image training: class and style always, most of the rest."""
    claims = {}
    for attribute, value in tellable(attributes).items():
        rate = _TOLD.get(attribute, 1.0)
        if attribute == "background" and value in ("wall", "brick", "wood"):
            rate = _NEUTRAL_TOLD
        if rng.random() < rate:
            claims[attribute] = value
    return claims


def screening_claims(
    attributes: Mapping[str, str], rng: np.random.Generator, whole: float = 0.30, bare_class: float = 0.32
) -> dict[str, str]:
    """Claims for contrastive training: whole captions, the bare class (with these shares), or one shift alone."""
    told = tellable(attributes)
    draw = rng.random()
    style = {"style": told["style"]}
    if draw < whole:
        return generator_claims(attributes, rng)
    if draw < whole + bare_class:
        return ({} if rng.random() < 0.3 else style) | {"class": told["class"]}
    shifts = [a for a in ("colour", "background", "weather", "light", "companion") if a in told]
    # Rare attributes first in line: colour and background are there to tell in nearly every picture.
    weights = np.asarray([0.35 if a in ("colour", "background") else 1.0 for a in shifts])
    if attributes["style"] != "photo" and (rng.random() < 0.7 or not shifts):
        return style
    if not shifts:
        return style | {"class": told["class"]}
    chosen = shifts[int(rng.choice(len(shifts), p=weights / weights.sum()))]
    return style | {chosen: told[chosen]}


def is_true(claims: Mapping[str, str], attributes: Mapping[str, str]) -> bool:
    """Whether every claim holds for, and can be seen in, a picture with these attributes."""
    hidden = HIDDEN_BY_STYLE[attributes["style"]]
    return all(a not in hidden and attributes[a] == v for a, v in claims.items())
