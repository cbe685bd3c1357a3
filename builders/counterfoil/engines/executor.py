"""Give items to the workers of any engine, report the events, and continue when workers are lost.

Each engine has a `Crew`, which starts workers and passes on their events. A worker has one item at
a time.
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

# If so many workers die while working on one item, the run ends: the item probably causes the
# deaths.
MOST_DEATHS_OF_AN_ITEM = 3
# The number of deaths at which a run ends, for each concurrent worker. Every finished item allows
# one more death.
MOST_DEATHS_A_WORKER = 3
# A run ends when so many workers are lost one after another before they are ready.
MOST_UNREADY = 3
_MOST_NAMED = 3
_LONGEST_NAME = 80
_KEPT = "Finished work is kept: run the same command again."


@dataclass(frozen=True, slots=True)
class Done:
    result: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """An item failed, or loading failed, with an error that another worker would raise too."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class NoMemory:
    """An item, or loading a worker, needed more memory than is available."""

    reason: str


@dataclass(frozen=True, slots=True)
class DeviceFailed:
    """The worker cannot use its device, and ends. In a crew, the worker was never ready: the device
    itself is gone."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The worker has ended.

    ending: how the worker ended, as words that follow its name. code: the exit code, or the
    negative number of a signal.
    """

    ending: str
    code: int | None


Heard: TypeAlias = Advanced | Delivered | Done | Failed | NoMemory | DeviceFailed | Ended | Lost


class Worker(Protocol):
    @property
    def device(self) -> str: ...

    def give(self, item: Any) -> None: ...


class Crew(Protocol):
    """The workers of a run. A crew also starts workers.

    A worker that fails or ends leaves the crew before the crew reports the event.
    """

    def idle(self, wanted: int) -> Sequence[Worker]:
        """Return at most `wanted` workers that can take an item. The crew may start workers.

        RunFailure if no worker can be started.
        """
        ...

    def can_continue(self) -> bool:
        """Return whether, after the loss of a device, a worker is left or another worker can be
        started."""
        ...

    def heard(self) -> Iterator[tuple[Any, Heard]]:
        """Wait a short time, and yield each new event with its worker, or with None for a `Lost` of
        the crew itself."""
        ...


def events_of(doing: Doing[Any, Any]) -> Iterator[Advanced | Delivered | Done]:
    """Yield the events of a running item, and then its result. Closing this generator also closes
    the item."""
    with contextlib.closing(doing):
        while True:
            try:
                event = next(doing)
            except StopIteration as end:
                yield Done(end.value)
                return
            yield event if isinstance(event, Delivered) else Advanced(event)


def hand_out(
    crew: Crew,
    items: Sequence[Any],
    deaths: Deaths,
) -> Generator[Event[Any, Any], None, BaseException | None]:
    """Give every item to a worker, and yield the events. Return the first failure, or None.

    After a failure, no worker gets another item.
    """
    waiting = deque(range(len(items)))
    held: dict[Worker, int] = {}  # worker → index of its item
    counted: Counter[Worker] = Counter()  # worker → what the worker has counted of its current item
    reported: Counter[int] = Counter()  # index of an item → the largest count that was reported
    gone: list[str] = []
    failure: BaseException | None = None
    while True:
        if failure is None and waiting:
            try:
                for worker in crew.idle(len(waiting)):
                    index = waiting.popleft()
                    held[worker] = index
                    counted[worker] = 0
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
            elif worker in held:  # a worker without an item may end, which needs no event
                index = held[worker]
                match event:
                    case Advanced(count):
                        counted[worker] += count
                        # Counts of a lost worker for the same item were reported already.
                        more = counted[worker] - reported[index]
                        if more > 0:
                            reported[index] += more
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
                        failure = failure or deaths.out_of_memory(
                            items[index],
                            worker.device,
                            reason,
                        )
                    case Ended(ending, code):
                        waiting.appendleft(index)
                        if failure is None:
                            try:
                                yield Lost(
                                    deaths.count(index, items[index], worker.device, ending, code)
                                )
                            except RunFailure as error:
                                failure = error
                    case DeviceFailed(reason):
                        waiting.appendleft(index)
                        gone.append(f"{worker.device}: {reason}")
                        if failure is None and not crew.can_continue():
                            failure = RunFailure(
                                ["no device is left to work on", *gone],
                                f"{_KEPT} `nvidia-smi` shows the GPUs of this machine and their"
                                " processes; choose others with --device.",
                            )
                        elif failure is None:
                            others = f"other workers take {name_of_item(items[index])} and the rest"
                            yield Lost(f"{worker.device} cannot be used: {reason}; {others}")
                del held[worker]


@dataclass(slots=True)
class Deaths:
    """The number of workers that died in a run, for each item.

    workers: the number of workers on each device. at_once: the number of workers on all devices.
    """

    work: Any
    workers: int
    at_once: int
    finished: int = 0
    _of_items: Counter[int] = field(default_factory=Counter)

    def count(self, index: int, item: Any, device: str, ending: str, code: int | None) -> str:
        """Count the death of a worker. Return the message that its item restarts. RunFailure after
        too many deaths."""
        self._of_items[index] += 1
        times = self._of_items[index]
        total = self._of_items.total()
        if times >= MOST_DEATHS_OF_AN_ITEM:
            problem = (
                f"{name_of_item(item)}: {times} workers died while working on it; the last"
                f" one, on {device}, {ending}"
            )
        elif total >= MOST_DEATHS_A_WORKER * self.at_once + self.finished:
            problem = (
                f"{total} workers died, with {self.finished} items finished; the last one, on"
                f" {device}, {ending}"
            )
        else:
            return f"the worker on {device} {ending}; another worker restarts {name_of_item(item)}"
        advice = (
            "If it happens again, a library or driver may be at fault: try another device, or"
            " --workers 1."
        )
        if code == -9:  # SIGKILL, which Windows does not name
            less_memory = self._less_memory(device)
            advice = f"The system kills processes that use too much memory. {less_memory}"
        raise RunFailure(problem, f"{_KEPT} {advice}")

    def out_of_memory(self, item: Any, device: str, reason: str) -> RunFailure:
        return RunFailure(
            f"{name_of_item(item)}: out of memory on {device}: {reason}",
            f"{_KEPT} {self._less_memory(device)}",
        )

    def _less_memory(self, device: str) -> str:
        advice = []
        less_memory = getattr(self.work, "less_memory", None)
        if less_memory:
            advice.append(less_memory)
        if self.workers > 1:
            a_device = " a device" if holds_context(device) else ""
            advice.append(f"Fewer --workers (now {self.workers}{a_device}) need less memory.")
        advice.append("Or stop other programs there.")
        return " ".join(advice)


@dataclass(slots=True)
class Unready:
    """The losses of Ray actors that were not ready yet, since the last actor got ready."""

    _causes: int = 0
    _nodes: set[str] = field(default_factory=set)

    def one_got_ready(self) -> None:
        self._causes = 0

    def count(self, reason: str, node: str | None) -> str:
        """Count the loss of an actor, and return its message. Several losses on the same `node`
        count once.

        RunFailure after too many losses.
        """
        if node is None or node not in self._nodes:
            self._causes += 1
        if node is not None:
            self._nodes.add(node)
        if self._causes < MOST_UNREADY:
            return f"a Ray actor was lost before it was ready ({reason}); starting another one"
        raise RunFailure(
            f"{self._causes} Ray actors were lost before they were ready; the last: {reason}",
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
    """Return the name of an item for messages: its `id`, such as a shard's, or `str(item)`.

    For a sequence, return the names of its first items.
    """
    if isinstance(item, Sequence) and not isinstance(item, str):
        return some_of([name_of_item(part) for part in item], _MOST_NAMED)
    name = str(getattr(item, "id", item))
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
