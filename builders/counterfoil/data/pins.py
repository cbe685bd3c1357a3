"""Pins of input datasets: a commit of the Hub, the content of a folder, the version of a lab
dataset.

If the present state of a dataset cannot be found out, the recorded pin is used. A build whose
inputs are settled therefore continues without its input dataset.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from counterfoil.data.folders import folder_content, remember_folder
from counterfoil.errors import CounterfoilError
from counterfoil.models.names import COMMIT
from counterfoil.recipe.names import ELSEWHERE, is_local
from counterfoil.regular_files import read_regular
from counterfoil.store.layout import user_cache

if TYPE_CHECKING:
    from counterfoil.data.labelled_sources import NamedDataset
    from counterfoil.recipe.schema_inputs import Source


# A recipe's `source`, or a dataset that a person names: where it is, and the names of its columns.
InputDataset: TypeAlias = "Source | NamedDataset"


def binary_columns(source: InputDataset) -> tuple[str, ...]:
    """Return the columns of 0 and 1 that hold a row's conditions; empty if a column of labels
    does."""
    return () if source.conditions is None else source.conditions.columns


@dataclass(frozen=True, slots=True)
class SourcePin:
    """The state of an input dataset. revision: a commit (Hub) or version (lab). content: the
    SHA-256 over a folder's files.
    """

    dataset: str
    revision: str | None
    license: str | None
    content: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the pin as lock.json and token files store it. Only folders have a content."""
        fields = asdict(self)
        if self.content is None:
            del fields["content"]
        return fields

    @classmethod
    def of(cls, document: Any) -> SourcePin | None:
        """Read the pin from a document, which may hold more keys. Return None if the document has
        another form."""
        if not isinstance(document, Mapping) or not isinstance(document.get("dataset"), str):
            return None
        values = [document.get(name) for name in ("revision", "license", "content")]
        if not all(isinstance(value, str | None) for value in values):
            return None
        return cls(document["dataset"], *values)


def take_pin(source: InputDataset, known: SourcePin | None) -> SourcePin:
    """Pin a folder or a Hub dataset in its present state, or return `known` if that state cannot be
    found out."""
    is_folder = is_local(source.dataset)
    folder = Path(source.dataset)
    name = folder.name if is_folder else source.dataset
    same = known if known is not None and known.dataset == name else None
    if not is_folder:
        return _pin_on_hub(source, same)
    # Early releases recorded no content. A folder that is gone, or is on another machine, cannot be
    # read.
    if same is not None and same.content is None:
        return same
    if source.dataset.startswith(ELSEWHERE) or not folder.is_dir():
        return same or SourcePin(name, None, None)
    content = folder_content(folder).sha256
    remember_folder(folder, content)
    # A folder with the same files under another name is the same input dataset.
    if known is not None and known.content == content:
        return known
    return SourcePin(name, None, None, content)


def _pin_on_hub(source: InputDataset, known: SourcePin | None) -> SourcePin:
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub import errors as hub

    try:
        info = HfApi().dataset_info(source.dataset, revision=source.revision)
    except (
        hub.HfHubHTTPError,
        hub.OfflineModeIsEnabled,
        hub.HFValidationError,
        httpx2.HTTPError,
        OSError,
    ):
        # Take the named, recorded or cached commit. If no commit is known, loading reports the
        # fault.
        named = source.revision if source.revision and COMMIT.fullmatch(source.revision) else None
        if known is not None and known.revision is not None and named in (None, known.revision):
            return known
        return SourcePin(source.dataset, named or cached_commit(source) or source.revision, None)
    if known is not None and known.revision == info.sha:
        return known
    licence = getattr(info.card_data, "license", None) if info.card_data else None
    return SourcePin(source.dataset, info.sha, licence if isinstance(licence, str) else None)


def cached_commit(source: InputDataset) -> str | None:
    """Return the commit that this machine's caches hold for a recipe's branch or tag, or None if
    they hold none."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    folder = Path(constants.HF_HUB_CACHE) / repo_folder_name(
        repo_id=source.dataset, repo_type="dataset"
    )
    try:
        reference = folder / "refs" / (source.revision or "main")
        commit = read_regular(reference, 100).decode().strip()
    except (OSError, UnicodeDecodeError):
        commit = ""
    if COMMIT.fullmatch(commit):
        return commit
    if source.revision is not None:
        return None
    prepared = [folder for folder in prepared_folders(source) if COMMIT.fullmatch(folder.name)]
    seconds = {folder.name: folder.stat().st_mtime for folder in prepared}
    with contextlib.suppress(OSError, CounterfoilError, UnicodeDecodeError):
        file = commit_file(source.dataset)
        commit = read_regular(file, 100).decode().strip()
        if COMMIT.fullmatch(commit):
            seconds[commit] = file.stat().st_mtime
    return max(seconds, key=lambda commit: seconds[commit]) if seconds else None


def commit_file(dataset: str) -> Path:
    """Return the file that remembers the commit of a Hub dataset whose files were fetched last."""
    return user_cache() / "hub-commits" / hashlib.sha256(dataset.encode()).hexdigest()


def prepared_folders(source: InputDataset) -> list[Path]:
    """List the complete tables of a Hub dataset that `datasets` keeps on this machine:
    …/CONFIG/VERSION/COMMIT."""
    from datasets import config
    from datasets.naming import camelcase_to_snakecase

    owner, _, name = source.dataset.rpartition("/")
    top = Path(config.HF_DATASETS_CACHE) / "___".join(
        filter(None, (owner, camelcase_to_snakecase(name)))
    )
    folders = [document.parent for document in sorted(top.glob("*/*/*/dataset_info.json"))]
    return [folder for folder in folders if source.config in (None, folder.parts[-3])]
