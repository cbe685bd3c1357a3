"""A function called where work is done: by an engine's worker, or in a process of this machine that ends with the call.

So are stacks measured, by each worker again when it gets ready, since they need not be alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from counterfoil.engines.engine import Doing, Engine, Finished
from counterfoil.engines.local import LocalEngine
from counterfoil.models.devices import holds_context, stack_of, touch

Value = TypeVar("Value")


def called_on(device: str, function: Callable[..., Value], *arguments: Any) -> Value:
    """`function(*arguments)`, whose arguments name the device. What it raises is raised.

    Where work on the device would leave a context in this process, another one calls: then the function is one of a
    module, and it, its arguments and its value pickle.
    """
    if not holds_context(device):
        return function(*arguments)
    call = Call(partial(_met, function, arguments), device)
    return _only_result(LocalEngine(devices=(device,)), call, function.__name__.replace("_", " "))


def stack_where_done(
    engine: Engine, device: str, dtype: str, batch_size: int, libraries: tuple[str, ...] = (), *, compiled: bool = False
) -> dict[str, Any]:
    """What bytes depend on beside a recipe and its inputs, where this engine works. See `stack_of`."""
    measure = partial(stack_of, dtype=dtype, batch_size=batch_size, libraries=libraries, compiled=compiled)
    return _only_result(engine, Call(measure, device), "the stack")


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the worker's device as its work (an `engines.Work`), whose only item is what the call is called."""

    function: Callable[[str], Any]
    device: str

    def on(self, device: str) -> Call:
        return replace(self, device=device)

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[str], Doing[int, Any]]]:
        touch(self.device)
        yield self._called

    def _called(self, item: str) -> Doing[int, Any]:
        yield from ()  # nothing to count
        return self.function(self.device)


def _met(function: Callable[..., Any], arguments: tuple[Any, ...], device: str) -> Any:
    return function(*arguments)


def _only_result(engine: Engine, call: Call, name: str) -> Any:
    with contextlib.closing(engine.run(call, [name])) as events:
        return next(event.result for event in events if isinstance(event, Finished))
