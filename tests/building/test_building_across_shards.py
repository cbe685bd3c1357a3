"""Batches run across shards: the same bytes however shards are dealt, resumed, or made again, and few batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from counterfoil.building import BuildProgress, build_dataset
from counterfoil.building.inputs import resolve_inputs
from counterfoil.building.workers import Job
from counterfoil.engines.local import LocalEngine
from counterfoil.errors import RunFailure
from counterfoil.generate import Renderer
from counterfoil.models.devices import stack_of
from counterfoil.plan import Plan, Sample, Shard, make_plan
from counterfoil.progress import listening
from counterfoil.recipe import load_recipe
from counterfoil.store import DatasetStore
from counterfoil.store.reading import read_receipts
from driven import done_of
from tiny_builds import SHARDS, TINY, published, tiny

# Nine shards of one cell, three images each, in batches of five: no batch ends with its shard before the last.
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

Dealt = Callable[[Plan, Sequence[Shard], int], Sequence[Sequence[Shard]]]


def one_by_one(plan: Plan, shards: Sequence[Shard], workers: int) -> list[tuple[Shard, ...]]:
    return [(shard,) for shard in shards]


def all_together(plan: Plan, shards: Sequence[Shard], workers: int) -> list[tuple[Shard, ...]]:
    return [tuple(shards)]


def uneven(plan: Plan, shards: Sequence[Shard], workers: int) -> list[tuple[Shard, ...]]:
    return [tuple(shards[:4]), tuple(shards[4:])]


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[list[Sample]]:
    """Every batch that this process renders."""
    batches: list[list[Sample]] = []
    render = Renderer.ahead

    def counted(self: Renderer, samples: Sequence[Sample]) -> Any:
        batches.append(list(samples))
        return render(self, samples)

    monkeypatch.setattr(Renderer, "ahead", counted)
    return batches


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Datasets that were made shard by shard, as if a batch could not run across them. Read only."""
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_dataset, "spans", one_by_one)
        for name, changes in PLANS.items():
            tiny(folder / name, *changes)
    return {name: folder / name for name in PLANS}


@pytest.mark.parametrize(
    ("name", "workers", "dealt"),
    [
        pytest.param("every candidate", 1, all_together, id="every candidate, one span"),
        pytest.param("quota", 2, uneven, id="quota, two workers"),
        pytest.param("quota", 1, all_together, marks=pytest.mark.whole, id="quota, one span"),
        pytest.param("every candidate", 2, uneven, marks=pytest.mark.whole, id="every candidate, two workers"),
    ],
)
def test_however_shards_are_dealt_the_bytes_are_the_same(
    name: str, workers: int, dealt: Dealt, alone: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_dataset, "spans", dealt)
    tiny(tmp_path / "dataset", *PLANS[name], workers=workers)
    assert published(tmp_path / "dataset") == published(alone[name])


@pytest.mark.parametrize("name", PLANS)
def test_a_dataset_with_holes_is_filled_to_the_same_bytes(name: str, alone: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    for path, content in published(alone[name]).items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        (out / path).write_bytes(content)
    receipts = sorted((out / "receipts").iterdir())
    for receipt in (receipts[0], receipts[3], *receipts[5:8]):
        receipt.unlink()
    assert tiny(out, *PLANS[name]).shards_made == 5
    assert published(out) == published(alone[name])


def test_as_few_batches_are_rendered_as_can_be(
    rendered: list[list[Sample]], alone: dict[str, Path], tmp_path: Path
) -> None:
    tiny(tmp_path / "dataset", *ODD)
    assert (sum(map(len, rendered)), len(rendered)) == (27, 6)  # shard by shard there would be nine
    assert published(tmp_path / "dataset") == published(alone["every candidate"])


def test_what_is_left_of_quotas_shares_batches(rendered: list[list[Sample]], tmp_path: Path) -> None:
    tiny(tmp_path / "dataset", *QUOTA, "screen.object_threshold=1")
    # Nine cells of five candidates each, of which none passes: two full batches, and one candidate that is left.
    assert sorted(len(batch) for batch in rendered) == [1, *[2] * 22]


def test_a_failure_in_the_middle_of_a_span_leaves_the_shards_before_it(
    alone: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "dataset"
    render = Renderer.ahead

    def failing(self: Renderer, samples: Sequence[Sample]) -> Any:
        if any(sample.shift == "in_the_snow" and sample.class_id == "08" for sample in samples):
            raise RunFailure("no more")
        return render(self, samples)

    with monkeypatch.context() as patch:
        patch.setattr(build_dataset, "spans", all_together)
        patch.setattr(Renderer, "ahead", failing)
        with pytest.raises(RunFailure, match="no more"):
            tiny(out, *ODD)
    # Of 27 images three batches were rendered, of which two were screened: three whole shards, and not the fourth.
    assert [(receipt.group, receipt.shard) for receipt in read_receipts(out)] == [("base", n) for n in range(3)]
    tiny(out, *ODD)
    assert published(out) == published(alone["every candidate"])


def test_what_a_lost_worker_wrote_of_its_span_is_not_made_again(rendered: list[list[Sample]], tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    recipe = load_recipe("wardrobe-mini", [*TINY, *ODD, "screen.judge=null"])
    inputs = resolve_inputs(recipe, out, "cpu", LocalEngine())
    hashes = {"plan": recipe.plan_hash, "screen": recipe.screen_hash, "inputs": inputs.hash}
    with DatasetStore.open(
        out, make_plan(recipe), hashes, inputs.document, stack_of("cpu", recipe.generator.dtype, 5),
        recipe_yaml=recipe.portable_yaml, attachments=inputs.attachments(),
    ) as store:  # fmt: skip
        content = inputs.thresholds.content()
        job = Job(recipe, None, None, content, "cpu", inputs.commits, inputs.judges, store.writer)
        span = tuple(store.pending()[:4])
        with job.ready() as make:
            first = done_of(make(span[1:2]))
            rendered.clear()
            receipts = done_of(make(span))
    assert [
        sample.key for batch in rendered for sample in batch if sample.class_id == "05" and sample.shift == "base"
    ] == []
    assert first[0] in receipts and len(receipts) == 4


@pytest.mark.parametrize("workers", [1, 2])
def test_every_shard_of_a_span_is_told_once_as_it_is_written(
    workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = SHARDS // 2
    monkeypatch.setattr(build_dataset, "spans", lambda plan, shards, workers: [shards[:half], shards[half:]])
    heard: list[object] = []
    with listening(heard.append):
        tiny(tmp_path / "out", workers=workers)
    told = [one for one in heard if isinstance(one, BuildProgress)]
    done = [one.shards_done for one in told]
    assert done == sorted(done)
    assert set(done) == set(range(SHARDS + 1))
    counted = [sum(sum(reasons.values()) for reasons in one.counts.values()) for one in told]
    assert len(set(counted)) == SHARDS + 1 and counted[-1] == told[-1].images
