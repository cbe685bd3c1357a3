"""A dataset whose pairs share more than noise is published as any, and loads with what each pair shares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from publishing_cases import REPO, Publisher, call, contents, keys_of, published, read

from loopback_hub import LoopbackHub, Reader


def test_what_pairs_share_is_a_column_on_the_hub(
    loopback: LoopbackHub,
    beside_base: Path,
    start_publisher: Callable[..., Publisher],
    start_reader: Callable[..., Reader],
) -> None:
    start_publisher(loopback).publish(call(beside_base))
    assert published(loopback) == contents(beside_base)
    reader = start_reader(loopback)
    assert read(reader) == keys_of(beside_base)
    told = {
        split: {row["paired_by"] for row in rows} for split, rows in reader.rows(REPO, columns=["paired_by"]).items()
    }
    assert told.pop("base") == {None} and told and set(map(frozenset, told.values())) == {frozenset({"attention"})}
