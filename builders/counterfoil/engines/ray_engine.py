"""Work on the actors of a Ray cluster; each gets ready once and gets its first item then."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil import __version__
from counterfoil.engines.engine import Doing, EngineChoice, Event, Item, Lost, Result, Work
from counterfoil.engines.executor import (
    Deaths,
    DeviceFailed,
    Done,
    Ended,
    Failed,
    Heard,
    NoMemory,
    Unready,
    events_of,
    hand_out,
)
from counterfoil.engines.local import default_workers
from counterfoil.engines.ray_cluster import RayCluster, connected, refuse_absent_ray, refuse_no_cluster
from counterfoil.errors import RunFailure, UserError
from counterfoil.models.devices import prepare_worker
from counterfoil.models.loading_errors import device_error, error_line, memory_error
from counterfoil.progress import disable_progress_bars

_LOOKS_EVERY = 5.0  # seconds between looks whether nodes have joined
_TELLS_AFTER = 60.0  # seconds until a message that no actor is ready; large models may load as long, so no error
_WAKES_EVERY = 1.0  # seconds, to notice a Ctrl-C that another thread has caught


@dataclass(frozen=True, slots=True)
class RayEngine:
    """A Ray cluster: the one at `address`, or, without one, a new one of this machine for each run (an `Engine`).

    `devices` are this machine's without an address, else what each actor works on: auto, cpu or cuda. `workers` is the
    number of actors in all; None for one a GPU, or a CPU core, of the cluster.
    """

    devices: tuple[str, ...]
    workers: int | None = None
    address: str | None = None
    collects: bool = False

    @classmethod
    def of(cls, devices: Sequence[str], workers: int | None, choice: EngineChoice) -> RayEngine:
        """Return the engine. UserError if Ray is absent, or a number, address or device does not fit."""
        refuse_absent_ray()
        default_workers(workers, devices[0])
        if choice.address is not None:
            refuse_no_cluster(choice.address)
            if devices[0] not in ("auto", "cpu", "cuda"):
                raise UserError(
                    f"device: found '{devices[0]}', expected auto, cpu or cuda with a Ray cluster",
                    "A Ray cluster assigns its GPUs itself, one to each actor.",
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
        """Do nothing: nodes start their own workers."""

    def run(self, work: Work[Item, Result], items: Sequence[Item]) -> Generator[Event[Item, Result]]:
        if not len(items):
            return
        with (
            connected(self.address, self.devices, self._workers_here) as cluster,
            contextlib.closing(_Actors(cluster, work, self.workers)) as crew,
        ):
            at_once = self.workers or cluster.places()
            if failure := (yield from hand_out(crew, items, Deaths(work, at_once, at_once))):
                raise failure


class _Actor:
    """An actor, the reference that it is waited for by, and whether it has an item (an `executor.Worker`)."""

    def __init__(self, handle: Any, ready: Any, device: str) -> None:
        self.handle = handle
        self.device = device
        self.waiting = ready  # a reference while it gets ready, a stream of them for an item, None while idle
        self.has_item = False

    def give(self, item: Any) -> None:
        self.waiting, self.has_item = self.handle.do.options(num_returns="streaming").remote(item), True


class _Actors:
    """The actors of one run (an `executor.Crew`): as many as the cluster holds, or as requested."""

    def __init__(self, cluster: RayCluster, work: Any, workers: int | None) -> None:
        import ray

        self.cluster, self.workers = cluster, workers
        self.work_at = ray.put(work)
        self.actors: list[_Actor] = []
        self.unready = Unready("Ray actor")
        self.looked = -_LOOKS_EVERY
        self.began = time.monotonic()
        self.any_ready = self.reported_waiting = False

    def close(self) -> None:
        for actor in list(self.actors):
            self._end(actor)

    def idle(self, wanted: int) -> list[_Actor]:
        """Return idle actors; check now and then for new nodes. Never start more actors than items are left."""
        if time.monotonic() >= self.looked + _LOOKS_EVERY:
            self.looked = time.monotonic()
            places = self.cluster.places()
            if not places and not self.actors:
                raise RunFailure(
                    f"the Ray cluster at {self.cluster.address} has no working node left",
                    "Start nodes and run the same command again: finished work is kept.",
                )
            left = wanted + sum(actor.has_item for actor in self.actors)
            self.actors += [self._started() for _ in range(min(self.workers or places, left) - len(self.actors))]
        return [actor for actor in self.actors if actor.waiting is None][:wanted]

    def stands_in(self) -> bool:
        return True  # nodes may join

    def heard(self) -> Iterator[tuple[_Actor | None, Heard]]:
        for actor in self._stirred():
            if (event := self._next_event(actor)) is not None:
                yield actor, event
        if self.any_ready or self.reported_waiting or time.monotonic() < self.began + _TELLS_AFTER:
            return
        # Ray itself waits silently for resources that others hold.
        self.reported_waiting = True
        what = "GPU" if self.cluster.resource == "GPU" else "CPU core"
        message = (
            f"no actor is ready after {_TELLS_AFTER:.0f} seconds: every {what} of the Ray cluster at"
            f" {self.cluster.address} may be in use, or models still load (see `ray status`); still waiting"
        )
        yield None, Lost(message)

    def _started(self) -> _Actor:
        import ray

        on_gpu = self.cluster.resource == "GPU"
        kind = ray.remote(RayWorker).options(
            num_cpus=0 if on_gpu else 1,
            num_gpus=1 if on_gpu else 0,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": _ONE_THREAD},  # before the process begins
        )
        handle: Any = kind.remote()
        ready = handle.get_ready.remote(self.cluster.device, str(Path.cwd()), [self.work_at], __version__)
        return _Actor(handle, ready, self.cluster.device)

    def _stirred(self) -> list[_Actor]:
        """Wait a moment and return the actors that have an event."""
        import ray

        waiting = {actor.waiting: actor for actor in self.actors if actor.waiting is not None}
        if not waiting:  # all are lost; nodes may join
            time.sleep(_WAKES_EVERY)
            return []
        ready, _ = ray.wait(list(waiting), timeout=_WAKES_EVERY)
        if ready and len(waiting) > 1:  # of many actors, all that have come together
            ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
        return [waiting[reference] for reference in ready]

    def _next_event(self, actor: _Actor) -> Heard | None:
        """Return the next event of an actor; None for one that got ready."""
        import ray
        from ray import exceptions

        try:
            if not actor.has_item:
                ray.get(actor.waiting)
                actor.waiting, self.any_ready = None, True
                self.unready.one_got_ready()
                return None
            event = ray.get(next(actor.waiting))
        except exceptions.RayTaskError as error:
            self._end(actor)
            return Failed(error.cause or error)
        except exceptions.RayError as error:
            # Of Ray's many lines, the one with the reason.
            lines = [line.strip() for line in str(error).splitlines()]
            telling = [line for line in lines if line.startswith(_TELLING)]
            reason = (telling[-1] if telling else error_line(error))[:_LONGEST_REASON]
            # Ray's memory monitor, or the system, killed the process: SIGKILL, which Windows does not name.
            killed = "worker process has died" in str(error) or "memory" in type(error).__name__.lower()
            return self._lost(actor, reason, -9 if killed else None)
        if isinstance(event, Done):
            actor.waiting, actor.has_item = None, False
        elif isinstance(event, NoMemory):
            self._end(actor)
        elif isinstance(event, DeviceFailed):
            return self._lost(actor, event.reason, None)
        return event

    def _lost(self, actor: _Actor, reason: str, code: int | None) -> Heard:
        """Return the event of a lost actor: with its item, or before it was ready, perhaps once too often."""
        self._end(actor)
        self.looked = -_LOOKS_EVERY  # look for a replacement at once
        if actor.has_item:
            return Ended(f"of Ray was lost ({reason})", code, True)
        if _NO_PACKAGE in reason:
            problem = f"a node of the Ray cluster cannot import what it needs: {reason}"
            hint = f"Install the same on every node: pip install 'counterfoil[ray]=={__version__}'."
            return Failed(UserError(problem, hint))
        node = _LOST_NODE.search(reason)
        try:
            return Lost(self.unready.count(reason, node[1] if node else None))
        except RunFailure as error:
            return Failed(error)

    def _end(self, actor: _Actor) -> None:
        import ray

        self.actors.remove(actor)
        with contextlib.suppress(Exception):  # dead already, or the cluster is gone
            ray.kill(actor.handle)


_NO_PACKAGE = "ModuleNotFoundError"
_TELLING = ("The actor is dead because", "The actor died because", _NO_PACKAGE)
_LOST_NODE = re.compile(r"node has died. Node Id: ([0-9a-f]+)")
_LONGEST_REASON = 200


# Libraries read these when they are loaded.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class RayWorker:
    """The class of an actor: it gets ready once, and its models stay loaded between items."""

    device: str
    context: Any
    do_item: Callable[[Any], Doing[Any, Any]]

    def get_ready(self, device: str, folder: str, work_at: Sequence[Any], version: str) -> None:
        """Load what the work needs, in the command's working directory, for relative paths to mean the same."""
        import ray

        disable_progress_bars()  # the output goes to the caller, which reports progress
        self.device = device
        if Path(folder).is_dir():
            os.chdir(folder)
        try:
            work = ray.get(work_at[0])
        except Exception as error:
            if version == __version__:
                raise
            raise UserError(
                f"the node {ray.util.get_node_ip_address()} has counterfoil {__version__}, and this command {version}",
                f"Install the same on every node: pip install 'counterfoil[ray]=={version}'.",
            ) from error
        prepare_worker(device)
        self.context = work.on(device).ready()  # kept: it would end with its last reference
        self.do_item = self.context.__enter__()

    def do(self, item: Any) -> Iterator[Heard]:
        """Yield the events of an item, and last its result, or why this worker cannot have one."""
        try:
            yield from events_of(self.do_item(item))
        except Exception as error:
            if reason := memory_error(error):
                yield NoMemory(reason)
            elif self.device != "cpu" and (reason := device_error(error)):
                yield DeviceFailed(reason, was_ready=True)
            else:
                raise
