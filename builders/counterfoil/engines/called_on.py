"""A function called where a device may be used: in this process, or on a GPU in one that ends with the call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from counterfoil.engines.engine import Doing, Finished
from counterfoil.engines.local import LocalEngine
from counterfoil.models.devices import holds_context, touch

Value = TypeVar("Value")


def called_on(device: str, function: Callable[..., Value], *arguments: Any) -> Value:
    """`function(*arguments)`, whose arguments name the device. What it raises is raised.

    Where work on the device would leave a context in this process, another one calls: then the function is one of a
    module, and it, its arguments and its value pickle.
    """
    if not holds_context(device):
        return function(*arguments)
    call = _Call(function, arguments, device)
    with contextlib.closing(LocalEngine(devices=(device,)).run(call, [function.__name__.replace("_", " ")])) as events:
        return next(event.result for event in events if isinstance(event, Finished))


@dataclass(frozen=True, slots=True)
class _Call:
    """A call as a worker's work (an `engines.Work`), whose only item is the function's name."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    device: str

    def on(self, device: str) -> _Call:
        return replace(self, device=device)

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[str], Doing[int, Any]]]:
        touch(self.device)
        yield self._called

    def _called(self, item: str) -> Doing[int, Any]:
        yield from ()
        return self.function(*self.arguments)
