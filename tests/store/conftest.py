"""Fixtures of the store's tests: both formats, and no network for `datasets`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def offline() -> Iterator[None]:
    """`datasets` and the Hub's client read it; tests of other rooms in this process talk to a Hub."""
    with pytest.MonkeyPatch.context() as changes:
        changes.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(params=["parquet", "webdataset"])
def format(request: pytest.FixtureRequest) -> str:
    return request.param
