"""The stored rows that readers should find, and processes in which such readers run."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import warm
from counterfoil.store.layout import What
from counterfoil.store.reading import read_rows

FORMATS = ("parquet", "webdataset")
LOCATIONS = ("directory", "hub")
GROUPS = ("base", "in_the_snow", "pencil_sketch")  # of "red" nothing is accepted
# Not "parquet" and "webdataset" themselves: `load_dataset` has loaders of these names, which come
# first.
NAMES = {"parquet": "garments-parquet", "webdataset": "garments-webdataset"}
REPOS = {format: f"someone/{name}" for format, name in NAMES.items()}
TAG = "v1"

# Each piece of code has names of its own and leaves an `answer`.
_RUNNER = """
import json, sys
def answer_of(code):
    names = {}
    exec(code, names)
    return names["answer"]
answers = [answer_of(code) for code in json.load(sys.stdin)]
print("\\n" + json.dumps(answers))
"""


def answers(codes: Sequence[str], environment: Mapping[str, str], folder: Path) -> list[Any]:
    """Return the answers of pieces of Python that run in one process, because their imports take
    seconds."""
    done = warm.run(
        [sys.executable, "-c", _RUNNER], environment, cwd=folder, input=json.dumps(codes)
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def source(location: str, format: str) -> str:
    """Return the name of a dataset for `load_dataset` and others: a folder where they run, or a
    repository."""
    return (NAMES if location == "directory" else REPOS)[format]


def stored(directory: Path, what: What = "data", group: str | None = None) -> list[dict[str, Any]]:
    """Return the stored rows in order, as JSON carries them; images by the hashes of bytes and
    pixels."""
    groups = None if group is None else [group]
    return [_shown(row) for row in read_rows(directory, groups=groups, what=what)]


def labels(directory: Path, group: str) -> list[list[Any]]:
    """Return key, label and hash of the pixels of each accepted image of a group, by key."""
    return sorted(
        [row["key"], row["label"], row["pixels"]] for row in stored(directory, group=group)
    )


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    row = dict(row)
    image = row.pop("image", None)
    for name, value in row.items():
        if isinstance(value, (float, list)):
            row[name] = np.asarray(value, np.float32).tolist()
    if image is not None:
        row["image"] = hashlib.sha256(image["bytes"]).hexdigest()
        pixels = np.asarray(Image.open(io.BytesIO(image["bytes"])).convert("RGB"))
        row["pixels"] = hashlib.sha256(pixels.tobytes()).hexdigest()
    return row
