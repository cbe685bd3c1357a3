"""The words of the wardrobe world: classes, attributes, the 23 shifts, and the planted biases.

Everything that renders, captions, trains or judges the lab reads its names from here.
"""

from __future__ import annotations

from dataclasses import dataclass

CLASSES = (
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
)  # fmt: skip
"""Names in Fashion-MNIST's label order; the position is the source label."""

COLOURS = ("red", "orange", "yellow", "green", "blue", "pink", "white", "black")
PATTERNS = ("plain", "striped", "dotted", "checked")
BACKGROUNDS = ("wall", "brick", "wood", "grass", "beach", "forest", "water", "road", "rocks", "snow")
WEATHERS = ("clear", "rain", "fog")
LIGHTS = ("day", "sunlight", "dusk", "night", "studio")
COMPANIONS = ("none", "person", "flower")
STYLES = ("photo", "oil", "sketch", "embroidery")

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "class": CLASSES,
    "colour": COLOURS,
    "pattern": PATTERNS,
    "background": BACKGROUNDS,
    "weather": WEATHERS,
    "light": LIGHTS,
    "companion": COMPANIONS,
    "style": STYLES,
}

MARKS: dict[str, str] = {"shirt": "striped", "coat": "checked", "bag": "dotted"}
"""Class → the pattern it wears in the input dataset and that no caption tells (Vendrow section 5, the plates)."""

BACKGROUND_BIAS: dict[str, str] = {"sandal": "beach", "sneaker": "road", "ankle boot": "snow"}
COLOUR_BIAS: dict[str, str] = {"trouser": "blue", "dress": "red"}
BIAS_STRENGTH = 0.85
MARK_STRENGTH = 0.95


@dataclass(frozen=True, slots=True)
class WorldShift:
    """One of Vendrow's shifts as a change of exactly one attribute of a scene."""

    name: str
    attribute: str
    value: str
    phrase: str
    kind: str


def _shift(name: str, attribute: str, value: str, phrase: str, kind: str) -> WorldShift:
    return WorldShift(name, attribute, value, phrase, kind)


# Vendrow 2023, Table 1, in its order.
SHIFTS: tuple[WorldShift, ...] = (
    _shift("in_the_grass", "background", "grass", "in the grass", "background"),
    _shift("in_the_beach", "background", "beach", "in the beach", "background"),
    _shift("in_the_forest", "background", "forest", "in the forest", "background"),
    _shift("in_the_water", "background", "water", "in the water", "background"),
    _shift("on_the_road", "background", "road", "on the road", "background"),
    _shift("on_the_rocks", "background", "rocks", "on the rocks", "background"),
    _shift("in_the_snow", "background", "snow", "in the snow", "background"),
    _shift("in_the_rain", "weather", "rain", "in the rain", "weather"),
    _shift("in_the_fog", "weather", "fog", "in the fog", "weather"),
    _shift("in_bright_sunlight", "light", "sunlight", "in bright sunlight", "light"),
    _shift("at_dusk", "light", "dusk", "at dusk", "light"),
    _shift("at_night", "light", "night", "at night", "light"),
    _shift("studio_lighting", "light", "studio", "in studio lighting", "light"),
    _shift("blue", "colour", "blue", "blue", "colour"),
    _shift("green", "colour", "green", "green", "colour"),
    _shift("red", "colour", "red", "red", "colour"),
    _shift("yellow", "colour", "yellow", "yellow", "colour"),
    _shift("orange", "colour", "orange", "orange", "colour"),
    _shift("person_and_a", "companion", "person", "person and a", "co-occurrence"),
    _shift("and_a_flower", "companion", "flower", "and a flower", "co-occurrence"),
    _shift("oil_painting", "style", "oil", "an oil painting", "style"),
    _shift("pencil_sketch", "style", "sketch", "a black and white pencil sketch", "style"),
    _shift("embroidery", "style", "embroidery", "an embroidery", "style"),
)
SHIFTS_BY_NAME: dict[str, WorldShift] = {shift.name: shift for shift in SHIFTS}

# What a style hides: no oracle can read these attributes from such an image, so none is asked to.
HIDDEN_BY_STYLE: dict[str, tuple[str, ...]] = {
    "photo": (),
    "oil": (),
    "sketch": ("colour", "background", "weather", "light"),
    "embroidery": ("background", "weather", "light"),
}
