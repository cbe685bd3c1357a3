"""On other processors, emulated, what must be equal is equal; the stack identifies what may
differ."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.portable_digests import all_digests
from support.processors import emulated

TESTS = Path(__file__).parent


def said(level: str, *command: str) -> str:
    """Return what Python prints in a process that computes as a processor of this level does."""
    environment = emulated(level) | {
        "PYTHONPATH": ":".join([str(TESTS), *(path for path in sys.path if path)])
    }
    done = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("level", [pytest.param("AVX2", marks=pytest.mark.whole), "SSE"])
def test_world_corruptions_plans_and_statistics_are_the_same_on_every_processor(level: str) -> None:
    assert json.loads(said(level, "-m", "support.portable_digests")) == all_digests()


def test_the_stack_tells_processors_with_other_kernels_apart() -> None:
    program = "from counterfoil.models.stack import kernels_digest; print(kernels_digest())"
    digests = [said(level, "-c", program) for level in ("SSE", "SSE", "AVX2")]
    assert digests[0] == digests[1] != digests[2]
