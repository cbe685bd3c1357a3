"""Folders that several tests of a search for bugs read, made once a run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_search import described_images, searched

from counterfoil import try_descriptions

AT_NIGHT = "a sandal at night"


@pytest.fixture(scope="session")
def small_search(once_a_run: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Return the folder of a real search. Read only."""
    return once_a_run("small-bugs", searched)


@pytest.fixture(scope="session")
def tried(small_search: Path, once_a_run: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Return the same folder after a try of "a sandal at night", on which every image failed. Read
    only."""

    def make(out: Path) -> None:
        shutil.copytree(small_search, out)
        with described_images(fail=True):
            try_descriptions(
                out,
                [AT_NIGHT],
                "sandal",
                device="cpu",
                workers=1,
            )

    return once_a_run("tried-bugs", make)
