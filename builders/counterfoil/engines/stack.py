"""The stack of an engine's workers, for a lock and for tokens: measured where the work is done.

Each worker measures its own again when it gets ready, since they need not be alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from counterfoil.engines.engine import Engine, Finished
from counterfoil.models.devices import stack_of
from counterfoil.under_way import UnderWay


@dataclass(frozen=True, slots=True)
class StackMeasurement:
    """`stack_of` as a worker's work (an `engines.Work`), whose only item says nothing."""

    device: str
    dtype: str
    batch_size: int

    @contextlib.contextmanager
    def ready(self) -> Iterator[Callable[[None], UnderWay[int, dict[str, Any]]]]:
        yield self._measure

    def _measure(self, item: None) -> UnderWay[int, dict[str, Any]]:
        yield from ()  # nothing to count
        return stack_of(self.device, self.dtype, self.batch_size)


def stack_where_done(engine: Engine, device: str, dtype: str, batch_size: int) -> dict[str, Any]:
    """What bytes depend on beside a recipe and its inputs, where this engine works. See `stack_of`."""
    with contextlib.closing(engine.run(StackMeasurement(device, dtype, batch_size), [None])) as events:
        return next(event.result for event in events if isinstance(event, Finished))
