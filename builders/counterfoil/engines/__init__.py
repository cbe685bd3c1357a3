"""Where shards and groups of classes are made: engines, which hand out work and tell of it as it is done."""

from __future__ import annotations

from collections.abc import Mapping

from counterfoil.engines.engine import Advanced, Engine, Event, Finished, Work
from counterfoil.engines.local import LocalEngine

# Another engine is a file beside `local.py`, and a line here. A library of its own it imports when it runs.
ENGINES: Mapping[str, type[Engine]] = {
    "local": LocalEngine,
}

__all__ = ["ENGINES", "Advanced", "Engine", "Event", "Finished", "Work", "engine_for"]


def engine_for(device: str, workers: int | None = None, name: str = "local") -> Engine:
    """The engine of a name for work on a device. UserError for a number of workers that it cannot use."""
    return ENGINES[name].of(device, workers)
