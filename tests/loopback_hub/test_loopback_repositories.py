"""Repositories with the real client: creation, visibility, rights, refs, listings in pages, what is
refused."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import httpx2
import pytest
from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    RepoFile,
    hf_hub_download,
)
from huggingface_hub.errors import (
    BadRequestError,
    EntryNotFoundError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from loopback_hub import LoopbackHub, client

NAME = "someone/things"


@pytest.fixture
def api(loopback: LoopbackHub) -> HfApi:
    api = client(loopback)
    api.create_repo(NAME, repo_type="dataset", private=True)
    return api


def put(api: HfApi, files: dict[str, bytes], *, message: str = "Some files", **options: Any) -> str:
    additions = [CommitOperationAdd(path, content) for path, content in files.items()]
    info = api.create_commit(
        NAME, additions, commit_message=message, repo_type="dataset", **options
    )
    return info.oid


def status_of(error: pytest.ExceptionInfo[HfHubHTTPError]) -> int:
    return error.value.response.status_code


@pytest.mark.parametrize("name", ["..", "a/../../b", "/etc", ".hidden", "", "a..b"])
def test_a_name_leads_nowhere_else(loopback: LoopbackHub, name: str) -> None:
    named = {"type": "dataset", "organization": "someone", "name": name}
    headers = {"Authorization": f"Bearer {loopback.token}"}
    refused = httpx2.post(f"{loopback.endpoint}/api/repos/create", json=named, headers=headers)
    assert refused.status_code == 400 and not (loopback.folder / "repositories").exists()


def test_a_private_repository_is_not_there_for_strangers(
    loopback: LoopbackHub, api: HfApi, tmp_path: Path
) -> None:
    put(api, {"a.txt": b"a"})
    stranger = client(loopback, token=False)
    for ask in (
        lambda: stranger.dataset_info(NAME),
        lambda: list(stranger.list_repo_tree(NAME, repo_type="dataset")),
        lambda: hf_hub_download(
            NAME,
            "a.txt",
            repo_type="dataset",
            endpoint=loopback.endpoint,
            token=False,
            cache_dir=tmp_path,
        ),
        lambda: stranger.dataset_info("someone/nothing"),
    ):
        with pytest.raises(RepositoryNotFoundError):
            ask()
    api.update_repo_settings(NAME, private=False, repo_type="dataset")
    assert stranger.dataset_info(NAME).private is False


def test_object_ids_are_gits_own(loopback: LoopbackHub, api: HfApi, tmp_path: Path) -> None:
    files = {
        "README.md": b"# Hello\n",
        "deep/er/one.txt": b"one\n",
        "deep.txt": b"two\n",
        "deep/er.txt": b"three\n",
    }
    put(api, files)
    folder = tmp_path / "files"
    for path, content in loopback.branch(NAME).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=folder, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-q")
    git("add", "-A")
    assert loopback.repository(NAME).head().folders[""] == git("write-tree")
    listed = api.list_repo_tree(NAME, recursive=True, repo_type="dataset")
    blobs = {file.path: file.blob_id for file in listed if isinstance(file, RepoFile)}
    assert blobs == {path: git("hash-object", path) for path in loopback.branch(NAME)}


def test_large_files_are_known_by_their_sha256(api: HfApi) -> None:
    content = b"PAR1 not text \0 at all"
    put(
        api,
        {"data/a.parquet": content, "data/binary": b"\xff\xfe\0", "data/text": "ä".encode() * 400},
    )
    info = api.dataset_info(NAME, files_metadata=True)
    siblings = {sibling.rfilename: sibling for sibling in info.siblings or []}
    lfs = siblings["data/a.parquet"].lfs
    assert (
        lfs is not None
        and lfs.sha256 == hashlib.sha256(content).hexdigest()
        and lfs.size == len(content)
    )
    assert siblings["data/binary"].lfs is not None and siblings["data/text"].lfs is None
    assert siblings["data/text"].size == 800
    pointer = (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{lfs.sha256}\nsize"
        f" {len(content)}\n"
    )
    assert lfs.pointer_size == len(pointer)


def test_lists_come_in_pages(loopback: LoopbackHub, api: HfApi) -> None:
    files = {f"many/{number:03}.txt": b"%d" % number for number in range(120)}
    put(api, files)
    listed = {entry.path for entry in api.list_repo_tree(NAME, recursive=True, repo_type="dataset")}
    assert listed == {*files, "many", ".gitattributes"}
    requests = [request for request in loopback.requests if "/tree/" in request.path]
    assert len(requests) == 3 and [request.query.get("cursor") for request in requests] == [
        None,
        ["50"],
        ["100"],
    ]
    top = list(api.list_repo_tree(NAME, repo_type="dataset"))
    assert {entry.path for entry in top} == {"many", ".gitattributes"}


def test_paths_are_described_where_they_are(api: HfApi) -> None:
    first = put(api, {"a/b.txt": b"b", "c.png": b"\x89PNG\0"})
    put(api, {"a/d.txt": b"d"}, message="Second")
    infos = {
        info.path: info
        for info in api.get_paths_info(NAME, ["a", "a/b.txt", "c.png", "no"], repo_type="dataset")
    }
    assert set(infos) == {"a", "a/b.txt", "c.png"}
    (described,) = api.get_paths_info(NAME, "a/b.txt", expand=True, repo_type="dataset")
    assert described.last_commit is not None and described.last_commit.oid == first
    with pytest.raises(EntryNotFoundError):
        list(api.list_repo_tree(NAME, "nowhere", repo_type="dataset"))
    with pytest.raises(RevisionNotFoundError):
        list(api.list_repo_tree(NAME, revision="nowhere", repo_type="dataset"))
    assert not api.file_exists(NAME, "no", repo_type="dataset") and api.file_exists(
        NAME, "c.png", repo_type="dataset"
    )


def test_tags_and_branches_lead_to_commits(loopback: LoopbackHub, api: HfApi) -> None:
    first = put(api, {"a.txt": b"1"})
    api.create_tag(NAME, tag="v1", repo_type="dataset")
    api.create_branch(NAME, branch="side/way", repo_type="dataset")
    second = put(api, {"a.txt": b"2"})
    side = put(api, {"a.txt": b"3"}, revision="side/way")
    assert api.dataset_info(NAME, revision="v1").sha == first
    assert api.dataset_info(NAME, revision=second[:10]).sha == second
    refs = api.list_repo_refs(NAME, repo_type="dataset")
    assert {branch.name: branch.target_commit for branch in refs.branches} == {
        "main": second,
        "side/way": side,
    }
    assert {tag.ref: tag.target_commit for tag in refs.tags} == {"refs/tags/v1": first}
    assert loopback.branch(NAME, "side/way")["a.txt"] == b"3"

    with pytest.raises(HfHubHTTPError) as twice:
        api.create_tag(NAME, tag="v1", repo_type="dataset")
    assert status_of(twice) == 409
    api.create_tag(NAME, tag="v1", repo_type="dataset", exist_ok=True)
    api.create_branch(NAME, branch="side/way", repo_type="dataset", exist_ok=True)
    with pytest.raises(BadRequestError):
        api.create_branch(NAME, branch="refs/pr/5", repo_type="dataset")
    with pytest.raises(BadRequestError):
        put(api, {"a.txt": b"4"}, revision="v1")
    api.delete_tag(NAME, tag="v1", repo_type="dataset")
    api.delete_branch(NAME, branch="side/way", repo_type="dataset")
    with pytest.raises(RevisionNotFoundError):
        api.delete_tag(NAME, tag="v1", repo_type="dataset")
    assert loopback.repository(NAME).tags == {} and list(loopback.repository(NAME).heads) == [
        "main"
    ]


def test_a_commit_on_another_parent_is_refused(loopback: LoopbackHub, api: HfApi) -> None:
    first = put(api, {"a.txt": b"1"})
    put(api, {"a.txt": b"2"})
    with pytest.raises(HfHubHTTPError) as refused:
        put(api, {"a.txt": b"3"}, parent_commit=first)
    assert status_of(refused) == 412 and loopback.branch(NAME)["a.txt"] == b"2"


@pytest.mark.parametrize(
    ("card", "named"),
    [
        ("---\nlicense: [\n---\n", "YAML"),
        ("---\nsize_categories: [10K]\n---\n", "size_categories"),
        ("---\nconfigs:\n- data_files: x\n---\n", "config_name"),
        (
            "---\nconfigs:\n- config_name: a\n  data_files:\n  - split: a-b\n    path: x\n---\n",
            "a-b",
        ),
    ],
)
def test_a_wrong_card_is_refused(loopback: LoopbackHub, api: HfApi, card: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        put(api, {"README.md": card.encode()})
    assert "README.md" not in loopback.branch(NAME)


def test_what_does_not_exist_cannot_be_deleted(api: HfApi) -> None:
    with pytest.raises(EntryNotFoundError, match="doesn't exist"):
        api.create_commit(
            NAME, [CommitOperationDelete("no.txt")], commit_message="No", repo_type="dataset"
        )
    put(api, {"a": b"a"})
    with pytest.raises(BadRequestError, match="is a file"):
        put(api, {"a/b": b"b"})
