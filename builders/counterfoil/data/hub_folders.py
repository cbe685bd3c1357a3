"""Folders of image files on the Hub: the list of their files, and the files, fetched into the Hub
client's cache.

A commit never changes, so its list of files is remembered, and a fetched folder is read without the
Hub. Files are then read by the same rules as those of a folder here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from pathlib import Path, PurePosixPath

from counterfoil.data.folder_cards import CARD, INFOS, SETTINGS
from counterfoil.data.hub import fetch_dataset_files
from counterfoil.data.image_folders import lists_images
from counterfoil.data.messages import failure
from counterfoil.data.pins import InputDataset, SourcePin, commit_file, prepared_folders
from counterfoil.documents import parse_json
from counterfoil.errors import CounterfoilError
from counterfoil.models.names import COMMIT
from counterfoil.regular_files import read_regular
from counterfoil.store.atomic import write_atomically
from counterfoil.store.decoding import PHOTOGRAPH_ENDINGS
from counterfoil.store.inside import Listing
from counterfoil.store.layout import user_cache

_MOST_BYTES = 1 << 30
# Archives and tables that a folder of image files does not need.
_NOT_FETCHED = (
    "*.zip",
    "*.tar",
    "*.gz",
    "*.tgz",
    "*.zst",
    "*.arrow",
    "*.h5",
    "*.safetensors",
    "*.bin",
    "*.pt",
)
_FOLDERS = "imagefolder"


def listed_images(source: InputDataset, pin: SourcePin) -> tuple[Path, Listing] | None:
    """Return the folder and the list of files of a dataset whose rows are image files, and None for
    another dataset.

    Only descriptions are fetched. Raise RunFailure if the list of such a dataset is unknown and the
    Hub is unreachable.
    """
    commit = pin.revision
    if commit is None or not COMMIT.fullmatch(commit):
        return None
    names = listed_files(source.dataset, commit)
    if names is None:
        tables = [folder for folder in prepared_folders(source) if folder.name == commit]
        if any(made_of_files(folder) for folder in tables):
            raise failure("hub-unreachable.whole", f"source: '{source.dataset}'", commit)
        return None
    if not any(PurePosixPath(name).suffix.lower() in PHOTOGRAPH_ENDINGS for name in names):
        return None
    listing = Listing(names)
    folder = described_folder(source.dataset, commit)
    return (folder, listing) if lists_images(folder, listing, source.config) else None


def fetched_images(source: InputDataset, pin: SourcePin) -> tuple[Path, Listing] | None:
    """Return what `listed_images` returns, with every file fetched."""
    listed = listed_images(source, pin)
    if listed is None or pin.revision is None:
        return listed
    folder, listing = listed
    if not is_fetched(folder, listing):
        folder = fetch_dataset_files(source.dataset, pin.revision, without=_NOT_FETCHED)
        if not is_fetched(folder, listing):
            raise failure("hub-unreachable.whole", f"source: '{source.dataset}'", pin.revision)
    if source.revision is None:
        with contextlib.suppress(CounterfoilError, OSError):  # the cache is optional
            write_atomically(commit_file(source.dataset), pin.revision.encode())
    return folder, listing


def is_fetched(folder: Path, listing: Listing) -> bool:
    """Check whether every file of the list that is read is on this machine."""
    unread = tuple(pattern.removeprefix("*") for pattern in _NOT_FETCHED)
    return all(
        (folder / name).is_file() for name in listing.files if not name.lower().endswith(unread)
    )


def made_of_files(prepared: Path) -> bool:
    """Check whether `datasets` prepared a table from files of images. It reads folders by other
    rules."""
    with contextlib.suppress(OSError, ValueError):
        document = parse_json(read_regular(prepared / "dataset_info.json", _MOST_BYTES))
        return isinstance(document, dict) and document.get("builder_name") == _FOLDERS
    return False


def described_folder(repository: str, commit: str) -> Path:
    """Return a folder that has the descriptions of a commit."""
    return fetch_dataset_files(repository, commit, (CARD, SETTINGS, INFOS))


def listed_files(repository: str, commit: str) -> list[str] | None:
    """Return the names of all files of a commit, or None if they are unknown."""
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub import errors as hub

    key = hashlib.sha256(f"{repository}@{commit}".encode()).hexdigest()
    memory = user_cache() / "hub-files" / f"{key}.json"
    with contextlib.suppress(OSError, ValueError):
        remembered = parse_json(read_regular(memory, _MOST_BYTES))
        if isinstance(remembered, list) and all(isinstance(name, str) for name in remembered):
            return remembered
    try:
        names = sorted(HfApi().list_repo_files(repository, revision=commit, repo_type="dataset"))
    except (
        hub.HfHubHTTPError,
        hub.OfflineModeIsEnabled,
        hub.HFValidationError,
        httpx2.HTTPError,
        OSError,
    ):
        return None
    with contextlib.suppress(CounterfoilError, OSError):  # the cache is optional
        write_atomically(memory, json.dumps(names).encode())
    return names
