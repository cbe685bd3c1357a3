"""`publish`: a verified directory to the Hub, so that its readers always find the old version whole or the new one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from counterfoil import progress
from counterfoil.dataset import read_dataset
from counterfoil.errors import RunFailure, UserError
from counterfoil.hub.client import attentive_client
from counterfoil.hub.retries import PATIENCE, Patience
from counterfoil.publishing.after import declared_splits, load_a_row_of_each, refuse_differences
from counterfoil.publishing.contents import local_files
from counterfoil.publishing.model_folder import is_model_folder
from counterfoil.publishing.preview import Preview, preview
from counterfoil.publishing.remote import MAIN, Remote
from counterfoil.publishing.sending import (
    FILES_PER_COMMIT,
    Sender,
    Sending,
    checked_repository,
    make_ready,
    refuse_options,
)
from counterfoil.publishing.unchanged import whole_content
from counterfoil.recipe import Recipe
from counterfoil.regular_files import named_path
from counterfoil.store.directory_lock import directory_lock
from counterfoil.store.layout import CARD, LOCK
from counterfoil.store.replacement import settle_directory
from counterfoil.verification import verify


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
    """
    directory = named_path(directory)
    if is_model_folder(directory):
        raise UserError(f"{directory} holds a model and no dataset", "Publish it with --model.")
    tell = tell or (lambda line: None)
    refuse_options(revision, tag, create_pr, files_per_commit)
    settle_directory(directory)
    with _held(directory), attentive_client(patience):
        found = read_dataset(directory, "receipts").finished()
        recipe, images = found.recipe, sum(receipt.rows.get("data", 0) for receipt in found.receipts)
        repo = _repository(repo, recipe)
        progress.tell(Sending("verifying", 0, 0, 0, 0))
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
        make_ready(remote, ahead)
        message = f"{recipe.name}: {images:,} image{'s' if images != 1 else ''}"
        sender = Sender(remote, user, local, ahead, message, files_per_commit)
        if ahead.through_pull_request:
            head, pull_request = sender.gather()
        else:
            head, pull_request = sender.commit(ahead.branch), None
        progress.tell(Sending("comparing", len(local), len(local), ahead.bytes, ahead.bytes))
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
    return checked_repository(repo)


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
