"""What an engine is, what it is given to do, and what it tells: the events of items on their way.

Work is plain data that pickles, so that an engine may carry it to other processes and machines. An engine decides
where items are done, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from counterfoil.under_way import UnderWay

Item = TypeVar("Item")
Result = TypeVar("Result")
Item_contra = TypeVar("Item_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)


class Work(Protocol[Item_contra, Result_co]):
    """What a worker does: plain data that pickles, and a way to get ready."""

    @property
    def device(self) -> str: ...

    def ready(self) -> AbstractContextManager[Callable[[Item_contra], UnderWay[int, Result_co]]]:
        """Load what is needed, once a worker, and give the function of one item.

        It yields a count (of images, of steps) whenever so much more of the item is done, and returns its result.
        """
        ...


@dataclass(frozen=True, slots=True)
class Advanced:
    """So much more of some item is done, in the unit of the work."""

    count: int


@dataclass(frozen=True, slots=True)
class Finished(Generic[Item, Result]):
    """An item is done. All that was counted of it came before."""

    item: Item
    result: Result


Event: TypeAlias = Advanced | Finished[Item, Result]


class Engine(Protocol):
    """Where items are done."""

    @classmethod
    def of(cls, device: str, workers: int | None) -> Engine:
        """The engine for work on a device; `workers` as a person gave it. UserError for a number that it cannot use."""
        ...

    def run(self, work: Work[Item, Result], items: Sequence[Item]) -> UnderWay[Event[Item, Result], None]:
        """Do every item and tell of it as it goes, items in any order.

        Raises the first failure of an item once those in flight are done, and RunFailure for a worker that died.
        Closed before its end, it ends the workers; what they had finished stays.
        """
        ...
