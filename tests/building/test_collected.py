"""Shards that come back from workers: only what was asked for is written, and what came is not asked for again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from counterfoil.building.workers import ShardFiles, SpansToCollect, write_collected
from counterfoil.engines.executor import named
from counterfoil.errors import RunFailure
from counterfoil.plan import make_plan
from counterfoil.recipe import load_recipe
from counterfoil.store import Receipt, ShardWriter
from counterfoil.store.layout import LOCK

PLAN = make_plan(load_recipe("wardrobe-mini"), None)
SHARDS = PLAN.shards[:3]
NOTHING = Receipt(SHARDS[0].group, SHARDS[0].number, SHARDS[0].of, {}, {}, (), {}, {})


@pytest.mark.parametrize("change", [{"group": "../elsewhere"}, {"shard": 1_000}, {"of": 1_000}], ids=str)
def test_a_shard_that_nobody_asked_for_is_not_written(change: dict, tmp_path: Path) -> None:
    directory = tmp_path / "dataset"
    directory.mkdir()
    (directory / LOCK).touch()
    writer = ShardWriter.of_plan(directory, PLAN, {}, {})
    with pytest.raises(RunFailure, match="a shard that nobody asked for"):
        asked = {(shard.group, shard.number, shard.of) for shard in SHARDS}
        write_collected(writer, ShardFiles(replace(NOTHING, **change), {}), asked)
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()] == [Path("dataset") / LOCK]


def test_a_span_that_is_asked_for_again_comes_with_what_is_here_already() -> None:
    spans = SpansToCollect([tuple(SHARDS[:2]), tuple(SHARDS[2:])])
    assert len(spans) == 2
    assert spans[0].came == {}
    spans.note(SHARDS[0].id, NOTHING)
    again = spans[0]
    assert again.came == {SHARDS[0].id: NOTHING}
    assert spans[1].came == {}
    assert named(again) == f"{SHARDS[0].id}, {SHARDS[1].id}"
