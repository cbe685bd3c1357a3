"""The steps that publishing a dataset and a model share: options, preview, contents, commits, comparison.

Contents are sent first, which commits nothing; then the branch receives one commit, or a pull request several.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterfoil import progress
from counterfoil.errors import RunFailure, UserError
from counterfoil.models.mended import MENDED
from counterfoil.publishing.files import WEIGHTS, Changes, LocalFile, changes_between, is_owned
from counterfoil.publishing.remote import MAIN, TITLE, Branch, Remote, tag_is_taken
from counterfoil.recipe.names import REPOSITORY
from counterfoil.store.layout import CARD, LOCK, MANIFEST

# What the Hub recommends to stay under; it gives a commit a minute.
FILES_PER_COMMIT = 100
# The Hub's quota is 128 commits an hour and repository: a longer publication makes its commits larger.
MOST_COMMITS = 100
# Contents sent in one go: small enough to lose little, large enough to keep the line busy.
_FILES_A_BATCH = 64
_BYTES_A_BATCH = 1 << 30
# Times that a pull request is begun anew because the default branch went on meanwhile.
_MERGES = 3
# What git allows and people mean; the Hub would refuse others only after everything was sent.
_REFERENCE = re.compile(r"\w[\w./-]*")


@dataclass(frozen=True, slots=True)
class Preview:
    """What is going to happen. `bytes` counts contents that differ; the Hub may have some of them already.

    `exists` is None after a dry run, which does not ask the Hub and counts every file as added. `images` is None for a
    model. `through_pull_request` tells that commits are gathered in a pull request first; `told` is what its kind says
    besides, a line each.
    """

    repo: str
    branch: str
    exists: bool | None
    private: bool
    becomes_public: bool
    files: int
    images: int | None
    bytes: int
    changes: Changes
    through_pull_request: bool
    stays_open: bool
    tag: str | None
    told: tuple[str, ...] = ()

    @property
    def commits(self) -> int:
        """How many commits the branch receives; a pull request is merged as one."""
        return 1 if self.changes.operations and not self.stays_open else 0


def preview(
    remote: Remote,
    local: Mapping[str, LocalFile],
    *,
    images: int | None,
    public: bool | None,
    branch: str,
    tag: str | None,
    create_pr: bool,
    files_per_commit: int,
    told: tuple[str, ...] = (),
) -> Preview:
    """Look at the repository and say what is to do. UserError where it must not be done.

    public: None where nobody said it: a new repository is private then, and one that is there stays as it is.
    """
    there = remote.repository()
    # Of a branch that is still to be made, what it begins from.
    files = None if there is None else remote.branch(branch if branch in there.branches else MAIN)
    changes = changes_between(local, files.files if files else {}, remote.kind)
    if files is not None:
        _refuse_something_else(remote, files, local)
    if there is not None and tag is not None and tag in there.tags:
        head = files.head if files else None
        if changes.operations or there.tags[tag] != head:
            raise tag_is_taken(remote.repo, tag, there.tags[tag])
    if public is False and there is not None and not there.private:
        raise UserError(
            f"{remote.repo} is public, but you asked for --private",
            "Make it private in its settings first, or leave out --private.",
        )
    gathered = create_pr or changes.operations > files_per_commit
    if gathered and branch != MAIN:
        raise UserError(
            f"{changes.operations} files differ on {branch}, more than fit in one commit ({files_per_commit}), and a "
            f"pull request can only go to {MAIN}",
            "Raise --files-per-commit, or publish without --revision.",
        )
    return Preview(
        repo=remote.repo,
        branch=branch,
        exists=there is not None,
        private=there.private if there is not None else not public,
        becomes_public=bool(public) and not create_pr and there is not None and there.private,
        files=len(local),
        images=images,
        bytes=changes.size,
        changes=changes,
        through_pull_request=gathered and bool(changes.operations),
        stays_open=create_pr,
        tag=tag,
        told=told,
    )


def _refuse_something_else(remote: Remote, branch: Branch, local: Mapping[str, LocalFile]) -> None:
    """Publishing takes over the card and its kind's places: never in a repository of something else.

    A mended model's next version takes its place; any other model there is somebody's own, and stays.
    """
    strange = [path for path in sorted(branch.files) if not path.startswith((".", "LICENSE"))]
    if remote.kind == "model":
        strange = [path for path in strange if not is_owned(path, "model")]
        weights = branch.files.get(WEIGHTS)
        if weights is not None and MENDED not in branch.files and not local[WEIGHTS].equals(weights):
            strange.append(f"{WEIGHTS} of another model")
    else:
        strange = [] if LOCK in branch.files else [path for path in strange if path != CARD]
    if strange:
        shown = ", ".join(strange[:3]) + (f" and {len(strange) - 3} more" if len(strange) > 3 else "")
        lacking = f" and no {LOCK}" if remote.kind == "dataset" else ""
        raise UserError(
            f"{remote.repo} holds something else ({shown}){lacking}: publishing would replace it",
            "Choose another name, or empty the repository first.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What was published: `commit` is the head of the branch, `commits` those made now (0 where nothing differed)."""

    repo: str
    url: str
    branch: str
    commit: str
    commits: int
    private: bool
    tag: str | None
    files: int
    files_changed: int
    bytes_changed: int
    preview: Preview


@dataclass(frozen=True, slots=True)
class Sending:
    """How far a publication is: files and bytes looked after, of those that differ, and what is happening."""

    stage: str
    files_done: int
    files: int
    bytes_done: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Sender:
    """The part that changes the repository: contents, then one commit, or several in a pull request."""

    remote: Remote
    user: str
    local: Mapping[str, LocalFile]
    ahead: Preview
    message: str
    files_per_commit: int

    def commit(self, branch: str) -> Branch:
        self._send(self.remote.branch(branch))
        self._tell("committing", self.ahead.changes.sent)
        return self.remote.commit(self.local, branch, self.message)

    def gather(self) -> tuple[Branch, int]:
        """Commit in parts to a pull request and merge it, unless it is to stay open."""
        title = f"{TITLE}{self.message} ({self.local[MANIFEST].sha256[:12]})"
        for _ in range(_MERGES):
            base = self.remote.branch(MAIN)
            number = self.remote.pull_request(title, self.user)
            if self.remote.is_based_on(number, base.head):
                gathered = self._fill(f"refs/pr/{number}")
                if self.ahead.stays_open:
                    self.remote.open(number)
                    return gathered, number
                self._tell("merging", self.ahead.changes.sent)
                # Merged on another base, files of both could end up side by side.
                if self.remote.branch(MAIN).head == base.head and self.remote.merge(number, self.message):
                    return self.remote.branch(MAIN), number
            self.remote.close(number)  # the branch went on: gather on what it is now
        raise RunFailure(
            f"{self.remote.repo}: someone else committed to {MAIN} during publishing, {_MERGES} times",
            "Run the same command again when they are done.",
        )

    def _fill(self, name: str) -> Branch:
        head = self.remote.branch(name)
        self._send(head)
        left = changes_between(self.local, head.files, self.remote.kind).operations
        most = max(self.files_per_commit, -(-left // MOST_COMMITS))
        while left:
            head = self.remote.commit(self.local, name, self.message, most)
            before, left = left, changes_between(self.local, head.files, self.remote.kind).operations
            if left >= before:
                raise RunFailure(f"{self.remote.repo}: the Hub accepts commits to {name} but does not apply them")
        return head

    def _send(self, head: Branch) -> None:
        """Send what the branch lacks, in batches; the Hub answers for each whether it has the content already."""
        # Equal contents once: the client would send each, for it asks the Hub about all of a batch beforehand.
        files = list(
            {file.sha256: file for file in changes_between(self.local, head.files, self.remote.kind).sent}.values()
        )
        done: list[LocalFile] = []
        self._tell("sending", done)
        for batch in _batches(files):
            self.remote.send(batch, head.name)
            done += batch
            self._tell("sending", done)

    def _tell(self, stage: str, done: Sequence[LocalFile]) -> None:
        size = sum(file.size for file in done)
        progress.tell(Sending(stage, len(done), len(self.ahead.changes.sent), size, self.ahead.bytes))


def refuse_options(revision: str | None, tag: str | None, create_pr: bool, files_per_commit: int) -> None:
    """UserError with everything that is wrong with the options themselves."""
    problems = [
        f"--{option} is '{name}', which cannot name a {kind}: expected letters, digits and . _ - /"
        for option, kind, name in (("revision", "branch", revision), ("tag", "tag", tag))
        if name is not None and (not _REFERENCE.fullmatch(name) or ".." in name or name.endswith(("/", ".", ".lock")))
    ]
    if create_pr and tag is not None:
        problems.append(
            "use --tag or --create-pr, not both: a tag marks a commit of the branch, and a pull"
            " request leaves that unchanged"
        )
    if files_per_commit < 1:
        problems.append(f"--files-per-commit is {files_per_commit}, expected 1 or more")
    if problems:
        raise UserError(problems)


def checked_repository(repo: str) -> str:
    """The name of a repository. UserError for what cannot be one."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UserError(f"'{repo}' cannot name a repository, expected USER/NAME: {error}") from error
    if not REPOSITORY.fullmatch(repo):
        raise UserError(f"'{repo}' cannot name a repository, expected USER/NAME")
    return repo


def carry_out(
    remote: Remote,
    user: str,
    local: Mapping[str, LocalFile],
    ahead: Preview,
    message: str,
    files_per_commit: int,
    read_back: Callable[[str], None],
) -> tuple[dict[str, Any], int | None]:
    """Make the repository what `ahead` says: contents, commits, comparison, then the tag, and last it becomes public.

    `read_back` is given the new commit once every file there is compared. Returns the fields of `Published`, and
    the number of the pull request, where there was one.
    """
    if not ahead.exists:
        remote.create(ahead.private)
    there = remote.repository()
    if there is None:
        raise UserError(
            f"{ahead.repo}: this name belongs to a repository that your token cannot see",
            "Choose another name, or check which account your token belongs to (`hf auth whoami`).",
        )
    if ahead.branch not in there.branches:
        remote.create_branch(ahead.branch)
    sender = Sender(remote, user, local, ahead, message, files_per_commit)
    head, pull_request = sender.gather() if ahead.through_pull_request else (sender.commit(ahead.branch), None)
    progress.tell(Sending("comparing", len(local), len(local), ahead.bytes, ahead.bytes))
    differing = changes_between(local, head.files, remote.kind)
    problems = [f"{file.path} is missing on the Hub" for file in differing.added]
    problems += [f"{file.path} differs on the Hub in size or sha256" for file in differing.replaced]
    problems += [f"{path} should not be on the Hub" for path in differing.deleted]
    if problems:
        raise RunFailure(
            [f"{remote.repo} at {head.head[:12]} differs from the directory:", *problems[:20]],
            "Someone else may have published at the same time. Run the same command again: it sends what differs.",
        )
    read_back(head.head)
    if ahead.tag is not None:
        remote.tag(ahead.tag, head.head)
    if ahead.becomes_public:
        remote.make_public()
    return {
        "repo": ahead.repo,
        "url": f"{remote.api.endpoint}/{'datasets/' if remote.kind == 'dataset' else ''}{ahead.repo}",
        "branch": ahead.branch,
        "commit": head.head,
        "commits": remote.commits,
        "private": ahead.private and not ahead.becomes_public,
        "tag": ahead.tag,
        "files": len(local),
        "files_changed": ahead.changes.operations,
        "bytes_changed": ahead.bytes,
        "preview": ahead,
    }, pull_request


def _batches(files: Sequence[LocalFile]) -> Iterator[list[LocalFile]]:
    batch: list[LocalFile] = []
    size = 0
    for file in files:
        if batch and (len(batch) == _FILES_A_BATCH or size + file.size > _BYTES_A_BATCH):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch
