"""Paths: each is read back to what it was made from, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.store.layout import (
    SUFFIXES,
    WHATS,
    ShardFile,
    parse_receipt_path,
    parse_shard_path,
    receipt_path,
    shard_path,
)

slugs = st.from_regex(r"[a-z0-9_]+", fullmatch=True)


@given(
    st.sampled_from(WHATS),
    slugs,
    slugs,
    st.integers(0, 10**6),
    st.integers(1, 10**6),
    st.sampled_from(list(SUFFIXES)),
)
def test_shard_paths_read_back(what, group, split, number, of, format) -> None:
    path = shard_path(what, group, split, number, of, format)
    assert parse_shard_path(path) == ShardFile(what, group, split, number, of, SUFFIXES[format])
    assert parse_receipt_path(receipt_path(group, number)) == (group, number)


def test_paths_are_those_of_datasets() -> None:
    assert shard_path("data", "grass", "test", 0, 5, "parquet") == "data/grass/test-00000-of-00005.parquet"
    assert shard_path("candidates", "base", "test", 4, 5, "webdataset") == "candidates/base/test-00004-of-00005.tar"


@pytest.mark.parametrize(
    "path",
    [
        "data/test-00000-of-00005.parquet",
        "data/a/test-0-of-5.parquet",
        "figures/a/test-00000-of-00005.tar",
        "data/a/b/test-00000-of-00005.tar",
        "data/a/test-00000-of-00005.parquet.17.tmp",
    ],
)
def test_other_paths_are_not_taken_for_shards(path: str) -> None:
    assert parse_shard_path(path) is None
