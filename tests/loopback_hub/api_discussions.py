"""Endpoints of discussions and pull requests: list, open, read, comment, publish or close, merge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopback_hub import discussions
from loopback_hub.answers import Answer, Refusal
from loopback_hub.calls import Call
from loopback_hub.gitlike import changed_paths
from loopback_hub.repository import MAIN, PullRequest, Repository

if TYPE_CHECKING:
    from loopback_hub.hub import LoopbackHub

_PAGE = 10


def listed(hub: LoopbackHub, call: Call, kind: str, name: str) -> Answer:
    repository = hub.find(call, kind, name)
    with hub.lock:
        wanted = [
            pull_request
            for pull_request in sorted(repository.pull_requests.values(), key=_newest)
            if _is_asked(call, pull_request)
        ]
        start = int(call.asked("p") or 0) * _PAGE
        page = [_summary(repository, one) for one in wanted[start : start + _PAGE]]
    return Answer.of({"discussions": page, "count": len(wanted), "start": start})


def opened(hub: LoopbackHub, call: Call, kind: str, name: str) -> Answer:
    """A new discussion; a pull request made like this is a draft."""
    repository = hub.find(call, kind, name, write=True)
    said = call.json
    with hub.lock:
        is_pull_request = bool(said.get("pullRequest"))
        made = discussions.open_discussion(
            repository,
            str(said.get("title", "")),
            call.user or "",
            str(said.get("description") or ""),
            status="draft" if is_pull_request else "open",
            base=MAIN if is_pull_request else None,
        )
    return Answer.of({**_summary(repository, made), "url": f"{hub.web_address(kind, name)}/discussions/{made.number}"})


def details(hub: LoopbackHub, call: Call, kind: str, name: str, number: str) -> Answer:
    repository = hub.find(call, kind, name)
    with hub.lock:
        one = _found(repository, number)
        told: dict[str, Any] = {**_summary(repository, one), "events": one.events, "filesWithConflicts": []}
        if one.is_pull_request:
            told["changes"] = {"base": f"refs/heads/{one.base}", "mergeCommitId": one.merge_commit}
            if one.status != "merged":
                told["filesWithConflicts"] = discussions.conflicts(repository, one)
            before, after = repository.commits[one.fork].tree, repository.head(one.ref).tree
            told["diff"] = "".join(f"diff --git a/{path} b/{path}\n" for path in changed_paths(before, after))
    return Answer.of(told)


def commented(hub: LoopbackHub, call: Call, kind: str, name: str, number: str) -> Answer:
    repository = hub.find(call, kind, name, write=True)
    with hub.lock:
        event = discussions.add_comment(_found(repository, number), call.user or "", str(call.json.get("comment", "")))
        repository.write()
    return Answer.of({"newMessage": event})


def status_changed(hub: LoopbackHub, call: Call, kind: str, name: str, number: str) -> Answer:
    repository = hub.find(call, kind, name, write=True)
    with hub.lock:
        one = _found(repository, number)
        event = discussions.change_status(one, call.user or "", str(call.json.get("status")))
        if call.json.get("comment"):
            discussions.add_comment(one, call.user or "", str(call.json["comment"]))
        repository.write()
    return Answer.of({"newStatus": event})


def merged(hub: LoopbackHub, call: Call, kind: str, name: str, number: str) -> Answer:
    repository = hub.find(call, kind, name, write=True)
    with hub.lock:
        one = _found(repository, number)
        if one.status == "open":
            hub.limits.count_commit(name)
        made = discussions.merge(repository, one, call.user or "")
        if call.json.get("comment"):
            discussions.add_comment(one, call.user or "", str(call.json["comment"]))
            repository.write()
    return Answer.of({"success": True, "mergeCommitId": made.oid})


def _found(repository: Repository, number: str) -> PullRequest:
    one = repository.pull_requests.get(int(number))
    if one is None:
        raise Refusal(404, f"There is no discussion {number}")
    return one


def _is_asked(call: Call, one: PullRequest) -> bool:
    kind, status, author = call.asked("type"), call.asked("status"), call.asked("author")
    if kind in {"pull_request", "discussion"} and one.is_pull_request is not (kind == "pull_request"):
        return False
    if status in {"open", "closed"} and (one.status in {"open", "draft"}) is not (status == "open"):
        return False
    return author is None or author == one.author


def _newest(one: PullRequest) -> int:
    return -one.number


def _summary(repository: Repository, one: PullRequest) -> dict[str, Any]:
    return {
        "num": one.number,
        "title": one.title,
        "author": {"name": one.author},
        "createdAt": one.created,
        "status": one.status,
        "isPullRequest": one.is_pull_request,
        "repo": {"name": repository.name, "type": repository.kind},
    }
