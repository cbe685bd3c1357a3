"""Fixtures of the publishing tests: two versions of a dataset, made once, and processes that are ended after."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from publishing_cases import Publisher

from loopback_hub import LoopbackHub, Reader
from shared_datasets import Once
from tiny_builds import tiny


@pytest.fixture(scope="session")
def first(undisturbed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first version: four groups, every candidate accepted."""
    return Path(shutil.copytree(undisturbed, tmp_path_factory.mktemp("first") / "garments"))


@pytest.fixture(scope="session")
def second(once_a_run: Once, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The second: one group is gone, images are others, and there are other shards."""
    changes = ("prompts.shifts.red=null", "samples.candidates=3", "samples.seed=1")
    built = once_a_run("second", lambda out: tiny(out, *changes))
    return Path(shutil.copytree(built, tmp_path_factory.mktemp("second") / "garments"))


@pytest.fixture
def start_publisher(tmp_path: Path) -> Iterator[Callable[..., Publisher]]:
    """Starts processes that publish to a Hub; all are ended after the test."""
    with ExitStack() as stack:
        yield lambda hub, **options: stack.enter_context(Publisher(hub, tmp_path / "home", **options))


@pytest.fixture
def start_reader(tmp_path: Path) -> Iterator[Callable[[LoopbackHub], Reader]]:
    """Starts processes that load datasets from a Hub; all are ended after the test."""
    with ExitStack() as stack:
        yield lambda hub: stack.enter_context(Reader(hub, tmp_path / "reader"))
