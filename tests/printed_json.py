"""Check what commands print with `--json` by the schemas in `recipes/`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from itertools import chain
from typing import Any

import jsonschema
from jsonschema.exceptions import best_match

from counterfoil.recipe.layering import bundled_folder

# What these commands print is a document with a schema of its own, and a few more keys.
DOCUMENTS = {"evaluate": "results", "demo": "results", "mine": "findings", "mend": "mend"}
_NAMES = {"demo": "evaluate"}


@cache
def _validator(name: str) -> Any:
    schema = json.loads((bundled_folder() / f"{name}.schema.json").read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(schema)


def commands_with_schema() -> set[str]:
    return set(_validator("output").schema["properties"])


def check_printed_json(words: Sequence[str], text: str) -> None:
    """Raise AssertionError if a command with `--json` printed what its schema does not allow."""
    commands = [word for word in words if word in commands_with_schema() | set(_NAMES)]
    if "--json" not in words or not commands or not text:
        return
    command = commands[0]
    document = json.loads(text)
    problems = [_validator("output").iter_errors({_NAMES.get(command, command): document})]
    if command in DOCUMENTS:
        further = _validator("output").schema["$defs"][_NAMES.get(command, command).capitalize()][
            "properties"
        ]
        stored = {key: value for key, value in document.items() if key not in further}
        problems.append(_validator(DOCUMENTS[command]).iter_errors(stored))
    problem = best_match(chain(*problems))
    if problem is not None:
        raise AssertionError(
            f"{command} --json does not fit its schema at {problem.json_path}:"
            f" {problem.message[:500]}"
        )
