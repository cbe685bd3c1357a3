"""The command `calibrate` as tests run it, and the rows that its page must agree with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import warm
from counterfoil.recipe import load_own_recipe
from counterfoil.store.reading import read_receipts, read_shard
from counterfoil.store.rows import TableForm

COLUMNS = ("key", "shift", "class_id", "label", "index", "object_score", "shift_score", "reason")


def environment() -> dict[str, str]:
    return os.environ | {
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }


def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = warm.run(
        [sys.executable, "-m", "counterfoil.cli.main", "calibrate", *words], environment()
    )
    assert done.returncode == code, done.stderr
    return done


def rows_of(directory: Path, shift: str | None = None) -> list[dict]:
    """Return the rows of candidates with scores, of a shift or of all, with the columns that keep
    rules add."""
    form = TableForm.of(load_own_recipe(directory))
    columns = [*COLUMNS, *form.added]
    receipts = read_receipts(directory)
    rows = [
        row
        for receipt in receipts
        for row in read_shard(directory, receipt, columns, "candidates", form)
    ]
    return [
        row for row in rows if shift in (None, row["shift"]) and row["object_score"] is not None
    ]
