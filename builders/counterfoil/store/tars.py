"""WebDataset shards: `{key}.png`, `{key}.cls` and `{key}.json` side by side, with no clock or user in them.

A table without images (`candidates`) has only `.cls` and `.json`, since one repository has one format.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from counterfoil.store.atomic import HashedFile
from counterfoil.store.documents import parse_document

# Nothing is ever written under these names; reading is stricter than readers elsewhere, which other names may lead out.
_MEMBER = re.compile(r"(?P<key>[A-Za-z0-9_-]+)\.(?P<suffix>cls|json|png|jpg|webp)")
# A label as it is written; Python's own reading of numbers also takes "1_0" and the digits of other scripts.
_LABEL = re.compile(rb"0|[1-9][0-9]{0,17}")
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
    """The names of the columns of a shard. ValueError for a file without a row."""
    first = next(_rows(path), None)
    if first is None:
        raise ValueError("it has no row")
    return list(first)


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
    """The rows one by one. ValueError for members that are not written; what tarfile raises for a damaged file."""
    members: dict[str, bytes] = {}
    key = None
    size = path.stat().st_size
    with tarfile.open(path, "r:") as tar:
        for member in tar:
            name = _MEMBER.fullmatch(member.name)
            if name is None or not member.isreg() or member.issparse():
                raise ValueError(f"it has a member {member.name[:80]!r}, expected files KEY.cls, KEY.json, KEY.png …")
            if member.offset_data + member.size > size:  # before that much is asked for
                raise ValueError(f"it ends within {member.name[:80]}")
            if name["key"] != key and members:
                yield _row(members)
                members = {}
            key = name["key"]
            stream = tar.extractfile(member)
            assert stream is not None  # it is a file
            members[name["suffix"]] = stream.read()
    if members:
        yield _row(members)


def _row(members: dict[str, bytes]) -> dict[str, Any]:
    described = parse_document(members["json"])
    if not isinstance(described, dict) or not isinstance(described.get("key"), str):
        raise ValueError("it has a row whose .json does not tell its key")
    row = {"key": described.pop("key")}
    for suffix, content in members.items():
        if suffix not in ("cls", "json"):
            row["image"] = {"bytes": content, "path": f"{row['key']}.{suffix}"}
    if not _LABEL.fullmatch(members["cls"]):
        raise ValueError(f"it has a row whose .cls is {members['cls'][:20]!r}, expected the number of a class")
    row["label"] = int(members["cls"])
    return {**row, **described}
