"""Read a model's configuration, which a stranger may have written: its size, its depth, and what its values may be.

Any JSON value may stand in any place. The tests of values here take none for another: true is no number, 2**40 no
count, and nothing is converted.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.regular_files import read_regular

# The names of 21,841 classes take 0.3 MB; nothing else in a configuration is long.
MOST_CONFIG_BYTES = 1_000_000
# No width or count of any model that timm, open_clip or diffusers knows is larger; one vocabulary has 901,629 words.
LARGEST_NUMBER = 1_000_000
# The deepest published vision and text models have some 100 layers; each more takes time before any weight is read.
MOST_LAYERS = 256
LONGEST_TEXT = 200
LONGEST_LIST = 64

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = 60
_brief.maxlist = _brief.maxdict = 6
_brief.maxlevel = 3


def shown(value: Any) -> str:
    """A value in a message, as it stands in JSON, shortened, whatever its depth."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _brief.repr(value)


def read_config(file: Path, model: str, most_bytes: int = MOST_CONFIG_BYTES) -> dict[str, Any]:
    """The mapping of a JSON file of the model called `model`. UserError where it is none."""
    try:
        document = json.loads(read_regular(file, most_bytes).decode("utf-8"))
    except OSError as error:
        raise UserError(f"model {model!r}: {file} {_reason(error)}") from error
    except RecursionError as error:
        raise UserError(f"model {model!r}: {file} is not readable JSON: it is nested too deeply") from error
    except ValueError as error:
        raise UserError(f"model {model!r}: {file} is not readable JSON: {error}") from error
    if not isinstance(document, dict):
        raise UserError(f"model {model!r}: {file} should hold a JSON mapping, not {shown(document)}")
    return document


def _reason(error: OSError) -> str:
    """What follows a path: "is a pipe, expected a regular file", or "cannot be read: Permission denied"."""
    words = error.strerror or str(error)
    return words if words.startswith(("is ", "has ")) else f"cannot be read: {words}"


def is_integer(value: Any, least: int, most: int) -> bool:
    """Whether a value is a whole number from `least` to `most`; true and 1.0 are none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: Any, least: float, most: float) -> bool:
    """Whether a value is a finite number from `least` to `most`; true is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def is_text(value: Any, longest: int = LONGEST_TEXT) -> bool:
    """Whether a value is text of one line that any terminal and file can hold."""
    return isinstance(value, str) and 0 < len(value) <= longest and value.isprintable()


def plain_problem(value: Any, most: int = LARGEST_NUMBER, depth: int = 2) -> str | None:
    """What a plain value should have been, where this is none: a number, a text, true, false, null or a short list.

    `most` is the largest whole number: a model of more layers or channels is never built.
    """
    if value is None or isinstance(value, bool) or value == "" or is_text(value):
        return None
    if isinstance(value, int):
        return None if abs(value) <= most else f"a whole number from -{most:,} to {most:,}"
    if isinstance(value, float):
        fits = is_number(value, -LARGEST_NUMBER, LARGEST_NUMBER)
        return None if fits else f"a number from -{LARGEST_NUMBER:,} to {LARGEST_NUMBER:,}"
    if isinstance(value, str):
        return f"text of at most {LONGEST_TEXT} printable characters"
    if isinstance(value, list) and depth:
        if len(value) > LONGEST_LIST:
            return f"a list of at most {LONGEST_LIST} values"
        return next((wrong for one in value if (wrong := plain_problem(one, most, depth - 1))), None)
    return "a number, a text, true, false, or a short list of these"


def plain_problems(values: Mapping[str, Any], place: str, most: int = LARGEST_NUMBER) -> list[str]:
    """A line for each value of a mapping that is not plain, `place` before its key."""
    wrong = {key: plain_problem(value, most) for key, value in values.items()}
    return [f"{place}.{shown_key(key)}: found {shown(values[key])}, expected {w}" for key, w in wrong.items() if w]


def shown_key(key: str) -> str:
    """A key of a mapping in a message."""
    return key if is_text(key, 60) else shown(key)


def number_problems(config: Any, place: str) -> Iterator[str]:
    """A line for each number anywhere in a configuration that no model has, of whatever kind the model is."""
    waiting: list[tuple[str, str, Any]] = [(place, "", config)]
    while waiting:
        where, key, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(f"{where}.{shown_key(name)}", name, inner) for name, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(where, key, inner) for inner in value]
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"{where} is {value}, expected a finite number"
        elif type(value) is int and abs(value) > (most := MOST_LAYERS if "layers" in key else LARGEST_NUMBER):
            yield f"{where} is {shown(value)}, expected at most {most:,}"
