"""Tiny datasets that many tests read and none may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.store.reading import read_rows
from tiny_builds import tiny


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built in this process, in one go, with every candidate accepted. Read only."""
    out = tmp_path_factory.mktemp("undisturbed") / "dataset"
    tiny(out)
    return out


@pytest.fixture(scope="session")
def half_threshold(undisturbed: Path) -> float:
    """An object threshold that about half of the candidates reach, whatever the generator draws."""
    scores = sorted(row["object_score"] for row in read_rows(undisturbed, columns=["object_score"], what="candidates"))
    return scores[len(scores) // 2]


@pytest.fixture(scope="session")
def screened(undisturbed: Path, half_threshold: float, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same candidates, screened by that threshold; rejected images kept, no embeddings. Read only."""
    out = tmp_path_factory.mktemp("screened") / "dataset"
    changes = [f"screen.object_threshold={half_threshold!r}", "screen.keep_rejected=true"]
    tiny(out, *changes, "screen.store_embeddings=false")
    return out
