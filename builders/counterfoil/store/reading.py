"""Read a dataset directory, from Parquet or tar files, in the plan's order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.errors import ProblemLine, RunFailure
from counterfoil.plan.layout import Plan, Shard, sample_key
from counterfoil.store.layout import What, receipt_path
from counterfoil.store.lock import read_lock
from counterfoil.store.messages import failure, message, refusal
from counterfoil.store.receipts import Receipt, finished_shards, read_receipt
from counterfoil.store.rows import PLAIN, REQUIRED, TableForm, table_columns

if TYPE_CHECKING:
    import pyarrow as pa


def read_receipts(directory: Path) -> list[Receipt]:
    """Read the receipts of a dataset directory in the plan's order. Raise UserError if the
    directory is not a dataset.
    """
    order = {group: position for position, group in enumerate(_groups(directory))}
    shards = [shard for shard in finished_shards(directory) if shard[0] in order]
    shards.sort(key=lambda shard: (order[shard[0]], shard[1]))
    return [read_receipt(directory / receipt_path(group, number)) for group, number in shards]


def read_batches(
    directory: Path | str,
    columns: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    what: What = "data",
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of every finished shard as Arrow batches of bounded size. Raise ValueError for
    an unknown column.
    """
    directory = Path(directory)
    known = _groups(directory)
    for group in groups or ():
        if group not in known:
            raise refusal("unknown-group", directory, group, known)
    for receipt in read_receipts(directory):
        if groups is None or receipt.group in groups:
            yield from shard_batches(directory, receipt, columns, what)


def read_rows(
    directory: Path | str,
    columns: Sequence[str] | None = None,
    groups: Sequence[str] | None = None,
    what: What = "data",
) -> Iterator[dict[str, Any]]:
    """Yield the rows of every finished shard as dicts. `image` is {"bytes", "path"}, and `label` is
    a number."""
    for batch in read_batches(directory, columns, groups, what):
        yield from batch.to_pylist()


def read_shard(
    directory: Path,
    receipt: Receipt,
    columns: Sequence[str] | None = None,
    what: What = "data",
    form: TableForm = PLAIN,
) -> Iterator[dict[str, Any]]:
    for batch in shard_batches(directory, receipt, columns, what, form):
        yield from batch.to_pylist()


def shard_batches(
    directory: Path,
    receipt: Receipt,
    columns: Sequence[str] | None = None,
    what: What = "data",
    form: TableForm = PLAIN,
) -> Iterator[pa.RecordBatch]:
    """Yield a shard's rows as Arrow batches of bounded size. Raise RunFailure for a missing file or
    a wrong number of rows.
    """
    file = receipt.file(what)
    rows = 0
    if file is None:
        return
    path = directory / file.path
    if not path.is_file():
        raise failure("damaged-shard.missing", path, receipt=receipt.path, directory=directory)
    for batch in _batches(path, columns, what, form):
        _refuse_odd_values(path, batch)
        rows += batch.num_rows
        if rows > file.rows:
            break
        yield batch
    if rows != file.rows:
        count = "more" if rows > file.rows else str(rows)
        raise failure(
            "damaged-shard.rows",
            path,
            count,
            file.rows,
            receipt=receipt.path,
            directory=directory,
        )


def read_file(
    path: Path,
    what: What,
    columns: Sequence[str],
    only: frozenset[str] | None = None,
    form: TableForm = PLAIN,
) -> Iterator[list[dict[str, Any]]]:
    """Yield a file's rows as dicts, in lists of bounded size. A list that contains no key of `only`
    may be left out."""
    for batch in _batches(path, columns, what, form, only):
        yield batch.to_pylist()


def _batches(
    path: Path,
    columns: Sequence[str] | None,
    what: What,
    form: TableForm,
    only: frozenset[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield batches of a shard's rows. Raise RunFailure for any error of a reader, and ValueError
    for an unknown column.
    """
    from counterfoil.store.shard_files import read_parquet, read_tar

    known = table_columns(what, replace(form, embeddings=True))
    unknown = [name for name in columns or () if name not in known]
    if unknown:
        raise ValueError(f"{path} has no column {', '.join(unknown)}; it has {', '.join(known)}")
    try:
        if path.suffix == ".tar":
            yield from read_tar(path, what, columns, form)
        else:
            yield from read_parquet(path, what, columns, only, form)
    except Exception as error:
        raise RunFailure(unreadable(path, error)) from error


def unreadable(path: Path, error: Exception) -> ProblemLine:
    """Return why a shard's file cannot be read. Damaged files may raise anything."""
    kind = type(error).__name__
    reason = error if str(error) else "no more is known"
    directory = path.parents[2]
    return message(
        "damaged-shard.read",
        path,
        reason,
        kind=kind,
        directory=directory,
    )


def _refuse_odd_values(path: Path, batch: pa.RecordBatch) -> None:
    """Raise RunFailure for an empty required cell or a number that is not finite. Neither is ever
    written."""
    import numpy as np
    import pyarrow as pa

    directory = path.parents[2]
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in REQUIRED and column.null_count:
            raise failure("damaged-shard.empty", path, column=name, directory=directory)
        values = column.flatten() if pa.types.is_list(column.type) else column
        if pa.types.is_floating(values.type):
            numbers = values.drop_null().to_numpy(zero_copy_only=False)
            if not np.isfinite(numbers).all():
                raise failure("damaged-shard.number", path, column=name, directory=directory)


def _groups(directory: Path) -> list[str]:
    lock = read_lock(directory)
    if lock is None:
        raise refusal("no-dataset", directory)
    return list(lock.groups)


# The columns that identify a row's sample.
IDENTITY = ("key", "shift", "label", "class_id", "index")
_LONGEST = 80


def planned_rows(
    directory: Path,
    plan: Plan,
    shard: Shard,
    receipt: Receipt,
    what: What,
    columns: Iterable[str] = (),
    form: TableForm = PLAIN,
) -> Iterator[dict[str, Any]]:
    """Yield rows of a shard's table with `IDENTITY` and `columns`. Raise RunFailure for a repeated
    row, or for a row that is not in the plan.
    """
    path = directory / (receipt.file(what) or receipt).path
    cells = {}
    for cell in shard.cells:
        class_id = plan.class_of(cell.label).id
        cells[cell.shift, cell.label] = (class_id, plan.indices_below(cell))
    seen: set[str] = set()
    names = list(dict.fromkeys([*IDENTITY, *columns]))
    for row in read_shard(directory, receipt, names, what, form):
        key, shift, label, class_id, index = (row[name] for name in IDENTITY)
        planned_id, candidates = cells.get((shift, label), (None, 0))
        is_sample = planned_id is not None and planned_id == class_id and 0 <= index < candidates
        if not is_sample or key != sample_key(shift, class_id, index):
            shown = [f"{name} {str(row[name])[:_LONGEST]!r}" for name in IDENTITY]
            word = "row"
        elif key in seen:
            shown = key
            word = "repeated"
        else:
            seen.add(key)
            yield row
            continue
        raise failure(
            f"unplanned-shard.{word}",
            path,
            shown,
            receipt=receipt.path,
            directory=directory,
        )
