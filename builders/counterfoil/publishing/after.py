"""After a publication: every remote file compared with the directory, and one row of every config loaded from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from counterfoil.errors import RunFailure
from counterfoil.hub.retries import PATIENCE, Patience, with_retries
from counterfoil.publishing.contents import changes_between, is_of_a_dataset

if TYPE_CHECKING:
    from counterfoil.publishing.files import LocalFile
    from counterfoil.publishing.remote import Branch


def refuse_differences(
    repo: str, local: Mapping[str, LocalFile], branch: Branch, owns: Callable[[str], bool] = is_of_a_dataset
) -> None:
    """RunFailure where a file of the branch is not the directory's, by size and sha256, or one is missing or more."""
    changes = changes_between(local, branch.files, owns)
    problems = [f"{file.path} is missing there" for file in changes.added]
    problems += [f"{file.path} is another there: its size or sha256 differs" for file in changes.replaced]
    problems += [f"{path} should not be there" for path in changes.deleted]
    if problems:
        raise RunFailure(
            [f"{repo} at {branch.head[:12]} is not the directory:", *problems[:20]],
            "Somebody else may have published meanwhile. Run the same command again: it sends what differs.",
        )


def declared_splits(card: str) -> list[tuple[str, str]]:
    """(config, split) of every config that the text of a card declares, with its first split."""
    from huggingface_hub import DatasetCard

    configs: Sequence[Mapping[str, Any]] = DatasetCard(card).data.to_dict().get("configs") or ()
    return [(config["config_name"], config["data_files"][0]["split"]) for config in configs]


def load_a_row_of_each(
    repo: str,
    revision: str,
    configs: Sequence[tuple[str, str]],
    tell: Callable[[str], None],
    patience: Patience = PATIENCE,
) -> int:
    """Load one row of every config from the Hub, streaming; how many were loaded. RunFailure where one does not."""
    import datasets
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    datasets.disable_progress_bars()
    network = (HfHubHTTPError, OfflineModeIsEnabled, httpx2.HTTPError, ConnectionError, TimeoutError)

    def load(config: str, split: str) -> None:
        try:
            rows = datasets.load_dataset(repo, config, split=split, revision=revision, streaming=True)
            next(iter(rows))
        except network:
            raise
        except Exception as error:  # whatever a reader meets: missing files, wrong features, broken images
            raise RunFailure(
                f"{repo}: config '{config}' was published and does not load: {' '.join(str(error).split())[:300]}",
                "Verify the directory with `counterfoil verify`, and publish again.",
            ) from error

    for config, split in configs:
        with_retries(lambda c=config, s=split: load(c, s), f"loading {config} back", tell=tell, patience=patience)
    return len(configs)
