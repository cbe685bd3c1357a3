"""The thin path with the real clients: create, commit, read back, load with `datasets`."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from huggingface_hub import CommitOperationAdd

from loopback_hub import LoopbackHub, client, client_environment

NAME = "someone/numbers"
CARD = """---
license: mit
configs:
- config_name: default
  data_files:
  - split: test
    path: data/*.parquet
---
# Numbers
"""
LOADING = """
from datasets import load_dataset
plain = load_dataset("someone/numbers", split="test")
streamed = load_dataset("someone/numbers", split="test", streaming=True)
print(plain["number"][:], [row["number"] for row in streamed])
"""


def parquet(numbers: list[int]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"number": numbers}), buffer)
    return buffer.getvalue()


def test_a_published_dataset_loads_plain_and_streaming(loopback: LoopbackHub, tmp_path: Path) -> None:
    files = {"README.md": CARD.encode(), "data/test.parquet": parquet([1, 2, 3])}
    api = client(loopback)
    api.create_repo(NAME, repo_type="dataset", private=True)
    additions = [CommitOperationAdd(path, content) for path, content in files.items()]
    api.create_commit(NAME, additions, commit_message="First version", repo_type="dataset")

    branch = loopback.branch(NAME)
    assert {path: branch[path] for path in files} == files and branch.keys() - files.keys() == {".gitattributes"}
    assert [commit.message for commit in loopback.commits(NAME)] == ["First version", "initial commit"]

    ended = subprocess.run(
        [sys.executable, "-c", LOADING],
        env=client_environment(loopback, tmp_path / "home"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.strip() == "[1, 2, 3] [1, 2, 3]"
