"""Reading a dataset directory back, from Parquet or tar files alike, in the plan's order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.errors import RunFailure, UserError
from counterfoil.store.layout import LOCK, What, receipt_path
from counterfoil.store.lock import read_lock
from counterfoil.store.receipts import Receipt, StoredFile, finished_shards, read_receipt, repair_hint

if TYPE_CHECKING:
    import pyarrow as pa


def read_receipts(directory: Path | str) -> list[Receipt]:
    """The receipts of a dataset directory in the plan's order. UserError where there is no dataset."""
    directory = Path(directory)
    place = {group: number for number, group in enumerate(_groups(directory))}
    shards = [shard for shard in finished_shards(directory) if shard[0] in place]
    ordered = sorted(shards, key=lambda shard: (place[shard[0]], shard[1]))
    return [read_receipt(directory / receipt_path(group, number)) for group, number in ordered]


def read_batches(
    directory: Path | str,
    columns: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    what: What = "data",
) -> Iterator[pa.RecordBatch]:
    """The rows of every finished shard as Arrow batches of bounded size.

    `image` is a struct of encoded bytes and path. ValueError for a column that the table does not have.
    """
    for path in _files(Path(directory), groups, what):
        yield from _batches(path, columns, what)


def read_rows(
    directory: Path | str,
    columns: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    what: What = "data",
) -> Iterator[dict[str, Any]]:
    """The same rows as dicts, one by one; `image` is {"bytes", "path"}, `label` a number."""
    for batch in read_batches(directory, columns, groups, what):
        yield from batch.to_pylist()


def read_shard(
    directory: Path | str, receipt: Receipt, columns: Sequence[str] | None = None, what: What = "data"
) -> Iterator[dict[str, Any]]:
    """The rows of one finished shard as dicts, in order; none where it has no file of this kind."""
    file = receipt.file(what)
    if file is not None:
        for batch in _batches(_stored(Path(directory), receipt, file), columns, what):
            yield from batch.to_pylist()


def read_file(path: Path, what: What, columns: Sequence[str] | None = None) -> Iterator[list[dict[str, Any]]]:
    """The rows of one shard's file as dicts, in lists of bounded size. A damaged file raises what its reader raises."""
    for batch in _batches(path, columns, what):
        yield batch.to_pylist()


def _batches(path: Path, columns: Sequence[str] | None, what: What) -> Iterator[pa.RecordBatch]:
    if path.suffix == ".tar":
        yield from _tar_batches(path, columns, what)
    else:
        from counterfoil.store.parquet import parquet_columns, read_parquet

        _check_columns(path, columns, parquet_columns(path))
        yield from read_parquet(path, columns)


def _groups(directory: Path) -> list[str]:
    """The groups of the plan, in its order. UserError where there is no dataset."""
    lock = read_lock(directory)
    if lock is None:
        raise no_dataset(directory)
    return list(lock.groups)


def no_dataset(directory: Path) -> UserError:
    """What is said of a folder without a lock."""
    return UserError(
        f"{directory} is not a Counterfoil dataset: it has no {LOCK}",
        hint="Name the folder that was given to `counterfoil build --out`.",
    )


def _files(directory: Path, groups: Sequence[str] | None, what: What) -> Iterator[Path]:
    known = _groups(directory)
    for group in groups or ():
        if group not in known:
            raise UserError(f"{directory} has no group '{group}'", hint=f"It has: {', '.join(known)}.")
    for receipt in read_receipts(directory):
        file = receipt.file(what)
        if file is None or (groups is not None and receipt.group not in groups):
            continue
        yield _stored(directory, receipt, file)


def _stored(directory: Path, receipt: Receipt, file: StoredFile) -> Path:
    path = directory / file.path
    if not path.is_file():
        raise RunFailure(
            f"{path} is missing, though {receipt.path} lists it",
            hint=repair_hint(directory),
        )
    return path


def _tar_batches(path: Path, columns: Sequence[str] | None, what: What) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from counterfoil.store.rows import plain_schema
    from counterfoil.store.tars import read_tar, tar_columns

    available = tar_columns(path)
    _check_columns(path, columns, available)
    schema = plain_schema(what, "embedding" in available)
    schema = pa.schema([schema.field(name) for name in columns or schema.names])
    for rows in read_tar(path):
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _check_columns(path: Path, columns: Sequence[str] | None, available: Sequence[str]) -> None:
    unknown = [name for name in columns or () if name not in available]
    if unknown:
        raise ValueError(f"{path} has no column {', '.join(unknown)}; it has {', '.join(available)}")
