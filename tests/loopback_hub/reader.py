"""Reading a Hub's datasets with `load_dataset` many times over, in a process of its own, as an
observer."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import warm
from loopback_hub.clients import client_environment

if TYPE_CHECKING:
    from loopback_hub.hub import LoopbackHub


class LoadingFailed(Exception):
    """What `load_dataset` raised, as text."""


class Reader:
    """A context manager around one process that has imported `datasets`, so that a load takes a
    fraction of a second.

    Its requests are an observer's: a hook may read with it between any two requests of a client.
    `home` keeps what it downloads; each load starts from what the Hub has at that moment.
    """

    def __init__(self, hub: LoopbackHub, home: str | Path, *, token: str | None = None) -> None:
        self._environment = client_environment(hub, home, token=token, observer=True)
        self._lock = threading.Lock()

    def __enter__(self) -> Reader:
        line = [sys.executable, str(Path(__file__).with_name("loading_process.py"))]
        self._process = warm.start(line, self._environment, talking=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def rows(
        self,
        name: str,
        config: str | None = None,
        *,
        columns: list[str] | None = None,
        **options: Any,
    ) -> dict[str, list[dict[str, Any]]]:
        """Return split → rows of a dataset; bytes are hexadecimal text, images are `{bytes, path}`.

        `options` are `load_dataset`'s (`revision`, `streaming`). Raises LoadingFailed with what it
        raised.
        """
        request = {"name": name, "options": {"name": config, **options}, "columns": columns}
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise LoadingFailed("the loading process is gone")
        answer = json.loads(line)
        if "error" in answer:
            raise LoadingFailed(answer["error"])
        return answer["rows"]
