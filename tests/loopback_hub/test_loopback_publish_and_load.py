"""The whole way with the real clients: create, commit, load with `datasets`, also between any two
requests."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import CommitOperationAdd, HfApi

from loopback_hub import (
    LoadingFailed,
    LoggedRequest,
    LoopbackHub,
    Reader,
    client,
    client_environment,
)

NAME = "someone/numbers"
CARD = """---
license: mit
configs:
- config_name: default
  data_files:
  - split: test
    path: data/*.parquet
- config_name: other
  data_files:
  - split: train
    path: other/*.parquet
---
# Numbers
"""
LOADING = """
from datasets import load_dataset
plain = load_dataset("someone/numbers", split="test")
streamed = load_dataset("someone/numbers", split="test", streaming=True)
print(plain["number"][:], [row["number"] for row in streamed])
"""


PUBLISHING = """
from huggingface_hub import CommitOperationAdd, HfApi
operations = [CommitOperationAdd("a.bin", bytes(1000))]
HfApi().create_commit("someone/numbers", operations, commit_message="A blob", repo_type="dataset")
"""


def parquet(numbers: list[int]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"number": numbers}), buffer)
    return buffer.getvalue()


def version(first: int, shards: int = 2) -> dict[str, bytes]:
    """Return a dataset whose numbers show its version."""
    data = {f"data/{shard}.parquet": parquet([first + shard]) for shard in range(shards)}
    return {"README.md": CARD.encode(), **data, "other/a.parquet": parquet([first + 100])}


def put(api: HfApi, files: dict[str, bytes]) -> None:
    additions = [CommitOperationAdd(path, content) for path, content in files.items()]
    api.create_commit(NAME, additions, commit_message="A version", repo_type="dataset")


def numbers(reader: Reader, config: str | None = None, **options: bool) -> dict[str, list[int]]:
    return {
        split: [row["number"] for row in rows]
        for split, rows in reader.rows(NAME, config, columns=["number"], **options).items()
    }


def test_a_published_dataset_loads_plain_and_streaming(
    loopback: LoopbackHub, tmp_path: Path
) -> None:
    files = version(1)
    api = client(loopback)
    api.create_repo(NAME, repo_type="dataset", private=True)
    put(api, files)
    branch = loopback.branch(NAME)
    assert {path: branch[path] for path in files} == files and branch.keys() - files.keys() == {
        ".gitattributes"
    }
    assert [commit.message for commit in loopback.commits(NAME)] == ["A version", "initial commit"]

    environment = client_environment(loopback, tmp_path / "home")
    ended = subprocess.run(
        [sys.executable, "-c", LOADING], env=environment, capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "[1, 2] [1, 2]"


def test_a_reader_sees_configs_and_what_is_there_now(loopback: LoopbackHub, tmp_path: Path) -> None:
    api = client(loopback)
    with (
        Reader(loopback, tmp_path / "home") as reader,
        Reader(loopback, tmp_path / "other", token="") as stranger,
    ):
        with pytest.raises(LoadingFailed):
            numbers(reader)
        api.create_repo(NAME, repo_type="dataset", private=True)
        for first in (1, 11):
            put(api, version(first))
            assert (
                numbers(reader) == numbers(reader, streaming=True) == {"test": [first, first + 1]}
            )
            assert numbers(reader, "other") == {"train": [first + 100]}
        with pytest.raises(LoadingFailed):
            numbers(stranger)
    assert any(request.observer for request in loopback.requests)


def test_a_hook_loads_between_any_two_requests(
    start_loopback: Callable[..., LoopbackHub], tmp_path: Path
) -> None:
    hub = start_loopback()
    api = client(hub)
    api.create_repo(NAME, repo_type="dataset")
    put(api, version(1))
    seen: list[dict[str, list[int]]] = []
    woken: list[LoggedRequest] = []
    with Reader(hub, tmp_path / "home") as reader:

        def look(log: LoggedRequest) -> None:
            woken.append(log)
            seen.append(numbers(reader))

        hub.on_request = look
        put(api, version(11))
        hub.on_request = None
    # Every look came before the client's next request: the numbers change with the commit, and at
    # no other time.
    commit = next(index for index, log in enumerate(woken) if "/commit/" in log.path)
    assert commit == len(woken) - 1 > 3
    assert seen == [{"test": [1, 2]}] * commit + [{"test": [11, 12]}]
    assert not any(log.observer for log in woken)


def test_a_hook_that_fails_is_heard_of(tmp_path: Path) -> None:
    def fail(log: LoggedRequest) -> None:
        raise AssertionError("seen")

    with (
        pytest.raises(ExceptionGroup, match="hook"),
        LoopbackHub(tmp_path / "hub", on_request=fail) as hub,
    ):
        client(hub).whoami()


def test_a_killed_client_leaves_what_it_had_done(
    start_loopback: Callable[..., LoopbackHub], tmp_path: Path
) -> None:
    hub = start_loopback()
    api = client(hub)
    api.create_repo(NAME, repo_type="dataset")
    running: list[subprocess.Popen[bytes]] = []

    def kill(log: LoggedRequest) -> None:
        if log.method == "PUT":
            running[0].kill()
            running[0].wait()

    def publish() -> int:
        running[:] = [
            subprocess.Popen(
                [sys.executable, "-c", PUBLISHING], env=client_environment(hub, tmp_path)
            )
        ]
        return running[0].wait()

    hub.on_request = kill
    assert publish() == -signal.SIGKILL
    assert len(hub.commits(NAME)) == 1
    hub.on_request = None
    assert publish() == 0
    assert hub.branch(NAME)["a.bin"] == b"\0" * 1000 and len(hub.commits(NAME)) == 2
    assert [received.complete for received in hub.uploads.values()] == [1]


def test_sleeps_of_a_process_are_scaled_and_nothing_else(
    loopback: LoopbackHub, tmp_path: Path
) -> None:
    environment = client_environment(loopback, tmp_path, sleep_scale=0.0001)
    # A thousand seconds: without the scale, the time limit would stop the process.
    code = "import time; time.sleep(1000); print('awake')"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=500,
    )
    assert ended.stdout.strip() == "awake"


def test_an_environment_holds_no_other_login(
    loopback: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_person_who_runs_the_tests")
    assert client_environment(loopback, "home")["HF_TOKEN"] == loopback.token
    assert "HF_TOKEN" not in client_environment(loopback, "home", token="")
    assert os.environ["HF_TOKEN"].startswith("hf_of")
