"""Spans: every shard once and in order, dealt so that workers end early, with little padding."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.building.spans import LONGEST, Load, cuts, load_of, padded_share, spans
from counterfoil.plan import make_plan
from counterfoil.recipe import load_recipe

SOME = st.integers(0, 300) | st.just(0)
LOADS = st.builds(Load, st.integers(0, 300), SOME, st.integers(0, 3) | st.just(0), SOME)


def batches(loads: Sequence[Load], size: int) -> int:
    """What one span renders: each kind of sample in batches of its own, the last of each padded."""
    ways = zip(*((load.by_prompt, load.by_vector, load.of_pairs) for load in loads), strict=True)
    return sum(-(-sum(images) // size) for images in ways) + sum(load.full for load in loads)


def last_end(loads: Sequence[Load], size: int, ends: Iterable[int], workers: int) -> int:
    """Batches until the last worker ends, where each takes the next span as soon as it is free."""
    free = [0] * workers
    for first, last in pairwise([0, *ends]):
        heapq.heappush(free, heapq.heappop(free) + batches(loads[first:last], size))
    return max(free)


def uniform(candidates: int, rows: int, classes: int = 10, groups: int = 6) -> list[Load]:
    """The shards of groups with one shift each: whole cells, as many as `rows` has room for."""
    cells = max(1, rows // candidates)
    return [Load(min(cells, classes - at) * candidates) for _ in range(groups) for at in range(0, classes, cells)]


@given(st.lists(LOADS, max_size=60), st.integers(1, 40), st.integers(1, 9))
def test_every_shard_is_in_one_span_and_nobody_ends_later_than_shard_by_shard(
    loads: list[Load], size: int, workers: int
) -> None:
    ends = list(cuts(loads, size, workers))
    assert all(first < last for first, last in pairwise([0, *ends]))
    assert ends[-1:] == ([len(loads)] if loads else [])
    alone = range(1, len(loads) + 1)
    assert last_end(loads, size, ends, workers) <= last_end(loads, size, alone, workers)
    rendered = sum(batches(loads[first:last], size) for first, last in pairwise([0, *ends]))
    assert rendered <= sum(batches([load], size) for load in loads)
    images = sum(load.by_prompt + load.by_vector + load.of_pairs + load.full * size for load in loads)
    assert padded_share(loads, size, ends) == pytest.approx(1 - images / (rendered * size) if rendered else 0)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=80), st.integers(1, 40))
def test_one_worker_pads_less_than_three_percent_of_forty_batches(counts: list[int], size: int) -> None:
    loads = [Load(count) for count in counts]
    while sum(load.by_prompt for load in loads) < 40 * size:
        loads += loads
    assert padded_share(loads, size, cuts(loads, size, 1)) < 0.03


@given(
    st.integers(10, 60),
    st.sampled_from([100, 500, 1000, 5000]),
    st.sampled_from([8, 16, 20, 32]),
    st.sampled_from([1, 2]),
    st.sampled_from([10, 100]),
)
def test_groups_of_ten_batches_pad_less_than_three_percent(
    candidates: int, rows: int, size: int, workers: int, classes: int
) -> None:
    candidates = max(candidates, -(-10 * size // classes))
    loads = uniform(candidates, rows, classes)
    assert padded_share(loads, size, cuts(loads, size, workers)) < 0.03


@pytest.mark.parametrize(
    ("load", "count", "size", "workers"),
    [(Load(85), 20_000, 20, 2), (Load(17), 50_000, 32, 100), (Load(986), 3_000, 20, 8)],
    ids=["whole batches every four shards", "less than a batch a shard", "many batches a shard"],
)
def test_long_lists_are_dealt_evenly_in_bounded_spans(load: Load, count: int, size: int, workers: int) -> None:
    loads = [load] * count
    ends = list(cuts(loads, size, workers))
    assert padded_share(loads, size, ends) < 0.015
    assert last_end(loads, size, ends, workers) < 1.02 * load.by_prompt * count / size / workers
    assert max(batches(loads[first:last], size) for first, last in pairwise([0, *ends])) <= 2 * LONGEST
    assert len(ends) > 10 * workers


def test_a_plan_is_dealt_shard_by_shard_where_batches_end_with_shards() -> None:
    plan = make_plan(load_recipe("wardrobe-star", ["samples.candidates=20", "output.rows_per_shard=100"]))
    found = spans(plan, plan.shards, 2)
    assert [list(span) for span in found] == [[shard] for shard in plan.shards]


def test_spans_are_the_shards_in_order_whatever_is_missing_of_them() -> None:
    plan = make_plan(load_recipe("wardrobe-star", ["samples.candidates=17", "output.rows_per_shard=100"]))
    done = {(shard.group, shard.number) for shard in list(plan.shards)[3::5]}
    left = plan.shards_without(done)
    found = spans(plan, left, 2)
    assert len(done) > 1 and len(left) + len(done) == plan.n_shards
    assert [shard for span in found for shard in span] == [
        shard for shard in plan.shards if (shard.group, shard.number) not in done
    ]
    assert len(found) < len(left)
    assert (found[-1], list(found[1:3])) == (found[len(found) - 1], [found[1], found[2]])
    with pytest.raises(IndexError):
        found[len(found)]


def test_a_shard_loads_a_worker_with_its_samples_by_kind_and_with_full_batches_of_quotas() -> None:
    changes = [
        "samples=null",
        "samples={accepted: 10, at_most: 50, seed: 0}",
        "prompts.shifts.red={prompt: null, embedding: {file: v.safetensors, key: '{class_id}'}}",
        "generator.adapter=lab:decoder",
        "output.rows_per_shard=100",
    ]
    plan = make_plan(load_recipe("wardrobe-mini", ["tokens=null", *changes]))
    loads = {shard.group: load_of(plan, shard) for shard in plan.shards}
    assert loads["base"] == Load(2 * 10, 0, 2 * 2)
    assert loads["red"] == Load(0, 2 * 10, 2 * 2)


@pytest.mark.parametrize("quota", [False, True])
def test_a_sample_beside_its_base_is_two_images(quota: bool) -> None:
    samples = "samples={accepted: 10, at_most: 50, candidates: null}" if quota else "samples.candidates=50"
    plan = make_plan(load_recipe("wardrobe-pairs", [samples, "output.rows_per_shard=100"]))
    size = plan.recipe.generator.batch_size
    loads = {shard.group: load_of(plan, shard) for shard in plan.shards}
    assert loads["base"] == (Load(2 * 10, 0, 2 * 2) if quota else Load(100))
    assert loads["red"] == (Load(0, 0, 2 * 4, 2 * 20) if quota else Load(0, 0, 0, 200))
    # Calls of batch_size images: as many of them bases.
    assert batches([loads["red"]], size) == -(-2 * 50 // (size // 2))
