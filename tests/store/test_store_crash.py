"""Builds that are killed with SIGKILL, many times, end with the bytes of one that never was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("format", "kills"),
    [("parquet", 0)]
    + [pytest.param(*one, marks=pytest.mark.whole) for one in (("webdataset", 0), ("parquet", 60), ("webdataset", 60))],
)
def test_killed_builds_resume_to_the_same_bytes(memory_folder: Path, format: str, kills: int) -> None:
    driver = Path(__file__).with_name("crash_driver.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(driver.parent), *sys.path])}
    # What both formats share is met at every step of one, and of the other too where builds are killed at random.
    every = 1 if kills or format == "parquet" else 4
    arguments = [sys.executable, str(driver), str(memory_folder), format, "17", str(kills), str(every)]
    run = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    states = {line.split()[0]: json.loads(line.partition(" ")[2]) for line in run.stdout.splitlines()}
    assert sum(states["random"].values()) == kills
    # The kills must have met builds at work, or the test would prove nothing.
    assert sum(states["random"].get(at, 0) for at in ("amid a file", "between files")) >= kills / 4
    assert states["steps"]["amid a file"] > 10 // every
    assert states["steps"]["between files"] > 10 // every
