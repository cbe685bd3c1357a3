"""Fixtures of the publishing tests: two versions of a dataset, made once, and processes that are ended after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from publishing_cases import Publisher

from loopback_hub import LoopbackHub, Reader
from tiny_builds import tiny


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first version: four groups, every candidate accepted."""
    directory = tmp_path_factory.mktemp("first") / "garments"
    tiny(directory)
    return directory


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The second: one group is gone, images are others, and there are other shards."""
    directory = tmp_path_factory.mktemp("second") / "garments"
    tiny(directory, "prompts.shifts.red=null", "samples.candidates=3", "samples.seed=1")
    return directory


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
