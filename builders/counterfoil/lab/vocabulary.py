"""The words of the wardrobe world: classes, attributes, the 23 shifts, and the planted biases."""

from __future__ import annotations

from dataclasses import dataclass

CLASSES = (
    "t-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
"""Names in Fashion-MNIST's label order; the position is the source label."""

COLOURS = ("red", "orange", "yellow", "green", "blue", "pink", "white", "black")
PATTERNS = ("plain", "striped", "dotted", "checked")
BACKGROUNDS = (
    "wall",
    "brick",
    "wood",
    "grass",
    "beach",
    "forest",
    "water",
    "road",
    "rocks",
    "snow",
)
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
"""Class → its pattern in the input dataset, which no caption names (as the plates of Vendrow 2023,
section 5)."""

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

    @property
    def kind(self) -> str:
        return "co-occurrence" if self.attribute == "companion" else self.attribute


# Vendrow 2023, Table 1, in its order.
SHIFTS: tuple[WorldShift, ...] = (
    WorldShift("in_the_grass", "background", "grass", "in the grass"),
    WorldShift("in_the_beach", "background", "beach", "in the beach"),
    WorldShift("in_the_forest", "background", "forest", "in the forest"),
    WorldShift("in_the_water", "background", "water", "in the water"),
    WorldShift("on_the_road", "background", "road", "on the road"),
    WorldShift("on_the_rocks", "background", "rocks", "on the rocks"),
    WorldShift("in_the_snow", "background", "snow", "in the snow"),
    WorldShift("in_the_rain", "weather", "rain", "in the rain"),
    WorldShift("in_the_fog", "weather", "fog", "in the fog"),
    WorldShift("in_bright_sunlight", "light", "sunlight", "in bright sunlight"),
    WorldShift("at_dusk", "light", "dusk", "at dusk"),
    WorldShift("at_night", "light", "night", "at night"),
    WorldShift("studio_lighting", "light", "studio", "in studio lighting"),
    WorldShift("blue", "colour", "blue", "blue"),
    WorldShift("green", "colour", "green", "green"),
    WorldShift("red", "colour", "red", "red"),
    WorldShift("yellow", "colour", "yellow", "yellow"),
    WorldShift("orange", "colour", "orange", "orange"),
    WorldShift("person_and_a", "companion", "person", "person and a"),
    WorldShift("and_a_flower", "companion", "flower", "and a flower"),
    WorldShift("oil_painting", "style", "oil", "an oil painting"),
    WorldShift("pencil_sketch", "style", "sketch", "a black and white pencil sketch"),
    WorldShift("embroidery", "style", "embroidery", "an embroidery"),
)
SHIFTS_BY_NAME: dict[str, WorldShift] = {shift.name: shift for shift in SHIFTS}
