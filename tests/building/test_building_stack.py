"""The stack is that of the worker that makes a shard: it is measured and recorded in the receipt,
or refused, there."""

from __future__ import annotations

import multiprocessing
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from garments import GARMENT_CLASSES, garment_folder

from counterfoil.building import workers
from counterfoil.building.build_dataset import DatasetBuild, build
from counterfoil.building.inputs import Inputs, resolve_inputs
from counterfoil.building.spans import shard_spans
from counterfoil.building.workers import Job
from counterfoil.engines import Event, Finished, local
from counterfoil.engines.engine import EngineChoice, Item, Result, Work
from counterfoil.engines.local import Call, LocalEngine
from counterfoil.engines.processes import begin_server
from counterfoil.errors import RunFailure, UserError
from counterfoil.models.stack import rendering_stack
from counterfoil.plan.layout import make_plan
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.store.dataset_store import DatasetStore, ShardWriter
from counterfoil.store.layout import user_cache
from counterfoil.store.lock import read_lock, refuse_other_stack
from counterfoil.store.reading import read_receipts
from tiny_builds import HEAVY, TINY, published

# Two shards of one image each, so that two workers have something to do.
SMALL = (
    *TINY,
    "source.classes=[{id: '05', name: sandal, source_label: 5}, {id: '08', name: bag, source_label:"
    " 8}]",
    "prompts.shifts={in_the_snow: null, red: null, pencil_sketch: null}",
    "samples.candidates=1",
    "output.rows_per_shard=1",
)


def small(out: Path) -> tuple[Recipe, Inputs]:
    recipe = load_recipe("wardrobe-mini", SMALL)
    return recipe, resolve_inputs(recipe, out, "cpu", LocalEngine())


def local_stack(recipe: Recipe) -> dict[str, Any]:
    return rendering_stack("cpu", recipe)


def elsewhere(recipe: Recipe) -> dict[str, Any]:
    """Return the stack of a machine with an earlier version of torch."""
    stack = local_stack(recipe)
    return stack | {"versions": stack["versions"] | {"torch": "1.0.0"}}


@contextmanager
def begun_elsewhere(out: Path) -> Iterator[tuple[Job, DatasetStore, Recipe]]:
    """Yield the job of a worker on a dataset that another stack began, its store and its recipe."""
    recipe, inputs = small(out)
    hashes = {"plan": recipe.plan_hash, "screen": recipe.screen_hash, "inputs": inputs.hash}
    with DatasetStore.open(
        out, make_plan(recipe), hashes, inputs.document, elsewhere(recipe),
        recipe_yaml=recipe.portable_yaml, attachments=inputs.attachments(),
    ) as store:  # fmt: skip
        yield Job(recipe, inputs, "cpu", store.writer), store, recipe


@pytest.mark.parametrize("workers", [1, 2], ids=["this process", "two workers"])
def test_a_worker_of_another_stack_is_refused_and_writes_nothing(
    workers: int, tmp_path: Path
) -> None:
    out = tmp_path / "dataset"
    with begun_elsewhere(out) as (job, store, recipe):
        before = published(out)
        with pytest.raises(UserError) as refused:
            list(LocalEngine(workers).run(job, shard_spans(store.plan, store.pending(), workers)))
        assert published(out) == before
        with pytest.raises(UserError) as words:
            refuse_other_stack(out, elsewhere(recipe), local_stack(recipe))
    assert (refused.value.problems, refused.value.hint) == (words.value.problems, words.value.hint)
    assert any("versions.torch" in line for line in refused.value.problems)


def test_a_receipt_tells_the_stack_of_its_worker(tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    with begun_elsewhere(out) as (job, store, recipe):
        list(
            LocalEngine().run(
                replace(job, allow_mixed=True), shard_spans(store.plan, store.pending(), 1)
            )
        )
    receipts = read_receipts(out)
    assert len(receipts) == 2
    assert [receipt.stack for receipt in receipts] == [local_stack(recipe)] * 2


@dataclass(frozen=True)
class UnlikeWorkers:
    """An engine that measures its stack on a machine unlike those that it works on."""

    stack: dict[str, Any]

    @classmethod
    def of(cls, devices: Sequence[str], workers: int | None, choice: EngineChoice) -> UnlikeWorkers:
        raise NotImplementedError

    @property
    def at_once(self) -> int:
        return 1

    @property
    def collects(self) -> bool:
        return False

    @property
    def elsewhere(self) -> bool:
        return False

    def expect(self, imports: Sequence[str]) -> None:
        pass

    def run(
        self, work: Work[Item, Result], items: Sequence[Item]
    ) -> Generator[Event[Item, Result]]:
        if isinstance(work, Call):
            result: Any = self.stack
            yield Finished(items[0], result)
        else:
            yield from LocalEngine().run(work, items)


def test_the_lock_tells_what_the_engine_measured_and_unlike_workers_are_refused(
    tmp_path: Path,
) -> None:
    out = tmp_path / "dataset"
    recipe, inputs = small(out)
    engine = UnlikeWorkers(elsewhere(recipe))
    with pytest.raises(UserError, match="rendered by another stack"):
        DatasetBuild(recipe, inputs, out, "cpu", engine).whole()
    lock = read_lock(out)
    assert lock is not None
    assert lock.stack == elsewhere(recipe)
    assert read_receipts(out) == []
    DatasetBuild(recipe, inputs, out, "cpu", engine, allow_mixed=True).whole()
    assert [receipt.stack for receipt in read_receipts(out)] == [local_stack(recipe)] * 2


# A build on GPUs, as far as it gets without them: its own process asks for no context, and kinds of
# GPUs do not mix.


PERCENTILE = "screen.object_threshold={percentile: 20}"
JUDGED = "screen.judge=lab:resnet10t"
LEARNED = "tokens={learn: {}}"


@pytest.fixture
def context_requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record requests for a CUDA context in this process, where torch counts two GPUs and workers
    find none."""
    requests: list[str] = []

    def begin() -> None:
        requests.append("a context")
        raise RuntimeError("Found no NVIDIA driver on your system")

    monkeypatch.setattr(torch.cuda, "_lazy_init", begin)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return requests


@pytest.mark.parametrize(
    "change",
    [PERCENTILE, JUDGED, LEARNED, "tokens=null"],
    ids=["percentile", "judge", "tokens", "images"],
)
def test_whatever_touches_a_gpu_is_done_by_a_worker(
    change: str, context_requests: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Forked, which is quicker; where CUDA is known before a fork, torch says that it cannot be used
    # behind.
    begin_server(HEAVY, "cpu")
    monkeypatch.setattr(
        local, "worker_context", lambda device: multiprocessing.get_context("forkserver")
    )
    with pytest.raises((RunFailure, RuntimeError), match=r"no device is left|CUDA in forked"):
        build("wardrobe-mini", tmp_path / "out", overrides=[*TINY, change], device="auto")
    assert context_requests == []


def test_what_a_worker_measures_of_validation_images_is_what_this_process_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"source.dataset={garment_folder(tmp_path / 'garments', ('validation',))}"
    recipe = load_recipe("wardrobe-mini", [*TINY, PERCENTILE, JUDGED, GARMENT_CLASSES, source])
    in_process = resolve_inputs(recipe, tmp_path / "here", "cpu", LocalEngine())
    monkeypatch.setattr(local, "holds_context", lambda device: True)
    user_cache().rename(tmp_path / "cache")
    by_worker = resolve_inputs(recipe, tmp_path / "there", "cpu", LocalEngine())
    assert user_cache().is_dir(), "it was measured anew"
    assert by_worker.document == in_process.document
    assert by_worker.thresholds.content() == in_process.thresholds.content()
    assert by_worker.notes == in_process.notes


def of_gpus(**names: str) -> Any:
    """Return a function like `rendering_stack` on a machine with these GPUs."""

    def stack(device: str, recipe: Any) -> dict[str, Any]:
        measured = rendering_stack("cpu", recipe)
        return measured | {
            "device": names[device.replace(":", "")],
            "cuda": "13.2",
            "threads": None,
        }

    return stack


def test_another_kind_of_gpu_in_the_same_machine_is_refused_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = of_gpus(
        cuda0="NVIDIA A100-SXM4-80GB", cuda1="NVIDIA A100-SXM4-80GB", cuda2="Tesla T4"
    )
    monkeypatch.setattr(workers, "rendering_stack", measured)
    recipe = load_recipe("wardrobe-mini", TINY)
    stack = measured("cuda:0", recipe)
    writer = ShardWriter.of_plan(tmp_path, make_plan(recipe), {}, stack)
    lacking: Any = None
    job = Job(recipe, lacking, "cuda:0", writer)
    assert job.on("cuda:1")._writer_here().stack == stack
    with pytest.raises(UserError) as refused, job.on("cuda:2").ready():
        pass
    message = "\n".join(refused.value.problems)
    for words in ("NVIDIA A100-SXM4-80GB", "Tesla T4", "measured on cuda:2"):
        assert words in message
    assert "--allow-mixed" in (refused.value.hint or "")
    mixed = replace(job.on("cuda:2"), allow_mixed=True)
    assert mixed._writer_here().stack["device"] == "Tesla T4", "each receipt tells its own"
