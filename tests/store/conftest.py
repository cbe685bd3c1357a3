"""Fixtures of the store's tests: both formats, and no network for `datasets`."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read by `datasets` when it is first imported


@pytest.fixture(params=["parquet", "webdataset"])
def format(request: pytest.FixtureRequest) -> str:
    return request.param
