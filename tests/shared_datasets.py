"""Tiny datasets that many tests read and must not change, made once a run by the first process that
needs them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from counterfoil.store.reading import read_rows
from tiny_builds import tiny

Once = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def once_a_run(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Return `once_a_run(name, make)`: the folder that `make` filled in any process of this run.
    Read only."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    root = root / "once-a-run"
    root.mkdir(exist_ok=True)

    def once(name: str, make: Callable[[Path], object]) -> Path:
        with FileLock(root / f"{name}.lock"):
            done = root / f"{name}.done"
            if not done.is_file():
                shutil.rmtree(root / name, ignore_errors=True)
                make(root / name)
                done.touch()
        return root / name

    return once


@pytest.fixture(scope="session")
def undisturbed(once_a_run: Once) -> Path:
    """Return a build in one go by one process, with every candidate accepted. Read only."""
    return once_a_run("undisturbed", tiny)


@pytest.fixture(scope="session")
def half_threshold(undisturbed: Path) -> float:
    """Return an object threshold that about half of the candidates reach, for any generator."""
    scores = sorted(
        row["object_score"]
        for row in read_rows(undisturbed, columns=["object_score"], what="candidates")
    )
    return scores[len(scores) // 2]


@pytest.fixture(scope="session")
def screened(once_a_run: Once, half_threshold: float) -> Path:
    """Return the same candidates, screened by that threshold; rejected images kept, no embeddings.
    Read only."""
    changes = [f"screen.object_threshold={half_threshold!r}", "screen.keep_rejected=true"]
    return once_a_run("screened", lambda out: tiny(out, *changes, "screen.store_embeddings=false"))


@pytest.fixture(scope="session")
def beside_base(once_a_run: Once) -> Path:
    """Return `undisturbed` with each image of a shift drawn beside its base. Read only."""
    return once_a_run("beside_base", lambda out: tiny(out, "samples.pairs=attention"))
