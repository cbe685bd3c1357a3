"""Fixtures of the downstream tests: real tiny datasets of both formats, in folders and published on
a Hub."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from downstream_cases import FORMATS, NAMES, REPOS, TAG, answers

import warm
from counterfoil.store.reading import read_rows
from loopback_hub import LoopbackHub, client, client_environment
from shared_datasets import Once
from tiny_builds import tiny

PACKAGE = Path(__file__).parents[2] / "builders"

Ask = Callable[..., list[Any]]


@pytest.fixture(scope="session")
def datasets(once_a_run: Once, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a dataset by format. Half of the candidates are rejected, among them a whole shift.
    Read only."""
    folder = tmp_path_factory.mktemp("downstream") / "datasets"
    shutil.copytree(once_a_run("downstream", _build), folder)
    return {format: folder / NAMES[format] for format in FORMATS}


def _build(folder: Path) -> None:
    few = ("samples.candidates=4", "output.rows_per_shard=8", "evaluate.min_images_per_class=1")
    more = ("generator.size=null", "generator.guidance=3.0", *few)
    tiny(folder / "accepted", *more)
    scores = sorted(
        r["object_score"]
        for r in read_rows(folder / "accepted", ["object_score"], what="candidates")
    )
    half = (f"screen.object_threshold={scores[len(scores) // 2]!r}", "screen.keep_rejected=true")
    for format in FORMATS:
        tiny(folder / NAMES[format], *more, *half, f"output.format={format}")


@pytest.fixture(scope="session")
def hub(
    tmp_path_factory: pytest.TempPathFactory, datasets: dict[str, Path]
) -> Iterator[LoopbackHub]:
    """Yield a Hub with both datasets, private and tagged, as the command publishes them."""
    with LoopbackHub(tmp_path_factory.mktemp("hub")) as hub:
        folder = tmp_path_factory.mktemp("publisher")
        for format, directory in datasets.items():
            done = _run_command(
                hub, folder, "publish", str(directory), REPOS[format], "-y", "--tag", TAG
            )
            assert done.returncode == 0, done.stderr
        yield hub


@pytest.fixture
def run_published(
    hub: LoopbackHub, tmp_path: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the real command with words, in a folder without a dataset; the token must not show
    anywhere."""
    return partial(_run_command, hub, tmp_path)


@pytest.fixture
def public(hub: LoopbackHub) -> Iterator[LoopbackHub]:
    """Yield the same Hub while strangers may read, too."""
    api = client(hub)
    for format in FORMATS:
        api.update_repo_settings(REPOS[format], private=False, repo_type="dataset")
    yield hub
    for format in FORMATS:
        api.update_repo_settings(REPOS[format], private=True, repo_type="dataset")


@pytest.fixture(scope="session")
def ask_here(datasets: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Run pieces of Python beside the directories, offline; see `answers`."""

    def ask(codes: Sequence[str], folder: Path | None = None) -> list[Any]:
        home = str(tmp_path_factory.mktemp("home"))
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": home,
            "PYTHONPATH": _path(os.environ),
        }
        return answers(codes, environment, folder or datasets["parquet"].parent)

    return ask


@pytest.fixture(scope="session")
def ask_there(hub: LoopbackHub, tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Run pieces of Python in an empty folder; the datasets are only on the Hub."""

    def ask(codes: Sequence[str], folder: Path | None = None) -> list[Any]:
        environment = _environment(hub, tmp_path_factory.mktemp("home"))
        return answers(codes, environment, folder or tmp_path_factory.mktemp("elsewhere"))

    return ask


@pytest.fixture(scope="session")
def ask_stranger(hub: LoopbackHub, tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Run them as `ask_there` does, without a login."""

    def ask(codes: Sequence[str]) -> list[Any]:
        environment = _environment(hub, tmp_path_factory.mktemp("home"), token="")
        return answers(codes, environment, tmp_path_factory.mktemp("elsewhere"))

    return ask


def _run_command(hub: LoopbackHub, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = _environment(hub, folder / "home")
    line = [sys.executable, "-m", "counterfoil.cli.main", *words]
    done = warm.run(line, environment, cwd=folder)
    assert hub.token not in done.stdout + done.stderr
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in written if hub.token.encode() in path.read_bytes()]
    return done


def _environment(hub: LoopbackHub, home: Path, **options: Any) -> dict[str, str]:
    environment = client_environment(hub, home, sleep_scale=0.01, **options)
    return {**environment, "PYTHONPATH": _path(environment), "OMP_NUM_THREADS": "1"}


def _path(environment: Any) -> str:
    before = environment.get("PYTHONPATH")
    return f"{PACKAGE}{os.pathsep}{before}" if before else str(PACKAGE)
