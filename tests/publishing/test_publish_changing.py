"""A file that changes while it is published is told; readers find the old version or the new one, each whole."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from publishing_cases import REPO, Publisher, call, contents, keys_of, published, read

from counterfoil.errors import RunFailure
from counterfoil.hub import with_retries
from counterfoil.publishing.files import Addition, hash_file, local_files
from counterfoil.store.manifest import write_manifest
from counterfoil.verification import verify
from loopback_hub import Fault, Faults, LoopbackHub, Reader, client
from support.files import flip

Start = Callable[..., Publisher]
LARGE = "data/base/test-00000-of-00003.parquet"
SMALL = "receipts/base-00001.json"


@pytest.fixture
def directory(second: Path, tmp_path: Path) -> Path:
    """The second version, where the tests may change it."""
    return Path(shutil.copytree(second, tmp_path / "changing" / "garments"))


def publish_while(
    hub: LoopbackHub, process: Publisher, question: dict[str, Any], when: Callable[[int, Any], bool], change: Any
) -> tuple[dict[str, Any], bool]:
    """What came of a publication in which `change` is called once, at the first request that `when` is true of."""
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


def is_told(answer: dict[str, Any], path: str) -> bool:
    """Whether a publication ended with words about a file that changed here, and about nobody else."""
    assert answer.get("kind") == "RunFailure", answer
    assert "Somebody else" not in str(answer)
    assert "counterfoil verify" in str(answer["hint"])
    assert answer["told"] == [], "a changed file is not tried again"
    return any(path in line and "changed on this machine" in line for line in answer["error"])


def versions_of_main(hub: LoopbackHub) -> list[dict[str, bytes]]:
    """What every commit of the default branch holds, newest first."""
    return [published(hub, commit.oid) for commit in hub.commits(REPO)]


# A file is hashed as it is sent, whichever way commits go: one of each is enough.
@pytest.mark.parametrize(
    ("path", "files_per_commit"),
    [(LARGE, 100), pytest.param("manifest.json", 30, marks=pytest.mark.whole)],
    ids=["large, one commit", "small, pull request"],
)
def test_a_change_between_any_two_requests_never_reaches_readers(
    loopback: LoopbackHub,
    first: Path,
    second: Path,
    directory: Path,
    start_publisher: Start,
    path: str,
    files_per_commit: int,
) -> None:
    process = start_publisher(loopback)
    process.publish(call(first))
    old, new = contents(first), contents(second)
    for name, content in new.items():  # as an earlier upload left it, so that there are few requests to go through
        if not name.startswith("data/base/"):
            loopback.know(REPO, content)
    before = loopback.keep(REPO)
    refused: list[int] = []
    moment = 0
    when = "before"
    answer: dict[str, Any] = {}
    while when != "after the commit":
        moment += 1
        loopback.put_back(before)
        shutil.copyfile(second / path, directory / path)
        count, when = 0, "before"

        def on_request(request: object) -> None:
            nonlocal count, when
            count += 1
            committed = published(loopback) == new
            if count == moment:  # noqa: B023
                flip(directory / path)
                when = "after the commit" if committed else "before the commit"
            elif committed and when == "before the commit":
                process.kill()  # what comes now takes long and reads nothing here

        loopback.on_request = on_request
        answer = process.ask(call(directory, files_per_commit=files_per_commit))
        loopback.on_request = None
        assert when != "before"
        assert all(version in (old, new, {}) for version in versions_of_main(loopback))
        if "error" in answer:
            assert is_told(answer, path)
            assert published(loopback) == old
            refused.append(moment)
        else:
            assert published(loopback) == new
    assert answer.get("published"), "a change after the commit is no matter"
    assert refused == list(range(1, len(refused) + 1)), "nor is one after the file was sent"
    assert len(refused) > 10
    # Once the file is what it was, the same command goes on from what the last one left.
    loopback.put_back(before)
    question = call(directory, files_per_commit=files_per_commit)
    shutil.copyfile(second / path, directory / path)
    publish_while(loopback, process, question, lambda count, _: count == refused[-1], lambda: flip(directory / path))
    shutil.copyfile(second / path, directory / path)
    process.publish(question)
    assert published(loopback) == new


def replaced(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[:4] = b"else"
    other = path.with_suffix(".other")
    other.write_bytes(content)
    other.replace(path)


def linked(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def foldered(path: Path) -> None:
    path.unlink()
    path.mkdir()


def under_a_link(path: Path) -> None:
    elsewhere = path.parent.with_name("elsewhere")
    path.parent.rename(elsewhere)
    path.parent.symlink_to(elsewhere)


CHANGES: list[Callable[[Path], object]] = [
    flip,
    replaced,
    lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    lambda path: path.write_bytes(path.read_bytes()[:-1]),
    lambda path: path.write_bytes(b""),
    Path.unlink,
    linked,
    piped,
    foldered,
    under_a_link,
]
NAMES = ["flipped", "replaced", "longer", "shorter", "empty", "gone", "link", "pipe", "folder", "under a link"]


@pytest.mark.parametrize(
    ("path", "xet"), [pytest.param(SMALL, False, id="small, http"), pytest.param(LARGE, True, id="large, xet")]
)
def test_every_kind_of_change_is_told(
    loopback: LoopbackHub, second: Path, directory: Path, start_publisher: Start, path: str, xet: bool
) -> None:
    process = start_publisher(loopback, xet=xet)
    for name, change in zip(NAMES, CHANGES, strict=True):
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
        assert is_told(answer, path.rpartition("/")[0] if change is under_a_link else path), name
        assert published(loopback) == {}
    assert not [one for one in loopback.requests if "/commit/" in one.path]


class ChangeAsItComes(Faults):
    """No fault, but a change of a file when the upload of its content begins."""

    def __init__(self, sha256: str, change: Callable[[], None]) -> None:
        super().__init__()
        self._path, self._change = f"/lfs/{sha256}", change

    def draw(self, method: str, path: str, query: Mapping[str, list[str]], *, storage: bool) -> Fault | None:
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
        with_retries(lambda: api.preupload_lfs_files(REPO, [Addition(file)], repo_type="dataset"), "sending")
    assert hub.uploads[file.sha256].complete == 0
    assert 0 < hub.uploads[file.sha256].bytes < file.size
    assert not [one for one in hub.requests if "/lfs/complete/" in one.path]
    assert len([one for one in hub.requests if "/objects/batch" in one.path]) == 1, "it was not tried again"


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
    assert is_told(answer, LARGE)
    assert not [one for one in loopback.requests if "/commit/" in one.path]
    shutil.copyfile(second / LARGE, directory / LARGE)
    process.publish(call(directory))
    assert published(loopback) == contents(second)
    assert not [one for one in loopback.requests if "/objects/batch" in one.path], "Xet was used"


def rewritten(directory: Path) -> None:
    """Another file, and a manifest that lists it as it is now."""
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
def test_what_is_hashed_is_what_was_verified(directory: Path, change: Callable[[Path], None], path: str) -> None:
    verified = verify(directory).manifest_sha256
    assert set(local_files(directory, verified)) == set(contents(directory))
    change(directory)
    with pytest.raises(RunFailure, match=f"{path} changed on this machine"):
        local_files(directory, verified)


def test_what_is_published_after_a_change_verifies_and_loads(
    loopback: LoopbackHub,
    first: Path,
    second: Path,
    directory: Path,
    start_publisher: Start,
    start_reader: Callable[..., Reader],
    tmp_path: Path,
) -> None:
    process = start_publisher(loopback)
    process.publish(call(first))
    for path in (LARGE, SMALL, "README.md"):
        for way in (100, 30):
            question = call(directory, files_per_commit=way)
            publish_while(loopback, process, question, lambda n, _: n == 12, lambda path=path: flip(directory / path))
            shutil.copyfile(second / path, directory / path)
    assert published(loopback) == contents(first)
    process.publish(call(directory, files_per_commit=30))
    there = tmp_path / "there"
    for name, content in published(loopback).items():
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        (there / name).write_bytes(content)
    assert verify(there).whole
    assert read(start_reader(loopback)) == keys_of(second)
