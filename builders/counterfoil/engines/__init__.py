"""Run work by an engine: this process, worker processes or a Ray cluster. An engine reports the
events of the work."""

from __future__ import annotations

from collections.abc import Sequence

from counterfoil.engines.engine import (
    Advanced,
    Delivered,
    Doing,
    Engine,
    EngineChoice,
    Event,
    Finished,
    Lost,
    Work,
)
from counterfoil.engines.local import LocalEngine
from counterfoil.engines.ray_engine import RayEngine
from counterfoil.errors import UserError, did_you_mean
from counterfoil.models.devices import resolve_device, resolve_devices
from counterfoil.options import OnDevices
from counterfoil.registry import Registry, with_functions

# Of our own and of installed plugins.
ENGINES: Registry[type[Engine]] = Registry(
    "counterfoil.engines",
    {"local": LocalEngine, "ray": RayEngine},
    with_functions("of", "run"),
)

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


def engine_for(
    devices: Sequence[str],
    workers: int | None = None,
    choice: EngineChoice | None = None,
) -> Engine:
    """Return the chosen engine for work on these devices.

    UserError if the engine is unknown, or does not support its devices, address or other settings.
    """
    choice = choice or EngineChoice()
    if choice.name not in ENGINES:
        expected = f"expected {' or '.join(ENGINES)}{did_you_mean(choice.name, ENGINES)}"
        raise UserError(f"engine: found '{choice.name[:80]}', {expected}")
    if choice.name == "local" and (choice.address is not None or choice.collect):
        given = "an address" if choice.address is not None else "collect"
        raise UserError(
            f"engine local: found {given}, which goes with a cluster",
            "Add --engine ray, or leave out --address and --collect: workers of this machine write"
            " their shards here.",
        )
    return ENGINES[choice.name].of(devices, workers, choice)


def engine_and_device(options: OnDevices) -> tuple[Engine, str]:
    """Return the chosen engine, and the device for work in this process.

    With the address of a cluster, `device` means a device of the cluster.
    """
    device = options.device
    workers = options.workers
    choice = options.chosen_engine
    if choice.address is None:
        devices = resolve_devices(device)
        return engine_for(devices, workers, choice), devices[0]
    own_device = resolve_device("cpu" if device == "cpu" else "auto")
    return engine_for((device,), workers, choice), own_device
