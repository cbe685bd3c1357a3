"""Endpoints about repositories as wholes: creation, deletion, settings, their description, the
caller's name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from loopback_hub.answers import Answer, Refusal, repository_not_found
from loopback_hub.calls import Call
from loopback_hub.card_yaml import card_metadata, check_card
from loopback_hub.gitlike import Commit
from loopback_hub.repository import MAIN, Repository

if TYPE_CHECKING:
    from loopback_hub.hub import LoopbackHub


# The name becomes a folder.
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}", re.ASCII)


def whoami(hub: LoopbackHub, call: Call) -> Answer:
    if call.user is None:
        raise Refusal(401, "Invalid username or password.")
    role = "write" if call.may_write else "read"
    token = {"type": "access_token", "accessToken": {"displayName": "loopback", "role": role}}
    return Answer.of(
        {"type": "user", "name": call.user, "fullname": call.user, "orgs": [], "auth": token}
    )


def validate_yaml(hub: LoopbackHub, call: Call) -> Answer:
    checked = check_card(str(call.json.get("content", "")), str(call.json.get("repoType", "model")))
    answer = {
        "errors": [{"message": text} for text in checked.errors],
        "warnings": [{"message": text} for text in checked.warnings],
    }
    return Answer.of(answer, 400 if checked.errors else 200)


def create(hub: LoopbackHub, call: Call) -> Answer:
    kind, name, owner = _named(call)
    if call.user is None:
        raise Refusal(401, "Invalid username or password.")
    if owner != call.user:
        raise Refusal(
            403, f'You don\'t have the rights to create a {kind} under the namespace "{owner}"'
        )
    if not call.may_write:
        raise Refusal(
            403, f'You don\'t have the rights to create a {kind} under the namespace "{owner}"'
        )
    private = call.json.get("visibility") == "private" or bool(call.json.get("private"))
    hub.create(kind, name, private=private)
    return Answer.of({"url": hub.web_address(kind, name), "name": name, "id": name})


def delete(hub: LoopbackHub, call: Call) -> Answer:
    kind, name, _ = _named(call)
    hub.delete(hub.find(call, kind, name, write=True))
    return Answer.of({})


def change_settings(hub: LoopbackHub, call: Call, kind: str, name: str) -> Answer:
    repository = hub.find(call, kind, name, write=True)
    with hub.lock:
        repository.private = call.json.get("visibility") == "private" or bool(
            call.json.get("private")
        )
        repository.write()
    return Answer.of({"private": repository.private})


def check_access(hub: LoopbackHub, call: Call, kind: str, name: str, write: str | None) -> Answer:
    hub.find(call, kind, name, write=write is not None)
    return Answer.of({})


def describe(hub: LoopbackHub, call: Call, kind: str, name: str, revision: str | None) -> Answer:
    """Return what `dataset_info` and `model_info` read; with `expand`, only the fields that it
    names."""
    repository = hub.find(call, kind, name)
    with hub.lock:
        head = repository.head(revision or MAIN)
        fields = _fields(hub, repository, head, sizes=call.truthy("blobs"))
    expand = {
        value for parameter in ("expand", "expand[]") for value in call.query.get(parameter, [])
    }
    if expand:
        fields = {key: value for key, value in fields.items() if key in expand | {"_id", "id"}}
    return Answer.of(fields, headers={"X-Repo-Commit": head.oid})


def _fields(
    hub: LoopbackHub, repository: Repository, head: Commit, *, sizes: bool
) -> dict[str, Any]:
    siblings: list[dict[str, Any]] = []
    for path, entry in sorted(head.tree.items()):
        sibling: dict[str, Any] = {"rfilename": path}
        if sizes:
            sibling |= {"size": entry.size, "blobId": entry.oid}
            if entry.sha256:
                sibling["lfs"] = {
                    "sha256": entry.sha256,
                    "size": entry.size,
                    "pointerSize": entry.pointer_size,
                }
        siblings.append(sibling)
    card = head.tree.get("README.md")
    metadata = card_metadata(hub.contents.read(card).decode("utf-8", "replace")) if card else {}
    tags = metadata.get("tags") or []
    blobs = {
        entry.etag: entry.size
        for commit in repository.commits.values()
        for entry in commit.tree.values()
    }
    return {
        "_id": "0" * 24,
        "id": repository.name,
        "author": repository.name.partition("/")[0],
        "sha": head.oid,
        "createdAt": repository.commits[next(iter(repository.commits))].date,
        "lastModified": head.date,
        "private": repository.private,
        "gated": False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [str(tag) for tag in tags] if isinstance(tags, list) else [],
        "cardData": metadata,
        "siblings": siblings,
        "usedStorage": sum(blobs.values()),
    }


def _named(call: Call) -> tuple[str, str, str]:
    """Return kind, name and owner of the repository that a body names; the owner defaults to the
    caller."""
    body = call.json
    kind = body.get("type") or "model"
    owner = body.get("organization") or call.user
    if kind not in {"model", "dataset"}:
        raise Refusal(400, f"The loopback Hub keeps no {kind}s")
    if not _NAME.fullmatch(str(body.get("name"))) or ".." in str(body["name"]):
        raise Refusal(400, f"{body.get('name')!r} is no name for a repository")
    if owner is None:
        raise repository_not_found(known=False)
    return kind, f"{owner}/{body['name']}", str(owner)
