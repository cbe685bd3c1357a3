"""Batches run across shards: the same bytes however shards are dealt, resumed, or made again, and
few batches."""

from __future__ import annotations

import heapq
import shutil
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.building import build_dataset
from counterfoil.building.build_dataset import BuildProgress
from counterfoil.building.inputs import resolve_inputs
from counterfoil.building.spans import LONGEST, Load, cuts, load_of, shard_spans
from counterfoil.building.workers import Job
from counterfoil.engines.local import LocalEngine
from counterfoil.errors import RunFailure
from counterfoil.generate.render import Renderer
from counterfoil.models.stack import stack_of
from counterfoil.plan.layout import Plan, Sample, Shard, make_plan
from counterfoil.progress import listening
from counterfoil.recipe import load_recipe
from counterfoil.store.dataset_store import DatasetStore
from counterfoil.store.reading import read_receipts, read_rows
from driven import done_of
from tiny_builds import TINY, images, published, tiny

# Nine shards of one cell, three images each, in batches of five: no batch ends with its shard
# before the last.
ODD = (
    "prompts.shifts.pencil_sketch=null", "generator.batch_size=5", "samples.candidates=3", "output.rows_per_shard=3",
    "screen.judge=lab:resnet14t", "screen.keep_rejected=true",
)  # fmt: skip
# Two full batches a cell, then a short one; where many fail, a cell draws them all.
QUOTA = (
    "prompts.shifts.pencil_sketch=null", "generator.batch_size=2", "samples=null",
    "samples={accepted: 2, at_most: 5, seed: 0}", "output.rows_per_shard=5", "screen.object_threshold=0.3",
)  # fmt: skip
PLANS = {"every candidate": ODD, "quota": QUOTA}


def one_by_one(plan: Plan, shards: Sequence[Shard], workers: int) -> list[tuple[Shard, ...]]:
    return [(shard,) for shard in shards]


def all_together(plan: Plan, shards: Sequence[Shard], workers: int) -> list[tuple[Shard, ...]]:
    return [tuple(shards)]


def uneven(plan: Plan, shards: Sequence[Shard], workers: int) -> list[tuple[Shard, ...]]:
    return [tuple(shards[:4]), tuple(shards[4:])]


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[list[Sample]]:
    """Record every batch that this process renders."""
    batches: list[list[Sample]] = []
    render = Renderer.ahead

    def counted(self: Renderer, samples: Sequence[Sample]) -> Any:
        batches.append(list(samples))
        return render(self, samples)

    monkeypatch.setattr(Renderer, "ahead", counted)
    return batches


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build datasets shard by shard, as if a batch could not run across them. Read only."""
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_dataset, "shard_spans", one_by_one)
        for name, changes in PLANS.items():
            tiny(folder / name, *changes)
    return {name: folder / name for name in PLANS}


def test_however_shards_are_dealt_the_bytes_are_the_same(
    alone: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_dataset, "shard_spans", uneven)
    heard: list[object] = []
    with listening(heard.append):
        result = tiny(tmp_path / "dataset", *QUOTA, workers=2)
    assert published(tmp_path / "dataset") == published(alone["quota"])
    # Every shard of a span is reported once, as it is written.
    progress = [event for event in heard if isinstance(event, BuildProgress)]
    assert progress == heard
    done = [event.shards_done for event in progress]
    images_done = [event.images_done for event in progress]
    assert done == sorted(done) and images_done == sorted(images_done)
    assert set(done) == set(range(result.shards + 1)) and result.shards_made == result.shards
    counted = [
        sum(sum(reasons.values()) for reasons in event.counts.values()) for event in progress
    ]
    assert len(set(counted)) == result.shards + 1 and counted[-1] == progress[-1].images_done


def test_a_dataset_with_holes_is_filled_to_the_same_bytes(
    alone: dict[str, Path], tmp_path: Path
) -> None:
    out = shutil.copytree(alone["quota"], tmp_path / "dataset")
    receipts = sorted((out / "receipts").iterdir())
    for receipt in (receipts[0], receipts[3], *receipts[5:8]):
        receipt.unlink()
    assert tiny(out, *QUOTA).shards_made == 5
    assert published(out) == published(alone["quota"])


def test_as_few_batches_are_rendered_as_can_be(
    rendered: list[list[Sample]], alone: dict[str, Path], tmp_path: Path
) -> None:
    tiny(tmp_path / "dataset", *ODD)
    assert (sum(map(len, rendered)), len(rendered)) == (27, 6)  # shard by shard there would be nine
    assert published(tmp_path / "dataset") == published(alone["every candidate"])


def test_what_is_left_of_quotas_shares_batches(
    rendered: list[list[Sample]], tmp_path: Path
) -> None:
    result = tiny(tmp_path / "dataset", *QUOTA, *SHIFTS, "screen.object_threshold=1")
    # Three cells of five candidates each, of which none passes: two full batches, and one candidate
    # that is left.
    assert sorted(len(batch) for batch in rendered) == [1, *[2] * 7]
    assert result.counts == {"base": {"low_object": 15}}
    assert result.accepted == 0 and not images(tmp_path / "dataset")


def test_a_failure_in_the_middle_of_a_span_leaves_the_shards_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "dataset"
    render = Renderer.ahead

    def failing(self: Renderer, samples: Sequence[Sample]) -> Any:
        if any(sample.shift == "in_the_snow" and sample.class_id == "08" for sample in samples):
            raise RunFailure("no more")
        return render(self, samples)

    with monkeypatch.context() as patch:
        patch.setattr(build_dataset, "shard_spans", all_together)
        patch.setattr(Renderer, "ahead", failing)
        with pytest.raises(RunFailure, match="no more"):
            tiny(out, *ODD)
    # Of 27 images three batches were rendered, of which two were screened: three whole shards, and
    # not the fourth.
    assert [(receipt.group, receipt.shard) for receipt in read_receipts(out)] == [
        ("base", n) for n in range(3)
    ]


def test_what_a_lost_worker_wrote_of_its_span_is_not_made_again(
    rendered: list[list[Sample]], tmp_path: Path
) -> None:
    out = tmp_path / "dataset"
    recipe = load_recipe("wardrobe-mini", [*TINY, *ODD, "screen.judge=null"])
    inputs = resolve_inputs(recipe, out, "cpu", LocalEngine())
    hashes = {"plan": recipe.plan_hash, "screen": recipe.screen_hash, "inputs": inputs.hash}
    with DatasetStore.open(
        out, make_plan(recipe), hashes, inputs.document, stack_of("cpu", recipe.generator.dtype, 5),
        recipe_yaml=recipe.portable_yaml, attachments=inputs.attachments(),
    ) as store:  # fmt: skip
        job = Job(recipe, inputs, "cpu", store.writer)
        span = tuple(store.pending()[:4])
        with job.ready() as make:
            first = done_of(make(span[1:2]))
            rendered.clear()
            receipts = done_of(make(span))
    assert [
        sample.key
        for batch in rendered
        for sample in batch
        if sample.class_id == "05" and sample.shift == "base"
    ] == []
    assert first[0] in receipts and len(receipts) == 4


# Quota cells: the first n that pass, by index, in full batches, on every worker.


SMALL_QUOTA = (
    "samples={accepted: 2, at_most: 6, seed: 0}",
    "generator.batch_size=2",
    "output.rows_per_shard=12",
)
SHIFTS = ("prompts.shifts.red=null", "prompts.shifts.in_the_snow=null")


def _cells(directory: Path) -> dict[tuple[str, str], list[tuple[int, float, str]]]:
    cells: dict[tuple[str, str], list[tuple[int, float, str]]] = {}
    for row in read_rows(directory, what="candidates"):
        cell = cells.setdefault((row["shift"], row["class_id"]), [])
        cell.append((row["index"], row["object_score"], row["reason"]))
    return cells


def test_cells_stop_after_the_batch_that_fills_them(alone: dict[str, Path]) -> None:
    cells = _cells(alone["quota"])
    every = _cells(alone["every candidate"])
    assert cells.keys() == every.keys()
    stops = set()
    for cell, rows in cells.items():
        # The same samples as without a quota, counted off in batches of two until two pass.
        for (index, score, _), (same_index, same_score, _) in zip(rows, every[cell], strict=False):
            assert (index, score) == (same_index, pytest.approx(same_score, abs=2e-3))
        assert [index for index, _, _ in rows] == list(range(len(rows)))
        passing = [score >= 0.3 for _, score, _ in rows]
        assert sum(passing) >= 2 or len(rows) == 5
        last = (len(rows) - 1) // 2 * 2
        assert sum(passing[:last]) < 2, "it was full before its last batch"
        totals = list(accumulate(passing))
        expected = [
            ("accepted" if count <= 2 else "surplus") if passes else "low_object"
            for passes, count in zip(passing, totals, strict=True)
        ]
        assert [reason for _, _, reason in rows] == expected
        stops.add(len(rows))
    accepted = sum(reason == "accepted" for rows in cells.values() for _, _, reason in rows)
    assert len(images(alone["quota"])) == accepted
    assert len(stops) > 1, "the threshold must stop some cells early and others late"


def test_what_passes_beyond_a_quota_inside_its_batch_is_surplus(tmp_path: Path) -> None:
    bag = "source.classes=[{id: bag, name: bag, source_label: 8}]"
    result = tiny(
        tmp_path / "dataset", bag, *SHIFTS, "samples=null", "samples={accepted: 1, at_most: 6}", *SMALL_QUOTA[1:],
    )  # fmt: skip
    assert result.counts == {
        shift: {"accepted": 1, "surplus": 1} for shift in ("base", "pencil_sketch")
    }


# Spans: every shard once and in order, dealt so that workers end early, with little padding.


SOME = st.integers(0, 300) | st.just(0)
LOADS = st.builds(Load, st.integers(0, 300), SOME, st.integers(0, 3) | st.just(0), SOME)


def batches(loads: Sequence[Load], size: int) -> int:
    """Count the batches of one span: each kind of sample has batches of its own, the last of each
    padded."""
    ways = zip(*((load.by_prompt, load.by_vector, load.of_pairs) for load in loads), strict=True)
    return sum(-(-sum(images) // size) for images in ways) + sum(load.full for load in loads)


def last_end(loads: Sequence[Load], size: int, ends: Iterable[int], workers: int) -> int:
    """Count the batches until the last worker ends, if each takes the next span as soon as it is
    free."""
    free = [0] * workers
    for first, last in pairwise([0, *ends]):
        heapq.heappush(free, heapq.heappop(free) + batches(loads[first:last], size))
    return max(free)


def padded_share(loads: Sequence[Load], size: int, ends: Sequence[int]) -> float:
    """Return the share of rendered images that are padding, of shards that are drawn by prompt."""
    rendered = size * sum(batches(loads[first:last], size) for first, last in pairwise([0, *ends]))
    return 1 - sum(load.by_prompt for load in loads) / rendered


def uniform(candidates: int, rows: int, classes: int = 10, groups: int = 6) -> list[Load]:
    """Return the shards of groups with one shift each: whole cells, as many as `rows` has room
    for."""
    cells = max(1, rows // candidates)
    return [
        Load(min(cells, classes - at) * candidates)
        for _ in range(groups)
        for at in range(0, classes, cells)
    ]


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


@given(st.lists(st.integers(1, 300), min_size=1, max_size=80), st.integers(1, 40))
def test_one_worker_pads_less_than_three_percent_of_forty_batches(
    counts: list[int], size: int
) -> None:
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
def test_long_lists_are_dealt_evenly_in_bounded_spans(
    load: Load, count: int, size: int, workers: int
) -> None:
    loads = [load] * count
    ends = list(cuts(loads, size, workers))
    assert padded_share(loads, size, ends) < 0.015
    assert last_end(loads, size, ends, workers) < 1.02 * load.by_prompt * count / size / workers
    assert (
        max(batches(loads[first:last], size) for first, last in pairwise([0, *ends])) <= 2 * LONGEST
    )
    assert len(ends) > 10 * workers


def test_a_plan_is_dealt_shard_by_shard_where_batches_end_with_shards() -> None:
    plan = make_plan(
        load_recipe("wardrobe-star", ["samples.candidates=20", "output.rows_per_shard=100"])
    )
    dealt = shard_spans(plan, plan.shards, 2)
    assert [list(span) for span in dealt] == [[shard] for shard in plan.shards]


def test_spans_are_the_shards_in_order_whatever_is_missing_of_them() -> None:
    plan = make_plan(
        load_recipe("wardrobe-star", ["samples.candidates=17", "output.rows_per_shard=100"])
    )
    done = {(shard.group, shard.number) for shard in list(plan.shards)[3::5]}
    left = plan.shards_without(done)
    dealt = shard_spans(plan, left, 2)
    assert len(done) > 1 and len(left) + len(done) == plan.n_shards
    assert [shard for span in dealt for shard in span] == [
        shard for shard in plan.shards if (shard.group, shard.number) not in done
    ]
    assert len(dealt) < len(left)
    assert (dealt[-1], list(dealt[1:3])) == (dealt[len(dealt) - 1], [dealt[1], dealt[2]])
    with pytest.raises(IndexError):
        dealt[len(dealt)]


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
    samples = (
        "samples={accepted: 10, at_most: 50, candidates: null}"
        if quota
        else "samples.candidates=50"
    )
    plan = make_plan(load_recipe("wardrobe-pairs", [samples, "output.rows_per_shard=100"]))
    size = plan.recipe.generator.batch_size
    loads = {shard.group: load_of(plan, shard) for shard in plan.shards}
    assert loads["base"] == (Load(2 * 10, 0, 2 * 2) if quota else Load(100))
    assert loads["red"] == (Load(0, 0, 2 * 4, 2 * 20) if quota else Load(0, 0, 0, 200))
    # Calls of batch_size images: as many of them bases.
    assert batches([loads["red"]], size) == -(-2 * 50 // (size // 2))
