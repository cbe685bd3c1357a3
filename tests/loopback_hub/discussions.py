"""Pull requests: opened on a ref of their own, and squashed into one commit of the branch they are
for."""

from __future__ import annotations

from typing import Any

from loopback_hub.answers import Refusal
from loopback_hub.gitlike import Commit, Entry, changed_paths
from loopback_hub.repository import PullRequest, Repository


def open_discussion(
    repository: Repository,
    title: str,
    author: str,
    description: str,
    *,
    status: str,
    base: str | None,
) -> PullRequest:
    """Open a discussion; with a base it is a pull request, whose ref starts at the base's head."""
    number = len(repository.pull_requests) + 1
    opened = PullRequest(number, title, author, status, is_pull_request=base is not None)
    if base is not None:
        opened.base = repository.head_name(base)
        opened.fork = repository.heads[opened.ref] = repository.head(opened.base).oid
    repository.pull_requests[number] = opened
    if description:
        add_comment(opened, author, description)
    repository.write()
    return opened


def add_event(request: PullRequest, kind: str, author: str, data: dict[str, Any]) -> dict[str, Any]:
    event = {
        "id": f"{request.number:08x}{len(request.events):016x}",
        "type": kind,
        "createdAt": request.created,
        "author": {"name": author},
        "data": data,
    }
    request.events.append(event)
    return event


def add_comment(request: PullRequest, author: str, text: str) -> dict[str, Any]:
    latest = {"raw": text, "html": text, "updatedAt": request.created, "author": {"name": author}}
    return add_event(
        request,
        "comment",
        author,
        {"edited": False, "hidden": False, "latest": latest, "history": []},
    )


def change_status(request: PullRequest, author: str, status: str) -> dict[str, Any]:
    if request.status == "merged":
        raise Refusal(400, "A merged pull request cannot change its status")
    if status not in {"open", "closed"}:
        raise Refusal(400, f"There is no status {status}")
    request.status = status
    return add_event(request, "status-change", author, {"status": status})


def conflicts(repository: Repository, request: PullRequest) -> list[str]:
    """Return the files that the pull request and its base changed to different contents since the
    fork."""
    base = repository.head(request.base).tree
    proposed = repository.head(request.ref).tree
    fork = repository.commits[request.fork].tree
    paths = set(changed_paths(fork, base)) & set(changed_paths(fork, proposed))
    return sorted(path for path in paths if base.get(path) != proposed.get(path))


def merged_tree(repository: Repository, request: PullRequest) -> dict[str, Entry]:
    """Return the base's files with the pull request's changes. Raises Refusal if files conflict."""
    clashing = conflicts(repository, request)
    if clashing:
        raise Refusal(409, f"This pull request has conflicts: {', '.join(clashing)}")
    proposed = repository.head(request.ref).tree
    tree = dict(repository.head(request.base).tree)
    for path in changed_paths(repository.commits[request.fork].tree, proposed):
        if path in proposed:
            tree[path] = proposed[path]
        else:
            tree.pop(path, None)
    return tree


def merge(repository: Repository, request: PullRequest, author: str) -> Commit:
    """Merge a pull request into its base as exactly one commit."""
    if not request.is_pull_request:
        raise Refusal(400, "This discussion is not a pull request")
    if request.status != "open":
        raise Refusal(
            409 if request.status == "merged" else 400,
            f"This pull request is {request.status}, not open",
        )
    tree = merged_tree(repository, request)
    subjects = "\n\n".join(
        f"- {commit.message} ({commit.oid})"
        for commit in reversed(own_commits(repository, request))
    )
    title = f"{request.title} (#{request.number})"
    commit = repository.commit(request.base, tree, title, author=author, description=subjects)
    request.status = "merged"
    request.merge_commit = commit.oid
    add_event(request, "status-change", author, {"status": "merged"})
    repository.write()
    return commit


def own_commits(repository: Repository, request: PullRequest) -> list[Commit]:
    commits = []
    for commit in repository.history(request.ref):
        if commit.oid == request.fork:
            break
        commits.append(commit)
    return commits
