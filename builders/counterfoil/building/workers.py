"""Run shards in this process or on worker processes; each worker loads the models once and takes whole shards.

On a CPU every worker runs one torch thread and parallelism is workers, so the number of cores changes no byte.
A worker that loses its parent ends itself; its half-written files are removed by the next run.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil.building.shard import ShardMaker
from counterfoil.errors import RunFailure
from counterfoil.generate import Renderer
from counterfoil.models.clip import load_clip
from counterfoil.models.devices import one_thread
from counterfoil.models.diffusion import load_pipeline
from counterfoil.plan import Plan, Shard, make_plan
from counterfoil.recipe import load_recipe_text
from counterfoil.screen import Scorer, Thresholds
from counterfoil.store import Receipt, ShardWriter

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Job:
    """All that a worker needs, as plain data that pickles."""

    recipe_yaml: str
    placeholders: Mapping[str, str] | None
    tokens: Mapping[str, torch.Tensor] | None
    thresholds: bytes
    device: str
    writer: ShardWriter

    def plan(self) -> Plan:
        return make_plan(load_recipe_text(self.recipe_yaml), self.placeholders)

    def maker(self, plan: Plan) -> ShardMaker:
        """Load the models. Raises what loading raises."""
        generator, screen = plan.recipe.generator, plan.recipe.screen
        pipeline = load_pipeline(
            generator.model,
            revision=generator.revision,
            scheduler=generator.scheduler,
            dtype=generator.dtype,
            device=self.device,
            tokens=self.tokens,
        )
        clip = load_clip(screen.model, screen.weights, self.device)
        return ShardMaker(
            plan,
            Renderer(pipeline, plan.recipe),
            Scorer.for_plan(clip, plan),
            Thresholds.read(self.thresholds),
        )


def run_shards(
    job: Job,
    shards: Sequence[Shard],
    workers: int,
    on_images: Callable[[int], None],
    on_shard: Callable[[Receipt], None],
) -> None:
    """Make and write every shard. Raises the first failure once the shards in flight are done."""
    if workers <= 1:
        _run_here(job, shards, on_images, on_shard)
    else:
        _run_on_workers(job, shards, min(workers, len(shards)), on_images, on_shard)


def _run_here(
    job: Job, shards: Sequence[Shard], on_images: Callable[[int], None], on_shard: Callable[[Receipt], None]
) -> None:
    with one_thread():
        maker = job.maker(job.plan())
        try:
            for shard in shards:
                on_shard(job.writer.write(shard, maker.make(shard, on_images)))
        finally:
            maker.close()


def _run_on_workers(
    job: Job,
    shards: Sequence[Shard],
    workers: int,
    on_images: Callable[[int], None],
    on_shard: Callable[[Receipt], None],
) -> None:
    context = multiprocessing.get_context("spawn")
    heard = context.Queue()
    listener = threading.Thread(target=_listen, args=(heard, on_images), daemon=True)
    listener.start()
    # The libraries read this when they start, so it must stand before the workers do.
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(job, heard))
    try:
        with _deaf_to_interrupts():
            waiting = [pool.submit(_make, shard) for shard in shards]
        for done in as_completed(waiting):
            on_shard(done.result())
    except BrokenProcessPool as error:
        raise RunFailure(
            "a worker process ended unexpectedly (killed, or out of memory)",
            "Run the same command again: finished shards are kept. Fewer --workers need less memory.",
        ) from error
    except KeyboardInterrupt:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        heard.put(None)
        listener.join(timeout=5)
        if before is None:
            os.environ.pop("OMP_NUM_THREADS", None)
        else:
            os.environ["OMP_NUM_THREADS"] = before


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started inside are born with Ctrl-C blocked: it would end their imports with a traceback."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _listen(heard: Any, on_images: Callable[[int], None]) -> None:
    while (count := heard.get()) is not None:
        on_images(count)


class _Worker:
    """What a worker process keeps between shards."""

    job: Job
    maker: ShardMaker | None = None
    heard: Any


def _start(job: Job, heard: Any) -> None:
    # Ctrl-C reaches the whole terminal group; the parent decides what happens.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    _Worker.job, _Worker.heard = job, heard


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def _make(shard: Shard) -> Receipt:
    if _Worker.maker is None:
        # Here and not in the initializer, whose errors would only break the pool.
        import torch

        if _Worker.job.device == "cpu":
            torch.set_num_threads(1)
        _Worker.maker = _Worker.job.maker(_Worker.job.plan())
    return _Worker.job.writer.write(shard, _Worker.maker.make(shard, _Worker.heard.put))
