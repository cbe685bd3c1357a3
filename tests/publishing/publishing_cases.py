"""Datasets to publish, the processes that publish and read them, and what a repository and a
directory hold."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import warm
from counterfoil.store.layout import INDEX
from loopback_hub import LoopbackHub, Reader, client, client_environment

HERE = Path(__file__).parent
REPO = "someone/garments"


class Publisher:
    """Publishes in a child of a process that has everything imported (`publish_driver`). A context
    manager."""

    def __init__(self, hub: LoopbackHub, home: Path, **options: Any) -> None:
        settings: dict[str, Any] = {"sleep_scale": 0.01, **options}
        environment = client_environment(hub, home, **settings)
        line = [sys.executable, str(HERE / "publish_driver.py")]
        self._process = warm.start(line, with_package(environment), talking=True)
        self._child = 0

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, question: Any, patience: float | None = None) -> dict[str, Any]:
        """Return the answer of `publish_driver`; kill it after `patience` seconds."""
        assert self._process.stdin
        self._child = 0
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        self._child = self._line()["child"]
        if patience is None:
            return self._line()
        timer = threading.Timer(patience, self.kill)
        timer.start()
        try:
            return self._line()
        finally:
            timer.cancel()

    def publish(self, question: Any) -> dict[str, Any]:
        """Return the answer of a publication that must succeed."""
        answer = self.ask(question)
        assert answer.get("published"), answer
        return answer

    def kill(self) -> None:
        """Kill the publication that is under way."""
        assert self._child, "there is none"
        os.kill(self._child, signal.SIGKILL)

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(self._process.communicate()[1])
        return json.loads(line)


def with_package(environment: Mapping[str, str]) -> dict[str, str]:
    """Let a child find the package where this process found it."""
    package = str(Path(__file__).parents[2] / "builders")
    before = environment.get("PYTHONPATH")
    return {**environment, "PYTHONPATH": f"{package}:{before}" if before else package}


def call(
    directory: Path, repo: str | None = REPO, confirm: bool = True, **options: Any
) -> dict[str, Any]:
    return {"directory": str(directory), "repo": repo, "confirm": confirm, "options": options}


def contents(directory: Path) -> dict[str, bytes]:
    """Return the files that a directory publishes."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    relative = {path.relative_to(directory).as_posix(): path for path in files}
    return {
        name: path.read_bytes()
        for name, path in relative.items()
        if not name.startswith(".") and name != INDEX
    }


def published(hub: LoopbackHub, revision: str = "main", repo: str = REPO) -> dict[str, bytes]:
    """Return the files of a branch, without the Hub's own."""
    return {
        path: content
        for path, content in hub.branch(repo, revision).items()
        if not path.startswith(".")
    }


def read(reader: Reader, repo: str = REPO) -> dict[str, list[str]]:
    """Return the accepted keys by split, read from a Hub by `load_dataset`."""
    by_split = reader.rows(repo, columns=["key"])
    return {split: sorted(row["key"] for row in rows) for split, rows in by_split.items()}


def keys_of(directory: Path) -> dict[str, list[str]]:
    """Return the accepted keys by split, read by the store."""
    from counterfoil.store.reading import read_rows

    by_split: dict[str, list[str]] = {}
    for row in read_rows(directory, columns=["key", "shift"]):
        # in this recipe each shift is a group
        by_split.setdefault(row["shift"], []).append(row["key"])
    return {split: sorted(keys) for split, keys in by_split.items()}


def add_by_hand(hub: LoopbackHub, path: str, content: bytes = b"mine") -> None:
    """Add a file to the repository, as a person does."""
    client(hub, observer=True).upload_file(
        path_or_fileobj=content, path_in_repo=path, repo_id=REPO, repo_type="dataset"
    )


def changing(hub: LoopbackHub) -> list[str]:
    """Return the requests to change something, successful or refused."""
    harmless = ("/api/validate-yaml",)
    return [
        str(request)
        for request in hub.requests
        if request.method not in ("GET", "HEAD") and request.path not in harmless
    ]
