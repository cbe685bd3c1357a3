"""Free-form values in a recipe: any words and numbers, kept within bounds, for their author may be anybody."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

DEEPEST = 8  # levels of mappings and lists, the outermost being the first
MOST_VALUES = 1000  # keys count too
MOST_CHARACTERS = 100_000  # of all keys and texts together
# Past 2^53 readers of JSON that know floats alone lose digits.
LARGEST = 2**53


def free_form_problem(value: Any) -> str | None:
    """What keeps a value from being plain JSON of bounded size, or None."""
    values = characters = 0
    # A list of what is left and no recursion: depth is one of the things that are asked.
    left: list[tuple[Any, int]] = [(value, 1)]
    while left:
        one, depth = left.pop()
        inside: list[Any] = []
        match one:
            case Mapping():
                if not all(isinstance(key, str) for key in one):
                    return "found a key that is no text, expected text"
                inside = [*one.keys(), *one.values()]
            case list() | tuple():
                inside = list(one)
            case str():
                characters += len(one)
            case None | bool():
                pass
            case int():
                if abs(one) > LARGEST:
                    return "found a whole number past 2^53, expected it in quotes"
            case float():
                if not math.isfinite(one):
                    return f"found {one}, expected finite numbers"
            case _:
                return f"found {type(one).__name__}, expected mappings, lists, text, numbers, true, false or null"
        if inside and depth > DEEPEST:
            return f"nested too deeply, expected at most {DEEPEST} levels"
        values += len(inside)
        if values > MOST_VALUES:
            return f"found more than {MOST_VALUES:,} keys and values, expected at most these"
        if characters > MOST_CHARACTERS:
            return f"found more than {MOST_CHARACTERS:,} characters, expected at most these"
        left += [(each, depth + 1) for each in inside]
    return None
