"""The options of `publish` and `publish --model`, for the command and the functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.errors import UserError
from counterfoil.options import HUB, argument, in_python, option, options

if TYPE_CHECKING:
    from counterfoil.data.hub import Patience
    from counterfoil.publishing.sending import Preview

# The Hub recommends fewer files per commit, but each commit takes it about a minute.
FILES_PER_COMMIT = 100
# Names that git allows and people mean; the Hub would refuse others only after everything was sent.
_REFERENCE = re.compile(r"\w[\w./-]*")


def _is_reference(name: str) -> bool:
    is_spelled = _REFERENCE.fullmatch(name) is not None and ".." not in name
    return is_spelled and not name.endswith(("/", ".", ".lock"))


@options
class _Publication:
    public: bool | None = option(None, None, "--public/--private")
    """Who can see it. Default: what the recipe says, else private.

    An existing repository stays as it is."""
    revision: str | None = option(None, HUB)
    """Branch to publish to; created if missing.

    Default: main."""
    tag: str | None = option(None, HUB)
    """Tag of the new version, such as v1.0."""
    confirm: Callable[[Preview], bool] | None = in_python()
    """Receives the preview. If it returns False, nothing is published."""
    tell: Callable[[str], None] | None = in_python()
    """Receives one line for each wait."""
    patience: Patience | None = in_python()
    """How often and how long to retry."""


@options
class PublishOptions(_Publication):
    """What `publish` takes. UserError with everything that is wrong."""

    directory: str | Path = argument(metavar="DIR")
    """A complete dataset directory, or with --model a model's folder."""
    repo: str | None = argument(default=None, metavar="USER/NAME", key="publish.repo")
    create_pr: bool = option(False, HUB)
    """Open a pull request and do not merge it."""
    files_per_commit: int = option(FILES_PER_COMMIT, HUB, least=1)
    """Files per commit. If more differ, they go through a pull request.

    The commits are collected there, and it is merged last."""
    dry_run: bool = False
    """Verify and show what would be sent. Needs no token and no network."""

    def __post_init__(self) -> None:
        problems = []
        for flag, kind, name in (
            ("--revision", "branch", self.revision),
            ("--tag", "tag", self.tag),
        ):
            if name is not None and not _is_reference(name):
                problems.append(
                    f"{flag} is '{name}', which cannot name a {kind}: expected letters, digits"
                    " and . _ - /"
                )
        if self.create_pr and self.tag is not None:
            problems.append(
                "use --tag or --create-pr, not both: a tag marks a commit of the branch, and a pull"
                " request leaves that unchanged"
            )
        if problems:
            raise UserError(problems)


@options
class PublishModelOptions(_Publication):
    """What `publish_model` takes."""

    directory: str | Path = argument(metavar="DIR")
    """The model's folder."""
    repo: str = argument(metavar="USER/NAME")
    """The repository."""
    license: str | None = option(None)
    """With --model: its licence. Default: its card's, or its base model's.

    Else that of its configuration."""


@options
class PublishModelCommand(PublishModelOptions):
    """What `publish --model` takes."""

    model: bool = False
    """Publish a timm model's folder, such as DIR/model from mend."""
