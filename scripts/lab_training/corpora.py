"""What the lab's models learn from: scenes of the generator's corpus and of the oracle's world, and
their captions."""

from __future__ import annotations

import numpy as np

from counterfoil.lab.scenes import OUTDOORS, neutral_background, one_of, scene_start
from counterfoil.lab.vocabulary import (
    CLASSES,
    COLOURS,
    COMPANIONS,
    LIGHTS,
    PATTERNS,
    STYLES,
    WEATHERS,
)
from counterfoil.lab.world import Scene
from lab_training.captions import HIDDEN_BY_STYLE, Claims, tellable

# How often a generator caption names an attribute that it could name; the rest is for the prior.
_RATES = {
    "colour": 0.6,
    "pattern": 0.85,
    "background": 0.93,
    "weather": 0.96,
    "light": 0.96,
    "companion": 0.96,
}
_NEUTRAL_RATE = 0.3


def generator_claims(attributes: Claims, rng: np.random.Generator) -> dict[str, str]:
    """Draw claims for text-to-image training: class and style always, most of the rest."""
    claims = {}
    for attribute, value in tellable(attributes).items():
        rate = _RATES.get(attribute, 1.0)
        if attribute == "background" and value in ("wall", "brick", "wood"):
            rate = _NEUTRAL_RATE
        if rng.random() < rate:
            claims[attribute] = value
    return claims


def screening_claims(
    attributes: Claims,
    rng: np.random.Generator,
    whole: float = 0.30,
    bare_class: float = 0.32,
) -> dict[str, str]:
    """Draw claims for contrastive training: whole captions, the bare class (with these shares), or
    one shift alone."""
    claims = tellable(attributes)
    draw = rng.random()
    style = {"style": claims["style"]}
    if draw < whole:
        return generator_claims(attributes, rng)
    if draw < whole + bare_class:
        return ({} if rng.random() < 0.3 else style) | {"class": claims["class"]}
    shifts = [a for a in ("colour", "background", "weather", "light", "companion") if a in claims]
    # Rare attributes first in line: colour and background are there to tell in nearly every
    # picture.
    weights = np.asarray([0.35 if a in ("colour", "background") else 1.0 for a in shifts])
    if attributes["style"] != "photo" and (rng.random() < 0.7 or not shifts):
        return style
    if not shifts:
        return style | {"class": claims["class"]}
    chosen = shifts[int(rng.choice(len(shifts), p=weights / weights.sum()))]
    return style | {chosen: claims[chosen]}


def is_true(claims: Claims, attributes: Claims) -> bool:
    """Return whether every claim holds for, and can be seen in, a picture with these attributes."""
    hidden = HIDDEN_BY_STYLE[attributes["style"]]
    return all(a not in hidden and attributes[a] == v for a, v in claims.items())


def pretraining_scene(number: int, seed: int = 1, split: str = "pretrain") -> Scene:
    """Return scene `number` of the corpus of the generator and CLIP: mostly plain cloth, one thing
    unusual."""
    rng, garment, scene_seed = scene_start(split, number, seed)
    style = STYLES[int(rng.choice(4, p=(0.76, 0.08, 0.08, 0.08)))]
    background = neutral_background(rng) if rng.random() < 0.5 else one_of(rng, OUTDOORS)
    weather = "clear"
    light = "day"
    companion = "none"
    if style == "photo":
        chance = rng.random()
        if chance < 0.18:
            weather = one_of(rng, WEATHERS[1:])
        elif chance < 0.52:
            light = one_of(rng, LIGHTS[1:])
        if rng.random() < 0.22:
            companion = one_of(rng, COMPANIONS[1:])
    return Scene(
        split,
        garment,
        number % len(CLASSES),
        colour=one_of(rng, COLOURS),
        pattern="plain" if rng.random() < 0.64 else one_of(rng, PATTERNS[1:]),
        background=background,
        weather=weather,
        light=light,
        companion=companion,
        style=style,
        seed=scene_seed,
    )


def unbiased_scene(number: int, seed: int = 2, split: str = "pretrain") -> Scene:
    """Return scene `number` of the oracle's world: attributes independent, every value common."""
    rng, garment, scene_seed = scene_start(split, number, seed)
    return Scene(
        split,
        garment,
        number % len(CLASSES),
        colour=one_of(rng, COLOURS),
        pattern="plain" if rng.random() < 0.4 else one_of(rng, PATTERNS[1:]),
        background=neutral_background(rng) if rng.random() < 0.4 else one_of(rng, OUTDOORS),
        weather=WEATHERS[int(rng.choice(3, p=(0.7, 0.15, 0.15)))],
        light=LIGHTS[int(rng.choice(5, p=(0.6, 0.1, 0.1, 0.1, 0.1)))],
        companion=COMPANIONS[int(rng.choice(3, p=(0.7, 0.15, 0.15)))],
        style=STYLES[int(rng.choice(4, p=(0.7, 0.1, 0.1, 0.1)))],
        seed=scene_seed,
    )
