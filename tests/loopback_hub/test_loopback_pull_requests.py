"""Pull requests with the real client: drafts, refs of their own, one commit on the branch,
conflicts."""

from __future__ import annotations

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError

from loopback_hub import LoopbackHub, client

NAME = "someone/requests"


@pytest.fixture
def api(loopback: LoopbackHub) -> HfApi:
    api = client(loopback)
    api.create_repo(NAME, repo_type="dataset", private=True)
    put(api, {"a.txt": b"1", "old.txt": b"old"})
    return api


def put(
    api: HfApi, files: dict[str, bytes], revision: str = "main", deleted: tuple[str, ...] = ()
) -> None:
    additions = [CommitOperationAdd(path, content) for path, content in files.items()]
    deletions = [CommitOperationDelete(path) for path in deleted]
    api.create_commit(
        NAME,
        [*additions, *deletions],
        commit_message="A commit",
        revision=revision,
        repo_type="dataset",
    )


def test_a_pull_request_becomes_exactly_one_commit(loopback: LoopbackHub, api: HfApi) -> None:
    before = loopback.commits(NAME)
    opened = api.create_pull_request(NAME, "Second version", repo_type="dataset")
    assert (opened.status, opened.git_reference, opened.target_branch) == (
        "draft",
        "refs/pr/1",
        "refs/heads/main",
    )
    put(api, {"b.png": b"\0b"}, "refs/pr/1")
    put(api, {"a.txt": b"2"}, "refs/pr/1", deleted=("old.txt",))
    assert loopback.commits(NAME) == before
    assert loopback.branch(NAME, "refs/pr/1")["a.txt"] == b"2"
    assert (
        api.dataset_info(NAME, revision="refs/pr/1").sha
        == loopback.commits(NAME, "refs/pr/1")[0].oid
    )
    put(api, {"meanwhile.txt": b"m"})

    with pytest.raises(HfHubHTTPError, match="draft"):
        api.merge_pull_request(NAME, 1, repo_type="dataset")
    api.change_discussion_status(NAME, 1, "open", repo_type="dataset")
    api.merge_pull_request(NAME, 1, comment="Done", repo_type="dataset")

    newest, meanwhile, *rest = loopback.commits(NAME)
    assert rest == before and newest.parents == (meanwhile.oid,)
    assert (
        newest.changed == ("a.txt", "b.png", "old.txt") and newest.message == "Second version (#1)"
    )
    files = loopback.branch(NAME)
    assert (files["a.txt"], files["b.png"], files["meanwhile.txt"]) == (
        b"2",
        b"\0b",
        b"m",
    ) and "old.txt" not in files
    details = api.get_discussion_details(NAME, 1, repo_type="dataset")
    assert (details.status, details.merge_commit_oid) == ("merged", newest.oid)
    assert [event.type for event in details.events] == [
        *("comment", "commit", "commit", "status-change", "status-change", "comment")
    ]
    with pytest.raises(HfHubHTTPError) as twice:
        api.merge_pull_request(NAME, 1, repo_type="dataset")
    assert twice.value.response.status_code == 409
    with pytest.raises(HfHubHTTPError, match="merged"):
        put(api, {"a.txt": b"3"}, "refs/pr/1")


def test_a_conflict_is_refused_and_named(loopback: LoopbackHub, api: HfApi) -> None:
    info = api.create_commit(
        NAME,
        [CommitOperationAdd("a.txt", b"theirs")],
        commit_message="Theirs",
        create_pr=True,
        repo_type="dataset",
    )
    assert info.pr_num == 1 and info.pr_revision == "refs/pr/1"
    put(api, {"a.txt": b"ours"})
    details = api.get_discussion_details(NAME, 1, repo_type="dataset")
    assert details.status == "open" and details.conflicting_files == ["a.txt"]
    with pytest.raises(HfHubHTTPError, match=r"a\.txt") as refused:
        api.merge_pull_request(NAME, 1, repo_type="dataset")
    assert refused.value.response.status_code == 409 and loopback.branch(NAME)["a.txt"] == b"ours"
