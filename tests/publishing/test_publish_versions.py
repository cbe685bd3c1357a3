"""First and later versions on a Hub: identical to the directory, one commit each, nothing sent twice."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.utils import are_progress_bars_disabled
from publishing_cases import REPO, Publisher, call, contents, keys_of, published, read

from counterfoil.errors import UserError
from counterfoil.publishing import publish
from counterfoil.publishing.publish_dataset import Sending
from counterfoil.store.directory_lock import directory_lock
from driven import given_up
from loopback_hub import LoopbackHub, Reader, client

Start = Callable[..., Publisher]


def stages(answer: dict[str, Any]) -> list[str]:
    """The stages of a publication in order, each once for as long as it lasts."""
    return [stage for stage, _ in groupby(answer["sending"], key=lambda one: one["stage"])]


def assert_forward(answer: dict[str, Any]) -> None:
    for _, told in groupby(answer["sending"], key=lambda one: one["stage"]):
        done = [(one["files_done"], one["bytes_done"], one["files"], one["bytes"]) for one in told]
        assert done == sorted(done)
        assert all(files_done <= files and bytes_done <= size for files_done, bytes_done, files, size in done)
        assert len({(files, size) for _, _, files, size in done}) == 1


def test_versions_follow_each_other(
    loopback: LoopbackHub, first: Path, second: Path, start_publisher: Start, start_reader: Callable[..., Reader]
) -> None:
    process, reading = start_publisher(loopback), start_reader(loopback)
    answer = process.publish(call(first, tag="v1"))
    done, sizes = answer["published"], [len(content) for content in contents(first).values()]
    assert published(loopback) == contents(first)
    assert stages(answer) == ["verifying", "sending", "committing", "comparing"]
    assert_forward(answer)
    # Equal contents are sent once, and committed each.
    assert [one["files_done"] for one in answer["sending"]][-2:] == [len(sizes)] * 2
    assert [one["bytes_done"] for one in answer["sending"]][-2:] == [sum(sizes)] * 2
    assert (done["commits"], done["files_changed"]) == (1, len(contents(first)))
    assert loopback.repository(REPO).private
    assert read(reading) == keys_of(first)

    answer = process.publish(call(first, tag="v1"))
    again = answer["published"]
    assert [one["files"] for one in answer["sending"] if one["stage"] == "sending"] == [0]
    assert (again["commits"], again["files_changed"], again["commit"]) == (0, 0, done["commit"])

    answer = process.publish(call(second, tag="v2"))
    assert published(loopback) == contents(second)
    assert answer["published"]["commits"] == 1
    assert len(loopback.commits(REPO)) == 3  # the Hub's own first one, and one a version
    assert read(reading) == keys_of(second)
    # The first version is what its tag names.
    assert published(loopback, "v1") == contents(first)
    assert published(loopback, "v2") == contents(second)

    sent = [received.complete for received in loopback.uploads.values()]
    assert sent
    assert set(sent) == {1}
    gone, new = contents(first).keys() - contents(second).keys(), contents(second).keys() - contents(first).keys()
    assert any(f"{len(new)} files added" in line and f"{len(gone)} deleted" in line for line in answer["preview"])


def test_more_files_than_a_commit_carries_go_through_a_pull_request(
    loopback: LoopbackHub, first: Path, second: Path, start_publisher: Start
) -> None:
    process = start_publisher(loopback)
    assert process.publish(call(first, files_per_commit=10))["published"]["pull_request"] is None
    assert published(loopback) == contents(first)
    answer = process.publish(call(second, files_per_commit=10))
    assert stages(answer) == ["verifying", "sending", "merging", "comparing"]
    assert_forward(answer)
    assert published(loopback) == contents(second)
    assert len(loopback.commits(REPO)) == 3
    assert all(len(commit.changed) <= 10 for commit in loopback.commits(REPO, "refs/pr/2")[:3])


def test_a_pull_request_can_stay_open(loopback: LoopbackHub, first: Path, second: Path, start_publisher: Start) -> None:
    process = start_publisher(loopback)
    process.publish(call(first))
    done = process.publish(call(second, create_pr=True))["published"]
    assert published(loopback) == contents(first)
    assert published(loopback, f"refs/pr/{done['pull_request']}") == contents(second)
    assert loopback.repository(REPO).pull_requests[done["pull_request"]].status == "open"
    # The same again goes on with it, and another content replaces it.
    assert process.publish(call(second, create_pr=True))["published"]["pull_request"] == done["pull_request"]


def test_a_branch_of_its_own(loopback: LoopbackHub, first: Path, second: Path, start_publisher: Start) -> None:
    process = start_publisher(loopback)
    process.publish(call(first))
    process.publish(call(second, revision="next"))
    assert published(loopback) == contents(first)
    assert published(loopback, "next") == contents(second)
    refused = process.ask(call(first, revision="next", files_per_commit=3))
    assert refused["exit_code"] == 2
    assert "--files-per-commit" in refused["hint"]


def test_files_of_others_stay(loopback: LoopbackHub, first: Path, second: Path, start_publisher: Start) -> None:
    process = start_publisher(loopback)
    process.publish(call(first))
    api = client(loopback)
    api.upload_file(path_or_fileobj=b"words", path_in_repo="LICENSE", repo_id=REPO, repo_type="dataset")
    answer = process.publish(call(second))
    assert published(loopback) == {**contents(second), "LICENSE": b"words"}
    assert any("LICENSE" in line for line in answer["preview"])


def test_visibility_is_private_unless_said_otherwise(
    loopback: LoopbackHub, first: Path, start_publisher: Start
) -> None:
    process = start_publisher(loopback)
    assert process.publish(call(first, "someone/quiet"))["published"]["private"]
    assert loopback.repository("someone/quiet").private
    assert not process.publish(call(first, "someone/loud", public=True))["published"]["private"]
    assert not loopback.repository("someone/loud").private
    assert not process.publish(call(first, "someone/quiet", public=True))["published"]["private"]
    assert not loopback.repository("someone/quiet").private


def test_nothing_is_done_without_consent(loopback: LoopbackHub, first: Path, start_publisher: Start) -> None:
    answer = start_publisher(loopback).ask(call(first, confirm=False))
    assert stages(answer) == ["verifying"]
    assert answer["published"] is None
    assert f"{len(contents(first))} files added" in " ".join(answer["preview"])
    assert not [one for one in loopback.requests if one.method != "GET" and "validate-yaml" not in one.path]


def test_a_publication_that_is_given_up_lets_go_of_the_directory_and_the_client(first: Path) -> None:
    before = are_progress_bars_disabled()

    def first_told(told: object) -> bool:
        assert told == Sending("verifying", 0, 0, 0, 0)
        with pytest.raises(UserError, match="in use by another process"), directory_lock(first):
            pass
        return True

    with given_up(first_told):
        publish(first, REPO)
    assert are_progress_bars_disabled() == before
    with directory_lock(first):
        pass
