"""The base and six shifts that a first recipe has: of Vendrow 2023, Table 1, one or two a kind.

Which article a class takes is not known ("a mug", "an apple", "scissors"), so prompts say "the", which all take; where
an adjective stands before the class its own article fits. Captions of shifts follow the paper's rule (section 3.1).
"""

from __future__ import annotations

from typing import Any

BASE = {"prompt": "a photo of the {class}"}
OBJECT_CAPTION = "a photo of the {class}"
STYLE_OBJECT_CAPTION = "the {class}"

SHIFTS: dict[str, dict[str, Any]] = {
    "in_the_grass": {
        "kind": "background",
        "prompt": "a photo of the {class} in the grass",
        "caption": "a photo in the grass",
    },
    "in_the_snow": {
        "kind": "background",
        "prompt": "a photo of the {class} in the snow",
        "caption": "a photo in the snow",
    },
    "in_the_fog": {
        "kind": "weather",
        "prompt": "a photo of the {class} in the fog",
        "caption": "a photo in the fog",
    },
    "at_night": {
        "kind": "light",
        "prompt": "a photo of the {class} at night",
        "caption": "a photo at night",
    },
    "red": {
        "kind": "colour",
        "prompt": "a photo of a red {class}",
        "caption": "a photo of something red",
    },
    "pencil_sketch": {
        "kind": "style",
        "style": True,
        "prompt": "a black and white pencil sketch of the {class}",
        "caption": "a pencil sketch",
    },
}
