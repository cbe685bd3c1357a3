"""The executor of every engine: hands items to workers, tells what comes back, and goes on when some are lost.

An engine brings a crew: it starts workers where there is room, and passes on what they tell. How often a run goes on
after losses, in which order items are dealt, and the words for people are here. A worker has one item at a time.
"""

from __future__ import annotations

import contextlib
import signal
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from counterfoil.engines.engine import Advanced, Delivered, Doing, Event, Finished, Lost
from counterfoil.errors import RunFailure
from counterfoil.models.devices import holds_context

# An item whose worker dies so often is thought to be what kills it.
MOST_DEATHS_OF_AN_ITEM = 3
# Of all workers of a run, for each of those at once, and one more for every finished item: beyond, more die than do.
MOST_DEATHS_A_WORKER = 3
# One after another before one gets ready.
MOST_UNREADY = 3
_MOST_NAMED = 3
_LONGEST_NAME = 80
_KEPT = "Finished work is kept: run the same command again."


@dataclass(frozen=True, slots=True)
class Done:
    """An item is done. All that was counted of it came before."""

    result: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """An item, or getting ready, failed: another worker would meet the same."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class NoMemory:
    """An item, or getting ready for it, took more memory than there is."""

    reason: str


@dataclass(frozen=True, slots=True)
class DeviceFailed:
    """The device cannot be used by this worker any more, which ends.

    was_ready: it could be used before. A worker that gets ready meets the device anew, so else it is gone.
    """

    reason: str
    was_ready: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """The worker is gone: `ending` is how, behind its name, and `code` its exit code (minus a signal's number), if any.

    began: it came as far as to take its work.
    """

    ending: str
    code: int | None
    began: bool


Heard: TypeAlias = Advanced | Delivered[Any] | Done | Failed | NoMemory | DeviceFailed | Ended | Lost


class Worker(Protocol):
    """A worker of a crew, which takes one item at a time."""

    @property
    def device(self) -> str: ...

    def give(self, item: Any) -> None: ...


class Crew(Protocol):
    """Workers, and where they come from. One that fails its device, or ended, leaves before that is reported."""

    def idle(self, wanted: int) -> Sequence[Worker]:
        """At most so many workers that can take an item, started just now or before. RunFailure where none starts."""
        ...

    def stands_in(self) -> bool:
        """Whether any worker, or room for one, is left now that a device is gone."""
        ...

    def heard(self) -> Iterator[tuple[Any, Heard]]:
        """What workers tell next, and who; of a `Lost`, which the crew itself tells, nobody. Returns after a moment."""
        ...


def events_of(doing: Doing[Any, Any]) -> Iterator[Advanced | Delivered[Any] | Done]:
    """The events of an item as it is done, and last its result; closed before its end, it closes the item."""
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
    """Give every item to a worker of the crew, and tell of it as it goes; what ended the run early, if anything did.

    After a failure nothing more is handed out, and what is in flight is waited for.
    """
    waiting = deque(range(len(items)))
    held: dict[Worker, int] = {}  # who has which item
    counted: Counter[Worker] = Counter()  # of its item, by the worker that has it
    reported: Counter[int] = Counter()  # of an item, whoever did it
    gone: list[str] = []
    failure: BaseException | None = None
    while True:
        if failure is None and waiting:
            try:
                for worker in crew.idle(len(waiting)):
                    place = waiting.popleft()
                    held[worker], counted[worker] = place, 0
                    worker.give(items[place])
            except RunFailure as error:
                failure = error
        if not held and (failure is not None or not waiting):
            return failure
        for worker, heard in crew.heard():
            if isinstance(heard, Lost):
                if failure is None:  # else none takes its place
                    yield heard
            elif isinstance(heard, Failed):
                failure = failure or heard.error
                held.pop(worker, None)
            elif worker in held:  # else it is gone before it was given anything more
                place = held[worker]
                match heard:
                    case Advanced(count):
                        counted[worker] += count
                        # What a worker that was lost had counted of the item was reported then.
                        if (more := counted[worker] - reported[place]) > 0:
                            reported[place] = counted[worker]
                            yield Advanced(more)
                        continue
                    case Delivered():
                        yield heard
                        continue
                    case Done(result):
                        deaths.finished += 1
                        del reported[place]
                        yield Finished(items[place], result)
                    case NoMemory(reason):
                        failure = failure or deaths.out_of_memory(items[place], worker.device, reason)
                    case _:
                        waiting.appendleft(place)
                        if isinstance(heard, DeviceFailed) and not heard.was_ready:
                            gone.append(f"{worker.device}: {heard.reason}")
                        if failure is None:
                            try:
                                yield Lost(_loss(heard, worker.device, gone, crew, deaths, place, items[place]))
                            except RunFailure as error:
                                failure = error
                del held[worker]


def _loss(
    heard: DeviceFailed | Ended, device: str, gone: Sequence[str], crew: Crew, deaths: Deaths, place: int, item: Any
) -> str:
    """What to tell of a worker that is lost while the run goes on. RunFailure where it cannot."""
    match heard:
        case Ended(ending, code, began):
            return deaths.count(place, item, device, ending, code, began)
        case DeviceFailed(reason, was_ready=True):
            return deaths.count(place, item, device, f"lost its device ({reason})", None, True)
        case DeviceFailed(reason):
            if not crew.stands_in():
                raise RunFailure(
                    ["no device is left to work on", *gone],
                    f"{_KEPT} `nvidia-smi` shows the GPUs of this machine and their processes; choose others with"
                    " --device.",
                )
            return f"{device} cannot be used: {reason}; other workers take {named(item)} and the rest"


@dataclass(slots=True)
class Deaths:
    """The deaths of a run's workers, by what they did. workers: on each device; at_once: on all."""

    work: Any
    workers: int
    at_once: int
    finished: int = 0
    _of_items: Counter[int] = field(default_factory=Counter)

    def count(self, place: int, item: Any, device: str, ending: str, code: int | None, began: bool) -> str:
        """What to tell of one death, after which the item is done again. RunFailure where it was one too many."""
        self._of_items[place] += 1
        times, total = self._of_items[place], self._of_items.total()
        if times < MOST_DEATHS_OF_AN_ITEM and total < MOST_DEATHS_A_WORKER * self.at_once + self.finished:
            return f"the worker on {device} {ending}; another worker restarts {named(item)}"
        if times >= MOST_DEATHS_OF_AN_ITEM:
            problem = f"{named(item)}: {times} workers died while working on it; the last one, on {device}, {ending}"
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
        """Too little memory, with what helps."""
        return RunFailure(f"{named(item)}: out of memory on {device}: {reason}", f"{_KEPT} {self._less_memory(device)}")

    def _less_memory(self, device: str) -> str:
        advice = [own] if (own := getattr(self.work, "less_memory", None)) else []
        if self.workers > 1:
            a_device = " a device" if holds_context(device) else ""
            advice.append(f"Fewer --workers (now {self.workers}{a_device}) need less memory.")
        advice.append("Or stop other programs there.")
        return " ".join(advice)


@dataclass(slots=True)
class Unready:
    """The losses of a run's workers before they were ready, since one got ready last. what: a worker, for people."""

    what: str
    _causes: int = 0
    _nodes: set[str] = field(default_factory=set)

    def one_got_ready(self) -> None:
        self._causes = 0

    def count(self, reason: str, node: str | None) -> str:
        """What to tell of one loss, after which another worker takes its place. RunFailure where it was one too many.

        `node`: the machine that was lost, and the worker with it. However many workers go with a machine, or are still
        sent there before it is known to be lost, it is one loss.
        """
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
    """How a process ended, behind its name."""
    if code is None:
        return "stopped answering"
    if code >= 0:
        return f"ended unexpectedly with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}"


def named(item: Any) -> str:
    """An item for people: by its id where it has one (a shard), the first of several, else as Python writes it."""
    if isinstance(item, Sequence) and not isinstance(item, str):
        shown = ", ".join(named(one) for one in item[:_MOST_NAMED])
        return f"{shown} and {len(item) - _MOST_NAMED} more" if len(item) > _MOST_NAMED else shown
    name = str(getattr(item, "id", item))
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
