"""Fixtures of tests that talk to a Hub; `tests/conftest.py` gives them to every room."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from loopback_hub.hub import LoopbackHub


@pytest.fixture
def start_loopback(tmp_path: Path) -> Iterator[Callable[..., LoopbackHub]]:
    """Start a Hub with the options of `LoopbackHub`, in a folder of its own unless one is given."""
    with ExitStack() as stack:
        started: list[LoopbackHub] = []

        def start(folder: Path | None = None, **options: Any) -> LoopbackHub:
            hub = LoopbackHub(folder or tmp_path / f"loopback-{len(started)}", **options)
            started.append(hub)
            return stack.enter_context(hub)

        yield start


@pytest.fixture
def quick_sleeps(monkeypatch: pytest.MonkeyPatch) -> float:
    """Shorten every `time.sleep` of clients in this process to a hundredth; return the scale.
    Latency stays real."""
    scale = 0.01
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(seconds * scale))
    return scale


@pytest.fixture
def loopback(start_loopback: Callable[..., LoopbackHub]) -> LoopbackHub:
    return start_loopback()
