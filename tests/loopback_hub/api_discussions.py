"""Endpoints of discussions and pull requests: list, open, read, comment, publish or close,
merge."""

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
            if _is_wanted(call, pull_request)
        ]
        start = int(call.parameter("p") or 0) * _PAGE
        page = [_summary(repository, request) for request in wanted[start : start + _PAGE]]
    return Answer.of({"discussions": page, "count": len(wanted), "start": start})


def opened(hub: LoopbackHub, call: Call, kind: str, name: str) -> Answer:
    """Open a discussion; a pull request opened here is a draft."""
    repository = hub.find(call, kind, name, write=True)
    body = call.json
    with hub.lock:
        is_pull_request = bool(body.get("pullRequest"))
        request = discussions.open_discussion(
            repository,
            str(body.get("title", "")),
            call.user or "",
            str(body.get("description") or ""),
            status="draft" if is_pull_request else "open",
            base=MAIN if is_pull_request else None,
        )
    return Answer.of(
        {
            **_summary(repository, request),
            "url": f"{hub.web_address(kind, name)}/discussions/{request.number}",
        }
    )


def details(hub: LoopbackHub, call: Call, kind: str, name: str, number: str) -> Answer:
    repository = hub.find(call, kind, name)
    with hub.lock:
        request = _found(repository, number)
        answer: dict[str, Any] = {
            **_summary(repository, request),
            "events": request.events,
            "filesWithConflicts": [],
        }
        if request.is_pull_request:
            answer["changes"] = {
                "base": f"refs/heads/{request.base}",
                "mergeCommitId": request.merge_commit,
            }
            if request.status != "merged":
                answer["filesWithConflicts"] = discussions.conflicts(repository, request)
            before = repository.commits[request.fork].tree
            after = repository.head(request.ref).tree
            answer["diff"] = "".join(
                f"diff --git a/{path} b/{path}\n" for path in changed_paths(before, after)
            )
    return Answer.of(answer)


def commented(hub: LoopbackHub, call: Call, kind: str, name: str, number: str) -> Answer:
    repository = hub.find(call, kind, name, write=True)
    with hub.lock:
        event = discussions.add_comment(
            _found(repository, number), call.user or "", str(call.json.get("comment", ""))
        )
        repository.write()
    return Answer.of({"newMessage": event})


def status_changed(hub: LoopbackHub, call: Call, kind: str, name: str, number: str) -> Answer:
    repository = hub.find(call, kind, name, write=True)
    with hub.lock:
        request = _found(repository, number)
        event = discussions.change_status(request, call.user or "", str(call.json.get("status")))
        if call.json.get("comment"):
            discussions.add_comment(request, call.user or "", str(call.json["comment"]))
        repository.write()
    return Answer.of({"newStatus": event})


def merged(hub: LoopbackHub, call: Call, kind: str, name: str, number: str) -> Answer:
    repository = hub.find(call, kind, name, write=True)
    with hub.lock:
        request = _found(repository, number)
        if request.status == "open":
            hub.limits.count_commit(name)
        commit = discussions.merge(repository, request, call.user or "")
        if call.json.get("comment"):
            discussions.add_comment(request, call.user or "", str(call.json["comment"]))
            repository.write()
    return Answer.of({"success": True, "mergeCommitId": commit.oid})


def _found(repository: Repository, number: str) -> PullRequest:
    request = repository.pull_requests.get(int(number))
    if request is None:
        raise Refusal(404, f"There is no discussion {number}")
    return request


def _is_wanted(call: Call, request: PullRequest) -> bool:
    kind = call.parameter("type")
    status = call.parameter("status")
    author = call.parameter("author")
    if kind in {"pull_request", "discussion"} and request.is_pull_request is not (
        kind == "pull_request"
    ):
        return False
    if status in {"open", "closed"} and (request.status in {"open", "draft"}) is not (
        status == "open"
    ):
        return False
    return author is None or author == request.author


def _newest(request: PullRequest) -> int:
    return -request.number


def _summary(repository: Repository, request: PullRequest) -> dict[str, Any]:
    return {
        "num": request.number,
        "title": request.title,
        "author": {"name": request.author},
        "createdAt": request.created,
        "status": request.status,
        "isPullRequest": request.is_pull_request,
        "repo": {"name": repository.name, "type": repository.kind},
    }
