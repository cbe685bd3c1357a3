"""What a large build costs its driver: a plan of ten million samples over a thousand workers, which
are simulated.

The driver's code is the real one, on real files: the plan, the directory's opening, spans of
shards, events and counts of a thousand workers, the progress that is shown, receipts, the closing.
Workers are a clock that jumps from batch to batch (`simulated_engine.py`), at the rate of images
that one core of the lab's models was measured at; they leave receipts, and stubs in place of
tables. Each part is a process of its own, so that its peak of memory is its own. What was
simulated, and what is smaller than the rest, stands beside the table.

The plan is ImageNet* with some of its shifts, 500 candidates a cell, 1,000 rows a shard. Twenty
shifts, the base among them, are ten million samples in ten thousand shards. Nothing of it is
loaded: inputs are pins without a model behind them, and every threshold is a number of the recipe.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benches import Page
from benches.processes import json_of
from benches.simulated_engine import KINDS, CountedFiles, SimulatedEngine, write_stub
from counterfoil.building.build_dataset import BuildProgress, DatasetBuild
from counterfoil.building.inputs import Inputs
from counterfoil.building.spans import Span, shard_spans
from counterfoil.building.workers import Job
from counterfoil.cli.progress import BuildDisplay
from counterfoil.dataset.closing import close_dataset
from counterfoil.engines import Doing, Finished, LocalEngine
from counterfoil.generate.screen.thresholds import resolve_thresholds
from counterfoil.models.stack import stack_of
from counterfoil.plan.layout import Sample, make_plan
from counterfoil.progress import listening
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.keep.cells import ACCEPTED
from counterfoil.recipe.keep.rule import CLIP_SCORES, Verdict
from counterfoil.store.dataset_store import DatasetStore
from counterfoil.store.lock import read_lock
from counterfoil.store.receipts import Receipt, counts_of
from counterfoil.store.replacement import settle_directory
from counterfoil.store.rows import Candidate
from results_page import table

TITLE = "What a large build costs its driver"
PARTS = ("scale",)
CLASSES = 1000
CANDIDATES = 500
ROWS = 1000
# plan/estimate.py: 8 images a second of the lab's generator on two cores, models loading included.
LAB_RATE = 4
_PINS = {
    "models": {
        "generator": {"name": "simulated", "revision": None, "sha256": "00" * 32},
        "screen": {"name": "simulated", "revision": None, "sha256": "11" * 32},
    },
    "source": {"dataset": "simulated", "revision": None, "content": None},
    "tokens": None,
    "thresholds": None,
}
Numbers = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add how large the plan is, and how many workers there are."""
    parser.add_argument(
        "--shifts",
        type=int,
        default=20,
        help="of ImageNet*, the base among them: half a million each",
    )
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=LAB_RATE, help="images a second of a worker")
    parser.add_argument(
        "--card-shifts",
        type=int,
        default=2,
        help="as many with real rows, for the card; 0 for none",
    )
    parser.add_argument(
        "--folder", type=Path, help="where the datasets are written; default the system's own"
    )


def measure(options: argparse.Namespace) -> Iterator[Page]:
    """Build, resume where receipts are missing, close, and write cards."""
    opening = [
        f"`python scripts/bench.py scale --shifts {options.shifts} --workers {options.workers}"
        f" --rate {options.rate}"
        f" --card-shifts {options.card_shifts}`. The machine's load was {os.getloadavg()[0]:.1f} on"
        f" {os.cpu_count()}"
        " cores before.",
        "Workers are simulated, and write stubs of tables; all else is the code of a build, on real"
        " files. Aims:"
        " the driver under 1 GB, its time under 2 % of the run, 10,000 receipts taken up again in"
        " less than 10 s.",
    ]
    with tempfile.TemporaryDirectory(prefix="counterfoil-scale-", dir=options.folder) as kept:
        out = Path(kept) / "dataset"
        shards = options.shifts * CLASSES * CANDIDATES // ROWS
        made = _measured(build, out, options.shifts, options.workers, options.rate)
        resumed = []
        for missing in (shards // 100, shards // 2):
            for path in random.Random(0).sample(sorted((out / "receipts").iterdir()), missing):
                path.unlink()
            resumed.append(
                (missing, _measured(build, out, options.shifts, options.workers, options.rate))
            )
        closed = _measured(close, out, options.shifts)
        of_local = _measured(local, Path(kept) / "local", 1, 2)
        lines = [
            *_run(options, made, of_local),
            "",
            *_resumed(shards, resumed),
            "",
            *_closed(closed),
        ]
        yield Page(opening, {"scale": lines})
        if options.card_shifts:
            written = _measured(rows, Path(kept) / "rows", options.card_shifts)
            carded = _measured(card, Path(kept) / "rows", options.card_shifts)
            yield Page(opening, {"scale": [*lines, "", *_carded(options, written, carded)]})


def _measured(phase: Callable[..., Numbers], out: Path, *numbers: int) -> Numbers:
    """Return what a function of this file measures in a process of its own."""
    print(f"{phase.__name__} …", file=sys.stderr, flush=True)
    started = time.perf_counter()
    measured = json_of("benches.scale", phase.__name__, out, *numbers, OMP_NUM_THREADS="1")
    print(f"{phase.__name__}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return measured


def _run(options: argparse.Namespace, made: Numbers, local: Numbers) -> list[str]:
    shards, samples = made["shards"], options.shifts * CLASSES * CANDIDATES
    cells = {
        "the run, by its own clock": f"{made['clock'] / 60:.1f} min",
        "until the first shard is handed out, libraries loaded": f"{made['opened']:.1f} s",
        "the driver's time for a shard, scheduling, events and progress": f"{1000 * made['driver'] / shards:.2f} ms",
        f"… with the messages of the local engine's processes, {local['shards']} shards": (
            f"{1000 * local['driver'] / local['shards']:.2f} ms"
        ),
        "the driver's time, of the run": f"{(made['driver'] + made['opened']) / made['clock']:.2%}",
        "waiting for the driver, of the workers' time": f"{made['waited'] / options.workers / made['clock']:.3%}",
        "events": f"{made['events']:,}",
        "the driver's peak of memory": _megabytes(made["peak"]),
        "… of it libraries, before the plan": _megabytes(made["idle"]),
        "what the driver asks of the disk for a shard": f"{sum(made['going'].values()) / shards:.4f}",
        "… and once, to begin": f"{sum(made['opening'].values())}",
    }
    return [
        f"{samples:,} samples in {shards:,} shards, {options.workers:,} workers of {options.rate}"
        " images"
        " a second each:",
        "",
        *table(["what", "measured"], cells.items()),
    ]


def _resumed(shards: int, resumed: list[tuple[int, Numbers]]) -> list[str]:
    rows = [
        [
            f"{shards - missing:,}",
            f"{missing:,}",
            f"{numbers['opened']:.1f} s",
            _megabytes(numbers["peak"]),
        ]
        + [numbers["opening"][kind] for kind in KINDS]
        for missing, numbers in resumed
    ]
    return [
        "Run again where receipts are missing, until the first shard is handed out:",
        "",
        *table(["receipts there", "missing", "time", "peak of memory", *KINDS], rows, words=0),
    ]


def _closed(closed: Numbers) -> list[str]:
    requests = ", ".join(f"{closed['files'][kind]:,} {kind}" for kind in KINDS)
    return [
        f"The end without the card, over {closed['receipts']:,} receipts: read and counted in"
        f" {closed['read']:.1f} s;"
        " read again, every file held against them, and the manifest written in"
        f" {closed['finished']:.1f} s, with"
        f" {_megabytes(closed['peak'])} at most ({requests}).",
    ]


def _carded(options: argparse.Namespace, written: Numbers, carded: Numbers) -> list[str]:
    times = options.shifts / options.card_shifts
    return [
        f"The whole end with card, figures and croissant.json, over {carded['samples']:,} real rows"
        " in"
        f" {written['shards']:,} shards: {carded['closed']:.1f} s and {_megabytes(carded['peak'])}"
        " at most, of which"
        f" {_megabytes(carded['idle'])} before. It reads every row once, so that the plan above"
        " takes about"
        f" {times:.0f} times as long: {carded['closed'] * times:.0f} s, extrapolated.",
    ]


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def large_recipe(shifts: int) -> Recipe:
    """Return the recipe with this many shifts, the base among them."""
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


class _Enough(Exception):
    """All shards are done."""


def build(out: Path, shifts: int, workers: int, rate: float) -> Numbers:
    """Run a build without its end, by simulated workers.

    Seconds, memory in bytes and what the driver asked of the disk: until the first item is handed
    out, and from there.
    """
    files = CountedFiles()
    recipe = large_recipe(shifts)
    inputs = inputs_of(recipe)
    # loads torch, as any build does
    stack_of("cpu", recipe.generator.dtype, recipe.generator.batch_size)
    idle = _peak()
    engine = SimulatedEngine(workers, rate, files)
    before = files.counts.copy()
    started = time.perf_counter()
    if out.exists():
        settle_directory(out)
        read_lock(out)
    opening: Mapping[str, int] = {}
    shards = 0
    display = BuildDisplay()

    def hear(progress: BuildProgress) -> None:
        nonlocal opening, shards
        display.update(progress)
        shards = progress.shards
        if not opening:
            opening = files.since(before)
        if progress.shards_done == progress.shards:
            raise _Enough

    with (
        contextlib.suppress(_Enough),
        contextlib.redirect_stderr(io.StringIO()),
        display,
        listening(hear),
    ):
        DatasetBuild(recipe, inputs, out, "cpu", engine).whole()
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
    """Run the end of a build without the card: read, count receipts, check files against them,
    write the manifest."""
    files = CountedFiles()
    with _reopened(out, shifts) as store:
        before = files.counts.copy()
        started = time.perf_counter()
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
    with _reopened(out, shifts) as store:
        started = time.perf_counter()
        for shard in store.pending():
            store.writer.write(shard, [_candidate(sample) for sample in shard.samples(store.plan)])
        return {"shards": store.plan.n_shards, "seconds": time.perf_counter() - started}


def card(out: Path, shifts: int) -> Numbers:
    """Run the end of a build over real rows: the tally, the card with its figures, croissant.json,
    the manifest."""
    with _reopened(out, shifts) as store:
        idle = _peak()
        started = time.perf_counter()
        close_dataset(store)
        seconds = time.perf_counter() - started
        return {"samples": store.plan.n_samples, "closed": seconds, "idle": idle, "peak": _peak()}


def local(out: Path, shifts: int, workers: int) -> Numbers:
    """Return the driver's processor seconds with this machine's engine, whose workers write
    stubs."""
    with _reopened(out, shifts) as store:
        recipe = store.plan.recipe
        job = StubJob(recipe, inputs_of(recipe), "cpu", store.writer)
        pending = store.pending()
        begun: tuple[float, int] | None = None
        used = 0.0
        done = 0
        engine = LocalEngine(workers)
        with contextlib.closing(
            engine.run(job, shard_spans(store.plan, pending, engine.at_once))
        ) as events:
            for event in events:
                if isinstance(event, Finished):
                    done += len(event.result)
                    used = time.process_time()
                    # workers are started and have loaded what they need
                    begun = begun or (used, done)
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
        size = self.recipe.generator.batch_size
        left = sum(shard.candidates for shard in span)
        while left > 0:
            yield min(size, left)
            left -= size
        return [write_stub(self.writer, shard) for shard in span]


def _reopened(out: Path, shifts: int) -> contextlib.AbstractContextManager[DatasetStore]:
    recipe = large_recipe(shifts)
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
    """Return a candidate with a picture of one colour; the sample's seed accepts about half of
    them."""
    accepted = sample.seed % 2 == 0
    scores: dict[str, float | None] = dict.fromkeys(map(str, CLIP_SCORES), 0.3 if accepted else 0.1)
    reason = ACCEPTED if accepted else "low_object"
    return Candidate(
        sample, Verdict(scores, dict.fromkeys(scores, 0.25)), reason, _picture(sample.seed % 64)
    )


@functools.cache
def _picture(colour: int) -> bytes:
    from PIL import Image

    with io.BytesIO() as file:
        Image.new("RGB", (16, 16), (colour * 4, 128, 255 - colour * 4)).save(file, "PNG")
        return file.getvalue()


def _peak() -> int:
    """Return the most memory that this process has had so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


if __name__ == "__main__":
    _, name, folder, *given = sys.argv
    phase = {"build": build, "close": close, "rows": rows, "card": card, "local": local}[name]
    print(json.dumps(phase(Path(folder), *map(int, given))))
