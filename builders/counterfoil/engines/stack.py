"""The stack of an engine's workers, for a lock and for tokens: measured where the work is done.

Each worker measures its own again when it gets ready, since they need not be alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from counterfoil.engines.engine import Doing, Engine, Finished
from counterfoil.models.devices import stack_of


@dataclass(frozen=True, slots=True)
class StackMeasurement:
    """`stack_of` as a worker's work (an `engines.Work`), whose only item is what it is called."""

    device: str
    dtype: str
    batch_size: int
    libraries: tuple[str, ...] = ()
    compiled: bool = False

    def on(self, device: str) -> StackMeasurement:
        """The same for a worker on this device."""
        return replace(self, device=device)

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[str], Doing[int, dict[str, Any]]]]:
        measured = stack_of(self.device, self.dtype, self.batch_size, self.libraries, compiled=self.compiled)

        def tell(item: str) -> Doing[int, dict[str, Any]]:
            yield from ()  # nothing to count
            return measured

        yield tell


def stack_where_done(
    engine: Engine,
    device: str,
    dtype: str,
    batch_size: int,
    libraries: tuple[str, ...] = (),
    *,
    compiled: bool = False,
) -> dict[str, Any]:
    """What bytes depend on beside a recipe and its inputs, where this engine works. See `stack_of`."""
    measurement = StackMeasurement(device, dtype, batch_size, libraries, compiled)
    with contextlib.closing(engine.run(measurement, ["the stack"])) as events:
        return next(event.result for event in events if isinstance(event, Finished))
