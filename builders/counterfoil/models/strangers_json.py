"""JSON configurations of models from elsewhere: regular files of bounded size, and numbers that no model exceeds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.regular_files import read_regular

_MOST_BYTES = 1_000_000  # configurations have a few kB
# The largest whole number in configurations of published models is a vocabulary's, some 260,000.
MOST = 10_000_000
# The deepest published vision and text models have some 100 layers.
MOST_LAYERS = 256


def read_config(path: Path, model: str) -> dict[str, Any]:
    """A model's configuration. UserError, with the model's name, for what is none."""
    try:
        config = json.loads(read_regular(path, _MOST_BYTES))
    except OSError as error:
        raise UserError(f"model '{model}': {path.name} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UserError(f"model '{model}': {path.name} is not readable JSON: {reason[:200]}") from error
    if not isinstance(config, dict):
        raise UserError(f"model '{model}': {path.name} holds {type(config).__name__}, expected a mapping")
    return config


def number_problems(config: Any, place: str) -> Iterator[str]:
    """A line for each number that no model has: memory and time follow from them before any weight is read."""
    waiting: list[tuple[str, str, Any]] = [(place, "", config)]
    while waiting:
        where, key, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(f"{where}.{name}", str(name), inner) for name, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(where, key, inner) for inner in value]
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"{where} is {value}, expected a finite number"
        elif type(value) is int and abs(value) > (most := MOST_LAYERS if "layers" in key else MOST):
            yield (
                f"{where} is {value:.3g}, expected at most {most:,}"
                if abs(value) < 10**300
                else f"{where} is too large"
            )
