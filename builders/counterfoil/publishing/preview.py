"""What a publication is going to do, looked up before anything is sent; and its refusals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from counterfoil.errors import UserError
from counterfoil.models.mended import MENDED
from counterfoil.publishing.contents import Changes, changes_between
from counterfoil.publishing.kinds import MODEL
from counterfoil.publishing.model_folder import WEIGHTS, is_of_a_model
from counterfoil.publishing.remote import MAIN, tag_is_taken
from counterfoil.store.layout import CARD, LOCK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from counterfoil.publishing.files import LocalFile
    from counterfoil.publishing.remote import Branch, Remote, Repository


@dataclass(frozen=True, slots=True)
class Preview:
    """What is going to happen. `bytes` counts contents that differ; the Hub may have some of them already.

    `images` is None for a model. `through_pull_request` tells that commits are gathered in a pull request first; `told`
    is what its kind says besides, a line each.
    """

    repo: str
    branch: str
    exists: bool
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
    public: bool,
    private: bool,
    branch: str,
    tag: str | None,
    create_pr: bool,
    files_per_commit: int,
) -> Preview:
    """Look at the repository and say what is to do. UserError where it must not be done."""
    there = remote.repository()
    files = _branch_of(remote, there, branch)
    changes = changes_between(local, files.files if files else {}, remote.kind.owns)
    if remote.kind is MODEL:
        _refuse_another_model(remote.repo, files, local)
    else:
        _refuse_something_else(remote.repo, files)
    if there is not None and tag is not None and tag in there.tags:
        head = files.head if files else None
        if changes.operations or there.tags[tag] != head:
            raise tag_is_taken(remote.repo, tag, there.tags[tag])
    if private and there is not None and not there.private:
        raise UserError(
            f"{remote.repo} is public, and --private was asked for",
            "Make it private in its settings first, or leave --private away.",
        )
    gathered = create_pr or changes.operations > files_per_commit
    if gathered and branch != MAIN:
        raise UserError(
            f"{changes.operations} files differ on {branch}, more than a commit carries ({files_per_commit}), and a "
            f"pull request goes to {MAIN} only",
            "Raise --files-per-commit, or publish without --revision.",
        )
    return Preview(
        repo=remote.repo,
        branch=branch,
        exists=there is not None,
        private=there.private if there is not None else not public,
        becomes_public=public and not create_pr and there is not None and there.private,
        files=len(local),
        images=images,
        bytes=changes.size,
        changes=changes,
        through_pull_request=gathered and bool(changes.operations),
        stays_open=create_pr,
        tag=tag,
    )


def _branch_of(remote: Remote, there: Repository | None, branch: str) -> Branch | None:
    """The branch as it is; of one that is still to be made, what it begins from."""
    if there is None:
        return None
    return remote.branch(branch if branch in there.branches else MAIN)


def _refuse_something_else(repo: str, branch: Branch | None) -> None:
    """Publishing takes over the card and a dataset's places: never in a repository of something else."""
    if branch is None or LOCK in branch.files:
        return
    foreign = [path for path in sorted(branch.files) if path != CARD and not path.startswith((".", "LICENSE"))]
    if foreign:
        shown = ", ".join(foreign[:3]) + (f" and {len(foreign) - 3} more" if len(foreign) > 3 else "")
        raise UserError(
            f"{repo} holds something else ({shown}) and no {LOCK}: publishing would replace it",
            "Choose another name, or empty the repository first.",
        )


def _refuse_another_model(repo: str, branch: Branch | None, local: Mapping[str, LocalFile]) -> None:
    """A mended model's next version takes its place; any other model there is somebody's own, and stays."""
    if branch is None:
        return
    strange = [
        path for path in sorted(branch.files) if not is_of_a_model(path) and not path.startswith((".", "LICENSE"))
    ]
    weights = branch.files.get(WEIGHTS)
    if weights is not None and MENDED not in branch.files and not local[WEIGHTS].equals(weights):
        strange.append(f"{WEIGHTS} of another model")
    if strange:
        shown = ", ".join(strange[:3]) + (f" and {len(strange) - 3} more" if len(strange) > 3 else "")
        raise UserError(
            f"{repo} holds something else ({shown}): publishing would replace it",
            "Choose another name, or empty the repository first.",
        )
