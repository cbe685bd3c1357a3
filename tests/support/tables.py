"""Datasets of images and columns, as `datasets` saves them and files of predictions hold them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets


def image_table(images: Sequence[bytes | None], *, names: Sequence[str] | None = None, **columns: Any) -> Any:
    """A `datasets.Dataset` of encoded images with these columns; `names` are those of its labels."""
    cells = {"image": [one if one is None else {"bytes": one, "path": None} for one in images], **columns}
    table = datasets.Dataset.from_dict(cells).cast_column("image", datasets.Image())
    return table if names is None else table.cast_column("label", datasets.ClassLabel(names=list(names)))


def as_parquet(table: Any) -> bytes:
    """A table as one Parquet file."""
    with io.BytesIO() as stream:
        table.to_parquet(stream)
        return stream.getvalue()


def parquet_folder(place: Path, **splits: Any) -> Path:
    """A folder of Parquet files, one a split."""
    place.mkdir(parents=True, exist_ok=True)
    for split, table in splits.items():
        table.to_parquet(str(place / f"{split}.parquet"))
    return place
