"""Endpoints that write: how each file is to be sent, and the commit of many operations at once."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from loopback_hub import attributes
from loopback_hub.answers import Answer, Refusal, entry_not_found
from loopback_hub.calls import Call
from loopback_hub.card_yaml import check_card
from loopback_hub.discussions import add_event, open_discussion
from loopback_hub.gitlike import Entry
from loopback_hub.repository import PullRequest, Repository

if TYPE_CHECKING:
    from loopback_hub.hub import LoopbackHub


def preupload(hub: LoopbackHub, call: Call, kind: str, name: str, revision: str) -> Answer:
    repository = hub.find(call, kind, name, write=True)
    with hub.lock:
        head = repository.head(revision)
    listed = head.tree.get(".gitattributes")
    patterns = attributes.lfs_patterns(hub.contents.read(listed).decode()) if listed else ()
    ignoring = head.tree.get(".gitignore")
    ignored = hub.contents.read(ignoring).decode().split() if ignoring else []
    rows = []
    for file in call.json.get("files", []):
        path = str(file["path"])
        entry = head.tree.get(str(file["path"]))
        mode = attributes.upload_mode(
            path, int(file["size"]), base64.b64decode(file.get("sample", "")), patterns
        )
        row: dict[str, Any] = {
            "path": path,
            "uploadMode": mode,
            "shouldIgnore": _is_ignored(path, ignored),
        }
        if entry is not None:
            row["oid"] = entry.etag
        rows.append(row)
    return Answer.of({"files": rows, "commitOid": head.oid})


def _is_ignored(path: str, patterns: Sequence[str]) -> bool:
    """Match folders (`data/`) and globs of names, the part of gitignore that the tests use."""
    name = path.rpartition("/")[2]
    return any(
        path.startswith(pattern) if pattern.endswith("/") else fnmatch.fnmatch(name, pattern)
        for pattern in patterns
    )


def commit(hub: LoopbackHub, call: Call, kind: str, name: str, revision: str) -> Answer:
    repository = hub.find(call, kind, name, write=True)
    header, operations = _read_operations(call)
    if hub.most_files_a_commit is not None and len(operations) > hub.most_files_a_commit:
        raise Refusal(
            413,
            f"Too many files in one commit: {len(operations)}, at most {hub.most_files_a_commit}",
        )
    contents = [
        hub.contents.keep(_decoded(value)) if key == "file" else None for key, value in operations
    ]
    message = str(header.get("summary") or "")
    if not message:
        raise Refusal(400, "A commit needs a summary")
    with hub.lock:
        head = repository.head(revision)
        create_pr = call.truthy("create_pr")
        branch = "" if create_pr else _open_head(repository, revision)
        parent = header.get("parentCommit")
        if parent is not None and not head.oid.startswith(str(parent)):
            raise Refusal(412, "A commit has happened since. Please refresh and try again.")
        tree = dict(head.tree)
        for (key, value), entry in zip(operations, contents, strict=True):
            _apply(hub, repository, tree, key, value, entry)
        _check_tree(hub, repository, tree)
        hub.limits.count_commit(name)
        author = call.user or ""
        description = str(header.get("description") or "")
        request = _request_of(repository, branch)
        if create_pr:
            request = open_discussion(
                repository, message, author, description, status="open", base=revision
            )
            branch = request.ref
        commit = repository.commit(branch, tree, message, author=author, description=description)
        if request is not None:
            add_event(request, "commit", author, {"subject": message, "oid": commit.oid})
            repository.write()
    web = hub.web_address(kind, name)
    answer = {
        "success": True,
        "commitOid": commit.oid,
        "commitUrl": f"{web}/commit/{commit.oid}",
        "hookOutput": "",
        "pullRequestUrl": f"{web}/discussions/{request.number}" if create_pr and request else None,
    }
    return Answer.of(answer)


def _open_head(repository: Repository, revision: str) -> str:
    head = repository.head_name(revision)
    request = _request_of(repository, head)
    if request is not None and request.status in {"merged", "closed"}:
        raise Refusal(400, f"Cannot commit to {revision}: the pull request is {request.status}")
    return head


def _request_of(repository: Repository, head: str) -> PullRequest | None:
    return next(
        (
            pull_request
            for pull_request in repository.pull_requests.values()
            if pull_request.ref == head
        ),
        None,
    )


def _read_operations(call: Call) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    """Return the header and the operations of a commit's body, one JSON document a line."""
    try:
        lines = [json.loads(line) for line in call.body.splitlines() if line.strip()]
        keyed = [(str(line["key"]), dict(line["value"])) for line in lines]
    except (ValueError, TypeError, KeyError) as error:
        raise Refusal(400, f"The commit cannot be read: {error}") from error
    headers = [value for key, value in keyed if key == "header"]
    if len(headers) != 1:
        raise Refusal(400, "A commit needs one header")
    return headers[0], [(key, value) for key, value in keyed if key != "header"]


def _decoded(value: dict[str, Any]) -> bytes:
    try:
        text = str(value.get("content", ""))
        content = (
            base64.b64decode(text, validate=True)
            if value.get("encoding") == "base64"
            else text.encode()
        )
    except binascii.Error as error:
        raise Refusal(400, f"{value.get('path')}: the content is not base64") from error
    if len(content) > attributes.LARGEST_REGULAR:
        raise Refusal(
            400, f"{value.get('path')}: files larger than 10 MiB go to large file storage"
        )
    return content


def _apply(
    hub: LoopbackHub,
    repository: Repository,
    tree: dict[str, Entry],
    key: str,
    value: dict[str, Any],
    entry: Entry | None,
) -> None:
    path = str(value.get("path", "")).rstrip("/")
    if not _is_path(path):
        raise Refusal(400, f"{path!r} is no path of a repository")
    if key == "file" and entry is not None:
        tree[path] = entry
    elif key == "lfsFile":
        tree[path] = _lfs_entry(hub, repository, path, value)
    elif key == "deletedFile":
        if tree.pop(path, None) is None:
            raise entry_not_found(f"A file with this name doesn't exist: {path}")
    elif key == "deletedFolder":
        inside = [name for name in tree if name.startswith(f"{path}/")]
        if not inside:
            raise entry_not_found(f"A folder with this name doesn't exist: {path}")
        for name in inside:
            del tree[name]
    else:
        raise Refusal(400, f"There is no operation {key}")


def _lfs_entry(hub: LoopbackHub, repository: Repository, path: str, value: dict[str, Any]) -> Entry:
    sha256 = str(value.get("oid", ""))
    size = hub.contents.size(sha256) if sha256 in repository.blobs else None
    if size is None:
        raise Refusal(
            400,
            "Your push was rejected because an LFS pointer pointed to a file that does not exist:"
            f" {path} ({sha256})",
        )
    if value.get("size", size) != size:
        raise Refusal(400, f"{path}: the size {value['size']} is not the stored file's, {size}")
    return Entry.lfs(sha256, size)


def _is_path(path: str) -> bool:
    parts = path.split("/")
    return bool(path) and not any(part in {"", ".", "..", ".git"} for part in parts)


def _check_tree(hub: LoopbackHub, repository: Repository, tree: dict[str, Entry]) -> None:
    for path in tree:
        parents = _parents(path)
        clash = next((parent for parent in parents if parent in tree), None)
        if clash is not None:
            raise Refusal(400, f"{clash} is a file, and a folder of {path}")
    card = tree.get("README.md")
    if card is not None and card.sha256 is None:
        errors = check_card(
            hub.contents.read(card).decode("utf-8", "replace"), repository.kind
        ).errors
        if errors:
            raise Refusal(400, f"Invalid metadata in README.md: {'; '.join(errors)}")


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
