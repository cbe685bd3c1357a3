"""Keep a model's answers to images in Parquet, by a hash of everything that decides them.

An entry is one file. While its answers are computed, a folder beside it has a file for every
finished stretch of images. A later run takes these files up to the first one that is missing or
damaged.
"""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.documents import sha256_json
from counterfoil.foreign_tables import parquet_bytes
from counterfoil.regular_files import open_regular
from counterfoil.store.atomic import atomic_file

# Answers by the name of a column: one or more values of each row, (rows,) or (rows, width).
Columns = dict[str, NDArray[Any]]

# The number of images in a part, rounded up to whole batches. After a kill, at most so many images
# are answered again.
PART_ROWS = 256
# Raise this number when the meaning of a column changes. Older entries are then ignored.
_FORMAT = 3
_KEY = b"counterfoil_key"
# numpy parses other types as code.
_ROW_TYPES = {
    number_type.encode(): number_type for number_type in ("<f2", "<f4", "<f8", "<i4", "|u1")
}
# Floats differ in the last bits between versions of these libraries.
_LIBRARIES = ("torch", "torchvision", "timm", "transformers", "open_clip_torch", "pillow")


def answers_key(device: str, **decides: Any) -> str:
    """Hash what decides answers, with the kind of the device and the versions of libraries."""
    import torch

    return sha256_json(
        {
            "format": _FORMAT,
            "device": torch.device(device).type,
            "versions": _versions(),
            **decides,
        },
    )


@functools.cache  # finding a version searches all installed packages, for every model of a run
def _versions() -> dict[str, str]:
    installed = (*_LIBRARIES, "onnxruntime") if find_spec("onnxruntime") else _LIBRARIES
    return {name: version(name) for name in installed}


def join_stretches(stretches: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([stretch[name] for stretch in stretches]) for name in stretches[0]}


@dataclass(frozen=True)
class AnswerCache:
    """The entry of one model's answers to a number of images."""

    folder: Path
    name: str
    key: str
    images: int
    """The number of images."""
    fits: Callable[[Columns, range], bool]
    """Returns whether columns can be the answers to these rows."""
    each_batch: bool = False
    """Whether every batch of answers is saved, because answers are slow or cost money."""

    @property
    def part_rows(self) -> int:
        """The number of images in a part."""
        return 1 if self.each_batch else PART_ROWS

    @property
    def path(self) -> Path:
        """The file of the entry, whose name begins with a readable one."""
        readable = re.sub(r"[^\w.-]", "_", self.name)
        return self.folder / f"{readable[-60:].strip('._-')}-{self.key[:16]}.parquet"

    def load(self) -> Columns | None:
        """Return all answers. Return None if they are missing, damaged or of another key."""
        return self._read(self.path, range(self.images))

    def load_parts(self) -> tuple[list[Columns], int]:
        """Return the parts up to the first gap, and the number of images that they answer."""
        parts = []
        done = 0
        for path in sorted(self._parts.glob("*.parquet")):
            start, _, end = path.stem.partition("-")
            stop = int(end) if end.isdecimal() else 0
            part = None
            if start == f"{done:010d}" and stop <= self.images:
                part = self._read(path, range(done, stop))
            if part is not None:
                parts.append(part)
                done = stop
        return parts, done

    def save(self, columns: Columns) -> None:
        """Write all answers atomically, and remove the parts. UserError or RunFailure if that
        fails."""
        self._write(self.path, columns)
        shutil.rmtree(self._parts, ignore_errors=True)

    def save_part(self, columns: Columns, start: int, stop: int) -> None:
        self._write(self._parts / f"{start:010d}-{stop:010d}.parquet", columns)

    @property
    def _parts(self) -> Path:
        return self.path.with_suffix(".parts")

    def _write(self, path: Path, columns: Columns) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        arrays: dict[str, pa.Array] = {}
        types: dict[Any, str] = {_KEY: self.key}
        for name, values in columns.items():
            if values.ndim == 1:
                arrays[name] = pa.array(values)
                continue
            # Lists would take ten times the time and several times the memory.
            row = pa.binary(values.shape[1] * values.itemsize)
            buffer = pa.py_buffer(np.ascontiguousarray(values))
            arrays[name] = pa.FixedSizeBinaryArray.from_buffers(row, len(values), [None, buffer])
            types[name] = values.dtype.str
        table = pa.table(arrays).replace_schema_metadata(types)
        with atomic_file(path) as file:
            # What is compressed much would later exceed the memory that a file of its size may
            # take.
            pq.write_table(table, file, use_dictionary=False, compression="none")

    def _read(self, path: Path, rows: range) -> Columns | None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with open_regular(path) as file:
                parquet_bytes(file)
                table: Any = pq.read_table(file)
            kept = table.schema.metadata
            columns = {}
            for name in table.column_names:
                column = table[name].combine_chunks()
                columns[name] = _values(column, kept.get(name.encode()))
            sound = kept[_KEY] == self.key.encode() and self.fits(columns, rows)
            return columns if sound else None
        except (OSError, pa.ArrowException, AttributeError, ValueError, TypeError, KeyError):
            return None


def _values(column: Any, number_type: bytes | None) -> NDArray[Any]:
    """Return a column's values: rows of numbers if their type is given. KeyError or ValueError if
    they do not fit."""
    if number_type is None:
        return column.to_numpy(zero_copy_only=False)
    if column.null_count:
        raise ValueError
    values = np.frombuffer(column.buffers()[1] or b"", _ROW_TYPES[number_type])
    return values.reshape(len(column), column.type.byte_width // values.itemsize)
