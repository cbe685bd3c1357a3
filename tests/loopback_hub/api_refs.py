"""Endpoints of refs: the list of all, tags and branches made and deleted."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from loopback_hub.answers import Answer, Refusal, revision_not_found
from loopback_hub.calls import Call
from loopback_hub.repository import MAIN

if TYPE_CHECKING:
    from loopback_hub.hub import LoopbackHub

_NAME = re.compile(r"(?!refs/)[A-Za-z0-9][\w.+-]*(/[\w.+-]+)*")


def refs(hub: LoopbackHub, call: Call, kind: str, name: str) -> Answer:
    repository = hub.find(call, kind, name)
    with hub.lock:
        branches = [
            (branch, oid)
            for branch, oid in repository.heads.items()
            if not branch.startswith("refs/")
        ]
        pulls = [
            (ref.removeprefix("refs/pr/"), oid)
            for ref, oid in repository.heads.items()
            if ref[:8] == "refs/pr/"
        ]
        answer = {
            "branches": _listed("refs/heads/", branches),
            "converts": [],
            "tags": _listed("refs/tags/", repository.tags.items()),
        }
        if call.truthy("include_prs"):
            answer["pullRequests"] = _listed("refs/pr/", pulls)
    return Answer.of(answer)


def create_tag(hub: LoopbackHub, call: Call, kind: str, name: str, revision: str) -> Answer:
    repository = hub.find(call, kind, name, write=True)
    tag = _checked(str(call.json.get("tag", "")))
    with hub.lock:
        oid = repository.head(revision).oid
        if tag in repository.tags:
            raise Refusal(409, f"Tag reference exists already: refs/tags/{tag}")
        repository.tags[tag] = oid
        repository.write()
    return Answer.of({"ref": f"refs/tags/{tag}", "targetCommit": oid}, 201)


def delete_tag(hub: LoopbackHub, call: Call, kind: str, name: str, tag: str) -> Answer:
    repository = hub.find(call, kind, name, write=True)
    with hub.lock:
        if tag not in repository.tags:
            raise revision_not_found(tag)
        del repository.tags[tag]
        repository.write()
    return Answer(204)


def create_branch(hub: LoopbackHub, call: Call, kind: str, name: str, branch: str) -> Answer:
    repository = hub.find(call, kind, name, write=True)
    with hub.lock:
        oid = repository.head(str(call.json.get("startingPoint") or MAIN)).oid
        if _checked(branch) in repository.heads:
            raise Refusal(409, f"Reference already exists: refs/heads/{branch}")
        repository.heads[branch] = oid
        repository.write()
    return Answer.of({"ref": f"refs/heads/{branch}", "targetCommit": oid}, 201)


def delete_branch(hub: LoopbackHub, call: Call, kind: str, name: str, branch: str) -> Answer:
    repository = hub.find(call, kind, name, write=True)
    with hub.lock:
        if branch == MAIN:
            raise Refusal(403, "The default branch cannot be deleted")
        if branch not in repository.heads or branch.startswith("refs/"):
            raise revision_not_found(branch)
        del repository.heads[branch]
        repository.write()
    return Answer(204)


def _listed(prefix: str, named: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "ref": f"{prefix}{name}", "targetCommit": oid} for name, oid in named]


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name) or ".." in name:
        raise Refusal(400, f"Invalid reference name: {name!r}")
    return name
