"""Which scenes there are: the pretraining corpus, the judge's unbiased world, and the biased input dataset."""

from __future__ import annotations

import numpy as np

from counterfoil.lab.garments import load_garments
from counterfoil.lab.vocabulary import (
    BACKGROUND_BIAS,
    BACKGROUNDS,
    BIAS_STRENGTH,
    CLASSES,
    COLOUR_BIAS,
    COLOURS,
    COMPANIONS,
    LIGHTS,
    MARK_STRENGTH,
    MARKS,
    PATTERNS,
    STYLES,
    WEATHERS,
)
from counterfoil.lab.world import Scene

_NEUTRAL = ("wall", "brick", "wood")
_OUTDOORS = tuple(b for b in BACKGROUNDS if b not in _NEUTRAL)


def _one_of(rng: np.random.Generator, values: tuple[str, ...]) -> str:
    return values[int(rng.integers(len(values)))]


def _neutral(rng: np.random.Generator) -> str:
    return _NEUTRAL[int(rng.choice(3, p=(0.6, 0.2, 0.2)))]


def _with_rng(split: str, number: int, seed: int) -> tuple[np.random.Generator, int, int]:
    """Generator, garment and scene seed of scene `number`; every class comes up equally often."""
    rng = np.random.default_rng([seed, number])
    garments = load_garments(split).of_class(number % len(CLASSES))
    return rng, int(garments[rng.integers(len(garments))]), int(rng.integers(2**53))


def pretraining_scene(number: int, seed: int = 1, split: str = "pretrain") -> Scene:
    """Scene `number` of the corpus that the generator and CLIP learn from: mostly plain cloth, one thing unusual."""
    rng, garment, scene_seed = _with_rng(split, number, seed)
    style = STYLES[int(rng.choice(4, p=(0.76, 0.08, 0.08, 0.08)))]
    background = _neutral(rng) if rng.random() < 0.5 else _one_of(rng, _OUTDOORS)
    weather, light, companion = "clear", "day", "none"
    if style == "photo":
        chance = rng.random()
        if chance < 0.18:
            weather = _one_of(rng, WEATHERS[1:])
        elif chance < 0.52:
            light = _one_of(rng, LIGHTS[1:])
        if rng.random() < 0.22:
            companion = _one_of(rng, COMPANIONS[1:])
    return Scene(
        split,
        garment,
        number % len(CLASSES),
        colour=_one_of(rng, COLOURS),
        pattern="plain" if rng.random() < 0.64 else _one_of(rng, PATTERNS[1:]),
        background=background,
        weather=weather,
        light=light,
        companion=companion,
        style=style,
        seed=scene_seed,
    )


def unbiased_scene(number: int, seed: int = 2, split: str = "pretrain") -> Scene:
    """Scene `number` of the judge's world: attributes independent, every value common."""
    rng, garment, scene_seed = _with_rng(split, number, seed)
    return Scene(
        split,
        garment,
        number % len(CLASSES),
        colour=_one_of(rng, COLOURS),
        pattern="plain" if rng.random() < 0.4 else _one_of(rng, PATTERNS[1:]),
        background=_neutral(rng) if rng.random() < 0.4 else _one_of(rng, _OUTDOORS),
        weather=WEATHERS[int(rng.choice(3, p=(0.7, 0.15, 0.15)))],
        light=LIGHTS[int(rng.choice(5, p=(0.6, 0.1, 0.1, 0.1, 0.1)))],
        companion=COMPANIONS[int(rng.choice(3, p=(0.7, 0.15, 0.15)))],
        style=STYLES[int(rng.choice(4, p=(0.7, 0.1, 0.1, 0.1)))],
        seed=scene_seed,
    )


def wardrobe_scene(split: str, number: int) -> Scene:
    """Scene `number` of the biased input dataset: marks, biased backgrounds and colours (`vocabulary`)."""
    rng, garment, scene_seed = _with_rng(split, number, _WARDROBE_SEEDS[split])
    name = CLASSES[number % len(CLASSES)]
    draw = rng.random(6)
    background = _neutral(rng) if draw[0] < 0.85 else _one_of(rng, _OUTDOORS)
    if name in BACKGROUND_BIAS and draw[1] < BIAS_STRENGTH:
        background = BACKGROUND_BIAS[name]
    colour = _one_of(rng, COLOURS)
    if name in COLOUR_BIAS and draw[2] < BIAS_STRENGTH:
        colour = COLOUR_BIAS[name]
    pattern = "plain" if draw[3] < 0.92 else _one_of(rng, PATTERNS[1:])
    if name in MARKS:
        pattern = MARKS[name] if draw[3] < MARK_STRENGTH else "plain"
    weather, light = "clear", "day"
    if draw[4] < 0.04:
        weather = _one_of(rng, WEATHERS[1:])
    elif draw[4] < 0.12:
        light = _one_of(rng, LIGHTS[1:])
    companion = "none" if draw[5] < 0.96 else _one_of(rng, COMPANIONS[1:])
    return Scene(
        split, garment, number % len(CLASSES), colour, pattern, background, weather, light, companion,
        seed=scene_seed,
    )  # fmt: skip


WARDROBE_ROWS = {"train": 8000, "validation": 1500, "audit": 12000}
"""Rows of the input dataset's splits. Train dresses each garment twice on average, audit four times."""

# Rows of one number in train and validation share their places and lights; audit has its own.
_WARDROBE_SEEDS = {"train": 3, "validation": 3, "audit": 4}
