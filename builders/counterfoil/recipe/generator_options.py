"""What a recipe may say under `generator.options`: plain values by name, bounded, for their author may be anybody."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from counterfoil.recipe.names import quoted

MOST_OPTIONS = 32  # no pipeline of diffusers takes as many
LONGEST_NAME = 60
LONGEST_TEXT = 1000
LONGEST_LIST = 32
# Whole numbers are lengths, sides, layers and steps, which a pipeline makes tensors of: BRIA's 3,000 tokens are most.
MOST_WHOLE = 4096
# Pixels of a side of so many, and what is computed at once.
MOST_BY_NAME = {"max_area": MOST_WHOLE**2, "view_batch_size": 64, "parallel": 128}
# Two underscores are what Python hides attributes behind.
NAME = r"(?!.*__)[A-Za-z][A-Za-z0-9_]*"

_plain = {"type": ["string", "number", "boolean", "null"], "maxLength": LONGEST_TEXT}
# What the validation below says, for editors.
OPTIONS_SCHEMA: dict[str, Any] = {
    "maxProperties": MOST_OPTIONS,
    "propertyNames": {"pattern": f"^{NAME}$", "maxLength": LONGEST_NAME},
    "additionalProperties": {"anyOf": [_plain, {"type": "array", "maxItems": LONGEST_LIST, "items": dict(_plain)}]},
}


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with every list as a tuple. ValueError with all that is wrong with them.

    Only the form: which names a pipeline takes is in its signature (`models/pipeline_options.py`).
    """
    if len(options) > MOST_OPTIONS:
        raise ValueError(f"found {len(options):,} options, expected at most {MOST_OPTIONS}")
    if problems := list(_problems(options)):
        raise ValueError("; ".join(problems))
    return {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}


def _problems(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        if len(name) > LONGEST_NAME or not re.fullmatch(NAME, name):
            yield (f"found the name {quoted(name)}, expected letters, digits and single '_', at most {LONGEST_NAME}")
        elif isinstance(value, list | tuple):
            if len(value) > LONGEST_LIST:
                yield f"{name}: found a list of {len(value):,}, expected at most {LONGEST_LIST}"
            problems = dict.fromkeys(_value_problem(name, each) for each in value)
            yield from (f"{name}: {why}" for why in problems if why is not None)
        elif (why := _value_problem(name, value)) is not None:
            yield f"{name}: {why}"


def _value_problem(name: str, value: Any) -> str | None:
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
        case _:
            kind = (
                "a mapping"
                if isinstance(value, Mapping)
                else "a list in a list"
                if isinstance(value, list | tuple)
                else type(value).__name__
            )
            return f"found {kind}, expected a number, text, true, false, null or a list of these"
