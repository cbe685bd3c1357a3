"""What an engine is, what it is given to do, and what it tells: the events of items on their way.

Work is plain data that pickles, so that an engine may carry it to other processes and machines. An engine decides
where items are done, and nothing else.

An engine's `run` carries work, which pickles, to wherever it likes, has each worker get `ready` once on a device of
its own, and tells as items go. A worker that dies is replaced and its item done again up to a limit; what was counted
once is not counted again. It raises what an item raised once those in flight are done, and closed early it ends its
workers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
Item_contra = TypeVar("Item_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)
Part = TypeVar("Part")
Yielded = TypeVar("Yielded")

# An item on its way, in whichever process: it yields its events, and returns its result.
Doing: TypeAlias = Generator[Yielded, None, Result]


class Work(Protocol[Item_contra, Result_co]):
    """What a worker does: plain data that pickles, and a way to get ready.

    It may have two more attributes: `less_memory`, a sentence that says what makes it need less, shown where there was
    too little; `imports`, the heavy modules that its workers import, which are worth a server to fork them from.
    """

    @property
    def device(self) -> str: ...

    def on(self, device: str) -> Self:
        """The same work for a worker on this device, such as `cuda:1`."""
        ...

    def ready(self) -> AbstractContextManager[Callable[[Item_contra], Doing[int, Result_co]]]:
        """Load what is needed, once a worker, and give the function of one item.

        It yields a count (of images, of steps) whenever so much more of the item is done, and returns its result.
        Between counts it may yield `Delivered`, which is passed on as it is.
        An item whose worker died is done again: it counts from its beginning, and what it finds done it counts at once.
        Loading meets the device: an error of it there says that the device is gone, one in an item that it failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Advanced:
    """So much more of some item is done, in the unit of the work. What is done again is not counted again."""

    count: int


@dataclass(frozen=True, slots=True)
class Delivered(Generic[Part]):
    """A part of an item that is done, for whoever listens: to write, where it was made elsewhere, or to tell of.

    One that is made again, since its worker was lost, comes again.
    """

    part: Part


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker or its device was lost, or none can be had yet, and the run goes on; `message` says so in a sentence."""

    message: str


@dataclass(frozen=True, slots=True)
class Finished(Generic[Item, Result]):
    """An item is done. All that was counted and delivered of it came before."""

    item: Item
    result: Result


Event: TypeAlias = Advanced | Delivered[Any] | Lost | Finished[Item, Result]


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """What a person says of where work is done.

    name: a key of `ENGINES`. address: of a cluster that runs already; None begins one on this machine, where the engine
    is one of clusters. collect: workers send what they made to this process, which writes it, where they share no
    folder.
    """

    name: str = "local"
    address: str | None = None
    collect: bool = False


class Engine(Protocol):
    """Where items are done."""

    @classmethod
    def of(cls, devices: Sequence[str], workers: int | None, choice: EngineChoice) -> Engine:
        """The engine for work on these devices, `workers` on each, as a person gave it.

        UserError for a number, an address or a library that it cannot use.
        """
        ...

    @property
    def at_once(self) -> int:
        """How many items are done at the same time, as far as that is known before: items are cut for so many."""
        ...

    @property
    def collects(self) -> bool:
        """Whether workers share no folder with this process: work is to deliver what it makes (`Delivered`)."""
        ...

    @property
    def elsewhere(self) -> bool:
        """Whether workers may be on other machines, whose devices this process does not know."""
        ...

    def expect(self, imports: Sequence[str]) -> None:
        """Work that imports these heavy modules comes soon: an engine may let that begin now. It returns at once."""
        ...

    def run(self, work: Work[Item, Result], items: Sequence[Item]) -> Generator[Event[Item, Result]]:
        """Do every item and tell of it as it goes, items in any order.

        A worker that dies is replaced and its item done again, up to a limit. Raises the first failure of an item once
        those in flight are done; RunFailure for an item whose workers die, for too little memory, and where no device
        is left. Closed before its end, it ends the workers; what they had finished stays.
        """
        ...
