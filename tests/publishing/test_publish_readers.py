"""Readers find the old version whole or the new one whole, between any two requests of a publication."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from publishing_cases import Publisher, call, contents, keys_of, published, read

from loopback_hub import LoopbackHub, Reader

Start = Callable[..., Publisher]


@pytest.mark.parametrize(
    "files_per_commit",
    [pytest.param(100, marks=pytest.mark.whole, id="one commit"), pytest.param(12, id="pull request")],
)
def test_a_reader_between_any_two_requests_finds_a_whole_version(
    loopback: LoopbackHub,
    first: Path,
    second: Path,
    start_publisher: Start,
    start_reader: Callable[..., Reader],
    files_per_commit: int,
) -> None:
    process, reading = start_publisher(loopback), start_reader(loopback)
    process.publish(call(first))
    versions = [keys_of(first), keys_of(second)]
    whole = [contents(first), contents(second)]
    seen: list[int] = []
    there: list[int] = []

    def look(request: object) -> None:
        there.append(whole.index(published(loopback)))  # ValueError for a mixture
        # A load takes as long as twenty requests; where nothing has changed, every fourth is enough.
        if len(there) % 4 == 1 or there[-2:] == [0, 1]:
            found = read(reading)
            seen.append(versions.index(found) if found in versions else -1)
            assert seen[-1] == there[-1]

    loopback.on_request = look
    process.publish(call(second, files_per_commit=files_per_commit))
    loopback.on_request = None
    assert seen == sorted(seen)
    assert set(seen) == {0, 1}
    assert len(there) > 20
