"""Fixtures of the store's tests: both formats, and no network for `datasets`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_cases import build, plan_of


@pytest.fixture(autouse=True, scope="module")
def offline() -> Iterator[None]:
    """Keep `datasets` and the Hub's client offline; tests of other rooms in this process talk to a
    Hub."""
    with pytest.MonkeyPatch.context() as changes:
        changes.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a finished dataset of each format. Read only."""
    folder = tmp_path_factory.mktemp("built")
    return {
        format: build(folder / format, plan_of(f"output.format={format}"))
        for format in ("parquet", "webdataset")
    }


@pytest.fixture
def cranes(built: dict[str, Path], tmp_path: Path) -> Path:
    """Return a copy of the dataset of Parquet files."""
    return shutil.copytree(built["parquet"], tmp_path / "cranes")


@pytest.fixture(params=["parquet", "webdataset"])
def format(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def memory_folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder in memory if there is one: SIGKILL leaves the same there, and flushing costs
    nothing."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)
