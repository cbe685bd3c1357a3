"""Killed at any request, and under a storm of faults, the same command goes on; nothing is sent twice without need."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from publishing_cases import REPO, Publisher, call, contents, keys_of, published, read

from loopback_hub import Fault, Faults, LoopbackHub, Reader, client

Start = Callable[..., Publisher]
_OTHERS = ("/commit/refs", "/discussions$", "/preupload/")


def publish_with_kills(hub: LoopbackHub, directory: Path, start: Start, kills: list[int], **options: Any) -> list[int]:
    """Publish, killing the process at its k-th request for each k in turn, then to the end; requests of each run."""
    process = start(hub)
    counts = [_publish(hub, process, call(directory, **options), kill) for kill in kills]
    return [*counts, _publish(hub, process, call(directory, **options), None)]


def _publish(hub: LoopbackHub, process: Publisher, question: dict[str, Any], kill: int | None) -> int:
    """The requests of a publication that is killed at its `kill`-th, if it has as many."""
    count = 0

    def on_request(request: object) -> None:
        nonlocal count
        count += 1
        if count == kill:
            process.kill()

    hub.on_request = on_request
    answer = process.ask(question)
    hub.on_request = None
    assert answer.get("published") or "killed" in answer, answer
    return count


def uploads_in_flight(hub: LoopbackHub, kills: int) -> int:
    """How often contents came in again; a kill can lose the news of those in flight, which are five at most."""
    again = sum(received.complete - 1 for received in hub.uploads.values())
    assert again <= 5 * kills
    return again


@pytest.mark.parametrize(
    "files_per_commit",
    [pytest.param(100, marks=pytest.mark.whole, id="one commit"), pytest.param(12, id="pull request")],
)
def test_a_publication_killed_at_any_request_goes_on(
    start_loopback: Callable[..., LoopbackHub],
    first: Path,
    second: Path,
    start_publisher: Start,
    files_per_commit: int,
) -> None:
    quiet = start_loopback()
    publish_with_kills(quiet, first, start_publisher, [])
    (requests,) = publish_with_kills(quiet, second, start_publisher, [], files_per_commit=files_per_commit)
    hub = start_loopback()
    publish_with_kills(hub, first, start_publisher, [])
    # Early, among the uploads, and through the commits and the merge, which come before the loading back.
    changing = requests * 2 // 3
    kills = sorted({changing // 6, changing // 3, changing // 2, changing * 3 // 4, changing})
    publish_with_kills(hub, second, start_publisher, kills, files_per_commit=files_per_commit, tag="v2")
    assert published(hub) == published(hub, "v2") == contents(second)
    assert len(hub.commits(REPO)) == 3
    uploads_in_flight(hub, len(kills))


@pytest.mark.parametrize(
    "path", ["/commit/main$", "/merge$", "/tag/", *(pytest.param(path, marks=pytest.mark.whole) for path in _OTHERS)]
)
def test_an_answer_that_is_lost_is_no_second_change(
    start_loopback: Callable[..., LoopbackHub], first: Path, second: Path, start_publisher: Start, path: str
) -> None:
    hub = start_loopback(faults=Faults())
    process = start_publisher(hub)
    process.publish(call(first))
    hub.faults.add(Fault.lose_answer("POST", path))
    many = "main" not in path
    answer = process.publish(call(second, tag="v2", files_per_commit=12 if many else 100))
    assert any(one.fault for one in hub.requests), "the fault was met"
    assert published(hub) == published(hub, "v2") == contents(second)
    assert len(hub.commits(REPO)) == 3
    assert len(hub.repository(REPO).pull_requests) == (1 if many else 0)
    assert answer["told"] or "preupload" in path


def test_a_commit_of_somebody_else_in_between_is_kept(
    loopback: LoopbackHub, first: Path, second: Path, start_publisher: Start
) -> None:
    process = start_publisher(loopback)
    process.publish(call(first))
    others = client(loopback, observer=True)

    def interfere(request: object) -> None:
        if "/preupload/" in str(request) and not others_done:
            others_done.append(True)
            others.upload_file(path_or_fileobj=b"mine", path_in_repo="NOTES", repo_id=REPO, repo_type="dataset")

    others_done: list[bool] = []
    loopback.on_request = interfere
    process.publish(call(second))
    loopback.on_request = None
    assert others_done
    assert published(loopback) == {**contents(second), "NOTES": b"mine"}


def test_expired_addresses_and_quotas_are_waited_out(
    start_loopback: Callable[..., LoopbackHub], first: Path, start_publisher: Start
) -> None:
    hub = start_loopback(commit_quota=3, sleep_scale=0.001, faults=Faults([Fault.expire(times=2)]))
    answer = start_publisher(hub, sleep_scale=0.001).publish(call(first, files_per_commit=10))
    assert published(hub) == contents(first)
    assert any("429" in line for line in answer["told"])
    assert any("address of the storage" in line for line in answer["told"])


def test_a_pull_request_of_an_older_base_is_begun_anew(
    loopback: LoopbackHub, first: Path, second: Path, start_publisher: Start
) -> None:
    process = start_publisher(loopback)
    process.publish(call(first))
    process.publish(call(second, create_pr=True))
    others = client(loopback, observer=True)
    others.upload_file(path_or_fileobj=b"mine", path_in_repo="NOTES", repo_id=REPO, repo_type="dataset")
    process.publish(call(second, files_per_commit=12))
    assert published(loopback) == {**contents(second), "NOTES": b"mine"}
    assert [one.status for one in loopback.repository(REPO).pull_requests.values()] == ["closed", "merged"]


def test_a_silent_connection_is_given_up(
    start_loopback: Callable[..., LoopbackHub], first: Path, start_publisher: Start
) -> None:
    hub = start_loopback(faults=Faults([Fault.latency(8, "POST", "/commit/")]))
    answer = start_publisher(hub).publish(call(first, silence=3.0))
    assert any("connection failed" in line for line in answer["told"])
    assert published(hub) == contents(first)
    assert len(hub.commits(REPO)) == 2


def test_a_wait_that_is_too_long_is_told_and_not_slept_through(
    start_loopback: Callable[..., LoopbackHub], first: Path, start_publisher: Start
) -> None:
    hub = start_loopback(faults=Faults([Fault.status(429, "POST", "/preupload/", retry_after=86400)]))
    refused = start_publisher(hub).ask(call(first))
    assert refused["exit_code"] == 1
    assert "429" in refused["error"][0]


@pytest.mark.whole
def test_a_storm_and_ten_kills_end_with_the_directory(
    start_loopback: Callable[..., LoopbackHub],
    first: Path,
    second: Path,
    start_publisher: Start,
    start_reader: Callable[..., Reader],
) -> None:
    hub = start_loopback()
    start_publisher(hub).publish(call(first))
    hub.faults = Faults.storm(seed=11, rate=0.15)
    whole = [contents(first), contents(second)]
    chance = random.Random(11)
    kills = [chance.randrange(3, 60) for _ in range(10)]
    publish_with_kills(hub, second, start_publisher, kills, files_per_commit=12, tag="v2")
    hub.faults = Faults()
    assert published(hub) == published(hub, "v2") == contents(second)
    assert len(hub.commits(REPO)) == 3
    assert all(
        {path: content for path, content in hub.branch(REPO, commit.oid).items() if not path.startswith(".")} in whole
        for commit in hub.commits(REPO)[:2]
    )
    assert read(start_reader(hub)) == keys_of(second)
    uploads_in_flight(hub, len(kills))
