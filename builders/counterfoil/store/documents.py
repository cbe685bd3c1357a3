"""JSON files of a dataset: one way to write them, so that equal content is equal bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from counterfoil.errors import RunFailure
from counterfoil.store.inside import read_inside


def document_bytes(document: Any) -> bytes:
    """Sorted keys, two spaces, UTF-8, a final newline; refuses NaN, which is not JSON."""
    text = json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def read_document(directory: Path, path: str) -> Any:
    """A JSON file of a dataset directory, as Counterfoil writes it; RunFailure when it is damaged or not its own."""
    hint = "Restore it from a copy, or build into another folder."
    try:
        return parse_document(read_inside(directory, path))
    except OSError as error:
        raise RunFailure(f"{directory / path} cannot be read: {error.strerror}", hint) from error
    except ValueError as error:
        raise RunFailure(f"{directory / path} is damaged: {error}", hint) from error


def parse_document(content: bytes) -> Any:
    """The value of a JSON file that may come from anybody. ValueError for what is none, or nested without bound."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
