"""Pull requests: opened on a ref of their own, published, and squashed into one commit of the base branch."""

from __future__ import annotations

from loopback_hub.repository import PullRequest, Repository


def open_pull_request(
    repository: Repository, title: str, author: str, description: str, *, status: str, base: str
) -> PullRequest:
    """A new pull request, its ref at the head of its base."""
    number = len(repository.pull_requests) + 1
    request = PullRequest(number, title, author, status, base=repository.head_name(base))
    repository.pull_requests[number] = request
    repository.heads[request.ref] = repository.head(base).oid
    repository.write()
    return request
