"""Publishing a dataset: versions, kills, what readers find meanwhile, pairs."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.utils import are_progress_bars_disabled
from publishing_cases import REPO, Publisher, add_by_hand, call, contents, keys_of, published, read

from counterfoil.errors import UserError
from counterfoil.publishing.publish_dataset import Sending, publish
from counterfoil.store.directory_lock import directory_lock
from driven import given_up
from loopback_hub import Fault, Faults, LoopbackHub, Reader

Start = Callable[..., Publisher]


def stages(answer: dict[str, Any]) -> list[str]:
    """Return the stages of a publication in order, each once for as long as it lasts."""
    return [stage for stage, _ in groupby(answer["sending"], key=lambda event: event["stage"])]


def assert_forward(answer: dict[str, Any]) -> None:
    for _, stage_events in groupby(answer["sending"], key=lambda event: event["stage"]):
        done = [
            (
                stage_event["files_done"],
                stage_event["bytes_done"],
                stage_event["files"],
                stage_event["bytes"],
            )
            for stage_event in stage_events
        ]
        assert done == sorted(done)
        assert all(
            files_done <= files and bytes_done <= size
            for files_done, bytes_done, files, size in done
        )
        assert len({(files, size) for _, _, files, size in done}) == 1


def test_versions_follow_each_other(
    loopback: LoopbackHub,
    first: Path,
    second: Path,
    start_publisher: Start,
    start_reader: Callable[..., Reader],
) -> None:
    process = start_publisher(loopback)
    reading = start_reader(loopback)
    answer = process.publish(call(first, tag="v1"))
    done = answer["published"]
    sizes = [len(content) for content in contents(first).values()]
    assert published(loopback) == contents(first)
    assert stages(answer) == ["verifying", "sending", "committing", "comparing"]
    assert_forward(answer)
    # Files of equal content are sent once, and each is committed.
    assert [event["files_done"] for event in answer["sending"]][-2:] == [len(sizes)] * 2
    assert [event["bytes_done"] for event in answer["sending"]][-2:] == [sum(sizes)] * 2
    assert (done["commits"], done["files_changed"]) == (1, len(contents(first)))
    assert loopback.repository(REPO).private
    assert read(reading) == keys_of(first)

    answer = process.publish(call(first, tag="v1"))
    again = answer["published"]
    assert [event["files"] for event in answer["sending"] if event["stage"] == "sending"] == [0]
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
    gone = contents(first).keys() - contents(second).keys()
    new = contents(second).keys() - contents(first).keys()
    assert any(
        f"{len(new)} files added" in line and f"{len(gone)} deleted" in line
        for line in answer["preview"]
    )


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


def test_a_pull_request_can_stay_open(
    hub_of_first: LoopbackHub, first: Path, second: Path, start_publisher: Start
) -> None:
    process = start_publisher(hub_of_first)
    done = process.publish(call(second, create_pr=True))["published"]
    assert published(hub_of_first) == contents(first)
    assert published(hub_of_first, f"refs/pr/{done['pull_request']}") == contents(second)
    assert hub_of_first.repository(REPO).pull_requests[done["pull_request"]].status == "open"
    # The same command continues it, and another content replaces it.
    assert (
        process.publish(call(second, create_pr=True))["published"]["pull_request"]
        == done["pull_request"]
    )


def test_a_branch_of_its_own(
    hub_of_first: LoopbackHub, first: Path, second: Path, start_publisher: Start
) -> None:
    process = start_publisher(hub_of_first)
    process.publish(call(second, revision="next"))
    assert published(hub_of_first) == contents(first)
    assert published(hub_of_first, "next") == contents(second)
    refused = process.ask(call(first, revision="next", files_per_commit=3))
    assert refused["exit_code"] == 2
    assert "--files-per-commit" in refused["hint"]


def test_visibility_is_private_unless_said_otherwise(
    loopback: LoopbackHub, first: Path, start_publisher: Start
) -> None:
    """See a new public one in `test_private_is_not_said_of_a_public_repository`."""
    process = start_publisher(loopback)
    assert process.publish(call(first))["published"]["private"]
    assert loopback.repository(REPO).private
    assert not process.publish(call(first, public=True))["published"]["private"]
    assert not loopback.repository(REPO).private


def test_nothing_is_done_without_consent(
    loopback: LoopbackHub, first: Path, start_publisher: Start
) -> None:
    answer = start_publisher(loopback).ask(call(first, confirm=False))
    assert stages(answer) == ["verifying"]
    assert answer["published"] is None
    assert f"{len(contents(first))} files added" in " ".join(answer["preview"])
    assert not [
        request
        for request in loopback.requests
        if request.method != "GET" and "validate-yaml" not in request.path
    ]


def test_a_publication_that_is_given_up_lets_go_of_the_directory_and_the_client(
    first: Path,
) -> None:
    before = are_progress_bars_disabled()

    def first_event(event: object) -> bool:
        assert event == Sending("verifying", 0, 0, 0, 0)
        with pytest.raises(UserError, match="in use by another process"), directory_lock(first):
            pass
        return True

    with given_up(first_event):
        publish(first, REPO)
    assert are_progress_bars_disabled() == before
    with directory_lock(first):
        pass


_OTHERS = ("/commit/refs", "/discussions$", "/preupload/")


def publish_with_kills(
    hub: LoopbackHub, directory: Path, start: Start, kills: list[int], **options: Any
) -> list[int]:
    """Publish, killed at the k-th request for each k in turn, then to the end; return the requests
    of each run."""
    process = start(hub)
    counts = [_publish(hub, process, call(directory, **options), kill) for kill in kills]
    return [*counts, _publish(hub, process, call(directory, **options), None)]


def _publish(
    hub: LoopbackHub, process: Publisher, question: dict[str, Any], kill: int | None
) -> int:
    """Publish, killed at the `kill`-th request if there are as many, and return how many there
    were."""
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
    """Return how often contents came in again; a kill can lose the news of those in flight, five at
    most."""
    again = sum(received.complete - 1 for received in hub.uploads.values())
    assert again <= 5 * kills
    return again


@pytest.mark.release(of="hub")
@pytest.mark.parametrize(
    "files_per_commit",
    [
        pytest.param(100, marks=pytest.mark.whole, id="one commit"),
        pytest.param(12, id="pull request"),
    ],
)
def test_a_publication_killed_at_any_request_goes_on(
    start_loopback: Callable[..., LoopbackHub],
    first: Path,
    second: Path,
    start_publisher: Start,
    folder_of_first: Callable[[], Path],
    files_per_commit: int,
) -> None:
    quiet = start_loopback(folder_of_first())
    (requests,) = publish_with_kills(
        quiet, second, start_publisher, [], files_per_commit=files_per_commit
    )
    hub = start_loopback(folder_of_first())
    # Early, among the uploads, and through the commits and the merge, which come before the loading
    # back.
    changing = requests * 2 // 3
    kills = sorted({changing // 6, changing // 2, changing})
    publish_with_kills(
        hub, second, start_publisher, kills, files_per_commit=files_per_commit, tag="v2"
    )
    assert published(hub) == published(hub, "v2") == contents(second)
    assert len(hub.commits(REPO)) == 3
    uploads_in_flight(hub, len(kills))


@pytest.mark.release(of="hub")
@pytest.mark.parametrize(
    "paths",
    [
        ("/commit/main$",),
        ("/merge$", "/tag/"),
        *(pytest.param((path,), marks=pytest.mark.whole) for path in _OTHERS),
    ],
)
def test_an_answer_that_is_lost_is_no_second_change(
    start_loopback: Callable[..., LoopbackHub],
    first: Path,
    second: Path,
    start_publisher: Start,
    folder_of_first: Callable[[], Path],
    paths: tuple[str, ...],
) -> None:
    hub = start_loopback(folder_of_first(), faults=Faults())
    process = start_publisher(hub)
    for path in paths:
        hub.faults.add(Fault.lose_answer("POST", path))
    many = "main" not in paths[0]
    answer = process.publish(call(second, tag="v2", files_per_commit=12 if many else 100))
    met = [request for request in hub.requests if request.fault]
    assert len(met) == len(paths), "each fault was met"
    assert published(hub) == published(hub, "v2") == contents(second)
    assert len(hub.commits(REPO)) == 3
    assert len(hub.repository(REPO).pull_requests) == (1 if many else 0)
    assert answer["lines"] or "preupload" in paths[0]


@pytest.mark.release(of="hub")
def test_a_commit_of_somebody_else_in_between_is_kept(
    hub_of_first: LoopbackHub, first: Path, second: Path, start_publisher: Start
) -> None:
    """Also what they added before, which the preview names."""
    process = start_publisher(hub_of_first)
    add_by_hand(hub_of_first, "LICENSE", b"words")

    def interfere(request: object) -> None:
        if "/preupload/" in str(request) and not others_done:
            others_done.append(True)
            add_by_hand(hub_of_first, "NOTES")

    others_done: list[bool] = []
    hub_of_first.on_request = interfere
    answer = process.publish(call(second))
    hub_of_first.on_request = None
    assert others_done
    others = {"NOTES": b"mine", "LICENSE": b"words"}
    assert published(hub_of_first) == {**contents(second), **others}
    assert any("LICENSE" in line for line in answer["preview"])


@pytest.mark.release(of="hub")
def test_expired_addresses_and_quotas_are_waited_out(
    start_loopback: Callable[..., LoopbackHub], first: Path, start_publisher: Start
) -> None:
    hub = start_loopback(commit_quota=3, sleep_scale=0.001, faults=Faults([Fault.expire(times=2)]))
    answer = start_publisher(hub, sleep_scale=0.001).publish(call(first, files_per_commit=10))
    assert published(hub) == contents(first)
    assert any("429" in line for line in answer["lines"])
    assert any("the storage refused an address" in line for line in answer["lines"])


@pytest.mark.release(of="hub")
def test_a_pull_request_of_an_older_base_is_begun_anew(
    hub_of_first: LoopbackHub, first: Path, second: Path, start_publisher: Start
) -> None:
    process = start_publisher(hub_of_first)
    process.publish(call(second, create_pr=True))
    add_by_hand(hub_of_first, "NOTES")
    process.publish(call(second, files_per_commit=12))
    assert published(hub_of_first) == {**contents(second), "NOTES": b"mine"}
    assert [
        pull_request.status for pull_request in hub_of_first.repository(REPO).pull_requests.values()
    ] == [
        "closed",
        "merged",
    ]


@pytest.mark.release(of="hub")
def test_a_silent_connection_is_given_up(
    start_loopback: Callable[..., LoopbackHub], first: Path, start_publisher: Start
) -> None:
    hub = start_loopback(faults=Faults([Fault.latency(8, "POST", "/commit/")]))
    answer = start_publisher(hub).publish(call(first, silence=3.0))
    assert any("connection failed" in line for line in answer["lines"])
    assert published(hub) == contents(first)
    assert len(hub.commits(REPO)) == 2


def test_a_wait_that_is_too_long_is_reported_and_not_slept_through(
    start_loopback: Callable[..., LoopbackHub], first: Path, start_publisher: Start
) -> None:
    hub = start_loopback(
        faults=Faults([Fault.status(429, "POST", "/preupload/", retry_after=86400)])
    )
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
    folder_of_first: Callable[[], Path],
) -> None:
    hub = start_loopback(folder_of_first())
    hub.faults = Faults.storm(seed=11, rate=0.15)
    whole = [contents(first), contents(second)]
    chance = random.Random(11)
    kills = [chance.randrange(3, 60) for _ in range(10)]
    publish_with_kills(hub, second, start_publisher, kills, files_per_commit=12, tag="v2")
    hub.faults = Faults()
    assert published(hub) == published(hub, "v2") == contents(second)
    assert len(hub.commits(REPO)) == 3
    assert all(
        {
            path: content
            for path, content in hub.branch(REPO, commit.oid).items()
            if not path.startswith(".")
        }
        in whole
        for commit in hub.commits(REPO)[:2]
    )
    assert read(start_reader(hub)) == keys_of(second)
    uploads_in_flight(hub, len(kills))


@pytest.mark.release(of="hub")
@pytest.mark.parametrize(
    "files_per_commit",
    [
        pytest.param(100, marks=pytest.mark.whole, id="one commit"),
        pytest.param(12, id="pull request"),
    ],
)
def test_a_reader_between_any_two_requests_finds_a_whole_version(
    hub_of_first: LoopbackHub,
    first: Path,
    second: Path,
    start_publisher: Start,
    start_reader: Callable[..., Reader],
    files_per_commit: int,
) -> None:
    process = start_publisher(hub_of_first)
    reading = start_reader(hub_of_first)
    versions = [keys_of(first), keys_of(second)]
    whole = [contents(first), contents(second)]
    seen: list[int] = []
    current: list[int] = []

    def look(request: object) -> None:
        current.append(whole.index(published(hub_of_first)))  # ValueError for a mixture
        # A load takes as long as twenty requests; where nothing has changed, every thirtieth is
        # enough.
        if len(current) % 30 == 1 or current[-2:] == [0, 1]:
            keys = read(reading)
            seen.append(versions.index(keys) if keys in versions else -1)
            assert seen[-1] == current[-1]

    hub_of_first.on_request = look
    process.publish(call(second, files_per_commit=files_per_commit))
    hub_of_first.on_request = None
    assert seen == sorted(seen)
    assert set(seen) == {0, 1}
    assert len(current) > 20


def test_what_pairs_share_is_a_column_on_the_hub(
    loopback: LoopbackHub,
    beside_base: Path,
    start_publisher: Callable[..., Publisher],
    start_reader: Callable[..., Reader],
) -> None:
    start_publisher(loopback).publish(call(beside_base))
    assert published(loopback) == contents(beside_base)
    rows_of = start_reader(loopback).rows(REPO, columns=["paired_by"])
    paired = {split: {row["paired_by"] for row in rows} for split, rows in rows_of.items()}
    assert (
        paired.pop("base") == {None}
        and paired
        and set(map(frozenset, paired.values())) == {frozenset({"attention"})}
    )


def test_a_dry_run_shows_what_is_sent_and_asks_nobody(
    loopback: LoopbackHub, first: Path, start_publisher: Start
) -> None:
    before = len(loopback.requests)
    dry = start_publisher(loopback, token="").ask(call(first, tag="v1", dry_run=True))
    assert dry["published"] is None
    assert len(loopback.requests) == before
    real = start_publisher(loopback).ask(call(first, confirm=False, tag="v1"))
    assert dry["preview"][0].startswith(f"{REPO} (the Hub was not asked, private)")
    assert dry["preview"][1:3] == real["preview"][1:3]
