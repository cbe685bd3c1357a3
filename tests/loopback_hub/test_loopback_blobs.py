"""Blobs with the real client: sent once, received whole or not at all, read in parts, limits."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError

from loopback_hub import LoopbackHub, client

NAME = "someone/blobs"
BLOB = random.Random(1).randbytes(300_000)
SHA256 = hashlib.sha256(BLOB).hexdigest()


def created(hub: LoopbackHub) -> HfApi:
    api = client(hub)
    api.create_repo(NAME, repo_type="dataset", private=True)
    return api


def put(
    api: HfApi, *operations: CommitOperationAdd, message: str = "A commit", **options: Any
) -> None:
    api.create_commit(
        NAME, list(operations), commit_message=message, repo_type="dataset", **options
    )


def blob(path: str = "a.bin", content: bytes = BLOB) -> CommitOperationAdd:
    return CommitOperationAdd(path, content)


def post(hub: LoopbackHub, path: str, **body: Any) -> httpx2.Response:
    return httpx2.post(
        f"{hub.endpoint}{path}", headers={"Authorization": f"Bearer {hub.token}"}, **body
    )


def wanted(
    hub: LoopbackHub, sha256: str = SHA256, size: int = len(BLOB)
) -> dict[str, dict[str, str]]:
    """Return the actions that the batch endpoint answers for an object."""
    objects = {"operation": "upload", "objects": [{"oid": sha256, "size": size}]}
    (answer,) = post(hub, f"/datasets/{NAME}.git/info/lfs/objects/batch", json=objects).json()[
        "objects"
    ]
    return answer.get("actions", {})


def test_a_blob_of_another_repository_is_not_here(loopback: LoopbackHub) -> None:
    api = created(loopback)
    put(api, blob())
    assert wanted(loopback) == {}
    api.delete_repo(NAME, repo_type="dataset")
    api.create_repo(NAME, repo_type="dataset")
    assert "upload" in wanted(loopback)


def test_other_bytes_than_announced_are_refused(loopback: LoopbackHub) -> None:
    created(loopback)
    address = wanted(loopback)["upload"]["href"]
    for content in (BLOB[:-1] + b"?", BLOB[:-1], BLOB + b"?"):
        assert httpx2.put(address, content=content).status_code == 400
    assert "upload" in wanted(loopback) and loopback.uploads[SHA256].complete == 0
    assert httpx2.put(address, content=BLOB).status_code == 200 and wanted(loopback) == {}


def test_upload_addresses_are_signed_and_expire(start_loopback: Callable[..., LoopbackHub]) -> None:
    hub = start_loopback(upload_url_lifetime=-1)
    created(hub)
    address = wanted(hub)["upload"]["href"]
    assert httpx2.put(address, content=BLOB).status_code == 403
    hub.upload_url_lifetime = 900
    address = wanted(hub)["upload"]["href"]
    assert httpx2.put(address.replace(SHA256, "0" * 64), content=BLOB).status_code == 403
    tokened = httpx2.put(address, content=BLOB, headers={"Authorization": f"Bearer {hub.token}"})
    assert tokened.status_code == 400  # the storage is no place for a token
    assert httpx2.put(address, content=BLOB).status_code == 200


def test_only_blobs_that_are_here_can_be_committed(loopback: LoopbackHub) -> None:
    api = created(loopback)
    never_sent = blob("b.bin", b"\0never sent")
    never_sent._upload_mode = "lfs"
    never_sent._is_uploaded = True
    with pytest.raises(HfHubHTTPError, match="pointer pointed to a file that does not exist"):
        put(api, never_sent)
    put(api, blob())
    longer = {"path": "c.bin", "algo": "sha256", "oid": SHA256, "size": len(BLOB) + 1}
    lines = (
        b'{"key":"header","value":{"summary":"x"}}\n'
        + httpx2.Request("POST", "http://x", json={"key": "lfsFile", "value": longer}).read()
    )
    refused = post(loopback, f"/api/datasets/{NAME}/commit/main", content=lines)
    assert refused.status_code == 400 and "size" in refused.json()["error"]
    assert set(loopback.branch(NAME)) == {".gitattributes", "a.bin"}


def test_files_are_read_in_parts(loopback: LoopbackHub) -> None:
    api = created(loopback)
    text = b"regular text " * 9
    put(api, blob(), blob("a.txt", text))
    headers = {"Authorization": f"Bearer {loopback.token}"}
    address = f"{loopback.endpoint}/datasets/{NAME}/resolve/main"
    for byte_range, first, last in (
        ("0-9", 0, 9),
        ("299990-", 299_990, 299_999),
        ("-5", 299_995, 299_999),
        ("9-999999", 9, 299_999),
    ):
        ranged = {**headers, "Range": f"bytes={byte_range}"}
        got = httpx2.get(f"{address}/a.bin", headers=ranged, follow_redirects=True)
        assert (got.status_code, got.content) == (206, BLOB[first : last + 1])
        assert got.headers["Content-Range"] == f"bytes {first}-{last}/300000"
    short = httpx2.get(f"{address}/a.txt", headers={**headers, "Range": "bytes=3-5"})
    assert (short.status_code, short.content) == (206, text[3:6])
    beyond = httpx2.get(f"{address}/a.txt", headers={**headers, "Range": "bytes=900-"})
    assert beyond.status_code == 416 and beyond.headers["Content-Range"] == f"bytes */{len(text)}"


def test_calls_have_a_quota_that_clients_wait_for(
    start_loopback: Callable[..., LoopbackHub], quick_sleeps: float
) -> None:
    # Five minutes, and the client's waiting for them, take 3 seconds and a bit.
    hub = start_loopback(call_quota=3, sleep_scale=quick_sleeps)
    api = created(hub)
    for _ in range(2):
        list(api.list_repo_tree(NAME, repo_type="dataset"))
    paths = [entry.path for entry in api.list_repo_tree(NAME, repo_type="dataset")]
    assert paths == [".gitattributes"]
    assert [request.status for request in hub.requests] == [200, 200, 200, 429, 200]


def test_a_commit_holds_only_so_many_files(start_loopback: Callable[..., LoopbackHub]) -> None:
    hub = start_loopback(most_files_a_commit=3)
    api = created(hub)
    put(api, *(blob(f"{number}.txt", b"x") for number in range(3)))
    with pytest.raises(HfHubHTTPError, match="Too many files") as refused:
        put(api, *(blob(f"{number}.txt", b"y") for number in range(4)))
    assert refused.value.response.status_code == 413
