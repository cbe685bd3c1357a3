"""The whole way with the real clients: create, commit, load with `datasets`, also between any two
requests."""

from __future__ import annotations

import io
import os
import subprocess
import sys
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


def test_a_hook_that_fails_is_heard_of(tmp_path: Path) -> None:
    def fail(log: LoggedRequest) -> None:
        raise AssertionError("seen")

    with (
        pytest.raises(ExceptionGroup, match="hook"),
        LoopbackHub(tmp_path / "hub", on_request=fail) as hub,
    ):
        client(hub).whoami()


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
