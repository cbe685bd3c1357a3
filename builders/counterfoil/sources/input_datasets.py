"""Read an input dataset by the recipe's `source:` key: the lab's wardrobe, or anything `datasets` reads.

A Hub id, a folder saved by `datasets`, a folder of Parquet files, an image folder or WebDataset shards:
all give a `SourceSplit` of labels and images.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil.errors import RunFailure, UserError
from counterfoil.models.names import LAB, refuse_elsewhere, refuse_shadowed
from counterfoil.recipe.layering import is_local

if TYPE_CHECKING:
    from PIL import Image

    from counterfoil.recipe import Source

LAB_DATASETS = ("wardrobe",)
# What Pillow itself takes without a warning: photographs may be larger than what is rendered, and come one by one.
MOST_PIXELS = 89_478_485


@dataclass(frozen=True, slots=True)
class SourceSplit:
    """One split: `labels` int64 [n] are the input dataset's own; `image(row)` decodes one image as RGB."""

    name: str
    labels: np.ndarray
    image: Callable[[int], Image.Image]

    def rows_of(self, source_label: int) -> np.ndarray:
        """Rows of one class, in order."""
        return np.flatnonzero(self.labels == source_label)


@dataclass(frozen=True, slots=True)
class SourcePin:
    """What pins an input dataset: its revision or fingerprint, and its licence where it tells one."""

    dataset: str
    revision: str | None
    license: str | None


def pin_source(source: Source) -> SourcePin:
    """Pin without reading images. A Hub dataset by commit where the Hub answers."""
    if source.dataset.startswith(LAB):
        from counterfoil.lab.wardrobe import VERSION

        _lab_dataset(source.dataset)
        return SourcePin(source.dataset, VERSION, "mit")
    if is_local(source.dataset):
        # By its last part, here or gone: a build with resolved thresholds resumes without its input dataset.
        return SourcePin(Path(source.dataset).name, None, None)
    from huggingface_hub import HfApi
    from huggingface_hub import errors as hub

    try:
        info = HfApi().dataset_info(source.dataset, revision=source.revision)
    except (hub.HfHubHTTPError, hub.OfflineModeIsEnabled, hub.HFValidationError, OSError):
        # The name alone pins nothing; loading says what is wrong, if anything needs the images.
        return SourcePin(source.dataset, source.revision, None)
    licence = getattr(info.card_data, "license", None) if info.card_data else None
    return SourcePin(source.dataset, info.sha, licence if isinstance(licence, str) else None)


def load_source(source: Source, split: str) -> SourceSplit:
    """Read a split. UserError for a dataset, split or column that is not there; RunFailure without network."""
    if source.dataset.startswith(LAB):
        return _load_lab(source.dataset, split)
    refuse_elsewhere(source.dataset, "source.dataset")
    if not is_local(source.dataset):
        _refuse_no_dataset(source.dataset)
    table = _load_table(source, split)
    return _as_split(source, split, table)


def _lab_dataset(name: str) -> str:
    short = name.removeprefix(LAB)
    if short not in LAB_DATASETS:
        raise UserError(f"source.dataset: the lab has no '{short}'", "Its dataset is lab:wardrobe.")
    return short


def _refuse_no_dataset(name: str) -> None:
    """UserError for a name that `datasets` would take for one of its loaders or for a folder, not for the Hub's."""
    from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES

    if name in _PACKAGED_DATASETS_MODULES:
        raise UserError(
            f"source.dataset: '{name}' is a loader of files, not a dataset", "Name the folder of the files: ./…"
        )
    refuse_shadowed(name, "source.dataset")


def _load_lab(name: str, split: str) -> SourceSplit:
    from PIL import Image

    from counterfoil.lab.wardrobe import SPLITS, load_wardrobe

    _lab_dataset(name)
    if split not in SPLITS:
        raise UserError(f"source: {name} has no split '{split}'", f"Its splits are {', '.join(SPLITS)}.")
    labels, pixels = load_wardrobe(split)
    return SourceSplit(f"{name}/{split}", labels, lambda row: Image.fromarray(pixels(row)))


def _load_table(source: Source, split: str) -> Any:
    import datasets
    from huggingface_hub import errors as hub

    datasets.disable_progress_bars()
    path = Path(source.dataset)
    try:
        if path.is_dir() and any((path / n).is_file() for n in ("state.json", "dataset_dict.json")):
            loaded = datasets.load_from_disk(str(path))
            return loaded[split] if isinstance(loaded, datasets.DatasetDict) else loaded
        return datasets.load_dataset(source.dataset, source.config, split=split, revision=source.revision)
    except (KeyError, ValueError, FileNotFoundError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"source: '{source.dataset}', split '{split}' cannot be read: {reason}",
            "Correct source.dataset, source.config or the split in the recipe.",
        ) from error
    except (hub.OfflineModeIsEnabled, hub.HfHubHTTPError, ConnectionError, OSError) as error:
        raise RunFailure(
            f"source: '{source.dataset}' is not here and the Hub cannot be reached",
            "Connect once to fetch it, or name a local folder.",
        ) from error


def _as_split(source: Source, split: str, table: Any) -> SourceSplit:
    import datasets

    missing = [c for c in (source.image_column, source.label_column) if c not in table.column_names]
    if missing:
        raise UserError(
            [f"source: '{source.dataset}' has no column '{c}'" for c in missing],
            f"Its columns are {', '.join(table.column_names)}; set source.image_column and source.label_column.",
        )
    labels = np.asarray(table.with_format(None)[source.label_column][:])
    if labels.dtype.kind not in "iu":
        raise UserError(f"source.label_column: '{source.label_column}' holds {labels.dtype}, expected integer labels")
    pictures = table.select_columns([source.image_column]).cast_column(
        source.image_column, datasets.Image(decode=False)
    )

    def image(row: int) -> Image.Image:
        return _decode(pictures[int(row)][source.image_column], f"{source.dataset}, split {split}, row {row}")

    return SourceSplit(f"{source.dataset}/{split}", labels.astype(np.int64), image)


def _decode(cell: Any, place: str) -> Image.Image:
    from PIL import Image

    try:
        stream = io.BytesIO(cell["bytes"]) if cell.get("bytes") else cell["path"]
        with Image.open(stream) as picture:
            width, height = picture.size
            if width * height > MOST_PIXELS:
                raise ValueError(f"it has {width}×{height} pixels, expected at most {MOST_PIXELS:,}")
            return picture.convert("RGB")
    except Exception as error:  # whatever a file of any content makes a decoder raise
        raise UserError(
            f"source: {place}: unreadable image ({error})",
            "Remove or replace this row of the input dataset.",
        ) from error
