"""What publishing changes in a repository: made ready, contents sent, one commit, or several in a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from counterfoil import progress
from counterfoil.errors import RunFailure, UserError
from counterfoil.publishing.contents import changes_between
from counterfoil.publishing.files import LocalFile
from counterfoil.publishing.preview import Preview
from counterfoil.publishing.remote import MAIN, TITLE, Branch, Remote
from counterfoil.recipe.names import REPOSITORY
from counterfoil.store.layout import MANIFEST

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
            f"{self.remote.repo}: others committed to {MAIN} while this was published, {_MERGES} times",
            "Run the same command again when they have finished.",
        )

    def _fill(self, name: str) -> Branch:
        head = self.remote.branch(name)
        self._send(head)
        left = changes_between(self.local, head.files, self.remote.kind.owns).operations
        most = max(self.files_per_commit, -(-left // MOST_COMMITS))
        while left:
            head = self.remote.commit(self.local, name, self.message, most)
            before, left = left, changes_between(self.local, head.files, self.remote.kind.owns).operations
            if left >= before:
                raise RunFailure(f"{self.remote.repo}: the Hub takes commits to {name} and does not carry them out")
        return head

    def _send(self, head: Branch) -> None:
        """Send what the branch lacks, in batches; the Hub answers for each whether it has the content already."""
        # Equal contents once: the client would send each, for it asks the Hub about all of a batch beforehand.
        files = list(
            {file.sha256: file for file in changes_between(self.local, head.files, self.remote.kind.owns).sent}.values()
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
        f"--{option} is '{name}', which is no name of a {kind}: expected letters, digits and . _ - /"
        for option, kind, name in (("revision", "branch", revision), ("tag", "tag", tag))
        if name is not None and (not _REFERENCE.fullmatch(name) or ".." in name or name.endswith(("/", ".", ".lock")))
    ]
    if create_pr and tag is not None:
        problems.append("--tag and --create-pr exclude each other: a tag is made of what the branch holds")
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
        raise UserError(f"'{repo}' is no repository, expected USER/NAME: {error}") from error
    if not REPOSITORY.fullmatch(repo):
        raise UserError(f"'{repo}' is no repository, expected USER/NAME")
    return repo


def make_ready(remote: Remote, ahead: Preview) -> None:
    """The repository and the branch, where they are not there yet."""
    if not ahead.exists:
        remote.create(ahead.private)
    there = remote.repository()
    if there is None:
        raise UserError(
            f"{ahead.repo}: the name is taken by a repository that this token may not see",
            "Choose another name, or check whose token is used (`hf auth whoami`).",
        )
    if ahead.branch not in there.branches:
        remote.create_branch(ahead.branch)


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
