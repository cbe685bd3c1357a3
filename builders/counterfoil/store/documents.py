"""JSON files of a dataset: one way to write them, so that equal content is equal bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from counterfoil.errors import RunFailure


def document_bytes(document: Any) -> bytes:
    """Sorted keys, two spaces, UTF-8, a final newline; refuses NaN, which is not JSON."""
    text = json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def read_document(path: Path) -> Any:
    """The content of a JSON file that Counterfoil wrote; RunFailure when it is damaged."""
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise RunFailure(
            f"{path} is damaged: {error}", hint="Restore it from a copy, or build into another folder."
        ) from error
