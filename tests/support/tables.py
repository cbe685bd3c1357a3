"""Datasets of images and columns, as `datasets` saves them and files of predictions hold them."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

from counterfoil.data.labelled_sources import NamedDataset, labelled_source


def image_table(
    images: Sequence[bytes | None], *, names: Sequence[str] | None = None, **columns: Any
) -> Any:
    """Return a `datasets.Dataset` of encoded images with these columns; `names` are those of its
    labels."""
    cells = {
        "image": [image if image is None else {"bytes": image, "path": None} for image in images],
        **columns,
    }
    table = datasets.Dataset.from_dict(cells).cast_column("image", datasets.Image())
    return (
        table
        if names is None
        else table.cast_column("label", datasets.ClassLabel(names=list(names)))
    )


def as_parquet(table: Any) -> bytes:
    with io.BytesIO() as stream:
        table.to_parquet(stream)
        return stream.getvalue()


def parquet_folder(folder: Path, **splits: Any) -> Path:
    """Write a folder of Parquet files, one a split."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, table in splits.items():
        table.to_parquet(str(folder / f"{split}.parquet"))
    return folder


def csv_rows(source: Path | str) -> list[dict[str, str]]:
    text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source
    return list(csv.DictReader(io.StringIO(text, newline="")))


def with_value(name: str, row: int, value: object) -> Callable[[pa.Table], pa.Table]:
    """Return a change of a table: another value in one row of a column."""

    def change(table: pa.Table) -> pa.Table:
        values = table[name].to_pylist()
        at = table.schema.get_field_index(name)
        values[row] = value
        return table.set_column(
            at, table.schema.field(name), pa.array(values, table.schema.field(name).type)
        )

    return change


def rewrite(
    folder: Path, change: Callable[[pa.Table], pa.Table], receipt: Path | None = None
) -> None:
    """Change the table of the first shard in a folder and its `receipt` with it, as a forger
    would."""
    path = min(folder.iterdir())
    table = change(pq.read_table(path))
    pq.write_table(table, path)
    if receipt is not None:
        document = json.loads(receipt.read_text())
        content = path.read_bytes()
        for file in document["files"]:
            if path.as_posix().endswith(file["path"]):
                file.update(
                    size=len(content),
                    sha256=hashlib.sha256(content).hexdigest(),
                    rows=table.num_rows,
                )
        receipt.write_text(json.dumps(document))


def classes_by_path(folder: Path, split: str | None = None) -> dict[str, str]:
    """Return the class of each path as `evaluate` reads it; a repeated path fails."""
    images = labelled_source(NamedDataset(str(folder), split))
    assert images.paths is not None and images.class_names is not None
    assert len(set(images.paths)) == len(images.paths) == len(images.labels)
    return {
        path: images.class_names[label]
        for path, label in zip(images.paths, images.labels, strict=True)
    }
