"""Check the options of a pipeline call that a recipe names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from counterfoil.recipe.names import quoted

# Options may come from a stranger's recipe.
MOST_OPTIONS = 32  # no pipeline of diffusers takes as many
LONGEST_OPTION_NAME = 60
LONGEST_TEXT = 1000
LONGEST_LIST = 32
# Whole numbers are lengths, sides, layers and steps, which a pipeline makes tensors of; BRIA takes the most, 3,000.
MOST_WHOLE = 4096
# Pixels of the largest image, and what is computed at once.
MOST_BY_NAME = {"max_area": MOST_WHOLE**2, "view_batch_size": 64, "parallel": 128}
# Two underscores begin Python's hidden attributes.
OPTION_NAME = r"(?!.*__)[A-Za-z][A-Za-z0-9_]*"

_PLAIN_OPTION = {"type": ["string", "number", "boolean", "null"], "maxLength": LONGEST_TEXT}
# The checks of `checked_options`, for editors.
OPTIONS_SCHEMA: dict[str, Any] = {
    "maxProperties": MOST_OPTIONS,
    "propertyNames": {"pattern": f"^{OPTION_NAME}$", "maxLength": LONGEST_OPTION_NAME},
    "additionalProperties": {
        "anyOf": [_PLAIN_OPTION, {"type": "array", "maxItems": LONGEST_LIST, "items": dict(_PLAIN_OPTION)}]
    },
}


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with every list as a tuple. Raise ValueError with every problem of their form.

    Which names a pipeline takes is in its signature (`models/pipeline_settings.py`).
    """
    if len(options) > MOST_OPTIONS:
        raise ValueError(f"found {len(options):,} options, expected at most {MOST_OPTIONS}")
    problems = []
    for name, value in options.items():
        if len(name) > LONGEST_OPTION_NAME or not re.fullmatch(OPTION_NAME, name):
            expected = f"letters, digits and single '_', at most {LONGEST_OPTION_NAME}"
            problems.append(f"found the name {quoted(name)}, expected {expected}")
            continue
        values = value if isinstance(value, list | tuple) else [value]
        if len(values) > LONGEST_LIST:
            problems.append(f"{name}: found a list of {len(values):,}, expected at most {LONGEST_LIST}")
        wrong = dict.fromkeys(_option_problem(name, item) for item in values)
        problems += [f"{name}: {problem}" for problem in wrong if problem is not None]
    if problems:
        raise ValueError("; ".join(problems))
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}


def _option_problem(name: str, value: Any) -> str | None:
    match value:
        case None | bool():
            return None
        case int():
            most = MOST_BY_NAME.get(name, MOST_WHOLE)
            found = f"{value:,}" if abs(value) < 2**64 else "a whole number of many digits"
            return None if abs(value) <= most else f"found {found}, expected whole numbers from -{most:,} to {most:,}"
        case float():
            return None if math.isfinite(value) else f"found {value}, expected finite numbers"
        case str():
            too_long = len(value) > LONGEST_TEXT
            return f"found {len(value):,} characters, expected at most {LONGEST_TEXT:,}" if too_long else None
    expected = "expected a number, text, true, false, null or a list of these"
    match value:
        case Mapping():
            return f"found a mapping, {expected}"
        case list() | tuple():
            return f"found a list in a list, {expected}"
    return f"found {type(value).__name__}, {expected}"
