"""A process that loads datasets for `reader.Reader`: imports once, then a fork for each load, which
knows nothing.

It reads requests as JSON from its stdin, one a line, and writes what came of each to its stdout.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO


def loaded(
    name: str, options: dict[str, Any], columns: list[str] | None
) -> dict[str, list[dict[str, Any]]]:
    """Return split → rows with the requested columns; images are not decoded."""
    from datasets import Image, load_dataset

    splits: dict[str, list[dict[str, Any]]] = {}
    for split, rows in load_dataset(name, **options).items():
        selected = rows if columns is None else rows.select_columns(columns)
        for column, feature in (selected.features or {}).items():
            if isinstance(feature, Image):
                selected = selected.cast_column(column, Image(decode=False))
        splits[str(split)] = list(selected)
    return splits


def answer(request: dict[str, Any], output: TextIO) -> None:
    try:
        result = {"rows": loaded(request["name"], request["options"], request["columns"])}
        text = json.dumps(result, default=bytes.hex)
    except Exception as error:
        text = json.dumps({"error": f"{type(error).__name__}: {error}"})
    output.write(text + "\n")
    output.flush()


def serve() -> None:
    import datasets
    import scipy.io  # noqa: F401  (what a load imports on its way, here once for all)

    datasets.disable_progress_bars()
    # Whatever libraries print stays off the stream of answers.
    output = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if child == 0:
            answer(json.loads(line), output)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            output.write(
                json.dumps({"error": f"the loading process ended with status {status}"}) + "\n"
            )
            output.flush()


if __name__ == "__main__":
    serve()
