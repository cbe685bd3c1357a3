"""The plan that is simulated: ImageNet* with some of its shifts, 500 candidates a cell, 1,000 rows a shard.

Twenty shifts, the base among them, are ten million samples in ten thousand shards. Nothing of it is loaded: inputs are
pins without a model behind them, and every threshold is a number of the recipe.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from counterfoil.building.build_dataset import BuildProgress, make_dataset
from counterfoil.building.closing import close_dataset
from counterfoil.building.inputs import Inputs
from counterfoil.building.spans import Span, spans
from counterfoil.building.workers import Job
from counterfoil.cli.progress import BuildDisplay
from counterfoil.engines import Doing, Finished, LocalEngine
from counterfoil.generate.screen import resolve_thresholds
from counterfoil.models.devices import stack_of
from counterfoil.plan import Sample, make_plan
from counterfoil.progress import listening
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.keep import ACCEPTED, CLIP_SCORES, Verdict
from counterfoil.store import Candidate, DatasetStore, Receipt
from counterfoil.store.lock import read_lock
from counterfoil.store.receipts import counts_of
from counterfoil.store.replacement import settle_directory
from scale_bench.simulated_engine import CountedFiles, SimulatedEngine, write_stub

CANDIDATES, ROWS = 500, 1000
_PINS = {
    "models": {
        "generator": {"name": "simulated", "revision": None, "sha256": "00" * 32},
        "screen": {"name": "simulated", "revision": None, "sha256": "11" * 32},
    },
    "source": {"dataset": "simulated", "revision": None, "content": None},
    "tokens": None,
    "thresholds": None,
}


def large_recipe(shifts: int) -> Recipe:
    """The recipe with so many shifts, the base among them."""
    named = [shift.name for shift in load_recipe("imagenet-star").all_shifts()[1:]]
    if not 1 <= shifts <= len(named) + 1:
        raise SystemExit(f"--shifts: found {shifts}, expected 1 to {len(named) + 1}")
    return load_recipe(
        "imagenet-star",
        [
            "tokens=null",
            "screen.judge=null",
            "screen.object_threshold=0.25",
            f"samples.candidates={CANDIDATES}",
            f"output.rows_per_shard={ROWS}",
            *(f"prompts.shifts.{name}=null" for name in named[shifts - 1 :]),
        ],
    )


def inputs_of(recipe: Recipe) -> Inputs:
    return Inputs(dict(_PINS), resolve_thresholds(recipe, None), None)


Numbers = dict[str, Any]


class _Enough(Exception):
    """As many shards are done as are wanted."""


def build(out: Path, shifts: int, workers: int, rate: float, limit: int | None = None) -> Numbers:
    """All of a build but its closing, by simulated workers; or, with a `limit`, only until so many shards are done.

    Seconds, memory in bytes and what the driver asked of the disk: until the first item is handed out, and from there.
    """
    files = CountedFiles()
    recipe = large_recipe(shifts)
    inputs = inputs_of(recipe)
    stack_of("cpu", recipe.generator.dtype, recipe.generator.batch_size)  # loads torch, as any build does
    idle = _peak()
    engine = SimulatedEngine(workers, rate, files)
    before, started = files.counts.copy(), time.perf_counter()
    if out.exists():
        settle_directory(out)
        read_lock(out)
    opening: Mapping[str, int] = {}
    shards = 0
    display = BuildDisplay()

    def hear(told: BuildProgress) -> None:
        nonlocal opening, shards
        display.update(told)
        shards = told.shards
        if not opening:
            opening = files.since(before)
        if told.shards_done == told.shards or (limit is not None and told.shards_done >= limit):
            raise _Enough

    with contextlib.suppress(_Enough), contextlib.redirect_stderr(io.StringIO()), display, listening(hear):
        make_dataset(recipe, inputs, out, device="cpu", engine=engine)
    return {
        "shards": shards,
        "opened": (engine.seen.first or started) - started,
        "opening": opening,
        "going": {kind: count - opening[kind] for kind, count in files.since(before).items()},
        "idle": idle,
        "peak": _peak(),
        **asdict(engine.seen),
    }


def close(out: Path, shifts: int) -> Numbers:
    """The end of a build but for its card: receipts read and counted, files held against them, the manifest."""
    files = CountedFiles()
    with _reopened(out, large_recipe(shifts)) as store:
        before, started = files.counts.copy(), time.perf_counter()
        receipts = store.receipts()
        counts_of(receipts)
        read = time.perf_counter() - started
        store.finish("# Simulated\n")
        return {
            "receipts": len(receipts),
            "read": read,
            "finished": time.perf_counter() - started - read,
            "files": files.since(before),
            "peak": _peak(),
        }


def rows(out: Path, shifts: int) -> Numbers:
    """Write every shard for real: rows and tiny images without a renderer behind them."""
    with _reopened(out, large_recipe(shifts)) as store:
        started = time.perf_counter()
        for shard in store.pending():
            store.writer.write(shard, [_candidate(sample) for sample in shard.samples(store.plan)])
        return {"shards": store.plan.n_shards, "seconds": time.perf_counter() - started}


def card(out: Path, shifts: int) -> Numbers:
    """The whole end of a build over real rows: the tally, the card with its figures, croissant.json, the manifest."""
    recipe = large_recipe(shifts)
    with _reopened(out, recipe) as store:
        idle, started = _peak(), time.perf_counter()
        close_dataset(store, recipe, None)
        seconds = time.perf_counter() - started
        return {"samples": store.plan.n_samples, "closed": seconds, "idle": idle, "peak": _peak()}


def local(out: Path, shifts: int, workers: int) -> Numbers:
    """Processor seconds of the driver with the engine of this machine, whose workers write stubs."""
    recipe = large_recipe(shifts)
    with _reopened(out, recipe) as store:
        job = StubJob(recipe, None, None, b"", "cpu", inputs_of(recipe).commits, {}, store.writer)
        pending = store.pending()
        begun: tuple[float, int] | None = None
        used, done = 0.0, 0
        engine = LocalEngine(workers)
        with contextlib.closing(engine.run(job, spans(store.plan, pending, engine.at_once))) as events:
            for event in events:
                if isinstance(event, Finished):
                    done += len(event.result)
                    used = time.process_time()
                    begun = begun or (used, done)  # workers are started and have loaded what they need
        assert begun is not None
        return {"shards": done - begun[1], "driver": used - begun[0]}


@dataclass(frozen=True, slots=True)
class StubJob(Job):
    """A build's job without a model: it counts batches as one would, and writes stubs."""

    def on(self, device: str) -> StubJob:
        return replace(self, device=device)

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[Any], Doing[int, list[Receipt]]]]:
        yield self._make

    def _make(self, span: Span) -> Doing[int, list[Receipt]]:
        size, left = self.recipe.generator.batch_size, sum(shard.candidates for shard in span)
        while left > 0:
            yield min(size, left)
            left -= size
        return [write_stub(self.writer, shard) for shard in span]


def _reopened(out: Path, recipe: Recipe) -> contextlib.AbstractContextManager[DatasetStore]:
    inputs = inputs_of(recipe)
    return DatasetStore.open(
        out,
        make_plan(recipe),
        {"plan": recipe.plan_hash, "screen": recipe.screen_hash, "inputs": inputs.hash},
        inputs.document,
        stack_of("cpu", recipe.generator.dtype, recipe.generator.batch_size),
        recipe_yaml=recipe.portable_yaml,
        attachments=inputs.attachments(),
    )


def _candidate(sample: Sample) -> Candidate:
    """About half of them are accepted, by the sample's seed; each has a picture of one colour by it."""
    accepted = sample.seed % 2 == 0
    scores: dict[str, float | None] = dict.fromkeys(map(str, CLIP_SCORES), 0.3 if accepted else 0.1)
    reason = ACCEPTED if accepted else "low_object"
    return Candidate(sample, Verdict(scores, dict.fromkeys(scores, 0.25)), reason, _picture(sample.seed % 64))


@functools.cache
def _picture(colour: int) -> bytes:
    from PIL import Image

    with io.BytesIO() as file:
        Image.new("RGB", (16, 16), (colour * 4, 128, 255 - colour * 4)).save(file, "PNG")
        return file.getvalue()


def _peak() -> int:
    """The most memory that this process has had so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> None:
    """`phases.py NAME FOLDER NUMBERS…`: one of the functions above, and its numbers as JSON."""
    name, out, *numbers = sys.argv[1:]
    measured = {"build": build, "close": close, "rows": rows, "card": card, "local": local}[name]
    print(json.dumps(measured(Path(out), *map(int, numbers))))


if __name__ == "__main__":
    main()
