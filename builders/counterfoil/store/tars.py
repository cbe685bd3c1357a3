"""WebDataset shards: `{key}.png`, `{key}.cls` and `{key}.json` side by side, with no clock or user in them.

A table without images (`candidates`) has only `.cls` and `.json`, since one repository has one format.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from counterfoil.store.atomic import HashedFile

_ROWS_A_BATCH = 100  # with their images, as a row group of the Parquet files


def write_tar(file: HashedFile, rows: Sequence[dict[str, Any]]) -> None:
    """Write all rows of a shard; members of a row are adjacent, and keys hold no dot."""
    # webdataset imports torch (over a second), which only a process that renders should pay for.
    from webdataset.writer import TarWriter

    # PAX, because a plain USTAR header has no room for keys of over 100 characters; short ones look the same.
    with TarWriter(
        cast(BinaryIO, file),
        user="counterfoil",
        group="counterfoil",
        mode=0o644,
        mtime=0,
        encoder=False,
        format="PAX_FORMAT",
    ) as tar:
        for row in rows:
            tar.write(_members(row))


def read_tar(path: Path) -> Iterator[list[dict[str, Any]]]:
    """Lists of a shard's rows, in order, each row as a dict like those of the Parquet reader."""
    batch = []
    for row in _rows(path):
        batch.append(row)
        if len(batch) == _ROWS_A_BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def tar_columns(path: Path) -> list[str]:
    """The names of the columns of a shard."""
    return list(next(_rows(path)))


def _members(row: dict[str, Any]) -> dict[str, Any]:
    if "." in row["key"] or "/" in row["key"]:
        raise ValueError(f"{row['key']}: a dot or a slash in a key would split the sample's members")
    described = {name: _number(value) for name, value in row.items() if name not in ("image", "label")}
    members = {
        "__key__": row["key"],
        "cls": str(row["label"]).encode(),
        "json": json.dumps(described, ensure_ascii=False, allow_nan=False).encode(),
    }
    if "image" in row:
        suffix = row["image"]["path"].rpartition(".")[2]
        members[suffix] = row["image"]["bytes"]
    return members


def _number(value: Any) -> Any:
    """Floats as the shortest text that reads back to the same float32, which is what both formats keep."""
    import numpy as np

    if isinstance(value, float):
        return float(str(np.float32(value)))
    if isinstance(value, list):
        return [_number(item) for item in value]
    return value


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    members: dict[str, bytes] = {}
    key = None
    with tarfile.open(path, "r:") as tar:
        for member in tar:
            stream = tar.extractfile(member)
            if stream is None:
                continue
            stem, _, suffix = member.name.partition(".")
            if stem != key and members:
                yield _row(members)
                members = {}
            key = stem
            members[suffix] = stream.read()
    if members:
        yield _row(members)


def _row(members: dict[str, bytes]) -> dict[str, Any]:
    described = json.loads(members["json"])
    row = {"key": described.pop("key")}
    for suffix, content in members.items():
        if suffix not in ("cls", "json"):
            row["image"] = {"bytes": content, "path": f"{row['key']}.{suffix}"}
    row["label"] = int(members["cls"])
    return {**row, **described}
