"""`counterfoil publish`: send a finished dataset directory or a model to the Hub, after a
preview."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from counterfoil.cli.options import Agreed, Given, with_options
from counterfoil.cli.progress import Display
from counterfoil.cli.terminal import (
    confirmed,
    fields_of,
    make_console,
    next_command,
    print_json,
    print_note,
    print_plain,
)
from counterfoil.errors import UserError
from counterfoil.publishing.options import PublishModelCommand, PublishModelOptions, PublishOptions

if TYPE_CHECKING:
    from rich.progress import TaskID

    from counterfoil.publishing.publish_dataset import Publication
    from counterfoil.publishing.publish_model import PublishedModel
    from counterfoil.publishing.sending import Preview

MOST_KEPT = 5


@with_options(
    "counterfoil publish out/wardrobe-mini someone/wardrobe-mini --tag v1.0",
    PublishOptions,
    PublishModelCommand,
    Agreed,
)
def publish(given: Given) -> None:
    """Publish a dataset, or with --model a model, to the Hugging Face Hub. Run again to resume.

    Verifies it first, sends it in one commit, then compares every remote file and loads a row of
    each config.
    """
    dataset = given.get("DIR")
    dry_run = given.get("--dry-run")
    model = given.get("--model")
    if model:
        given.made(PublishModelCommand, "--model", "publishes a model in one commit", "--yes")
    problems = []
    if dry_run and given.json:
        problems.append("--dry-run prints for people, so it takes no --json")
    if not model and "--license" in given.others():
        problems.append("--license needs --model: a dataset's licence is in its recipe")
    if problems:
        raise UserError(problems)
    print_note(f"{dataset}: loading libraries and verifying")
    from counterfoil.publishing.publish_dataset import Publication, publish
    from counterfoil.publishing.publish_model import publish_model

    def confirm(ahead: Preview) -> bool:
        if dry_run:
            bar.paused(lambda: _print_dry_run(dataset, ahead))
            return False
        return bar.paused(lambda: _confirmed(ahead, given.get("--yes")))

    done: Publication | PublishedModel | None
    with _Bar() as bar:
        if model:
            done = publish_model(
                **vars(given.made(PublishModelOptions, confirm=confirm, tell=print_note))
            )
        else:
            done = publish(**vars(given.made(PublishOptions, confirm=confirm, tell=print_note)))
    if dry_run:
        return
    if done is None:
        print_note("Nothing was sent.")
        raise typer.Exit(1)
    if given.json:
        print_json(_as_json(done))
    else:
        console = make_console(120)
        where = f"{done.branch}, commit {done.commit[:12]}"
        what = "model"
        if isinstance(done, Publication):
            what = "directory"
            where = f"pull request {done.pull_request}" if done.pull_request else where
        if done.files_changed:
            console.print(
                f"Published {done.files_changed:,} changed files of {done.files:,}: {where}.",
                highlight=False,
            )
        else:
            console.print(f"Nothing to publish: {where} equals the {what}.", highlight=False)
        address = f"{done.url} ({'private' if done.private else 'public'})"
        if isinstance(done, Publication):
            read = f"one row of each of {done.configs_loaded} configs was loaded"
            print_plain(console, f"Every remote file was compared, and {read}.\n{address}")
            next_command("counterfoil", "verify", done.repo)
        else:
            print_plain(console, address)
            print_note(f"Then: counterfoil evaluate DATASET --models hf-hub:{done.repo}")


def _confirmed(ahead: Preview, yes: bool) -> bool:
    for line in preview_lines(ahead):
        print_note(line)
    if yes:
        return True
    unasked = "publish asks before it sends, and there is no terminal to ask on"
    return confirmed("Publish?", unasked, "Pass -y to publish without asking.")


def preview_lines(ahead: Preview) -> list[str]:
    from rich.filesize import decimal

    changes = ahead.changes
    visibility = "private" if ahead.private else "public"
    if ahead.becomes_public:
        visibility = "private, becomes public at the end"
    what = "a model" if ahead.images is None else f"{ahead.images:,} images"
    state = {None: "the Hub was not asked", True: "exists", False: "new"}[ahead.exists]
    lines = [
        f"{ahead.repo} ({state}, {visibility}), branch {ahead.branch}",
        f"  {what} in {ahead.files:,} files, {decimal(ahead.bytes)} of them to send",
        f"  {len(changes.added):,} files added, {len(changes.replaced):,} replaced,"
        f" {len(changes.deleted):,} deleted, {changes.same:,} unchanged",
    ]
    if ahead.stays_open:
        lines.append("  a pull request, which stays open")
    elif ahead.through_pull_request:
        lines.append("  1 commit, through a pull request that is merged at the end")
    else:
        lines.append(f"  {ahead.commits} commit{'s' if ahead.commits != 1 else ''}")
    if ahead.tag:
        lines[-1] += f", then the tag {ahead.tag}"
    lines += [f"  {line}" for line in ahead.card_notes]
    if changes.kept:
        whose = "the model's" if ahead.images is None else "the dataset's"
        shown = ", ".join(changes.kept[:MOST_KEPT])
        if len(changes.kept) > MOST_KEPT:
            shown += " …"
        lines.append(f"  files there that are not {whose} are kept: {shown}")
    return lines


def _print_dry_run(directory: Path, ahead: Preview) -> None:
    from rich.filesize import decimal

    from counterfoil.store.layout import CARD

    console = make_console(120)
    for line in preview_lines(ahead):
        print_plain(console, line)
    folders: dict[str, list[int]] = {}
    for file in ahead.changes.sent:
        folder, slash, _ = file.path.partition("/")
        folders.setdefault(folder + slash, []).append(file.size)
    width = max(len(folder) for folder in folders)
    for folder, sizes in sorted(folders.items()):
        count = f"{len(sizes):,} files" if folder.endswith("/") else "1 file"
        print_plain(console, f"  {folder:{width}}  {count:>12}  {decimal(sum(sizes)):>9}")
    print_plain(console, f"The card is {directory / CARD}. Nothing was sent.")


class _Bar(Display):
    def __init__(self) -> None:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TransferSpeedColumn,
        )

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
        )
        self.live = Progress(*columns, console=make_console(stderr=True), transient=True)
        self._task: TaskID | None = None

    def paused(self, ask: Any) -> Any:
        self.live.stop()
        try:
            return ask()
        finally:
            self.live.start()

    def draw(self, sending: Any) -> None:
        from counterfoil.publishing.sending import Sending

        if not isinstance(sending, Sending) or not self.live.console.is_terminal:
            return
        if self._task is None:
            self._task = self.live.add_task(sending.stage, total=None)
        self.live.update(
            self._task,
            description=f"{sending.stage} ({sending.files_done:,} of {sending.files:,} files)",
            completed=sending.bytes_done,
            total=sending.bytes or None,
        )


def _as_json(done: Publication | PublishedModel) -> dict[str, Any]:
    from counterfoil.publishing.publish_dataset import Publication

    changes = done.preview.changes
    names = [
        "repo",
        "url",
        "branch",
        "commit",
        "commits",
        "private",
        "tag",
    ]
    if isinstance(done, Publication):
        names.append("pull_request")
        more = fields_of(done, "configs_loaded")
    else:
        more = fields_of(
            done.metadata,
            "license",
            "base_model",
            "datasets",
        )
    return {
        **fields_of(done, *names),
        "files": done.files,
        "added": len(changes.added),
        "replaced": len(changes.replaced),
        "deleted": len(changes.deleted),
        "kept": changes.kept,
        "bytes": done.bytes_changed,
        **more,
    }
