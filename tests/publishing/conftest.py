"""Fixtures of the publishing tests: two versions of a dataset, made once, and processes that are
ended after."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from publishing_cases import Publisher, call

from loopback_hub import LoopbackHub, Reader
from shared_datasets import Once
from tiny_builds import tiny


@pytest.fixture(scope="session")
def first(undisturbed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the first version: four groups, every candidate accepted."""
    return Path(shutil.copytree(undisturbed, tmp_path_factory.mktemp("first") / "garments"))


@pytest.fixture(scope="session")
def second(once_a_run: Once, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the second version: one group is gone, images are others, and there are other
    shards."""
    changes = ("prompts.shifts.red=null", "samples.candidates=3", "samples.seed=1")
    built = once_a_run("second", lambda out: tiny(out, *changes))
    return Path(shutil.copytree(built, tmp_path_factory.mktemp("second") / "garments"))


@dataclass
class Kept:
    """Processes that publish to one endpoint, which every test's Hub has in turn: each imports for
    half a second."""

    home: Path
    stack: ExitStack
    endpoint: str = ""
    publishers: dict[frozenset[tuple[str, Any]], Publisher] = field(default_factory=dict)


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    with ExitStack() as stack:
        yield Kept(tmp_path_factory.mktemp("publishers") / "home", stack)


@pytest.fixture
def loopback(start_loopback: Callable[..., LoopbackHub], kept: Kept) -> LoopbackHub:
    """Return a Hub without quotas and faults, empty, at the endpoint of the one before."""
    return _started(start_loopback, kept)


@pytest.fixture
def hub_of_first(
    start_loopback: Callable[..., LoopbackHub], kept: Kept, folder_of_first: Callable[[], Path]
) -> LoopbackHub:
    """Return a Hub as `loopback`, where the first version is published."""
    return _started(start_loopback, kept, folder=folder_of_first())


def _started(start_loopback: Callable[..., LoopbackHub], kept: Kept, **options: Any) -> LoopbackHub:
    hub = None
    if kept.endpoint:
        with suppress(OSError):  # another process can take the port meanwhile
            hub = start_loopback(port=int(kept.endpoint.rpartition(":")[2]), **options)
    hub = hub or start_loopback(**options)
    if hub.endpoint != kept.endpoint:
        kept.publishers.clear()
        kept.endpoint = hub.endpoint
    shutil.rmtree(kept.home, ignore_errors=True)
    return hub


@pytest.fixture(scope="session")
def first_published(first: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a Hub where the first version is published. Read only."""
    folder = tmp_path_factory.mktemp("published")
    with LoopbackHub(folder / "hub") as hub, Publisher(hub, folder / "home") as publisher:
        publisher.publish(call(first))
    return folder / "hub"


@pytest.fixture
def folder_of_first(first_published: Path, tmp_path: Path) -> Callable[[], Path]:
    """Return a function that copies this folder, for a Hub of a test."""
    names = (f"of-first-{number}" for number in count())
    return lambda: Path(shutil.copytree(first_published, tmp_path / next(names)))


@pytest.fixture
def start_publisher(tmp_path: Path, kept: Kept) -> Iterator[Callable[..., Publisher]]:
    """Yield a starter of processes that publish to a Hub: earlier tests' for `loopback`, else new
    ones."""
    with ExitStack() as stack:

        def start(hub: LoopbackHub, **options: Any) -> Publisher:
            if hub.endpoint != kept.endpoint:
                return stack.enter_context(Publisher(hub, tmp_path / "home", **options))
            key = frozenset(options.items())
            if key not in kept.publishers:
                kept.publishers[key] = kept.stack.enter_context(
                    Publisher(hub, kept.home, **options)
                )
            return kept.publishers[key]

        yield start


@pytest.fixture
def start_reader(tmp_path: Path) -> Iterator[Callable[[LoopbackHub], Reader]]:
    """Yield a starter of processes that load datasets from a Hub; all are ended after the test."""
    with ExitStack() as stack:
        yield lambda hub: stack.enter_context(Reader(hub, tmp_path / "reader"))
