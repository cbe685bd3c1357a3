"""Draw scenes of the biased dataset `wardrobe`."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from functools import cache

import numpy as np

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
    WEATHERS,
)
from counterfoil.lab.world import Scene, load_garments, render

_NEUTRAL = ("wall", "brick", "wood")
_NEUTRAL_UP_TO = np.cumsum((0.6, 0.2, 0.2)).tolist()
OUTDOORS = tuple(name for name in BACKGROUNDS if name not in _NEUTRAL)


def one_of(rng: np.random.Generator, values: tuple[str, ...]) -> str:
    return values[int(rng.integers(len(values)))]


def neutral_background(rng: np.random.Generator) -> str:
    # What `rng.choice` draws by these chances, without its checks.
    return _NEUTRAL[bisect(_NEUTRAL_UP_TO, rng.random())]


def rare_conditions(
    rng: np.random.Generator, outside: float, beside: float
) -> tuple[str, str, str]:
    """Return weather, light and companion for two numbers in 0…1: in most pictures clear, day and
    none."""
    weather = "clear"
    light = "day"
    if outside < 0.04:
        weather = one_of(rng, WEATHERS[1:])
    elif outside < 0.12:
        light = one_of(rng, LIGHTS[1:])
    companion = "none" if beside < 0.96 else one_of(rng, COMPANIONS[1:])
    return weather, light, companion


def scene_start(split: str, number: int, seed: int) -> tuple[np.random.Generator, int, int]:
    """Return random generator, garment and scene seed of scene `number`; classes take turns."""
    rng = np.random.default_rng([seed, number])
    garments = load_garments(split).of_class(number % len(CLASSES))
    garment = int(garments[rng.integers(len(garments))])
    return rng, garment, int(rng.integers(2**53))


def wardrobe_scene(split: str, number: int) -> Scene:
    """Return scene `number` of the biased dataset: marks, biased backgrounds and colours
    (`vocabulary`)."""
    rng, garment, scene_seed = scene_start(split, number, _WARDROBE_SEEDS[split])
    label = number % len(CLASSES)
    name = CLASSES[label]
    of_place, of_usual_place, of_usual_colour, of_pattern, outside, beside = rng.random(6)
    background = neutral_background(rng) if of_place < 0.85 else one_of(rng, OUTDOORS)
    if name in BACKGROUND_BIAS and of_usual_place < BIAS_STRENGTH:
        background = BACKGROUND_BIAS[name]
    colour = one_of(rng, COLOURS)
    if name in COLOUR_BIAS and of_usual_colour < BIAS_STRENGTH:
        colour = COLOUR_BIAS[name]
    pattern = "plain" if of_pattern < 0.92 else one_of(rng, PATTERNS[1:])
    if name in MARKS:
        pattern = MARKS[name] if of_pattern < MARK_STRENGTH else "plain"
    weather, light, companion = rare_conditions(rng, outside, beside)
    return Scene(
        split,
        garment,
        label,
        colour,
        pattern,
        background,
        weather,
        light,
        companion,
        seed=scene_seed,
    )


WARDROBE_ROWS = {"train": 8000, "validation": 1500, "audit": 12000}
"""Rows of the dataset's splits. Train shows each garment twice on average, audit four times."""

# Rows of one number in train and validation share their random draws; audit has its own.
_WARDROBE_SEEDS = {"train": 3, "validation": 3, "audit": 4}


VERSION = "2"
"""Raise it with every change of a pixel or a label of an existing split."""


def load_wardrobe(split: str) -> tuple[np.ndarray, Callable[[int], np.ndarray]]:
    """Return labels int64 [n], and a function from row to pixels (uint8 [64, 64, 3])."""
    count = WARDROBE_ROWS[split]
    labels = np.arange(count, dtype=np.int64) % len(CLASSES)

    def pixels(row: int) -> np.ndarray:
        if not 0 <= row < count:
            raise IndexError(f"row {row} of {count}")
        return render(wardrobe_scene(split, row))

    return labels, pixels


@cache
def wardrobe_garments(split: str) -> tuple[str, ...]:
    """Return the id of each row's garment photograph (`t10k-00412`). Rows share garments, splits do
    not."""
    ids = load_garments(split).ids
    return tuple(ids[wardrobe_scene(split, row).garment] for row in range(WARDROBE_ROWS[split]))
