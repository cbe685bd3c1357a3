"""The stack is that of the worker that makes a shard: it is measured there, told in the receipt, or refused there."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from counterfoil.building.build_dataset import make_dataset
from counterfoil.building.inputs import Inputs, resolve_inputs
from counterfoil.building.spans import spans
from counterfoil.building.workers import Job
from counterfoil.engines import Event, Finished
from counterfoil.engines.called_on import Call
from counterfoil.engines.engine import EngineChoice, Item, Result, Work
from counterfoil.engines.local import LocalEngine
from counterfoil.errors import UserError
from counterfoil.models.devices import stack_of
from counterfoil.plan import make_plan
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.store import DatasetStore
from counterfoil.store.lock import read_lock, refuse_other_stack
from counterfoil.store.reading import read_receipts
from tiny_builds import TINY, published

# Two shards of one image each, so that two workers have something to do.
SMALL = (
    *TINY,
    "source.classes=[{id: '05', name: sandal, source_label: 5}, {id: '08', name: bag, source_label: 8}]",
    "prompts.shifts={in_the_snow: null, red: null, pencil_sketch: null}",
    "samples.candidates=1",
    "output.rows_per_shard=1",
)


def small(out: Path) -> tuple[Recipe, Inputs]:
    recipe = load_recipe("wardrobe-mini", SMALL)
    return recipe, resolve_inputs(recipe, out, "cpu", LocalEngine())


def here(recipe: Recipe) -> dict[str, Any]:
    return stack_of("cpu", recipe.generator.dtype, recipe.generator.batch_size)


def elsewhere(recipe: Recipe) -> dict[str, Any]:
    """As if an earlier version of torch were on another machine."""
    stack = here(recipe)
    return stack | {"versions": stack["versions"] | {"torch": "1.0.0"}}


@contextmanager
def begun_elsewhere(out: Path) -> Iterator[tuple[Job, DatasetStore, Recipe]]:
    """A dataset that was begun by another stack, and the job of a worker that makes it."""
    recipe, inputs = small(out)
    hashes = {"plan": recipe.plan_hash, "screen": recipe.screen_hash, "inputs": inputs.hash}
    with DatasetStore.open(
        out, make_plan(recipe), hashes, inputs.document, elsewhere(recipe),
        recipe_yaml=recipe.portable_yaml, attachments=inputs.attachments(),
    ) as store:  # fmt: skip
        content = inputs.thresholds.content()
        yield Job(recipe, None, None, content, "cpu", inputs.commits, inputs.judges, store.writer), store, recipe


@pytest.mark.parametrize("workers", [1, 2], ids=["this process", "two workers"])
def test_a_worker_of_another_stack_is_refused_and_writes_nothing(workers: int, tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    with begun_elsewhere(out) as (job, store, recipe):
        before = published(out)
        with pytest.raises(UserError) as refused:
            list(LocalEngine(workers).run(job, spans(store.plan, store.pending(), workers)))
        assert published(out) == before
        with pytest.raises(UserError) as words:
            refuse_other_stack(out, elsewhere(recipe), here(recipe))
    assert (refused.value.problems, refused.value.hint) == (words.value.problems, words.value.hint)
    assert any("versions.torch" in line for line in refused.value.problems)


def test_a_receipt_tells_the_stack_of_its_worker(tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    with begun_elsewhere(out) as (job, store, recipe):
        list(LocalEngine().run(replace(job, allow_mixed=True), spans(store.plan, store.pending(), 1)))
    receipts = read_receipts(out)
    assert len(receipts) == 2
    assert [receipt.stack for receipt in receipts] == [here(recipe)] * 2


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

    def run(self, work: Work[Item, Result], items: Sequence[Item]) -> Generator[Event[Item, Result]]:
        if isinstance(work, Call):
            result: Any = self.stack
            yield Finished(items[0], result)
        else:
            yield from LocalEngine().run(work, items)


def test_the_lock_tells_what_the_engine_measured_and_unlike_workers_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "dataset"
    recipe, inputs = small(out)
    engine = UnlikeWorkers(elsewhere(recipe))
    with pytest.raises(UserError, match="rendered by another stack"):
        make_dataset(recipe, inputs, out, device="cpu", engine=engine)
    lock = read_lock(out)
    assert lock is not None
    assert lock.stack == elsewhere(recipe)
    assert read_receipts(out) == []
    make_dataset(recipe, inputs, out, device="cpu", engine=engine, allow_mixed=True)
    assert [receipt.stack for receipt in read_receipts(out)] == [here(recipe)] * 2
