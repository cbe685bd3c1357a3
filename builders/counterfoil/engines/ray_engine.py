"""Do work on the actors of a Ray cluster. Each actor loads its models once, before its first
item."""

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
from counterfoil.engines.engine import Doing, Engine, EngineChoice, Event, Item, Lost, Result, Work
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
from counterfoil.engines.ray_cluster import (
    RayCluster,
    connected_cluster,
    refuse_absent_ray,
    refuse_no_cluster,
)
from counterfoil.errors import RunFailure, UserError
from counterfoil.models.devices import prepare_worker
from counterfoil.models.loading_errors import device_error, error_line, memory_error
from counterfoil.progress import disable_progress_bars

_LOOKS_EVERY = 5.0  # seconds between two checks for new nodes
# seconds until a message that no actor is ready: no error, since models may load so long
_TELLS_AFTER = 60.0
_WAKES_EVERY = 1.0  # seconds; waking notices a Ctrl-C that another thread has caught


@dataclass(frozen=True, slots=True)
class RayEngine(Engine):
    """The `Engine` that works on a Ray cluster.

    address: the address of the cluster, or None for a new cluster on this machine for each run.
    devices: devices of this machine if `address` is None, else the kind of device that each actor
    works on (auto, cpu or cuda). workers: the total number of actors, or None for one actor on each
    GPU or CPU core of the cluster.
    """

    devices: tuple[str, ...]
    workers: int | None = None
    address: str | None = None
    collects: bool = False

    @classmethod
    def of(cls, devices: Sequence[str], workers: int | None, choice: EngineChoice) -> RayEngine:
        """Return the engine. UserError if Ray is absent, or if `workers`, the address or the device
        is invalid."""
        refuse_absent_ray()
        default_workers(workers, devices[0])  # refuses a number below 1
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
        with connected_cluster(self.address, self.devices, 0) as cluster:
            return cluster.places()

    @property
    def _workers_here(self) -> int:
        if self.workers is None and self.devices[0].startswith("cuda"):
            return len(self.devices)
        return default_workers(self.workers, "cpu")

    @property
    def elsewhere(self) -> bool:
        return self.address is not None

    def run(
        self,
        work: Work[Item, Result],
        items: Sequence[Item],
    ) -> Generator[Event[Item, Result]]:
        if not len(items):
            return
        with (
            connected_cluster(self.address, self.devices, self._workers_here) as cluster,
            contextlib.closing(_Actors(cluster, work, self.workers)) as crew,
        ):
            at_once = self.workers or cluster.places()
            failure = yield from hand_out(crew, items, Deaths(work, at_once, at_once))
            if failure is not None:
                raise failure


class _Actor:
    """The `executor.Worker` for one actor. `has_item` says whether the actor has an item."""

    def __init__(self, handle: Any, ready: Any, device: str) -> None:
        self.handle = handle
        self.device = device
        self.waiting = ready  # a reference while getting ready, a stream for an item, or None
        self.has_item = False

    def give(self, item: Any) -> None:
        streaming = self.handle.do.options(num_returns="streaming")
        self.waiting = streaming.remote(item)
        self.has_item = True


class _Actors:
    """The `executor.Crew` of the actors of one run: the requested number, or one for each place in
    the cluster."""

    def __init__(self, cluster: RayCluster, work: Any, workers: int | None) -> None:
        import ray

        self.cluster = cluster
        self.workers = workers
        self.work_at = ray.put(work)
        self.actors: list[_Actor] = []
        self.unready = Unready()
        self.looked = -_LOOKS_EVERY
        self.began = time.monotonic()
        self.any_ready = self.reported_waiting = False

    def close(self) -> None:
        for actor in list(self.actors):
            self._end(actor)

    def idle(self, wanted: int) -> list[_Actor]:
        """Return idle actors, and regularly check for new nodes. Never start more actors than
        unfinished items."""
        if time.monotonic() >= self.looked + _LOOKS_EVERY:
            self.looked = time.monotonic()
            places = self.cluster.places()
            if not places and not self.actors:
                raise RunFailure(
                    f"the Ray cluster at {self.cluster.address} has no working node left",
                    "Start nodes and run the same command again: finished work is kept.",
                )
            left = wanted + sum(actor.has_item for actor in self.actors)
            self.actors += [
                self._started() for _ in range(min(self.workers or places, left) - len(self.actors))
            ]
        return [actor for actor in self.actors if actor.waiting is None][:wanted]

    def can_continue(self) -> bool:
        return True  # nodes may join

    def heard(self) -> Iterator[tuple[_Actor | None, Heard]]:
        for actor in self._stirred():
            if (event := self._next_event(actor)) is not None:
                yield actor, event
        if self.any_ready or self.reported_waiting or time.monotonic() < self.began + _TELLS_AFTER:
            return
        # Ray itself waits silently for resources that other programs occupy.
        self.reported_waiting = True
        what = "GPU" if self.cluster.resource == "GPU" else "CPU core"
        message = (
            f"no actor is ready after {_TELLS_AFTER:.0f} seconds: every {what} of the Ray cluster"
            f" at {self.cluster.address} may be in use, or models still load (see `ray status`);"
            " still waiting"
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
            runtime_env={"env_vars": _ONE_THREAD},  # set before the process starts
        )
        handle: Any = kind.remote()
        ready = handle.get_ready.remote(
            self.cluster.device,
            str(Path.cwd()),
            [self.work_at],
            __version__,
        )
        return _Actor(handle, ready, self.cluster.device)

    def _stirred(self) -> list[_Actor]:
        """Wait a short time, and return the actors that have an event."""
        import ray

        waiting = {actor.waiting: actor for actor in self.actors if actor.waiting is not None}
        if not waiting:  # all actors are lost, but new nodes may join
            time.sleep(_WAKES_EVERY)
            return []
        ready, _ = ray.wait(list(waiting), timeout=_WAKES_EVERY)
        if ready and len(waiting) > 1:  # return all actors that have an event, not only the first
            ready, _ = ray.wait(list(waiting), num_returns=len(waiting), timeout=0)
        return [waiting[reference] for reference in ready]

    def _next_event(self, actor: _Actor) -> Heard | None:
        """Return the next event of an actor, or None if the event is that the actor got ready."""
        import ray
        from ray import exceptions

        try:
            if not actor.has_item:
                ray.get(actor.waiting)
                actor.waiting = None
                self.any_ready = True
                self.unready.one_got_ready()
                return None
            event = ray.get(next(actor.waiting))
        except exceptions.RayTaskError as error:
            self._end(actor)
            return Failed(error.cause or error)
        except exceptions.RayError as error:
            # Ray's error has many lines. Find the line with the reason.
            lines = [line.strip() for line in str(error).splitlines()]
            telling = [line for line in lines if line.startswith(_TELLING)]
            reason = (telling[-1] if telling else error_line(error))[:_LONGEST_REASON]
            # Ray's memory monitor or the system has killed the process. -9 is SIGKILL, a name that
            # Windows lacks.
            killed = (
                "worker process has died" in str(error) or "memory" in type(error).__name__.lower()
            )
            return self._lost(actor, reason, -9 if killed else None)
        if isinstance(event, Done):
            actor.waiting = None
            actor.has_item = False
        elif isinstance(event, NoMemory):
            self._end(actor)
        elif isinstance(event, DeviceFailed):
            return self._lost(actor, event.reason, None)
        return event

    def _lost(self, actor: _Actor, reason: str, code: int | None) -> Heard:
        """Return the event for a lost actor.

        The event depends on whether the actor had an item. It is `Failed` if too many actors were
        lost before they were ready.
        """
        self._end(actor)
        self.looked = -_LOOKS_EVERY  # look for a replacement at once
        if actor.has_item:
            return Ended(f"of Ray was lost ({reason})", code)
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
        with contextlib.suppress(Exception):  # the actor or the cluster has ended already
            ray.kill(actor.handle)


_NO_PACKAGE = "ModuleNotFoundError"
_TELLING = ("The actor is dead because", "The actor died because", _NO_PACKAGE)
_LOST_NODE = re.compile(r"node has died. Node Id: ([0-9a-f]+)")
_LONGEST_REASON = 200


# Libraries read these variables when they are loaded.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class RayWorker:
    """The class of an actor. An actor loads its models once and keeps them for all items."""

    device: str
    context: Any
    do_item: Callable[[Any], Doing[Any, Any]]

    def get_ready(self, device: str, folder: str, work_at: Sequence[Any], version: str) -> None:
        """Load what the work needs. Enter the working directory of the command first, if it exists
        on this node.

        Relative paths then have the same meaning as for the command.
        """
        import ray

        disable_progress_bars()  # the caller reports progress, and gets the output of this process
        self.device = device
        if Path(folder).is_dir():
            os.chdir(folder)
        try:
            work = ray.get(work_at[0])
        except Exception as error:
            if version == __version__:
                raise
            raise UserError(
                f"the node {ray.util.get_node_ip_address()} has counterfoil {__version__}, and this"
                f" command {version}",
                f"Install the same on every node: pip install 'counterfoil[ray]=={version}'.",
            ) from error
        prepare_worker(device)
        self.context = work.on(device).ready()  # this reference keeps the context open
        self.do_item = self.context.__enter__()

    def do(self, item: Any) -> Iterator[Heard]:
        """Yield the events of an item, and then its result, or the failure of memory or of the
        device."""
        try:
            yield from events_of(self.do_item(item))
        except Exception as error:
            if reason := memory_error(error):
                yield NoMemory(reason)
            elif self.device != "cpu" and (reason := device_error(error)):
                yield DeviceFailed(reason)
            else:
                raise
