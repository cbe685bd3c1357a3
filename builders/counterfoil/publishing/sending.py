"""The steps that publishing a dataset and a model share: options, preview, contents, commits,
comparison."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from counterfoil import progress
from counterfoil.documents import document_bytes
from counterfoil.errors import RunFailure, UserError, some_of
from counterfoil.models.mended import MENDED
from counterfoil.publishing.files import (
    WEIGHTS,
    Changes,
    LocalFile,
    RemoteFile,
    changes_between,
    hash_file,
    is_owned,
    whole_content,
)
from counterfoil.publishing.kept_card import kept_card
from counterfoil.publishing.options import PublishOptions
from counterfoil.publishing.remote import MAIN, TITLE, Branch, Remote, tag_is_taken
from counterfoil.recipe.names import REPOSITORY
from counterfoil.store.layout import CARD, LOCK, MANIFEST
from counterfoil.store.manifest import Entry, manifest_document, parse_manifest

# The Hub's quota is 128 commits an hour and repository: a longer publication makes larger commits.
MOST_COMMITS = 100
# Contents sent at once: small enough to lose little, large enough to keep the line busy.
_FILES_A_BATCH = 64
_BYTES_A_BATCH = 1 << 30
# How often a pull request is begun again because the default branch changed meanwhile.
_MERGES = 3


@dataclass(frozen=True, slots=True)
class Preview:
    """What publishing will do. `bytes` counts contents that differ; the Hub may have some of them
    already.

    `exists` is None for a dry run, which does not ask the Hub and counts every file as added.
    `images` is None for a model. `through_pull_request`: commits are gathered in a pull request
    first. `told`: further lines for people. `card_before`: the repository's card, which the new one
    was made from.
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
    card_notes: tuple[str, ...] = ()
    card_before: RemoteFile | None = None

    @property
    def commits(self) -> int:
        """The number of commits that the branch receives; a pull request is merged as one."""
        return 1 if self.changes.operations and not self.stays_open else 0


def preview_sending(
    remote: Remote,
    local: Mapping[str, LocalFile],
    options: PublishOptions,
    images: int | None,
    beside: Path,
) -> tuple[Preview, Mapping[str, LocalFile]]:
    """Compare the files with the repository. Return what publishing will do, and the files that it
    will send.

    These are the given ones, but the card keeps what people wrote in the repository's; that card,
    and the manifest that lists it, are written to the folder `beside`. UserError if publishing must
    not be done.
    """
    public = options.public
    branch = options.revision or MAIN
    tag = options.tag
    repository = None if options.dry_run else remote.repository()
    # A branch that does not exist yet begins as the main one.
    base = None
    if repository is not None:
        base = remote.branch(branch if branch in repository.branches else MAIN)
    lines: list[str] = []
    if base is not None:
        _refuse_something_else(remote, base, local)
        local, lines = _with_kept_card(remote, base, local, beside)
    changes = changes_between(local, base.files if base else {}, remote.kind)
    if tag is not None and repository is not None and base is not None:
        tagged = repository.tags.get(tag)
        if tagged is not None and (changes.operations or tagged != base.head):
            raise tag_is_taken(remote.repo, tag, tagged)
    if public is False and repository is not None and not repository.private:
        raise UserError(
            f"{remote.repo} is public, but you asked for --private",
            "Make it private in its settings first, or leave out --private.",
        )
    gathered = options.create_pr or changes.operations > options.files_per_commit
    if gathered and branch != MAIN and not options.dry_run:
        raise UserError(
            f"{changes.operations} files differ on {branch}, more than fit in one commit"
            f" ({options.files_per_commit}), and a pull request can only go to {MAIN}",
            "Raise --files-per-commit, or publish without --revision.",
        )
    exists = repository is not None
    private = repository.private if repository is not None else not public
    becomes_public = exists and private and bool(public) and not options.create_pr
    ahead = Preview(
        repo=remote.repo,
        branch=branch,
        exists=None if options.dry_run else exists,
        private=private,
        becomes_public=becomes_public,
        files=len(local),
        images=images,
        bytes=changes.size,
        changes=changes,
        through_pull_request=gathered and bool(changes.operations),
        stays_open=options.create_pr,
        tag=tag,
        card_notes=tuple(f"{CARD}: {line}" for line in lines),
        card_before=None if base is None else base.files.get(CARD),
    )
    return ahead, local


def _with_kept_card(
    remote: Remote,
    base: Branch,
    local: Mapping[str, LocalFile],
    beside: Path,
) -> tuple[Mapping[str, LocalFile], list[str]]:
    """Return the files with a card that keeps what people wrote in the branch's, and a line for
    each thing kept."""
    card_before = base.files.get(CARD)
    ours = local.get(CARD)
    if card_before is None or ours is None or ours.equals(card_before):
        return local, []
    published = (LOCK if remote.kind == "dataset" else WEIGHTS) in base.files
    untouched = False
    content = remote.content(card_before, base.head)
    if MANIFEST in base.files:
        with contextlib.suppress(UserError):
            manifest = remote.content(base.files[MANIFEST], base.head)
            listed = parse_manifest(manifest, MANIFEST).get(CARD)
            digest = hashlib.sha256(content).hexdigest()
            untouched = listed is not None and listed.sha256 == digest
    where = f"{CARD} of {remote.repo}"
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{where} is not UTF-8 text (byte {error.start})") from error
    new = whole_content(ours).decode()
    card, lines = kept_card(new, text, where, published=published, untouched=untouched)
    if card == new:
        return local, lines
    (beside / CARD).write_bytes(card.encode())
    files = {**local, CARD: hash_file(beside, CARD)}
    if MANIFEST in local:
        entries = []
        for file in files.values():
            if file.path != MANIFEST:
                entries.append(Entry(file.path, file.size, file.sha256))
        (beside / MANIFEST).write_bytes(document_bytes(manifest_document(entries)))
        files[MANIFEST] = hash_file(beside, MANIFEST)
    return files, lines


def _refuse_something_else(
    remote: Remote,
    branch: Branch,
    local: Mapping[str, LocalFile],
) -> None:
    """Raise UserError for a repository of something else, whose card and files publishing would
    replace."""
    foreign = [path for path in sorted(branch.files) if not path.startswith((".", "LICENSE"))]
    lacking = ""
    if remote.kind == "model":
        foreign = [path for path in foreign if not is_owned(path, "model")]
        weights = branch.files.get(WEIGHTS)
        ours = local[WEIGHTS]
        if weights is not None and MENDED not in branch.files and not ours.equals(weights):
            foreign.append(f"{WEIGHTS} of another model")
    else:
        lacking = f" and no {LOCK}"
        foreign = [path for path in foreign if path != CARD and LOCK not in branch.files]
    if foreign:
        raise UserError(
            f"{remote.repo} holds something else ({some_of(foreign, 3)}){lacking}: publishing would"
            " replace it",
            "Choose another name, or empty the repository first.",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The result: `commit` is the head of the branch, `commits` the number made now (0 if nothing
    differed)."""

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
    """The progress of a publication: the stage, and files and bytes that are done, of those that
    differ."""

    stage: str
    files_done: int
    files: int
    bytes_done: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Sender:
    remote: Remote
    user: str
    local: Mapping[str, LocalFile]
    ahead: Preview
    message: str
    files_per_commit: int

    def carry_out(self, read_back: Callable[[str], None]) -> tuple[dict[str, Any], int | None]:
        """Carry out a preview: contents, commits, comparison, then the tag, and last making it
        public.

        `read_back` gets the new commit once every file is compared. Return the fields of
        `Published`, and the number of the pull request, if there was one.
        """
        remote = self.remote
        local = self.local
        ahead = self.ahead
        if not ahead.exists:
            remote.create(ahead.private)
        repository = remote.repository()
        if repository is None:
            raise UserError(
                f"{ahead.repo}: this name belongs to a repository that your token cannot see",
                "Choose another name, or check which account your token belongs to (`hf auth"
                " whoami`).",
            )
        if ahead.branch not in repository.branches:
            remote.create_branch(ahead.branch)
        pull_request = None
        if ahead.through_pull_request:
            head, pull_request = self.gather()
        else:
            head = self.commit(ahead.branch)
        files = len(local)
        progress.report_event(Sending("comparing", files, files, ahead.bytes, ahead.bytes))
        differing = changes_between(local, head.files, remote.kind)
        problems = []
        for file in differing.added:
            problems.append(f"{file.path} is missing on the Hub")
        for file in differing.replaced:
            problems.append(f"{file.path} differs on the Hub in size or sha256")
        for path in differing.deleted:
            problems.append(f"{path} should not be on the Hub")
        if problems:
            raise RunFailure(
                [f"{remote.repo} at {head.head[:12]} differs from the directory:", *problems[:20]],
                "Someone else may have published at the same time. Run the same command again: it"
                " sends what differs.",
            )
        read_back(head.head)
        if ahead.tag is not None:
            remote.tag(ahead.tag, head.head)
        if ahead.becomes_public:
            remote.make_public()
        folder = "datasets/" if remote.kind == "dataset" else ""
        published = {
            "repo": ahead.repo,
            "url": f"{remote.api.endpoint}/{folder}{ahead.repo}",
            "branch": ahead.branch,
            "commit": head.head,
            "commits": remote.commits,
            "private": ahead.private and not ahead.becomes_public,
            "tag": ahead.tag,
            "files": files,
            "files_changed": ahead.changes.operations,
            "bytes_changed": ahead.bytes,
            "preview": ahead,
        }
        return published, pull_request

    def commit(self, branch: str) -> Branch:
        self._send(self.remote.branch(branch))
        self._refuse_another_card(self.remote.branch(branch))
        self._tell("committing", self.ahead.changes.sent)
        return self.remote.commit(self.local, branch, self.message)

    def _refuse_another_card(self, head: Branch) -> None:
        """Raise RunFailure if people changed the card after the new one was made from it."""
        now = head.files.get(CARD)
        if now is None or now == self.ahead.card_before:
            return
        if not self.local[CARD].equals(now):
            raise RunFailure(
                f"{self.remote.repo}: someone changed {CARD} during publishing",
                "Run the same command again: it keeps what they wrote.",
            )

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
                self._refuse_another_card(self.remote.branch(MAIN))
                # If the base has changed, a merge could mix the files of both versions.
                unchanged = self.remote.branch(MAIN).head == base.head
                if unchanged and self.remote.merge(number, self.message):
                    return self.remote.branch(MAIN), number
            self.remote.close(number)  # the branch changed: gather again on its new head
        raise RunFailure(
            f"{self.remote.repo}: someone else committed to {MAIN} during publishing, {_MERGES}"
            " times",
            "Run the same command again when they are done.",
        )

    def _fill(self, name: str) -> Branch:
        head = self.remote.branch(name)
        self._send(head)
        left = changes_between(self.local, head.files, self.remote.kind).operations
        most = max(self.files_per_commit, -(-left // MOST_COMMITS))
        while left:
            head = self.remote.commit(self.local, name, self.message, most)
            before = left
            left = changes_between(self.local, head.files, self.remote.kind).operations
            if left >= before:
                raise RunFailure(
                    f"{self.remote.repo}: the Hub accepts commits to {name} but does not apply them"
                )
        return head

    def _send(self, head: Branch) -> None:
        """Send what the branch lacks, in batches; the Hub answers for each file whether it has the
        content."""
        # Equal contents once: the client asks about a whole batch first, so it would send each of
        # them.
        different = changes_between(self.local, head.files, self.remote.kind).sent
        files = list({file.sha256: file for file in different}.values())
        done: list[LocalFile] = []
        self._tell("sending", done)
        for batch in _batches(files):
            self.remote.send(batch, head.name)
            done += batch
            self._tell("sending", done)

    def _tell(self, stage: str, done: Sequence[LocalFile]) -> None:
        ahead = self.ahead
        size = sum(file.size for file in done)
        files = len(ahead.changes.sent)
        progress.report_event(Sending(stage, len(done), files, size, ahead.bytes))


def checked_repository(repo: str) -> str:
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UserError(
            f"'{repo}' cannot name a repository, expected USER/NAME: {error}"
        ) from error
    if not REPOSITORY.fullmatch(repo):
        raise UserError(f"'{repo}' cannot name a repository, expected USER/NAME")
    return repo


def _batches(files: Sequence[LocalFile]) -> Iterator[list[LocalFile]]:
    batch: list[LocalFile] = []
    size = 0
    for file in files:
        is_full = len(batch) == _FILES_A_BATCH or size + file.size > _BYTES_A_BATCH
        if batch and is_full:
            yield batch
            batch = []
            size = 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch
