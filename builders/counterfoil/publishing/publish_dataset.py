"""`publish`: a verified directory to the Hub, so that its readers always find the old version whole or the new one."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from counterfoil.dataset import read_dataset
from counterfoil.errors import RunFailure, UserError
from counterfoil.hub.client import attentive_client
from counterfoil.hub.retries import PATIENCE, Patience
from counterfoil.publishing.after import declared_splits, load_a_row_of_each, refuse_differences
from counterfoil.publishing.contents import changes_between, local_files
from counterfoil.publishing.files import LocalFile
from counterfoil.publishing.preview import Preview, preview
from counterfoil.publishing.remote import MAIN, TITLE, Branch, Remote
from counterfoil.publishing.unchanged import whole_content
from counterfoil.recipe import Recipe
from counterfoil.recipe.names import REPOSITORY
from counterfoil.regular_files import named_path
from counterfoil.store.directory_lock import directory_lock
from counterfoil.store.layout import CARD, LOCK, MANIFEST
from counterfoil.store.replacement import settle_directory
from counterfoil.under_way import UnderWay, finish
from counterfoil.verification import verify

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
class Publication:
    """What was published. `commit` is the head of the branch, or of the pull request where it stays open.

    `commits` counts those made now (0 where nothing differed); `configs_loaded` had a row loaded back.
    """

    repo: str
    url: str
    branch: str
    commit: str
    commits: int
    private: bool
    tag: str | None
    pull_request: int | None
    files: int
    files_changed: int
    bytes_changed: int
    configs_loaded: int
    preview: Preview


def publish(
    directory: str | Path,
    repo: str | None = None,
    *,
    public: bool | None = None,
    revision: str | None = None,
    tag: str | None = None,
    create_pr: bool = False,
    files_per_commit: int = FILES_PER_COMMIT,
    confirm: Callable[[Preview], bool] | None = None,
    tell: Callable[[str], None] | None = None,
    patience: Patience = PATIENCE,
) -> Publication | None:
    """Publish a finished dataset directory as `repo` (`user/name`; by default the recipe's `publish.repo`).

    The repository is private unless `public` (by default the recipe's `publish.private`) says otherwise. Contents
    are sent first, which commits nothing; then the branch `revision` (default: main) receives one commit, and that
    the `tag`. Where more than `files_per_commit` files differ, commits are gathered in a pull request, which is
    merged last; with `create_pr` it stays open. `confirm` sees the preview and may end it all: None is returned.
    `tell` hears one line for each wait. Run again, it goes on: what is there is not sent again. Raises UserError
    for what cannot be published or is refused, RunFailure where the Hub or the network fails for good.
    `publish_steps` is the same and tells how far it is.
    """
    steps = publish_steps(
        directory,
        repo,
        public=public,
        revision=revision,
        tag=tag,
        create_pr=create_pr,
        files_per_commit=files_per_commit,
        confirm=confirm,
        tell=tell,
        patience=patience,
    )
    return finish(steps)


def publish_steps(
    directory: str | Path,
    repo: str | None = None,
    *,
    public: bool | None = None,
    revision: str | None = None,
    tag: str | None = None,
    create_pr: bool = False,
    files_per_commit: int = FILES_PER_COMMIT,
    confirm: Callable[[Preview], bool] | None = None,
    tell: Callable[[str], None] | None = None,
    patience: Patience = PATIENCE,
) -> UnderWay[Sending, Publication | None]:
    """`publish`, which tells how far it is. Nothing is done before the first is asked for.

    The directory is held, and the Hub's client watched, until the end is asked for or the generator is closed.
    """
    directory = named_path(directory)
    tell = tell or (lambda line: None)
    _refuse_options(revision, tag, create_pr, files_per_commit)
    settle_directory(directory)
    with _held(directory), attentive_client(patience):
        found = read_dataset(directory, "receipts").finished()
        recipe, images = found.recipe, sum(receipt.rows.get("data", 0) for receipt in found.receipts)
        repo = _repository(repo, recipe)
        yield Sending("verifying", 0, 0, 0, 0)
        local = local_files(directory, _verified(directory))
        card = whole_content(local[CARD]).decode()
        remote = Remote(repo, tell, patience)
        user = remote.user()
        remote.check_card(card)
        ahead = preview(
            remote,
            local,
            images=images,
            public=not recipe.publish.private if public is None else public,
            private=public is False,
            branch=revision or MAIN,
            tag=tag,
            create_pr=create_pr,
            files_per_commit=files_per_commit,
        )
        if confirm is not None and not confirm(ahead):
            return None
        _make_ready(remote, ahead)
        message = f"{recipe.name}: {images:,} image{'s' if images != 1 else ''}"
        sender = _Sender(remote, user, local, ahead, message, files_per_commit)
        if ahead.through_pull_request:
            head, pull_request = yield from sender.gather()
        else:
            head, pull_request = (yield from sender.commit(ahead.branch)), None
        yield Sending("comparing", len(local), len(local), ahead.bytes, ahead.bytes)
        refuse_differences(repo, local, head)
        loaded = load_a_row_of_each(repo, head.head, declared_splits(card), tell, patience)
        if tag is not None:
            remote.tag(tag, head.head)
        if ahead.becomes_public:
            remote.make_public()
    return Publication(
        repo=repo,
        url=f"{remote.api.endpoint}/datasets/{repo}",
        branch=ahead.branch,
        commit=head.head,
        commits=remote.commits,
        private=ahead.private and not ahead.becomes_public,
        tag=tag,
        pull_request=pull_request if create_pr else None,
        files=len(local),
        files_changed=ahead.changes.operations,
        bytes_changed=ahead.bytes,
        configs_loaded=loaded,
        preview=ahead,
    )


@dataclass(frozen=True, slots=True)
class _Sender:
    """The part that changes the repository: contents, then one commit, or several in a pull request."""

    remote: Remote
    user: str
    local: Mapping[str, LocalFile]
    ahead: Preview
    message: str
    files_per_commit: int

    def commit(self, branch: str) -> UnderWay[Sending, Branch]:
        yield from self._send(self.remote.branch(branch))
        yield self._sending("committing", self.ahead.changes.sent)
        return self.remote.commit(self.local, branch, self.message)

    def gather(self) -> UnderWay[Sending, tuple[Branch, int]]:
        """Commit in parts to a pull request and merge it, unless it is to stay open."""
        title = f"{TITLE}{self.message} ({self.local[MANIFEST].sha256[:12]})"
        for _ in range(_MERGES):
            base = self.remote.branch(MAIN)
            number = self.remote.pull_request(title, self.user)
            if self.remote.is_based_on(number, base.head):
                gathered = yield from self._fill(f"refs/pr/{number}")
                if self.ahead.stays_open:
                    self.remote.open(number)
                    return gathered, number
                yield self._sending("merging", self.ahead.changes.sent)
                # Merged on another base, files of both could end up side by side.
                if self.remote.branch(MAIN).head == base.head and self.remote.merge(number, self.message):
                    return self.remote.branch(MAIN), number
            self.remote.close(number)  # the branch went on: gather on what it is now
        raise RunFailure(
            f"{self.remote.repo}: others committed to {MAIN} while this was published, {_MERGES} times",
            "Run the same command again when they have finished.",
        )

    def _fill(self, name: str) -> UnderWay[Sending, Branch]:
        head = self.remote.branch(name)
        yield from self._send(head)
        left = changes_between(self.local, head.files).operations
        most = max(self.files_per_commit, -(-left // MOST_COMMITS))
        while left:
            head = self.remote.commit(self.local, name, self.message, most)
            before, left = left, changes_between(self.local, head.files).operations
            if left >= before:
                raise RunFailure(f"{self.remote.repo}: the Hub takes commits to {name} and does not carry them out")
        return head

    def _send(self, head: Branch) -> UnderWay[Sending, None]:
        """Send what the branch lacks, in batches; the Hub answers for each whether it has the content already."""
        # Equal contents once: the client would send each, for it asks the Hub about all of a batch beforehand.
        files = list({file.sha256: file for file in changes_between(self.local, head.files).sent}.values())
        done: list[LocalFile] = []
        yield self._sending("sending", done)
        for batch in _batches(files):
            self.remote.send(batch, head.name)
            done += batch
            yield self._sending("sending", done)

    def _sending(self, stage: str, done: Sequence[LocalFile]) -> Sending:
        size = sum(file.size for file in done)
        return Sending(stage, len(done), len(self.ahead.changes.sent), size, self.ahead.bytes)


def _refuse_options(revision: str | None, tag: str | None, create_pr: bool, files_per_commit: int) -> None:
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


def _held(directory: Path) -> AbstractContextManager[None]:
    """Nobody builds or cuts there meanwhile; a directory that may not be written to is safe from that anyway."""
    there = (directory / LOCK).is_file() and os.access(directory, os.W_OK)
    return directory_lock(directory) if there else contextlib.nullcontext()


def _repository(repo: str | None, recipe: Recipe) -> str:
    repo = repo or recipe.publish.repo
    if repo is None:
        raise UserError(
            "no repository: none was named, and the recipe has none under publish.repo",
            "Name one: counterfoil publish DIR USER/NAME",
        )
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UserError(f"'{repo}' is no repository, expected USER/NAME: {error}") from error
    if not REPOSITORY.fullmatch(repo):
        raise UserError(f"'{repo}' is no repository, expected USER/NAME")
    return repo


def _verified(directory: Path) -> str | None:
    """The hash of the manifest that holds. RunFailure with everything that `verify` finds: what is sent is whole."""
    found = verify(directory)
    if found.problems:
        repairs = list(dict.fromkeys(problem.repair for problem in found.problems))
        raise RunFailure(
            [f"{directory} is damaged, so nothing was sent:", *(str(one) for one in found.problems[:20])],
            " ".join(repairs[:3]),
        )
    return found.manifest_sha256


def _make_ready(remote: Remote, ahead: Preview) -> None:
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
