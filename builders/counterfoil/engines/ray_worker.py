"""What runs in an actor of a Ray cluster: gets ready once, then does items and tells of each as it goes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from counterfoil import __version__
from counterfoil.engines.engine import Doing
from counterfoil.errors import UserError
from counterfoil.models.devices import make_current
from counterfoil.models.loading_errors import device_error, memory_error
from counterfoil.progress import disable_progress_bars

# What libraries read of the environment when they are loaded.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

# Kinds of what is told of an item.
TOLD = "told"
RESULT = "result"
NO_MEMORY = "no memory"
DEVICE_FAILED = "device failed"


class RayWorker:
    """One worker: its models stay loaded from item to item."""

    device: str
    context: Any
    do_item: Callable[[Any], Doing[Any, Any]]

    def get_ready(self, device: str, folder: str, work_at: Sequence[Any], version: str) -> None:
        """Load what the work needs.

        `folder` is where the command was given, so that a relative path means the same here. `work_at` holds the place
        of the work in the cluster's store, not the work itself: one that cannot be read is told here, in words.
        """
        disable_progress_bars()  # its output goes to whoever began the run, who hears of items
        self.device = device
        if Path(folder).is_dir():
            os.chdir(folder)
        work = _fetched(work_at[0], version).on(device)
        if device != "cpu":
            make_current(device)
        with _one_thread_on(device):
            self.context = work.ready()  # kept: it would end with its last reference
            self.do_item = self.context.__enter__()

    def do(self, item: Any) -> Iterator[tuple[str, Any]]:
        """What is told of an item, and as the last its result, or why this worker cannot have one."""
        try:
            work = self.do_item(item)
            while True:
                try:
                    told = next(work)
                except StopIteration as end:
                    yield RESULT, end.value
                    return
                yield TOLD, told
        except Exception as error:
            if reason := memory_error(error):
                yield NO_MEMORY, reason
            elif self.device != "cpu" and (reason := device_error(error)):
                yield DEVICE_FAILED, reason
            else:
                raise


@contextlib.contextmanager
def _one_thread_on(device: str) -> Iterator[None]:
    """On a CPU one thread, by torch too where it is loaded; one that is loaded inside reads ONE_THREAD."""
    _tell_torch(device)
    yield
    _tell_torch(device)


def _tell_torch(device: str) -> None:
    if device == "cpu" and (torch := sys.modules.get("torch")):
        torch.set_num_threads(1)


def _fetched(place: Any, version: str) -> Any:
    import ray

    try:
        return ray.get(place)
    except Exception as error:
        if version == __version__:
            raise
        raise UserError(
            f"the node {ray.util.get_node_ip_address()} has counterfoil {__version__}, and this command {version}",
            f"Install the same on every node: pip install 'counterfoil[ray]=={version}'.",
        ) from error
