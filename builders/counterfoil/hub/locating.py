"""Where a dataset's directory is: the folder that a name is, or what the Hub's client keeps of a published one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from counterfoil.errors import RunFailure, UserError
from counterfoil.hub.references import DatasetReference
from counterfoil.hub.retries import without_secrets
from counterfoil.regular_files import named_path


@dataclass(frozen=True, slots=True)
class LocatedDataset:
    """A directory on this machine; `reference` tells the published dataset that it is a copy of.

    A copy belongs to the Hub client's cache: it is read, never written to.
    """

    directory: Path
    reference: DatasetReference | None = None


def locate_dataset(source: str | Path, patterns: Sequence[str] | None = None) -> LocatedDataset:
    """The directory of a path or of `user/name[@revision]`, fetched from the Hub where it is not here yet.

    `patterns` are globs of the files wanted of a published dataset; None is all. Raises UserError where there
    is no such dataset, RunFailure where the Hub cannot be reached.
    """
    source = str(source)
    directory = named_path(source)
    if directory.is_dir():
        return LocatedDataset(directory)
    if directory.exists():
        raise UserError(f"{source} is a file; a dataset is a directory", "Name the folder given to `build --out`.")
    reference = DatasetReference.parse(source)
    if reference is None:
        raise UserError(f"there is no dataset {source}", "Name a folder made by `counterfoil build`, or user/name.")
    return LocatedDataset(_fetched(reference, patterns), reference)


def _fetched(reference: DatasetReference, patterns: Sequence[str] | None) -> Path:
    import httpx2
    from huggingface_hub import errors, snapshot_download

    wanted = None if patterns is None else list(patterns)
    try:
        folder = snapshot_download(
            reference.repo, repo_type="dataset", revision=reference.revision, allow_patterns=wanted
        )
    except errors.HFValidationError as error:
        raise UserError(f"'{reference}' is no name of a dataset on the Hub: {error}", "Expected user/name.") from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise UserError(
            f"there is no folder {reference}, and no such dataset on the Hub (or it is private)",
            "Check the name, or run `hf auth login`.",
        ) from error
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled) as error:
        raise RunFailure(
            f"there is no folder {reference}; on the Hub, which cannot be reached now, it was never fetched",
            "Check the path, or connect and run the same command again.",
        ) from error
    except (errors.HfHubHTTPError, httpx2.HTTPError, OSError, RuntimeError) as error:
        said = without_secrets(str(error)) or type(error).__name__
        raise RunFailure(
            f"{reference} could not be fetched from the Hub: {said}", "Run the same command again: it goes on."
        ) from error
    return Path(folder)
