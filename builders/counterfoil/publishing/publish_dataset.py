"""`publish`: send a verified directory to the Hub, so that readers always find the old or the new
version complete."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCard
from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

from counterfoil import progress
from counterfoil.data.hub import PATIENCE, attentive_client, with_retries
from counterfoil.dataset.reading import read_dataset
from counterfoil.dataset.verification import verify
from counterfoil.errors import RunFailure, UserError
from counterfoil.options import takes
from counterfoil.publishing.files import CONFIG, local_files, whole_content
from counterfoil.publishing.options import PublishOptions
from counterfoil.publishing.remote import Remote
from counterfoil.publishing.sending import (
    Published,
    Sender,
    Sending,
    checked_repository,
    preview_sending,
)
from counterfoil.regular_files import named_path
from counterfoil.report.words import format_count
from counterfoil.store.directory_lock import directory_lock
from counterfoil.store.layout import CARD, LOCK
from counterfoil.store.receipts import preview_images
from counterfoil.store.replacement import settle_directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication(Published):
    """The published dataset. `pull_request` is the number of one that stays open; then `commit` is
    its head."""

    pull_request: int | None
    configs_loaded: int


@takes(PublishOptions)
def publish(given: PublishOptions) -> Publication | None:
    """Publish a finished dataset directory as a dataset repository on the Hub.

    File contents are uploaded first, which commits nothing. Then the branch receives one commit,
    and the commit receives the tag. If a run stops, call the function again: files that are already
    on the Hub are not sent again.

    Returns:
        A Publication, or None after a dry run or if `confirm` returns False.

    Raises:
        UserError: The dataset cannot be published, or the Hub refuses it.
        RunFailure: The Hub or the network fails and retries do not help.
    """
    directory = named_path(given.directory)
    if (directory / CONFIG).is_file() and not (directory / LOCK).exists():
        raise UserError(f"{directory} holds a model, not a dataset", "Publish it with --model.")
    tell = given.tell or (lambda line: None)
    patience = given.patience or PATIENCE
    settle_directory(directory)
    # The lock keeps others from building or cutting there meanwhile; a read-only directory is safe
    # anyway.
    lockable = (directory / LOCK).is_file() and os.access(directory, os.W_OK)
    with contextlib.ExitStack() as kept:
        kept.enter_context(directory_lock(directory) if lockable else contextlib.nullcontext())
        kept.enter_context(attentive_client(patience))
        dataset = read_dataset(directory, "receipts").finished()
        recipe = dataset.recipe
        images = sum(receipt.rows["data"] for receipt in dataset.receipts)
        few = preview_images(recipe, dataset.receipts)
        if few is not None:
            raise UserError(
                f"{directory} is a preview of {few:,} images a shift, which is not published",
                "Build the recipe without --limit (samples.limit: null) into another folder, and"
                " publish that.",
            )
        repo = given.repo or recipe.publish.repo
        if repo is None:
            raise UserError(
                "no repository is named, and the recipe has no publish.repo",
                "Name one: counterfoil publish DIR USER/NAME",
            )
        repo = checked_repository(repo)
        progress.report_event(Sending("verifying", 0, 0, 0, 0))
        report = verify(directory)
        if report.problems:
            lines = [f"{directory} is damaged, so nothing was sent:"]
            lines += map(str, report.problems[:20])
            repairs = list(dict.fromkeys(problem.repair for problem in report.problems))
            raise RunFailure(lines, " ".join(repairs[:3]))
        local = local_files(directory, report.manifest_sha256)
        if given.public is None and not recipe.publish.private:
            given = replace(given, public=True)
        remote = Remote(repo, tell, patience)
        user = "" if given.dry_run else remote.user()
        beside = Path(kept.enter_context(tempfile.TemporaryDirectory()))
        ahead, local = preview_sending(remote, local, given, images, beside)
        card = whole_content(local[CARD]).decode()
        if not given.dry_run:
            remote.check_card(card)
        confirmed = given.confirm is None or given.confirm(ahead)
        if given.dry_run or not confirmed:
            return None
        message = f"{recipe.name}: {format_count(images, 'image')}"
        metadata: Mapping[str, Any] = DatasetCard(card).data.to_dict()
        configs = {}
        for config in metadata.get("configs") or ():
            configs[config["config_name"]] = config["data_files"][0]["split"]
        sender = Sender(remote, user, local, ahead, message, given.files_per_commit)
        done, pull_request = sender.carry_out(
            lambda commit: _load_a_row_of_each(remote, commit, configs)
        )
    return Publication(
        **done,
        pull_request=pull_request if given.create_pr else None,
        configs_loaded=len(configs),
    )


def _load_a_row_of_each(remote: Remote, revision: str, configs: Mapping[str, str]) -> None:
    """Stream one row of every config from the Hub, from the split of each. RunFailure if a config
    does not load."""
    import datasets
    import httpx2

    datasets.disable_progress_bars()
    network = (
        HfHubHTTPError,
        OfflineModeIsEnabled,
        httpx2.HTTPError,
        ConnectionError,
        TimeoutError,
    )

    def load(config: str, split: str) -> None:
        try:
            rows = datasets.load_dataset(
                remote.repo,
                config,
                split=split,
                revision=revision,
                streaming=True,
            )
            next(iter(rows))
        except network:
            raise
        except Exception as error:  # of any reader: missing files, wrong features, broken images
            reason = " ".join(str(error).split())[:300]
            raise RunFailure(
                f"{remote.repo}: config '{config}' was published but does not load: {reason}",
                "Check the directory with `counterfoil verify`, and publish again.",
            ) from error

    for config, split in configs.items():
        with_retries(
            partial(load, config, split),
            f"loading {config} back",
            tell=remote.tell,
            patience=remote.patience,
        )
