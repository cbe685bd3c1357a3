"""Read and change a repository of the Hub. Changes are safe to repeat, and failed ones are retried.

The Hub may have carried out a request whose answer was lost, so every change first looks at what
exists. The branch receives one commit, or a pull request collects several commits and is merged.
Readers therefore always find either the old version or the new one.
"""

from __future__ import annotations

import functools
import inspect
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from huggingface_hub import CommitOperationDelete, HfApi, RepoCard
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile

from counterfoil.data.hub import Patience, with_retries
from counterfoil.errors import RunFailure, UserError, some_of
from counterfoil.publishing.files import (
    Addition,
    Changes,
    LocalFile,
    RemoteFile,
    RepositoryKind,
    changes_between,
)

P = ParamSpec("P")
T = TypeVar("T")
MAIN = "main"
TITLE = "Counterfoil: publish "
# The limit of a text file, which is read whole.
MOST_TEXT_BYTES = 16_000_000


@dataclass(frozen=True, slots=True)
class Branch:
    name: str
    head: str
    files: Mapping[str, RemoteFile]


@dataclass(frozen=True, slots=True)
class Repository:
    """The state of a repository; `branches` and `tags` map names to commits."""

    private: bool
    branches: Mapping[str, str]
    tags: Mapping[str, str]


def _tried(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a method of a `Remote` that is safe to repeat. `what` names the action; braces are
    its arguments."""

    def tried(method: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def call(*arguments: P.args, **named: P.kwargs) -> T:
            given = signature.bind(*arguments, **named).arguments
            remote: Remote = given["self"]
            return with_retries(
                lambda: method(*arguments, **named),
                what.format(**given),
                tell=remote.tell,
                patience=remote.patience,
            )

        return call

    return tried


@dataclass
class Remote:
    """One repository of a dataset or a model. Methods retry, and raise UserError and RunFailure."""

    repo: str
    tell: Callable[[str], None]
    patience: Patience
    kind: RepositoryKind = "dataset"
    api: HfApi = field(default_factory=HfApi)
    commits: int = 0
    _operations: dict[str, Addition] = field(default_factory=dict)

    @property
    def _named(self) -> dict[str, Any]:
        """The repository, as arguments of every function of the client."""
        return {"repo_id": self.repo, "repo_type": self.kind}

    @_tried("looking up the user of the token")
    def user(self) -> str:
        return self.api.whoami()["name"]

    @_tried("looking at {self.repo}")
    def repository(self) -> Repository | None:
        """Return the repository's state; None if there is none (or none that this token may
        see)."""
        try:
            info = self.api.repo_info(**self._named)
        except RepositoryNotFoundError:
            return None
        refs = self.api.list_repo_refs(**self._named)
        branches = {ref.name: ref.target_commit for ref in refs.branches}
        tags = {ref.name: ref.target_commit for ref in refs.tags}
        return Repository(bool(info.private), branches, tags)

    @_tried("listing {self.repo} at {name}")
    def branch(self, name: str) -> Branch:
        """Return the head and the files of a branch, of a pull request (`refs/pr/N`) or of a
        commit."""
        head = self.api.repo_info(**self._named, revision=name).sha
        assert head is not None
        # The listing names the commit, so that all of its pages are of the same commit.
        entries = self.api.list_repo_tree(**self._named, recursive=True, revision=head)
        files = []
        for entry in entries:
            if isinstance(entry, RepoFile):
                sha256 = entry.lfs.sha256 if entry.lfs else None
                files.append(RemoteFile(entry.path, entry.size, entry.blob_id, sha256))
        return Branch(name, head, {file.path: file for file in files})

    @_tried("reading {file.path} of {self.repo}")
    def content(self, file: RemoteFile, commit: str) -> bytes:
        """Return the content of a text file. UserError for one that is too large to be a text."""
        if file.size > MOST_TEXT_BYTES:
            raise UserError(
                f"{file.path} of {self.repo} has {file.size:,} bytes, expected at most"
                f" {MOST_TEXT_BYTES:,}",
                "Shorten it on the Hub, and publish again.",
            )
        with tempfile.TemporaryDirectory() as folder:
            path = self.api.hf_hub_download(
                **self._named,
                filename=file.path,
                revision=commit,
                local_dir=folder,
            )
            return Path(path).read_bytes()

    @_tried("creating {self.repo}")
    def create(self, private: bool) -> None:
        self.api.create_repo(**self._named, private=private, exist_ok=True)

    @_tried("creating the branch {name}")
    def create_branch(self, name: str) -> None:
        self.api.create_branch(**self._named, branch=name, exist_ok=True)

    @_tried("making {self.repo} public")
    def make_public(self) -> None:
        self.api.update_repo_settings(**self._named, private=False)

    @_tried("checking the card")
    def check_card(self, text: str) -> None:
        try:
            RepoCard(text, ignore_metadata_errors=False).validate(repo_type=self.kind)
        except ValueError as error:
            if type(error) is not ValueError:  # a broken answer is a ValueError too
                raise
            raise RunFailure(f"the Hub refuses the card's metadata: {error}") from error

    @_tried("looking at the dataset {name}")
    def is_public_dataset(self, name: str) -> bool:
        try:
            return not self.api.dataset_info(name).private
        except RepositoryNotFoundError:
            return False

    @_tried("looking at the model {name}")
    def license_of_model(self, name: str) -> str | None:
        """Return the licence in a model's card; None if there is no such model, or no licence."""
        try:
            card = self.api.model_info(name).card_data
        except RepositoryNotFoundError:
            return None
        license = None if card is None else card.get("license")
        return license if isinstance(license, str) else None

    def send(self, files: Sequence[LocalFile], revision: str) -> None:
        """Send contents that the Hub's large-file storage lacks. Commit nothing."""
        operations = [self._operation(file) for file in files]
        paths = [file.path for file in files]
        what = f"sending {some_of(paths, 1)}"
        with_retries(
            lambda: self._prepare(operations, revision),
            what,
            tell=self.tell,
            patience=self.patience,
        )

    @_tried("committing to {self.repo}")
    def commit(
        self,
        local: Mapping[str, LocalFile],
        name: str,
        message: str,
        most: int | None = None,
    ) -> Branch:
        """Commit once to make a branch the directory, or its first `most` changes; do nothing if
        nothing differs."""
        branch = self.branch(name)
        changes = changes_between(local, branch.files, self.kind)
        changes = limit_changes(changes, most)
        if not changes.operations:
            return branch
        additions = [self._operation(file) for file in changes.sent]
        self._prepare(additions, name)
        deletions = [CommitOperationDelete(path, is_folder=False) for path in changes.deleted]
        self.api.create_commit(
            **self._named,
            operations=[*additions, *deletions],
            commit_message=message,
            revision=name,
            parent_commit=branch.head,
        )
        self.commits += 1
        for file in changes.sent:
            self._operations.pop(file.path, None)  # the client refuses to commit an operation again
        return self.branch(name)

    def _prepare(self, operations: Sequence[Addition], revision: str) -> None:
        """Send contents. RunFailure if files have changed, UserError if a .gitignore excludes
        files."""
        for operation in operations:
            operation.before_sending()
        self.api.preupload_lfs_files(
            **self._named,
            additions=operations,
            revision=revision,
            free_memory=False,
        )
        for operation in operations:
            operation.after_sending()
        ignored = [operation.path_in_repo for operation in operations if operation._should_ignore]
        if ignored:
            what = f"{self.repo} has a .gitignore that excludes files of the {self.kind}:"
            raise UserError(
                [what, *ignored[:10]],
                "Remove .gitignore from the repository, or the lines that exclude these files.",
            )

    @_tried("opening a pull request")
    def pull_request(self, title: str, author: str) -> int:
        """Return the author's open pull request of this title, or open one. Close the author's
        obsolete ones."""
        number = None
        requests = self.api.get_repo_discussions(
            **self._named,
            discussion_type="pull_request",
            author=author,
        )
        for request in requests:
            is_open = request.status in ("draft", "open")
            is_ours = request.author == author and request.title.startswith(TITLE)
            if not is_open or not is_ours:
                continue
            if request.title == title and number is None:
                number = request.num
            else:
                self._set_status(request.num, "closed")
        if number is None:
            opened = self.api.create_pull_request(**self._named, title=title)
            number = opened.num
        return number

    @_tried("opening pull request {number}")
    def open(self, number: int) -> None:
        """Open a pull request, which the client makes as a draft that cannot be merged."""
        self._set_status(number, "open")

    @_tried("closing pull request {number}")
    def close(self, number: int) -> None:
        self._set_status(number, "closed")

    def _set_status(self, number: int, status: Literal["open", "closed"]) -> None:
        """Set the status once; callers retry, since they check what a lost answer did."""
        self.api.change_discussion_status(
            **self._named,
            discussion_num=number,
            new_status=status,
        )

    @_tried("looking at pull request {number}")
    def is_based_on(self, number: int, commit: str) -> bool:
        commits = self.api.list_repo_commits(**self._named, revision=f"refs/pr/{number}")
        return any(listed.commit_id == commit for listed in commits)

    @_tried("merging pull request {number}")
    def merge(self, number: int, message: str) -> bool:
        """Merge a pull request into the default branch; return False if that has changed and
        conflicts."""
        request = self.api.get_discussion_details(**self._named, discussion_num=number)
        if request.status == "merged":
            return True
        if request.status == "draft":
            self._set_status(number, "open")
        try:
            self.api.merge_pull_request(**self._named, discussion_num=number, comment=message)
        except HfHubHTTPError as error:
            if error.response.status_code == 409:
                return False
            raise
        self.commits += 1
        return True

    @_tried("tagging {name}")
    def tag(self, name: str, commit: str) -> None:
        """Tag a commit. UserError if the tag names another commit."""
        refs = self.api.list_repo_refs(**self._named)
        tags = {ref.name: ref.target_commit for ref in refs.tags}
        existing = tags.get(name)
        if existing is None:
            self.api.create_tag(**self._named, tag=name, revision=commit)
        elif existing != commit:
            raise tag_is_taken(self.repo, name, existing)

    def _operation(self, file: LocalFile) -> Addition:
        """Return the client's operation for a file. It is kept between tries, because it remembers
        what was sent."""
        if file.path not in self._operations:
            self._operations[file.path] = Addition(file)
        return self._operations[file.path]


def limit_changes(changes: Changes, most: int | None) -> Changes:
    """Return the first `most` changes in the order of publishing: files, card and manifest last,
    then deletions."""
    if most is None or changes.operations <= most:
        return changes
    sent = changes.sent[:most]
    added = {file.path for file in changes.added}
    return replace(
        changes,
        added=tuple(file for file in sent if file.path in added),
        replaced=tuple(file for file in sent if file.path not in added),
        deleted=changes.deleted[: most - len(sent)],
    )


def tag_is_taken(repo: str, name: str, commit: str) -> UserError:
    return UserError(
        f"{repo} has a tag '{name}' already, for another version (commit {commit[:12]})",
        "Choose another tag: an existing tag is never moved.",
    )
