"""The base of kinds whose images a diffusion model draws."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from counterfoil.errors import quoted
from counterfoil.recipe.kinds.kind import GENERATOR, GeneratorKind, KindInputs, SideInPixels
from counterfoil.recipe.names import nameless_problem, without_folders
from counterfoil.recipe.section import NonEmpty, field_check

if TYPE_CHECKING:
    from counterfoil.recipe.schema import Recipe

# Options may come from a stranger's recipe.
MOST_OPTIONS = 32  # no pipeline of diffusers takes as many
LONGEST_OPTION_NAME = 60
LONGEST_TEXT = 1000
LONGEST_LIST = 32
# Whole numbers are lengths, sides, layers and steps, which a pipeline makes tensors of; BRIA takes
# the most, 3,000.
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
        "anyOf": [
            _PLAIN_OPTION,
            {"type": "array", "maxItems": LONGEST_LIST, "items": dict(_PLAIN_OPTION)},
        ]
    },
}


def checked_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with every list as a tuple. Raise ValueError with every problem of their
    form.

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
            problems.append(
                f"{name}: found a list of {len(values):,}, expected at most {LONGEST_LIST}"
            )
        wrong = dict.fromkeys(_option_problem(name, item) for item in values)
        problems += [f"{name}: {problem}" for problem in wrong if problem is not None]
    if problems:
        raise ValueError("; ".join(problems))
    plain: dict[str, Any] = {}
    for name, value in options.items():
        plain[name] = tuple(value) if isinstance(value, list) else value
    return plain


def _option_problem(name: str, value: Any) -> str | None:
    shown = type(value).__name__
    match value:
        case None | bool():
            return None
        case int():
            most = MOST_BY_NAME.get(name, MOST_WHOLE)
            if abs(value) <= most:
                return None
            shown = f"{value:,}" if abs(value) < 2**64 else "a whole number of many digits"
            return f"found {shown}, expected whole numbers from -{most:,} to {most:,}"
        case float():
            return None if math.isfinite(value) else f"found {value}, expected finite numbers"
        case str():
            if len(value) <= LONGEST_TEXT:
                return None
            return f"found {len(value):,} characters, expected at most {LONGEST_TEXT:,}"
        case Mapping():
            shown = "a mapping"
        case list() | tuple():
            shown = "a list in a list"
    return f"found {shown}, expected a number, text, true, false, null or a list of these"


def _scheduler_problem(name: str) -> str | None:
    short = name.removesuffix("Scheduler")
    return None if short == name else f"found {quoted(name)}, expected it short: {quoted(short)}"


class DrawingKind(GeneratorKind):
    """A kind whose images a diffusion model draws."""

    draws = True
    models = (GENERATOR,)

    model: NonEmpty
    """`lab:sd`, a Hub id, or a folder of a diffusers pipeline."""
    scheduler: str | None = None
    """diffusers scheduler without the word Scheduler (`DDIM`); null keeps the model's."""
    steps: int = Field(default=50, ge=1, le=1000)
    """Denoising steps."""
    guidance: float = Field(default=7.5, ge=0)
    """Classifier-free guidance scale; 1 or less turns it off."""
    size: SideInPixels | None = None
    """Rendered side in pixels; null: the model's."""
    negative_prompt: str | None = None
    """Text to steer away from."""
    options: dict[str, Any] = Field(default_factory=dict, json_schema_extra=OPTIONS_SCHEMA)
    """Further arguments of the pipeline call, by its own names (`max_sequence_length: 256`):
    numbers, text, true, false, null and lists of these."""
    offload: Literal["none", "model", "sequential"] = "none"
    """Where unused weights stay: on the GPU (`none`), or in main memory, moved part by part
    (`model`) or layer by layer (`sequential`, slow). It changes no image."""
    quantize: Literal["bnb-8bit", "bnb-4bit", "torchao-int8"] | None = None
    """Quantise the weights to fewer bits. The first part of the value names the library, which is
    an optional extra."""

    _model_has_a_name = field_check("model", by=nameless_problem)
    _short_name = field_check("scheduler", by=_scheduler_problem)
    _plain_values = field_validator("options")(checked_options)

    def named_models(self) -> dict[str, str]:
        return {"generator.model": self.model}

    def inputs(self, recipe: Recipe, pinned: Mapping[str, Any]) -> KindInputs:
        models = pinned.get("models") or {}
        return [("generator", without_folders(self.model), models.get(GENERATOR) or {})]
