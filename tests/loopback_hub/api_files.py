"""Endpoints that read a revision: its tree in pages, single paths, its commits, its files with
ranges."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote, urlencode

from loopback_hub.answers import Answer, Refusal, entry_not_found
from loopback_hub.calls import Call
from loopback_hub.gitlike import Commit, Entry
from loopback_hub.repository import Repository

if TYPE_CHECKING:
    from pathlib import Path

    from loopback_hub.hub import LoopbackHub


def tree(
    hub: LoopbackHub, call: Call, kind: str, name: str, revision: str, path: str | None
) -> Answer:
    repository = hub.find(call, kind, name)
    folder = (path or "").strip("/")
    with hub.lock:
        head = repository.head(revision)
        if folder not in head.folders:
            raise entry_not_found(f'"{folder}" does not exist on "{revision}"', commit=head.oid)
        listed = [
            child
            for child in (*head.folders, *head.tree)
            if child and _inside(child, folder, call.truthy("recursive"))
        ]
        page, headers = _page(hub, call, sorted(listed))
        expand = call.truthy("expand")
        return Answer.of(
            [_described(repository, head, child, expand=expand) for child in page], headers=headers
        )


def paths_info(hub: LoopbackHub, call: Call, kind: str, name: str, revision: str) -> Answer:
    repository = hub.find(call, kind, name)
    if "json" in call.headers.get("Content-Type", ""):
        requested = call.json.get("paths", [])
        expand = bool(call.json.get("expand"))
    else:
        form = parse_qs(call.body.decode())
        requested = form.get("paths", [])
        expand = form.get("expand", ["false"])[0].lower() == "true"
    with hub.lock:
        head = repository.head(revision)
        paths = [path.strip("/") for path in requested]
        existing = [path for path in paths if path in head.tree or (path and path in head.folders)]
        return Answer.of([_described(repository, head, path, expand=expand) for path in existing])


def commits(hub: LoopbackHub, call: Call, kind: str, name: str, revision: str) -> Answer:
    repository = hub.find(call, kind, name)
    with hub.lock:
        history = list(repository.history(revision))
    page, headers = _page(hub, call, history)
    listed = [
        {
            "id": commit.oid,
            "title": commit.message,
            "message": commit.description,
            "authors": [{"user": commit.author}],
            "date": commit.date,
        }
        for commit in page
    ]
    return Answer.of(listed, headers={"X-Total-Count": str(len(history)), **headers})


def resolve(hub: LoopbackHub, call: Call, kind: str, name: str, revision: str, path: str) -> Answer:
    """Return a regular file, or a redirect from an LFS file to the storage with the headers that
    clients read."""
    repository = hub.find(call, kind, name)
    with hub.lock:
        head = repository.head(revision)
        entry = head.tree.get(path)
        if entry is None:
            raise entry_not_found(commit=head.oid)
    common = {"X-Repo-Commit": head.oid, "Accept-Ranges": "bytes"}
    if entry.sha256 is None:
        return part_of(call, hub.contents.path(entry), {**common, "ETag": f'"{entry.oid}"'})
    headers = {
        **common,
        "Location": hub.signed(f"/lfs/{entry.sha256}", name=path.rpartition("/")[2]),
        "X-Linked-Size": str(entry.size),
        "X-Linked-Etag": f'"{entry.sha256}"',
        "ETag": f'"{entry.oid}"',
    }
    return Answer(302, b"Found. Redirecting to the storage", headers)


def part_of(call: Call, file: Path, headers: dict[str, str]) -> Answer:
    """Return a file, or the part of it that a Range header requests."""
    size = file.stat().st_size
    headers = {"Content-Type": "application/octet-stream", "Accept-Ranges": "bytes", **headers}
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", call.headers.get("Range", ""))
    if match is None or match[0] == "bytes=-":
        return Answer(200, headers=headers, file=file, length=size)
    if match[1]:
        start = int(match[1])
        end = min(int(match[2] or size), size - 1)
    else:
        start = max(0, size - int(match[2]))
        end = size - 1
    if start >= size or end < start:
        refusal = Refusal(
            416, "Range Not Satisfiable", headers={"Content-Range": f"bytes */{size}"}
        )
        return refusal.answer()
    headers["Content-Range"] = f"bytes {start}-{end}/{size}"
    return Answer(206, headers=headers, file=file, start=start, length=end - start + 1)


def _inside(path: str, folder: str, recursive: bool) -> bool:
    if folder and not path.startswith(f"{folder}/"):
        return False
    return recursive or "/" not in path[len(folder) + 1 if folder else 0 :]


def _described(repository: Repository, head: Commit, path: str, *, expand: bool) -> dict[str, Any]:
    entry = head.tree.get(path)
    info: dict[str, Any] = (
        {"type": "directory", "oid": head.folders[path], "size": 0, "path": path}
        if entry is None
        else _file(path, entry)
    )
    if expand:
        last = next(
            commit
            for commit in repository.history(head.oid)
            if any(changed == path or changed.startswith(f"{path}/") for changed in commit.changed)
        )
        info["lastCommit"] = {"id": last.oid, "title": last.message, "date": last.date}
    return info


def _file(path: str, entry: Entry) -> dict[str, Any]:
    info: dict[str, Any] = {"type": "file", "oid": entry.oid, "size": entry.size, "path": path}
    if entry.sha256:
        info["lfs"] = {"oid": entry.sha256, "size": entry.size, "pointerSize": entry.pointer_size}
    return info


def _page(
    hub: LoopbackHub, call: Call, items: Sequence[Any]
) -> tuple[Sequence[Any], dict[str, str]]:
    """Return the requested page, and the Hub's Link header to the next one."""
    start = int(call.parameter("cursor") or 0)
    page = items[start : start + hub.page_size]
    if start + hub.page_size >= len(items):
        return page, {}
    query = {name: values for name, values in call.query.items() if name != "cursor"}
    query["cursor"] = [str(start + hub.page_size)]
    address = f"{hub.endpoint}{quote(call.path, safe='/%')}?{urlencode(query, doseq=True)}"
    return page, {"Link": f'<{address}>; rel="next"'}
