"""A repository of the loopback Hub: commits, branches, tags and pull requests, kept as files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loopback_hub.answers import Refusal, revision_not_found
from loopback_hub.gitlike import Commit, Entry, changed_paths

MAIN = "main"


@dataclass
class PullRequest:
    """A discussion of a repository; where it is a pull request its commits are on
    `refs/pr/{number}`.

    `status` is draft, open, closed or merged; `fork` is the commit where it left its base. `events`
    are as the Hub's clients read them.
    """

    number: int
    title: str
    author: str
    status: str
    is_pull_request: bool = True
    base: str = MAIN
    merge_commit: str | None = None
    fork: str = ""
    created: str = "2026-01-01T00:00:00.000Z"
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ref(self) -> str:
        return f"refs/pr/{self.number}"


@dataclass
class Repository:
    """State of one repository. Everything is written to `folder` at each change, and read from
    there again.

    `heads` are branches by name and pull requests by `refs/pr/N`; `tags` by name. Both lead to
    commit oids. `blobs` are the sha256 of all LFS blobs that were uploaded to it, committed or not.
    """

    kind: str
    name: str
    folder: Path
    private: bool = False
    heads: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    pull_requests: dict[int, PullRequest] = field(default_factory=dict)
    blobs: set[str] = field(default_factory=set)
    commits: dict[str, Commit] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Repository:
        state = json.loads((folder / "repository.json").read_text(encoding="utf-8"))
        numbered = {
            fields["number"]: PullRequest(**fields) for fields in state.pop("pull_requests")
        }
        blobs = set(state.pop("blobs"))
        repository = cls(**state, folder=folder, pull_requests=numbered, blobs=blobs)
        stored = [
            json.loads(path.read_text(encoding="utf-8")) for path in (folder / "commits").iterdir()
        ]
        for fields in sorted(stored, key=lambda commit: commit["number"]):
            tree = {name: Entry(**entry) for name, entry in fields.pop("tree").items()}
            fields["parents"], fields["changed"] = (
                tuple(fields["parents"]),
                tuple(fields["changed"]),
            )
            commit = Commit(tree=tree, **fields)
            repository.commits[commit.oid] = commit
        return repository

    def write(self) -> None:
        state = {
            "kind": self.kind,
            "name": self.name,
            "private": self.private,
            "heads": self.heads,
            "tags": self.tags,
            "blobs": sorted(self.blobs),
            "pull_requests": [asdict(pull_request) for pull_request in self.pull_requests.values()],
        }
        _write(self.folder / "repository.json", state)

    def head(self, revision: str = MAIN) -> Commit:
        """Return the commit of a branch, a tag, a pull request's ref or an object id (in full or
        its start)."""
        short = revision.removeprefix("refs/heads/").removeprefix("refs/tags/")
        oid = self.heads.get(revision) or self.heads.get(short) or self.tags.get(short)
        if oid is None and re.fullmatch("[0-9a-f]{7,40}", revision):
            oid = next((commit for commit in self.commits if commit.startswith(revision)), None)
        if oid is None:
            raise revision_not_found(revision)
        return self.commits[oid]

    def history(self, revision: str = MAIN) -> Iterator[Commit]:
        """Yield the commits of a revision, newest first."""
        oid = self.head(revision).oid
        while oid:
            commit = self.commits[oid]
            yield commit
            oid = commit.parents[0] if commit.parents else ""

    def head_name(self, revision: str) -> str:
        """Return the head that a commit to this revision moves; only branches and pull requests
        take commits."""
        short = revision.removeprefix("refs/heads/")
        if short in self.heads:
            return short
        self.head(revision)  # unknown ones are not found
        raise Refusal(400, f"Cannot commit to {revision}: it is not a branch")

    def commit(
        self,
        head: str,
        tree: Mapping[str, Entry],
        message: str,
        *,
        author: str,
        description: str = "",
    ) -> Commit:
        """Add a commit to a head, which may be new."""
        parent = self.commits[self.heads[head]] if head in self.heads else None
        commit = Commit(
            number=len(self.commits),
            tree=dict(tree),
            message=message,
            description=description,
            author=author,
            parents=() if parent is None else (parent.oid,),
            changed=changed_paths({} if parent is None else parent.tree, tree),
        )
        document = {
            "number": commit.number,
            "tree": {path: asdict(entry) for path, entry in commit.tree.items()},
            "message": commit.message,
            "description": commit.description,
            "author": commit.author,
            "parents": commit.parents,
            "changed": commit.changed,
        }
        _write(self.folder / "commits" / f"{commit.oid}.json", document)
        self.commits[commit.oid] = commit
        self.heads[head] = commit.oid
        self.write()
        return commit


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(value), encoding="utf-8")
    unfinished.replace(path)
