"""The command `calibrate` as tests run it, and the rows that its page must agree with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import warm
from counterfoil.store import read_rows


def environment() -> dict[str, str]:
    return os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = warm.run([sys.executable, "-m", "counterfoil.cli.main", "calibrate", *words], environment())
    assert done.returncode == code, done.stderr
    return done


def rows_of(directory: Path, shift: str | None = None) -> list[dict]:
    """Rows of the candidates that have scores, of a shift or of all."""
    rows = [row for row in read_rows(directory, what="candidates") if shift in (None, row["shift"])]
    return [row for row in rows if row["object_score"] is not None]
