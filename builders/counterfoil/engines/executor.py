"""Hand items to the workers of any engine, report their events, and continue when workers are lost.

An engine brings a crew, which starts workers and passes on their events; a worker has one item at a time.
"""

from __future__ import annotations

import contextlib
import signal
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from counterfoil.engines.engine import Advanced, Delivered, Doing, Event, Finished, Lost
from counterfoil.errors import RunFailure, some_of
from counterfoil.models.devices import holds_context

# If an item's workers die this often, the item is thought to kill them.
MOST_DEATHS_OF_AN_ITEM = 3
# Deaths in a run, for each concurrent worker, plus one for every finished item. At this number, give up.
MOST_DEATHS_A_WORKER = 3
# Workers lost one after another before one gets ready. At this number, give up.
MOST_UNREADY = 3
_MOST_NAMED = 3
_LONGEST_NAME = 80
_KEPT = "Finished work is kept: run the same command again."


@dataclass(frozen=True, slots=True)
class Done:
    result: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """An item failed, or loading did; another worker would fail too."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class NoMemory:
    """An item, or loading for it, took more memory than there is."""

    reason: str


@dataclass(frozen=True, slots=True)
class DeviceFailed:
    """The worker cannot use its device any more, and ends. If it was never ready, the device itself is gone."""

    reason: str
    was_ready: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """The worker is gone. ending: how, as words after its name. code: negative for a signal. began: it had its work."""

    ending: str
    code: int | None
    began: bool


Heard: TypeAlias = Advanced | Delivered[Any] | Done | Failed | NoMemory | DeviceFailed | Ended | Lost


class Worker(Protocol):
    @property
    def device(self) -> str: ...

    def give(self, item: Any) -> None: ...


class Crew(Protocol):
    """The workers of a run, and their source. A worker that fails or ends leaves the crew before that is reported."""

    def idle(self, wanted: int) -> Sequence[Worker]:
        """Return at most so many workers that can take an item, new or old. RunFailure if none can be started."""
        ...

    def stands_in(self) -> bool:
        """Return whether any worker, or room for one, is left after a device is gone."""
        ...

    def heard(self) -> Iterator[tuple[Any, Heard]]:
        """Yield the next events with their workers (None for the crew's own `Lost`), waiting at most a moment."""
        ...


def events_of(doing: Doing[Any, Any]) -> Iterator[Advanced | Delivered[Any] | Done]:
    """Yield the events of a running item, and last its result; closing this closes the item."""
    with contextlib.closing(doing):
        while True:
            try:
                event = next(doing)
            except StopIteration as end:
                yield Done(end.value)
                return
            yield event if isinstance(event, Delivered) else Advanced(event)


def hand_out(
    crew: Crew, items: Sequence[Any], deaths: Deaths
) -> Generator[Event[Any, Any], None, BaseException | None]:
    """Give every item to a worker and yield the events; return the first failure, after which no item is given."""
    waiting = deque(range(len(items)))
    held: dict[Worker, int] = {}  # worker → index of its item
    counted: Counter[Worker] = Counter()  # what this worker counted of its item
    reported: Counter[int] = Counter()  # what any worker counted of an item
    gone: list[str] = []
    failure: BaseException | None = None
    while True:
        if failure is None and waiting:
            try:
                for worker in crew.idle(len(waiting)):
                    index = waiting.popleft()
                    held[worker], counted[worker] = index, 0
                    worker.give(items[index])
            except RunFailure as error:
                failure = error
        if not held and (failure is not None or not waiting):
            return failure
        for worker, event in crew.heard():
            if isinstance(event, Lost):
                if failure is None:  # after a failure, lost workers are not replaced
                    yield event
            elif isinstance(event, Failed):
                failure = failure or event.error
                held.pop(worker, None)
            elif worker in held:  # a worker may end before it is given another item
                index = held[worker]
                match event:
                    case Advanced(count):
                        counted[worker] += count
                        # Counts of a lost worker for the same item were reported already.
                        if (more := counted[worker] - reported[index]) > 0:
                            reported[index] = counted[worker]
                            yield Advanced(more)
                        continue
                    case Delivered():
                        yield event
                        continue
                    case Done(result):
                        deaths.finished += 1
                        del reported[index]
                        yield Finished(items[index], result)
                    case NoMemory(reason):
                        failure = failure or deaths.out_of_memory(items[index], worker.device, reason)
                    case _:
                        waiting.appendleft(index)
                        if isinstance(event, DeviceFailed) and not event.was_ready:
                            gone.append(f"{worker.device}: {event.reason}")
                        if failure is None:
                            try:
                                yield Lost(_loss(event, worker.device, gone, crew, deaths, index, items[index]))
                            except RunFailure as error:
                                failure = error
                del held[worker]


def _loss(
    event: DeviceFailed | Ended, device: str, gone: Sequence[str], crew: Crew, deaths: Deaths, index: int, item: Any
) -> str:
    """Return the message for a worker that is lost while the run continues. RunFailure if it cannot."""
    match event:
        case Ended(ending, code, began):
            return deaths.count(index, item, device, ending, code, began)
        case DeviceFailed(reason, was_ready=True):
            return deaths.count(index, item, device, f"lost its device ({reason})", None, True)
        case DeviceFailed(reason):
            if not crew.stands_in():
                raise RunFailure(
                    ["no device is left to work on", *gone],
                    f"{_KEPT} `nvidia-smi` shows the GPUs of this machine and their processes; choose others with"
                    " --device.",
                )
            return f"{device} cannot be used: {reason}; other workers take {name_of_item(item)} and the rest"


@dataclass(slots=True)
class Deaths:
    """The deaths of a run's workers, by item. workers: on each device; at_once: on all."""

    work: Any
    workers: int
    at_once: int
    finished: int = 0
    _of_items: Counter[int] = field(default_factory=Counter)

    def count(self, index: int, item: Any, device: str, ending: str, code: int | None, began: bool) -> str:
        """Count a death and return its message; the item is done again. RunFailure if there were too many."""
        self._of_items[index] += 1
        times, total = self._of_items[index], self._of_items.total()
        if times < MOST_DEATHS_OF_AN_ITEM and total < MOST_DEATHS_A_WORKER * self.at_once + self.finished:
            return f"the worker on {device} {ending}; another worker restarts {name_of_item(item)}"
        if times >= MOST_DEATHS_OF_AN_ITEM:
            problem = (
                f"{name_of_item(item)}: {times} workers died while working on it; the last one, on {device}, {ending}"
            )
        else:
            problem = f"{total} workers died, with {self.finished} items finished; the last one, on {device}, {ending}"
        hint = [_KEPT]
        if code == -9:  # SIGKILL, which Windows does not name
            hint.append(f"The system kills processes that use too much memory. {self._less_memory(device)}")
        elif not began:
            hint.append('A script that starts workers needs `if __name__ == "__main__":` around its code.')
        else:
            hint.append("If it happens again, a library or driver may be at fault: try another device, or --workers 1.")
        raise RunFailure(problem, " ".join(hint))

    def out_of_memory(self, item: Any, device: str, reason: str) -> RunFailure:
        return RunFailure(
            f"{name_of_item(item)}: out of memory on {device}: {reason}", f"{_KEPT} {self._less_memory(device)}"
        )

    def _less_memory(self, device: str) -> str:
        advice = []
        if less_memory := getattr(self.work, "less_memory", None):
            advice.append(less_memory)
        if self.workers > 1:
            a_device = " a device" if holds_context(device) else ""
            advice.append(f"Fewer --workers (now {self.workers}{a_device}) need less memory.")
        advice.append("Or stop other programs there.")
        return " ".join(advice)


@dataclass(slots=True)
class Unready:
    """The workers lost before they were ready, since the last one got ready. what: a worker, for people."""

    what: str
    _causes: int = 0
    _nodes: set[str] = field(default_factory=set)

    def one_got_ready(self) -> None:
        self._causes = 0

    def count(self, reason: str, node: str | None) -> str:
        """Count a loss and return its message; RunFailure if there were too many. Losses with one `node` count once."""
        if node is None or node not in self._nodes:
            self._causes += 1
        if node is not None:
            self._nodes.add(node)
        if self._causes < MOST_UNREADY:
            return f"a {self.what} was lost before it was ready ({reason}); starting another one"
        raise RunFailure(
            f"{self._causes} {self.what}s were lost before they were ready; the last: {reason}",
            f"{_KEPT} Fewer --workers need less memory.",
        )


def ending_of(code: int | None) -> str:
    if code is None:
        return "stopped answering"
    if code >= 0:
        return f"ended unexpectedly with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}"


def name_of_item(item: Any) -> str:
    """Name an item for people: by its `id` (a shard), the first of several, else by `str`."""
    if isinstance(item, Sequence) and not isinstance(item, str):
        return some_of([name_of_item(part) for part in item], _MOST_NAMED)
    name = str(getattr(item, "id", item))
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
