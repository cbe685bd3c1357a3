"""What becomes of a run that loses workers, devices or memory: how often it goes on, and the words for people."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from counterfoil.engines.engine import SavesMemory
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
_KEPT = "What is finished is kept: run the same command again."


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
            return f"the worker on {device} {ending}; {named(item)} is begun again by another"
        if times >= MOST_DEATHS_OF_AN_ITEM:
            problem = f"{named(item)}: {times} workers died at it; the last, on {device}, {ending}"
        else:
            problem = f"{total} workers died, and {self.finished} items were finished; the last, on {device}, {ending}"
        hint = [_KEPT]
        if code == -signal.SIGKILL:
            hint.append(f"The system kills what takes too much memory. {self._less_memory(device)}")
        elif not began:
            hint.append('A script that starts workers needs `if __name__ == "__main__":` around what it does.')
        else:
            hint.append(
                "If it happens again, a library or a driver fails there: another device, or --workers 1, tells."
            )
        raise RunFailure(problem, " ".join(hint))

    def out_of_memory(self, item: Any, device: str, reason: str) -> RunFailure:
        """Too little memory, with what helps."""
        return RunFailure(f"{named(item)}: out of memory on {device}: {reason}", f"{_KEPT} {self._less_memory(device)}")

    def _less_memory(self, device: str) -> str:
        advice = [self.work.less_memory] if isinstance(self.work, SavesMemory) else []
        if self.workers > 1:
            a_device = " a device" if holds_context(device) else ""
            advice.append(f"So do fewer --workers (now {self.workers}{a_device}).")
        advice.append("Or end what else runs there.")
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
            return f"a {self.what} was lost before it was ready ({reason}); another one takes its place"
        raise RunFailure(
            f"{self._causes} {self.what}s were lost before they were ready; the last: {reason}",
            f"{_KEPT} Fewer --workers need less memory.",
        )


def no_device_left(lost: Sequence[str]) -> RunFailure:
    """RunFailure for a run all of whose devices are gone; `lost` says of each what it answered."""
    return RunFailure(
        ["no device is left to work on", *lost],
        f"{_KEPT} `nvidia-smi` shows the GPUs of this machine and who uses them; --device names others.",
    )


def ending_of(code: int | None) -> str:
    """How a process ended, behind its name."""
    if code is None:
        return "answered no more"
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
