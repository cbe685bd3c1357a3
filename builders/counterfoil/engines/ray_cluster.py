"""Connect to a Ray cluster for a run: start one on this machine, or join a running cluster by its
address."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.engines.processes import changed_environment
from counterfoil.errors import RunFailure, UserError
from counterfoil.models.loading_errors import error_line

_PLACE = re.compile(r"(?P<host>[^\s:/\[\]]+|\[[0-9a-fA-F:.%]+\]):(?P<port>\d{1,5})")
_ANSWERS_WITHIN = 10.0  # seconds
# An HTTP/2 client sends these bytes first, with empty settings (RFC 9113, 3.4). A server answers
# with its settings.
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_SETTINGS = 4
_START = (
    "`ray start --head` starts a cluster and prints its address; run this command on a machine of"
    " the cluster."
)


@dataclass(frozen=True, slots=True)
class RayCluster:
    """A cluster that this process is connected to. `resource` is `CPU` or `GPU`: each actor
    occupies one unit of it."""

    resource: str
    address: str

    @property
    def device(self) -> str:
        return "cuda:0" if self.resource == "GPU" else "cpu"

    def places(self) -> int:
        """Return the number of actors for which the living nodes have room."""
        import ray

        return sum(
            int(node["Resources"].get(self.resource, 0)) for node in ray.nodes() if node["Alive"]
        )


def refuse_absent_ray() -> None:
    """Raise UserError if Ray is not installed. Do not import Ray yet."""
    if importlib.util.find_spec("ray") is None:
        raise UserError(
            "engine ray: Ray is not installed here", "Install it: pip install 'counterfoil[ray]'."
        )


def refuse_no_cluster(address: str) -> None:
    """Raise UserError if an address is malformed, or if no cluster answers at the address."""
    if address != "auto" and not _PLACE.fullmatch(address):
        raise UserError(f"address: found '{address[:80]}', expected auto or HOST:PORT", _START)
    if not _imported().is_initialized():
        _refuse_silent(address)


def _imported() -> Any:
    """Import Ray with its usage statistics turned off."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    return ray


@contextlib.contextmanager
def connected_cluster(
    address: str | None, devices: Sequence[str], workers: int
) -> Iterator[RayCluster]:
    """Connect to the cluster at `address` for the block, or to a new cluster on this machine with
    `workers` CPUs.

    A cluster that is started here ends with the block. Any other cluster keeps running. UserError
    if the cluster or the device does not exist.
    """
    refuse_absent_ray()
    ray = _imported()
    with contextlib.ExitStack() as at_the_end:
        at_the_end.enter_context(_silence())
        if ray.is_initialized():  # by the calling program, which keeps its connection
            connected = ray.get_runtime_context().gcs_address
            if address not in (None, "auto", connected):
                raise UserError(
                    f"address: found '{address}', but this program is connected to the Ray cluster"
                    f" at {connected}",
                    "Name that one, or call ray.shutdown() before.",
                )
        else:
            at_the_end.enter_context(_sigterm_kept())
            if address is None:
                _begin(devices, workers, at_the_end)
            else:
                _join(address, at_the_end)
        cluster = RayCluster("GPU", ray.get_runtime_context().gcs_address)
        if devices[0] == "cpu" or (devices[0] == "auto" and not cluster.places()):
            cluster = RayCluster("CPU", cluster.address)
        if not cluster.places():
            has = "no GPU" if cluster.resource == "GPU" else "no CPU core for work"
            raise UserError(
                f"the Ray cluster at {cluster.address} has {has}",
                "See `ray status`. A cluster that adds nodes on demand needs at least one such node"
                " first.",
            )
        yield cluster


def _begin(devices: Sequence[str], workers: int, at_the_end: contextlib.ExitStack) -> None:
    """Start a cluster on this machine only. Its temporary folder keeps the address `auto` from
    finding it."""
    import ray

    # The folder is in /tmp, because the path of a socket may have at most 107 characters.
    folder = tempfile.mkdtemp(prefix="cf-ray-", dir="/tmp" if Path("/tmp").is_dir() else None)
    at_the_end.callback(shutil.rmtree, folder, ignore_errors=True)
    on_gpus = devices[0].startswith("cuda")
    if on_gpus:
        numbers = [device.partition(":")[2] for device in devices]
        if all(numbers):  # the numbers of GPUs count only the GPUs that are visible to this process
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            seen = visible.split(",") if visible else None
            chosen = ",".join(seen[int(number)] if seen else number for number in numbers)
            at_the_end.enter_context(changed_environment({"CUDA_VISIBLE_DEVICES": chosen}))
    at_the_end.callback(ray.shutdown)
    try:
        ray.init(
            address="local",  # ignores the variable RAY_ADDRESS
            num_cpus=workers,
            num_gpus=len(devices) if on_gpus else 0,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=folder,
        )
    except Exception as error:
        raise RunFailure(
            f"Ray could not start a cluster on this machine: {error_line(error)}",
            "If this machine was busy, run the same command again: Ray waits for half a minute. Or"
            " leave out --engine"
            " ray, or start a cluster with `ray start --head` and name it with --address.",
        ) from error


def _join(address: str, at_the_end: contextlib.ExitStack) -> None:
    import ray

    _refuse_silent(address)
    at_the_end.callback(ray.shutdown)  # ends the connection, not the cluster
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:
        if "Version mismatch" in str(error):
            raise UserError(
                f"the Ray cluster at {address} has another version: {error_line(error)}",
                "Install the same Ray and the same Python on every machine.",
            ) from error
        raise UserError(
            f"the Ray cluster at {address} cannot be used: {error_line(error)}", _START
        ) from error


def _refuse_silent(address: str) -> None:
    """Raise UserError if no Ray server answers at the address. Ray itself would wait forever."""
    host_and_port = address
    if address == "auto":
        from ray._private import services

        host_and_port = ""
        with contextlib.suppress(ConnectionError):
            host_and_port = services.canonicalize_bootstrap_address(address) or ""
    match = _PLACE.fullmatch(host_and_port)
    if match is None:
        raise UserError(
            f"address {address}: Ray finds no cluster that runs on this machine", _START
        )
    named = f"{address} ({match[0]})" if address == "auto" else address
    host = match["host"].strip("[]")
    port = int(match["port"])
    try:
        with socket.create_connection((host, port), timeout=_ANSWERS_WITHIN) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return
            connection.sendall(_HELLO)
            answer = connection.recv(9)
    except (OSError, OverflowError) as error:
        raise UserError(
            f"address {named}: no Ray cluster answers there ({error_line(error)})", _START
        ) from error
    if len(answer) < 4 or answer[3] != _SETTINGS:
        raise UserError(f"address {named}: the server there is not a Ray cluster", _START)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep Ray from printing messages about nodes and workers to stdout, which is for data."""
    from ray._private import worker

    before: Any = getattr(worker, "print_to_stdstream", None)
    if before is not None:
        worker.print_to_stdstream = lambda *lines, **how: None
    try:
        yield
    finally:
        if before is not None:
            worker.print_to_stdstream = before


@contextlib.contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Restore the handler of SIGTERM after the block, because Ray replaces the handler."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
