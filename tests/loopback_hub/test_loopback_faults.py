"""Each fault as the real client meets it, and storms: the same for the same requests, survivable by
trying again."""

from __future__ import annotations

import hashlib
import random
import threading

import httpx2
import pytest
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError

from loopback_hub import Fault, Faults, LoopbackHub, client, server

NAME = "someone/weather"
BLOB = random.Random(2).randbytes(400_000)
SHA256 = hashlib.sha256(BLOB).hexdigest()

pytestmark = pytest.mark.usefixtures("quick_sleeps")


@pytest.fixture
def api(loopback: LoopbackHub) -> HfApi:
    api = client(loopback)
    api.create_repo(NAME, repo_type="dataset")
    return api


def put(api: HfApi, files: dict[str, bytes]) -> None:
    additions = [CommitOperationAdd(path, content) for path, content in files.items()]
    api.create_commit(NAME, additions, commit_message="A version", repo_type="dataset")


def paths(api: HfApi) -> list[str]:
    return sorted(entry.path for entry in api.list_repo_tree(NAME, repo_type="dataset"))


@pytest.mark.parametrize("code", [429, 503])
def test_statuses_come_in_place_of_the_work(loopback: LoopbackHub, api: HfApi, code: int) -> None:
    loopback.faults.add(Fault.status(code, "GET", "/tree/", times=2, retry_after=3))
    assert paths(api) == [".gitattributes"]
    assert [request.status for request in loopback.requests if "/tree/" in request.path] == [
        code,
        code,
        200,
    ]
    loopback.faults.add(Fault.status(code, "POST", "/commit/", retry_after=7))
    with pytest.raises(HfHubHTTPError) as failed:
        put(api, {"a.txt": b"a"})
    assert (
        failed.value.response.status_code == code
        and failed.value.response.headers["Retry-After"] == "7"
    )
    assert list(loopback.branch(NAME)) == [".gitattributes"]


def test_a_fault_meets_the_request_it_names(loopback: LoopbackHub, api: HfApi) -> None:
    loopback.faults.add(Fault.status(412, "POST", r"/commit/main$", nth=2))
    put(api, {"a.txt": b"1"})
    with pytest.raises(HfHubHTTPError) as failed:
        put(api, {"a.txt": b"2"})
    assert failed.value.response.status_code == 412
    put(api, {"a.txt": b"3"})
    assert [request.fault for request in loopback.requests if "/commit/" in request.path] == [
        None,
        "status 412",
        None,
    ]


def test_a_dropped_commit_is_not_done_and_a_lost_answer_is(
    loopback: LoopbackHub, api: HfApi
) -> None:
    loopback.faults.add(Fault.drop("POST", "/commit/"))
    with pytest.raises(httpx2.TransportError):
        put(api, {"a.txt": b"a"})
    assert len(loopback.commits(NAME)) == 1
    loopback.faults.add(Fault.lose_answer("POST", "/commit/"))
    with pytest.raises(httpx2.TransportError):
        put(api, {"a.txt": b"a"})
    assert len(loopback.commits(NAME)) == 2 and loopback.branch(NAME)["a.txt"] == b"a"
    assert [request.status for request in loopback.requests if "/commit/" in request.path] == [
        None,
        None,
    ]


def test_who_waits_keeps_nobody_waiting(
    loopback: LoopbackHub, api: HfApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        released.wait(60)

    monkeypatch.setattr(server, "_sleep", wait)
    loopback.faults.add(Fault.latency(3.5, "GET", "/refs"))
    slow = threading.Thread(target=lambda: api.list_repo_refs(NAME, repo_type="dataset"))
    slow.start()
    while not waits:
        assert paths(api) == [".gitattributes"]
    assert paths(api) == [".gitattributes"] and slow.is_alive()
    released.set()
    slow.join()
    assert waits == [3.5]


def test_an_observer_meets_no_fault(loopback: LoopbackHub, api: HfApi) -> None:
    loopback.faults.add(Fault.status(500, times=1000))
    assert paths(client(loopback, observer=True)) == [".gitattributes"]
    with pytest.raises(HfHubHTTPError):
        api.dataset_info(NAME)


REQUESTS = [
    *(
        ("POST", f"/api/datasets/{NAME}/commit/main", {}, False),
        ("GET", f"/datasets/{NAME}/resolve/main/a", {}, False),
    ),
    *(
        ("PUT", f"/lfs/{SHA256}", {"size": ["4"]}, True),
        ("GET", "/api/x/tree/main", {"cursor": ["50"]}, False),
    ),
]


def drawn(storm: Faults, order: list[int]) -> dict[int, list[str]]:
    """Return what each of the requests meets, sent in an order."""
    met: dict[int, list[str]] = {}
    for index in order:
        method, path, query, storage = REQUESTS[index]
        met.setdefault(index, []).append(repr(storm.draw(method, path, query, storage=storage)))
    return met


def test_a_storm_is_the_same_for_the_same_requests() -> None:
    forth = sorted(list(range(len(REQUESTS))) * 50)
    mixed = random.Random(5).sample(forth, len(forth))
    assert drawn(Faults.storm(3, 0.5), forth) == drawn(Faults.storm(3, 0.5), mixed)
    assert drawn(Faults.storm(3, 0.5), forth) != drawn(Faults.storm(4, 0.5), forth)
    assert all(set(met) == {"None"} for met in drawn(Faults.storm(3, 0.0), forth).values())


def test_a_storm_lets_every_request_through_in_the_end() -> None:
    storm = Faults.storm(1, 1.0, at_most_in_a_row=2)
    for method, path, query, storage in REQUESTS:
        met = [storm.draw(method, path, query, storage=storage) for _ in range(100)]
        failed = [fault is not None and fault.kind != "latency" for fault in met]
        assert all(not all(failed[index : index + 3]) for index in range(98)) and sum(failed) > 30
    assert {
        fault.kind
        for fault in (storm.draw("PUT", "/lfs/x", {}, storage=True) for _ in range(400))
        if fault
    } == {*("latency", "status", "drop", "drop_upload", "lose_answer", "truncate", "expire")}
    with pytest.raises(ValueError, match="rain"):
        Faults.storm(1, 0.5, kinds=["rain"])
