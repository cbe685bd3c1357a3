"""Items of work on the actors of a Ray cluster, of this machine or of many; each gets ready once and takes items.

An actor has one item at a time, so that none waits behind a slow one. What an actor was doing when it was lost, with
its node or alone, another one does. Ray is imported when it runs.
"""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil import __version__
from counterfoil.engines.engine import Advanced, Delivered, EngineChoice, Event, Finished, Item, Lost, Result, Work
from counterfoil.engines.local import default_workers
from counterfoil.engines.lost_workers import Deaths, Unready
from counterfoil.engines.ray_cluster import RayCluster, connected, refuse_absent_ray, refuse_no_cluster
from counterfoil.engines.ray_worker import DEVICE_FAILED, NO_MEMORY, ONE_THREAD, RESULT, RayWorker
from counterfoil.errors import RunFailure, UserError
from counterfoil.models.loading_errors import one_line

_LOOKS_EVERY = 5.0  # seconds between looks whether nodes have joined
_TELLS_AFTER = 60.0  # seconds in which no actor got ready: loading large models may take as long, so it only tells
_WAKES_EVERY = 1.0  # seconds, to hear a Ctrl-C that another thread has caught


@dataclass(frozen=True, slots=True)
class RayEngine:
    """A Ray cluster: the one at `address`, or, where that is None, one of this machine for each run (an `Engine`).

    `devices` are of this machine without an address, else what each actor works on: auto, cpu or cuda. `workers` is
    the number of actors in all; None: one a GPU, or a CPU core, of the cluster. `collects`: they share no folder.
    """

    devices: tuple[str, ...]
    workers: int | None = None
    address: str | None = None
    collects: bool = False

    @classmethod
    def of(cls, devices: Sequence[str], workers: int | None, choice: EngineChoice) -> RayEngine:
        """UserError where Ray is absent, for a number below 1, and for what is no address or device of a cluster."""
        refuse_absent_ray()
        default_workers(workers, devices[0])
        if choice.address is not None:
            refuse_no_cluster(choice.address)
            if devices[0] not in ("auto", "cpu", "cuda"):
                raise UserError(
                    f"device: found '{devices[0]}', expected auto, cpu or cuda with a Ray cluster",
                    "A cluster deals out its GPUs itself, one to each actor.",
                )
        return cls(tuple(devices), workers, choice.address, choice.collect)

    @property
    def at_once(self) -> int:
        if self.workers is not None or self.address is None:
            return self._workers_here
        with connected(self.address, self.devices, 0) as cluster:
            return cluster.places()

    @property
    def _workers_here(self) -> int:
        if self.workers is None and self.devices[0].startswith("cuda"):
            return len(self.devices)
        return default_workers(self.workers, "cpu")

    @property
    def elsewhere(self) -> bool:
        return self.address is not None

    def expect(self, imports: Sequence[str]) -> None:
        """Nothing: nodes start their own workers. See `Engine.expect`."""

    def run(self, work: Work[Item, Result], items: Sequence[Item]) -> Generator[Event[Item, Result]]:
        """Do every item and tell of it as it goes. See `Engine.run`."""
        if not len(items):
            return
        with (
            connected(self.address, self.devices, self._workers_here) as cluster,
            contextlib.closing(_Run(cluster, work, items, self.workers)) as run,
        ):
            yield from run.events()


class _Actor:
    """An actor, what is waited for of it, and which item it has."""

    def __init__(self, handle: Any, waiting: Any) -> None:
        self.handle = handle
        self.waiting = waiting  # a reference while it gets ready, a stream of them for an item, None while it is idle
        self.place: int | None = None
        self.counted = 0  # of the item, by this actor


class _Run:
    """The state of one run: actors, items to give again, and how much of each item in flight was told."""

    def __init__(self, cluster: RayCluster, work: Any, items: Sequence[Any], workers: int | None) -> None:
        import ray

        self.cluster, self.items, self.workers = cluster, items, workers
        self.work_at = ray.put(work)
        self.actors: list[_Actor] = []
        self.new: Iterator[int] = iter(range(len(items)))
        self.again: deque[int] = deque()
        self.left = len(items)
        self.told: Counter[int] = Counter()
        self.deaths = Deaths(work, workers or cluster.places(), workers or cluster.places())
        self.unready = Unready("Ray actor")
        self.failure: BaseException | None = None
        self.looked = -_LOOKS_EVERY
        self.began = time.monotonic()
        self.any_ready = self.told_of_waiting = False

    def close(self) -> None:
        for actor in self.actors:
            self._end(actor)

    def events(self) -> Generator[Event[Any, Any]]:
        while self.left:
            self._start_actors()
            self._hand_out()
            if self.failure is not None and not any(actor.place is not None for actor in self.actors):
                raise self.failure
            for actor in self._stirred():
                yield from self._heard(actor)
            yield from self._waits()

    def _waits(self) -> Iterator[Lost]:
        """Say once that no actor is ready yet: Ray itself waits without a word for what others hold."""
        if self.any_ready or self.told_of_waiting or time.monotonic() < self.began + _TELLS_AFTER:
            return
        self.told_of_waiting = True
        what = "GPU" if self.cluster.resource == "GPU" else "CPU core"
        yield Lost(
            f"no actor is ready after {_TELLS_AFTER:.0f} seconds: every {what} of the Ray cluster at"
            f" {self.cluster.address} may be in use, or models still load (see `ray status`); the run goes on waiting"
        )

    def _start_actors(self) -> None:
        """As many as the cluster holds, or as were asked for, but no more than there are items."""
        if self.failure is not None or time.monotonic() < self.looked + _LOOKS_EVERY:
            return
        self.looked = time.monotonic()
        places = self.cluster.places()
        if not places and not self.actors:
            self.failure = RunFailure(
                f"no node of the Ray cluster at {self.cluster.address} is left that could work",
                "Start nodes and run the same command again: what is finished is kept.",
            )
        for _ in range(min(self.workers or places, self.left) - len(self.actors)):
            self.actors.append(self._actor())

    def _actor(self) -> _Actor:
        import ray

        on_gpu = self.cluster.resource == "GPU"
        kind = ray.remote(RayWorker).options(
            num_cpus=0 if on_gpu else 1,
            num_gpus=1 if on_gpu else 0,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": ONE_THREAD},  # before the process begins
        )
        handle: Any = kind.remote()
        ready = handle.get_ready.remote(self.cluster.device, str(Path.cwd()), [self.work_at], __version__)
        return _Actor(handle, ready)

    def _hand_out(self) -> None:
        for actor in self.actors:
            if self.failure is not None or actor.waiting is not None:
                continue
            place = self.again.popleft() if self.again else next(self.new, None)
            if place is None:
                return
            actor.place, actor.counted = place, 0
            actor.waiting = actor.handle.do.options(num_returns="streaming").remote(self.items[place])

    def _stirred(self) -> list[_Actor]:
        """The actors that have something to tell; none where nothing came for a moment."""
        import ray

        waiting = {actor.waiting: actor for actor in self.actors if actor.waiting is not None}
        if not waiting:  # all are lost; nodes may join
            time.sleep(_WAKES_EVERY)
            return []
        ready, _ = ray.wait(list(waiting), timeout=_WAKES_EVERY)
        if ready and len(waiting) > 1:  # of many actors, all that have come together
            ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
        return [waiting[reference] for reference in ready]

    def _heard(self, actor: _Actor) -> Generator[Event[Any, Any]]:
        """What an actor tells next, as events; a failure is noted."""
        import ray
        from ray import exceptions

        place = actor.place
        try:
            if place is None:
                ray.get(actor.waiting)
                actor.waiting, self.any_ready = None, True
                self.unready.one_got_ready()
                return
            kind, told = ray.get(next(actor.waiting))
        except exceptions.RayTaskError as error:
            self._without(actor)
            self.failure = self.failure or error.cause or error
            return
        except exceptions.RayError as error:
            yield from self._lost(actor, _reason(error), _was_killed(error))
            return
        if kind == RESULT:
            actor.waiting = actor.place = None
            self.told.pop(place, None)
            self.deaths.finished += 1
            self.left -= 1
            yield Finished(self.items[place], told)
        elif kind == NO_MEMORY:
            self._without(actor)
            self.failure = self.failure or self.deaths.out_of_memory(self.items[place], self.cluster.device, told)
        elif kind == DEVICE_FAILED:
            yield from self._lost(actor, told, None)
        elif isinstance(told, Delivered):
            yield told
        else:
            actor.counted += told
            if (more := actor.counted - self.told[place]) > 0:  # the rest was told before another actor was lost
                self.told[place] = actor.counted
                yield Advanced(more)

    def _lost(self, actor: _Actor, reason: str, code: int | None) -> Iterator[Lost]:
        """Give the item of an actor that is gone to another, or note that it was one too many."""
        place = actor.place
        self._without(actor)
        self.looked = -_LOOKS_EVERY  # for one in its place
        if self.failure is not None:
            return
        if place is not None:
            self.again.append(place)
            ending = f"of Ray was lost ({reason})"
            try:
                told = self.deaths.count(place, self.items[place], self.cluster.device, ending, code, True)
            except RunFailure as error:
                self.failure = error
                return
            yield Lost(told)
            return
        if _NO_PACKAGE in reason:
            self.failure = UserError(
                f"a node of the Ray cluster cannot import what it needs: {reason}",
                f"Install the same on every node: pip install 'counterfoil[ray]=={__version__}'.",
            )
            return
        with_it = _LOST_NODE.search(reason)
        try:
            told = self.unready.count(reason, with_it[1] if with_it else None)
        except RunFailure as error:
            self.failure = error
            return
        yield Lost(told)

    def _without(self, actor: _Actor) -> None:
        self._end(actor)
        self.actors.remove(actor)

    def _end(self, actor: _Actor) -> None:
        import ray

        with contextlib.suppress(Exception):  # dead already, or the cluster is gone
            ray.kill(actor.handle)


_NO_PACKAGE = "ModuleNotFoundError"
_TELLING = ("The actor is dead because", "The actor died because", _NO_PACKAGE)
_LOST_NODE = re.compile(r"node has died. Node Id: ([0-9a-f]+)")
_LONGEST_REASON = 200


def _reason(error: Exception) -> str:
    """Why an actor is gone, of the many lines in which Ray says so."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line.startswith(_TELLING)]
    return (telling[-1] if telling else one_line(error))[:_LONGEST_REASON]


def _was_killed(error: Exception) -> int | None:
    """As an exit code of a process that was killed from outside: Ray's own watch over memory does it, or the system."""
    dead = "worker process has died" in str(error) or "memory" in type(error).__name__.lower()
    return -signal.SIGKILL if dead else None
