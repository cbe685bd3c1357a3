"""What differs between a directory and a repository is sent, and nothing but what was verified."""

from __future__ import annotations

import hashlib
import inspect
import os
import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from publishing_cases import REPO, Publisher, call, contents, keys_of, published, read

from counterfoil.data.hub import with_retries
from counterfoil.dataset.verification import verify
from counterfoil.errors import RunFailure
from counterfoil.evaluation.tasks import task_named
from counterfoil.evaluation.tasks.classes import tables
from counterfoil.publishing.files import (
    Addition,
    Changes,
    LocalFile,
    RemoteFile,
    UnchangedReader,
    changes_between,
    hash_file,
    is_owned,
    local_files,
    whole_content,
)
from counterfoil.publishing.remote import limit_changes
from counterfoil.recipe.tasks import TASKS
from counterfoil.report.results import NESTED
from counterfoil.reviewing.review_answers import TABLE
from counterfoil.store import layout
from counterfoil.store.manifest import write_manifest
from counterfoil.store.sealed_folder import EVALUATED, REVIEWED
from loopback_hub import Fault, Faults, LoopbackHub, Reader, client
from support.files import flip

PATHS = [
    "README.md",
    "manifest.json",
    "lock.json",
    "data/base/test-0.parquet",
    "data/snow/test-0.parquet",
]
PATHS += [
    "receipts/base-00000.json",
    "figures/shift-red.webp",
    "figures/mine.png",
    "LICENSE",
    "notes/data/x.txt",
    ".gitattributes",
]

file_contents = st.dictionaries(st.sampled_from(PATHS), st.sampled_from(["old", "new", "other"]))


def local_of(files: dict[str, str]) -> dict[str, LocalFile]:
    return {
        path: LocalFile(Path("nowhere"), path, 3, content, f"git-{content}")
        for path, content in files.items()
    }


def remote_of(files: dict[str, str]) -> dict[str, RemoteFile]:
    return {path: RemoteFile(path, 3, f"git-{content}", content) for path, content in files.items()}


def carried_out(changes: Changes, remote: dict[str, str], local: dict[str, str]) -> dict[str, str]:
    after = {**remote, **{file.path: local[file.path] for file in changes.sent}}
    return {path: content for path, content in after.items() if path not in changes.deleted}


@given(local=file_contents, remote=file_contents)
def test_the_changes_make_the_repository_the_directory(
    local: dict[str, str], remote: dict[str, str]
) -> None:
    after = carried_out(changes_between(local_of(local), remote_of(remote)), remote, local)
    kept = {
        path: content
        for path, content in remote.items()
        if path not in local and not is_owned(path)
    }
    assert after == {**local, **kept}


@given(local=file_contents, remote=file_contents)
def test_nothing_is_changed_without_need(local: dict[str, str], remote: dict[str, str]) -> None:
    changes = changes_between(local_of(local), remote_of(remote))
    assert not [path for path in changes.deleted if path in local]
    assert all(remote.get(file.path) != local[file.path] for file in changes.sent)
    assert changes.same + len(changes.sent) == len(local)
    again = changes_between(local_of(local), remote_of(carried_out(changes, remote, local)))
    assert again.operations == 0


@given(local=file_contents, remote=file_contents, most=st.integers(1, 4))
def test_parts_reach_the_same_end(local: dict[str, str], remote: dict[str, str], most: int) -> None:
    state = dict(remote)
    parts = 0
    whole = changes_between(local_of(local), remote_of(remote))
    while (left := changes_between(local_of(local), remote_of(state))).operations:
        part = limit_changes(left, most)
        assert 0 < part.operations <= most
        state = carried_out(part, state, local)
        parts = parts + 1
    assert state == carried_out(whole, remote, local)
    assert parts == -(-whole.operations // most)


@given(local=file_contents, remote=file_contents)
def test_the_card_and_the_manifest_go_last(local: dict[str, str], remote: dict[str, str]) -> None:
    order = [file.path for file in changes_between(local_of(local), remote_of(remote)).sent]
    last = [path for path in ("README.md", "manifest.json") if path in order]
    assert order[len(order) - len(last) :] == last


def test_what_dataset_commands_store_is_owned() -> None:
    """Every table that can be written is owned, so that old ones go when new results lack them."""
    written = set(re.findall(r'"([a-z]+\.csv)"', Path(inspect.getfile(tables)).read_text()))
    written |= {task_named(name).table for name in TASKS} | {"measures.csv", "labels.csv"}
    # no dataset reports a comparison
    written |= {shown.file for shown in NESTED.values()} - {"", "compare.csv"}
    assert {"results.csv", "findings.csv", "transfer.csv", "distances.csv"} <= written
    paths = [f"{EVALUATED.name}/{name}" for name in (*written, EVALUATED.document)]
    paths += [f"{REVIEWED.name}/{name}" for name in (TABLE, REVIEWED.document)]
    assert [path for path in paths if not is_owned(path)] == []


def test_every_file_beside_the_shards_is_owned() -> None:
    """Files that a new version lacks must go, or the manifest would not list them."""
    for name in (
        layout.CARD,
        layout.RECIPE,
        layout.LOCK,
        layout.ROWS,
        layout.EMBEDDINGS,
        layout.THRESHOLDS,
    ):
        assert changes_between({}, remote_of({name: "x"})).deleted == (name,)


def test_files_that_are_no_datasets_stay() -> None:
    remote = remote_of(
        {"LICENSE": "x", "docs/readme.md": "x", ".gitattributes": "x", "data/base/old.parquet": "x"}
    )
    remote |= remote_of(
        {
            "figures/poster.png": "x",
            "evaluation/mine.csv": "x",
            "data/notes.txt": "x",
            "eval.yaml": "x",
        }
    )
    changes = changes_between({}, remote)
    assert changes.deleted == ("data/base/old.parquet",)
    stay = (
        "LICENSE",
        "data/notes.txt",
        "docs/readme.md",
        "eval.yaml",
        "evaluation/mine.csv",
        "figures/poster.png",
    )
    assert changes.kept == stay


@pytest.mark.parametrize("content", [b"", b"a", b"\r\n" * 1000, bytes(range(256)) * 9000])
def test_gits_id_is_gits(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    printed = subprocess.run(
        ["git", "hash-object", "--no-filters", "file"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    file = hash_file(tmp_path, "file")
    assert file.git_id == printed.stdout.strip()
    assert (file.size, file.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_small_files_are_compared_by_gits_id(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(b"abc")
    file = replace(hash_file(tmp_path, "README.md"), sha256="of another content")
    assert file.equals(RemoteFile("README.md", 3, file.git_id, None))
    assert not file.equals(RemoteFile("README.md", 3, "0" * 40, None))


CONTENT = random.Random(2).randbytes(40_000)


@given(
    piece=st.integers(1, 50_000),
    part=st.integers(1, 50_000),
    again=st.lists(st.integers(0, 6), max_size=6),
    changed=st.none() | st.tuples(st.integers(0, 60), st.integers(0, len(CONTENT) - 1)),
)
def test_what_comes_out_whole_is_what_was_hashed(
    piece: int, part: int, again: list[int], changed: tuple[int, int] | None
) -> None:
    """Read in parts, some twice from their beginning, while a byte changes after some number of
    reads."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.bin"
        path.write_bytes(CONTENT)
        file = hash_file(Path(folder), "a.bin")
        reads = 0
        out = b""
        try:
            with UnchangedReader(file) as reader:
                for number, start in enumerate(range(0, len(CONTENT), part)):
                    for last in (*[False] * again.count(number), True):
                        assert reader.seek(0, os.SEEK_END) == len(CONTENT)
                        reader.seek(start)
                        end = min(start + part, len(CONTENT))
                        sent = b""
                        # A try that breaks off has read a piece of its part, or the whole of it.
                        while len(sent) < end - start and (last or not sent):
                            if changed is not None and reads == changed[0]:
                                _change(path, changed[1])
                            reads += 1
                            sent += reader.read(min(piece, end - start - len(sent)))
                        out += sent if last else b""
        except RunFailure as failure:
            assert changed is not None
            assert "a.bin changed" in failure.problems[0]
            assert len(out) < len(CONTENT)
        else:
            assert hashlib.sha256(out).hexdigest() == file.sha256


def _change(path: Path, at: int) -> None:
    with path.open("r+b") as opened:
        opened.seek(at)
        opened.write(bytes([CONTENT[at] ^ 255]))


@pytest.mark.parametrize("content", [b"", b"a", CONTENT])
def test_a_file_read_at_once(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    file = hash_file(tmp_path, "a.bin")
    assert whole_content(file) == content
    with UnchangedReader(file) as reader:
        assert reader.read() == content
        assert reader.read() == reader.read(5) == b""
    (tmp_path / "a.bin").write_bytes(content + b"more")
    with pytest.raises(RunFailure, match="changed"):
        whole_content(file)


def test_a_file_that_is_emptied_or_filled_while_it_is_open(tmp_path: Path) -> None:
    for before, after in ((b"", b"more"), (CONTENT, b""), (CONTENT, CONTENT + b"more")):
        (tmp_path / "a.bin").write_bytes(before)
        with UnchangedReader(hash_file(tmp_path, "a.bin")) as reader:
            (tmp_path / "a.bin").write_bytes(after)
            with pytest.raises(RunFailure, match="changed"):
                reader.read()


def test_a_beginning_that_was_not_read_is_not_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    with UnchangedReader(hash_file(tmp_path, "a.bin")) as reader:
        reader.seek(1000)
        with pytest.raises(RunFailure, match="out of order"):
            reader.read()


def linked(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def under_a_link(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))
    path.parent.symlink_to(path.parent.with_name("moved"))


@pytest.mark.parametrize("change", [linked, piped, under_a_link, flip, Path.unlink])
def test_no_link_is_followed_and_no_pipe_waited_for(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "data" / "a.bin"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    file = hash_file(tmp_path, "data/a.bin")
    change(path)
    with pytest.raises(RunFailure, match=r"data/a\.bin changed on this machine"):
        whole_content(file)
    if change is not flip:
        with pytest.raises(RunFailure, match=r"data/a\.bin"):
            hash_file(tmp_path, "data/a.bin")


def test_the_directory_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.bin").write_bytes(CONTENT)
    (tmp_path / "named").symlink_to(tmp_path / "real")
    assert whole_content(hash_file(tmp_path / "named", "a.bin")) == CONTENT


Start = Callable[..., Publisher]
LARGE = "data/base/test-00000-of-00003.parquet"
SMALL = "receipts/base-00001.json"


@pytest.fixture
def directory(second: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(second, tmp_path / "changing" / "garments"))


def publish_while(
    hub: LoopbackHub,
    process: Publisher,
    question: dict[str, Any],
    when: Callable[[int, Any], bool],
    change: Any,
) -> tuple[dict[str, Any], bool]:
    """Publish, calling `change` at the first request for which `when` holds; return the answer and
    whether it did."""
    done: list[bool] = []

    def on_request(request: Any) -> None:
        seen.append(request)
        if not done and when(len(seen), request):
            done.append(True)
            change()

    seen: list[Any] = []
    hub.on_request = on_request
    answer = process.ask(question)
    hub.on_request = None
    return answer, bool(done)


def is_reported(answer: dict[str, Any], path: str) -> bool:
    """Return whether a publication ended with words about this file's change here, without blaming
    others."""
    assert answer.get("kind") == "RunFailure", answer
    assert "Someone else" not in str(answer)
    assert "counterfoil verify" in str(answer["hint"])
    assert answer["lines"] == [], "a changed file is not tried again"
    return any(path in line and "changed on this machine" in line for line in answer["error"])


def versions_of_main(hub: LoopbackHub) -> list[dict[str, bytes]]:
    """Return what every commit of the default branch holds, newest first."""
    return [published(hub, commit.oid) for commit in hub.commits(REPO)]


# A file is hashed as it is sent, whichever way commits go: one of each is enough.
@pytest.mark.release(of="hub")
@pytest.mark.parametrize(
    ("path", "files_per_commit", "step"),
    [
        pytest.param(LARGE, 100, 6, id="large, one commit, every sixth request"),
        pytest.param(LARGE, 100, 1, marks=pytest.mark.whole, id="large, one commit"),
        pytest.param("manifest.json", 30, 1, marks=pytest.mark.whole, id="small, pull request"),
    ],
)
def test_a_change_between_any_two_requests_never_reaches_readers(
    hub_of_first: LoopbackHub,
    first: Path,
    second: Path,
    directory: Path,
    start_publisher: Start,
    path: str,
    files_per_commit: int,
    step: int,
) -> None:
    process = start_publisher(hub_of_first)
    old = contents(first)
    new = contents(second)
    # as an earlier upload left it, so that there are few requests to go through
    for name, content in new.items():
        if not name.startswith("data/base/"):
            hub_of_first.know(REPO, content)
    before = hub_of_first.keep(REPO)
    refused: list[int] = []
    moment = 1 - step
    when = "before"
    answer: dict[str, Any] = {}
    while when != "after the commit":
        moment += step
        hub_of_first.put_back(before)
        shutil.copyfile(second / path, directory / path)
        count, when = 0, "before"

        def on_request(request: object) -> None:
            nonlocal count, when
            count += 1
            committed = published(hub_of_first) == new
            if count == moment:  # noqa: B023
                flip(directory / path)
                when = "after the commit" if committed else "before the commit"
            elif committed and when == "before the commit":
                process.kill()  # from now on it takes long and reads nothing here

        hub_of_first.on_request = on_request
        answer = process.ask(call(directory, files_per_commit=files_per_commit))
        hub_of_first.on_request = None
        assert when != "before"
        assert all(version in (old, new, {}) for version in versions_of_main(hub_of_first))
        if "error" in answer:
            assert is_reported(answer, path)
            assert published(hub_of_first) == old
            refused.append(moment)
        else:
            assert published(hub_of_first) == new
    assert answer.get("published"), "a change after the commit is no matter"
    assert refused == [*range(1, refused[-1] + 1, step)], "nor is one after the file was sent"
    assert refused[-1] > 10
    # Once the file is what it was, the same command goes on from what the last one left.
    hub_of_first.put_back(before)
    question = call(directory, files_per_commit=files_per_commit)
    shutil.copyfile(second / path, directory / path)
    publish_while(
        hub_of_first,
        process,
        question,
        lambda count, _: count == refused[-1],
        lambda: flip(directory / path),
    )
    shutil.copyfile(second / path, directory / path)
    process.publish(question)
    assert published(hub_of_first) == new


def replaced(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[:4] = b"else"
    other = path.with_suffix(".other")
    other.write_bytes(content)
    other.replace(path)


def linked_meanwhile(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def piped_meanwhile(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def foldered(path: Path) -> None:
    path.unlink()
    path.mkdir()


def under_a_link_meanwhile(path: Path) -> None:
    elsewhere = path.parent.with_name("elsewhere")
    path.parent.rename(elsewhere)
    path.parent.symlink_to(elsewhere)


CHANGES: dict[str, Callable[[Path], object]] = {
    "flipped": flip,
    "replaced": replaced,
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "shorter": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "gone": Path.unlink,
    "link": linked_meanwhile,
    "pipe": piped_meanwhile,
    "folder": foldered,
    "under a link": under_a_link_meanwhile,
}


@pytest.mark.release(of="hub")
@pytest.mark.parametrize(
    ("path", "xet", "changes"),
    [
        pytest.param(SMALL, False, [*CHANGES][::2], id="small, http"),
        pytest.param(LARGE, True, [*CHANGES][1::2], id="large, xet"),
    ],
)
def test_every_kind_of_change_is_reported(
    loopback: LoopbackHub,
    second: Path,
    directory: Path,
    start_publisher: Start,
    path: str,
    xet: bool,
    changes: list[str],
) -> None:
    process = start_publisher(loopback, xet=xet)
    for name in changes:
        change = CHANGES[name]
        shutil.rmtree(directory)
        shutil.copytree(second, directory)
        answer, reached = publish_while(
            loopback,
            process,
            call(directory),
            lambda count, request: request.path.endswith("/whoami-v2"),
            lambda change=change: change(directory / path),
        )
        assert reached
        assert is_reported(
            answer, path.rpartition("/")[0] if change is under_a_link_meanwhile else path
        ), name
        assert published(loopback) == {}
    assert not [request for request in loopback.requests if "/commit/" in request.path]


class ChangeAsItComes(Faults):
    """Change a file, without a fault, when the upload of its content begins."""

    def __init__(self, sha256: str, change: Callable[[], None]) -> None:
        super().__init__()
        self._path = f"/lfs/{sha256}"
        self._change = change

    def draw(
        self, method: str, path: str, query: Mapping[str, list[str]], *, storage: bool
    ) -> Fault | None:
        if method == "PUT" and path.startswith(self._path):
            self._change()
        return None


@pytest.mark.parametrize("multipart_above", [None, 1 << 20], ids=["in one", "in parts"])
def test_another_content_is_never_received_whole(
    start_loopback: Callable[..., LoopbackHub], tmp_path: Path, multipart_above: int | None
) -> None:
    # Larger than what a connection takes up on its way, so that its end is read after the change.
    (tmp_path / "a.bin").write_bytes(random.Random(0).randbytes(24 << 20))
    file = hash_file(tmp_path, "a.bin")
    hub = start_loopback(multipart_above=multipart_above, part_size=8 << 20)
    api = client(hub)
    api.create_repo(REPO, repo_type="dataset")

    def change() -> None:
        with (tmp_path / "a.bin").open("r+b") as opened:
            opened.seek(-1, os.SEEK_END)
            opened.write(b"x")

    hub.faults = ChangeAsItComes(file.sha256, change)
    with pytest.raises(RunFailure, match=r"a\.bin changed on this machine"):
        with_retries(
            lambda: api.preupload_lfs_files(REPO, [Addition(file)], repo_type="dataset"), "sending"
        )
    assert hub.uploads[file.sha256].complete == 0
    assert 0 < hub.uploads[file.sha256].bytes < file.size
    assert not [request for request in hub.requests if "/lfs/complete/" in request.path]
    assert len([request for request in hub.requests if "/objects/batch" in request.path]) == 1, (
        "it was not tried again"
    )


def test_with_xet_what_it_sent_is_compared_before_the_commit(
    loopback: LoopbackHub, second: Path, directory: Path, start_publisher: Start
) -> None:
    process = start_publisher(loopback, xet=True)
    client(loopback).create_repo(REPO, repo_type="dataset", private=True)
    for content in contents(second).values():
        loopback.know(REPO, content)
    answer, reached = publish_while(
        loopback,
        process,
        call(directory),
        lambda count, request: "/xet-write-token/" in request.path,
        lambda: flip(directory / LARGE),
    )
    assert reached
    assert is_reported(answer, LARGE)
    assert not [request for request in loopback.requests if "/commit/" in request.path]
    shutil.copyfile(second / LARGE, directory / LARGE)
    process.publish(call(directory))
    assert published(loopback) == contents(second)
    assert not [request for request in loopback.requests if "/objects/batch" in request.path], (
        "Xet was used"
    )


@pytest.fixture(scope="module")
def verified(second: Path) -> str | None:
    return verify(second).manifest_sha256


def rewritten(directory: Path) -> None:
    """Change a file, and list it in the manifest as it is now."""
    flip(directory / SMALL)
    write_manifest(directory, {})


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda directory: flip(directory / LARGE), LARGE),
        (lambda directory: flip(directory / "manifest.json"), "manifest.json"),
        (lambda directory: (directory / "receipts/new.json").write_text("{}"), "receipts/new.json"),
        (lambda directory: (directory / SMALL).unlink(), SMALL),
        (rewritten, "manifest.json"),
    ],
    ids=["large", "manifest", "new", "gone", "all of a piece"],
)
def test_what_is_hashed_is_what_was_verified(
    directory: Path, verified: str, change: Callable[[Path], None], path: str
) -> None:
    assert set(local_files(directory, verified)) == set(contents(directory))
    change(directory)
    with pytest.raises(RunFailure, match=f"{path} changed on this machine"):
        local_files(directory, verified)


@pytest.mark.release(of="hub")
def test_what_is_published_after_a_change_verifies_and_loads(
    hub_of_first: LoopbackHub,
    first: Path,
    second: Path,
    directory: Path,
    start_publisher: Start,
    start_reader: Callable[..., Reader],
    tmp_path: Path,
) -> None:
    process = start_publisher(hub_of_first)
    for path, way in ((LARGE, 100), (SMALL, 30), ("README.md", 100)):
        publish_while(
            hub_of_first,
            process,
            call(directory, files_per_commit=way),
            lambda n, _: n == 12,
            lambda path=path: flip(directory / path),
        )
        shutil.copyfile(second / path, directory / path)
    assert published(hub_of_first) == contents(first)
    process.publish(call(directory, files_per_commit=30))
    folder = tmp_path / "there"
    for name, content in published(hub_of_first).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    assert verify(folder).whole
    assert read(start_reader(hub_of_first)) == keys_of(second)
