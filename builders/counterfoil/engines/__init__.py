"""Engines: they hand out work to processes or a Ray cluster and report its events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from counterfoil.engines.engine import Advanced, Delivered, Doing, Engine, EngineChoice, Event, Finished, Lost, Work
from counterfoil.engines.local import LocalEngine
from counterfoil.engines.ray_engine import RayEngine
from counterfoil.errors import UserError
from counterfoil.models.devices import resolve_device, resolve_devices
from counterfoil.recipe.names import did_you_mean

# A new engine is a file beside `local.py` and a line here. It imports its library only when it runs.
ENGINES: Mapping[str, type[Engine]] = {
    "local": LocalEngine,
    "ray": RayEngine,
}

__all__ = [
    "ENGINES",
    "Advanced",
    "Delivered",
    "Doing",
    "Engine",
    "EngineChoice",
    "Event",
    "Finished",
    "Lost",
    "Work",
    "engine_and_device",
    "engine_for",
]


def engine_for(devices: Sequence[str], workers: int | None = None, choice: EngineChoice | None = None) -> Engine:
    """Return the engine for work on these devices. UserError if it is unknown or cannot use what it is given."""
    choice = choice or EngineChoice()
    if choice.name not in ENGINES:
        expected = f"expected {' or '.join(ENGINES)}{did_you_mean(choice.name, ENGINES)}"
        raise UserError(f"engine: found '{choice.name[:80]}', {expected}")
    if choice.name == "local" and (choice.address is not None or choice.collect):
        given = "an address" if choice.address is not None else "collect"
        raise UserError(
            f"engine local: found {given}, which goes with a cluster",
            "Add --engine ray, or leave out --address and --collect: workers of this machine write their shards here.",
        )
    return ENGINES[choice.name].of(devices, workers, choice)


def engine_and_device(
    device: str = "auto", workers: int | None = None, choice: EngineChoice | None = None
) -> tuple[Engine, str]:
    """Return the engine for a named device, or for a cluster's, and the device of work in this process."""
    if choice is None or choice.address is None:
        devices = resolve_devices(device)
        return engine_for(devices, workers, choice), devices[0]
    return engine_for((device,), workers, choice), resolve_device("cpu" if device == "cpu" else "auto")
