"""The differences between a directory and a repository: complete, minimal, and in an order that is safe to cut."""

from __future__ import annotations

import hashlib
import inspect
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.evaluation import tables
from counterfoil.publishing.files import Changes, LocalFile, RemoteFile, changes_between, hash_file, is_owned
from counterfoil.publishing.remote import first_of
from counterfoil.reviewing.review_answers import TABLE
from counterfoil.store import layout
from counterfoil.store.sealed_folder import EVALUATED, REVIEWED

PATHS = ["README.md", "manifest.json", "lock.json", "data/base/test-0.parquet", "data/snow/test-0.parquet"]
PATHS += [
    "receipts/base-00000.json",
    "figures/shift-red.webp",
    "figures/mine.png",
    "LICENSE",
    "notes/data/x.txt",
    ".gitattributes",
]

contents = st.dictionaries(st.sampled_from(PATHS), st.sampled_from(["old", "new", "other"]))


def local_of(files: dict[str, str]) -> dict[str, LocalFile]:
    return {path: LocalFile(Path("nowhere"), path, 3, content, f"git-{content}") for path, content in files.items()}


def remote_of(files: dict[str, str]) -> dict[str, RemoteFile]:
    return {path: RemoteFile(path, 3, f"git-{content}", content) for path, content in files.items()}


def carried_out(changes: Changes, remote: dict[str, str], local: dict[str, str]) -> dict[str, str]:
    after = {**remote, **{file.path: local[file.path] for file in changes.sent}}
    return {path: content for path, content in after.items() if path not in changes.deleted}


@given(local=contents, remote=contents)
def test_the_changes_make_the_repository_the_directory(local: dict[str, str], remote: dict[str, str]) -> None:
    after = carried_out(changes_between(local_of(local), remote_of(remote)), remote, local)
    kept = {path: content for path, content in remote.items() if path not in local and not is_owned(path)}
    assert after == {**local, **kept}


@given(local=contents, remote=contents)
def test_nothing_is_changed_without_need(local: dict[str, str], remote: dict[str, str]) -> None:
    changes = changes_between(local_of(local), remote_of(remote))
    assert not [path for path in changes.deleted if path in local]
    assert all(remote.get(file.path) != local[file.path] for file in changes.sent)
    assert changes.same + len(changes.sent) == len(local)
    again = changes_between(local_of(local), remote_of(carried_out(changes, remote, local)))
    assert again.operations == 0


@given(local=contents, remote=contents, most=st.integers(1, 4))
def test_parts_reach_the_same_end(local: dict[str, str], remote: dict[str, str], most: int) -> None:
    state, parts = dict(remote), 0
    whole = changes_between(local_of(local), remote_of(remote))
    while (left := changes_between(local_of(local), remote_of(state))).operations:
        part = first_of(left, most)
        assert 0 < part.operations <= most
        state, parts = carried_out(part, state, local), parts + 1
    assert state == carried_out(whole, remote, local)
    assert parts == -(-whole.operations // most)


@given(local=contents, remote=contents)
def test_the_card_and_the_manifest_go_last(local: dict[str, str], remote: dict[str, str]) -> None:
    order = [file.path for file in changes_between(local_of(local), remote_of(remote)).sent]
    last = [path for path in ("README.md", "manifest.json") if path in order]
    assert order[len(order) - len(last) :] == last


def test_what_dataset_commands_store_is_owned() -> None:
    """Old tables of results and of answers go when new ones lack them: those that `evaluation/tables.py` can write."""
    written = set(re.findall(r'"([a-z]+\.csv)"', Path(inspect.getfile(tables)).read_text()))
    written.remove("compare.csv")  # no dataset tells of a comparison
    assert {"results.csv", "findings.csv", "transfer.csv", "distances.csv"} <= written
    paths = [f"{EVALUATED.name}/{name}" for name in (*written, EVALUATED.document)]
    paths += [f"{REVIEWED.name}/{name}" for name in (TABLE, REVIEWED.document)]
    assert [path for path in paths if not is_owned(path)] == []


def test_every_file_beside_the_shards_is_owned() -> None:
    """One that a new version has no more must go, or the manifest there would not tell of it."""
    for name in (layout.CARD, layout.RECIPE, layout.LOCK, layout.ROWS, layout.EMBEDDINGS, layout.THRESHOLDS):
        assert changes_between({}, remote_of({name: "x"})).deleted == (name,)


def test_files_that_are_no_datasets_stay() -> None:
    remote = remote_of({"LICENSE": "x", "docs/readme.md": "x", ".gitattributes": "x", "data/base/old.parquet": "x"})
    remote |= remote_of({"figures/poster.png": "x", "evaluation/mine.csv": "x", "data/notes.txt": "x"})
    changes = changes_between({}, remote)
    assert changes.deleted == ("data/base/old.parquet",)
    assert changes.kept == ("LICENSE", "data/notes.txt", "docs/readme.md", "evaluation/mine.csv", "figures/poster.png")


@pytest.mark.parametrize("content", [b"", b"a", b"\r\n" * 1000, bytes(range(256)) * 9000])
def test_gits_id_is_gits(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    known = subprocess.run(
        ["git", "hash-object", "--no-filters", "file"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    file = hash_file(tmp_path, "file")
    assert file.git_id == known.stdout.strip()
    assert (file.size, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_small_files_are_compared_by_gits_id(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(b"abc")
    file = replace(hash_file(tmp_path, "README.md"), sha256="of another content")
    assert file.equals(RemoteFile("README.md", 3, file.git_id, None))
    assert not file.equals(RemoteFile("README.md", 3, "0" * 40, None))
