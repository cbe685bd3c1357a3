"""Tables beside images: metadata.csv, metadata.jsonl and metadata.parquet, with a line for each
image.

A line names its image in `file_name`, from the folder of the table. An image is taken only if the
folder's own listing has its name. Values of a CSV file stay as they are written, so that a class
called `00` keeps its zeros.
"""

from __future__ import annotations

import io
import posixpath
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from counterfoil.data.messages import message, refusal
from counterfoil.data.table_sizes import refuse_vast
from counterfoil.errors import Problems, quoted, some_of
from counterfoil.regular_files import read_regular

TABLES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
# The column that names an image, and the ending of columns that name further images, as `datasets`
# has them.
_FILE_NAME = "file_name"
_OTHER_FILE = "_file_name"
_MOST_BYTES = 1 << 30
_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")


@dataclass(frozen=True)
class Metadata:
    """The lines of all tables of a folder, in order.

    names: the tables. paths: the image of each line. values: the other columns, a pyarrow table.
    tables: the number of each line's table. files: further columns of images.
    """

    names: tuple[str, ...]
    paths: tuple[str, ...]
    tables: tuple[int, ...]
    values: Any
    files: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        return some_of(self.names)

    def repeated(self, deciding: Sequence[str], folder: Path) -> list[int]:
        """Return the lines whose image has an earlier line. Raise UserError if both differ in a
        `deciding` column."""
        first = {}
        for line, path in enumerate(self.paths):
            first.setdefault(path, line)
        again = [line for line, path in enumerate(self.paths) if first[path] != line]
        problems = Problems(message)
        for column in deciding if again else ():
            values = self.values.column(column).to_pylist()
            for line in again:
                path = self.paths[line]
                earlier = values[first[path]]
                later = values[line]
                if later != earlier:
                    where = f"{folder}: {self.shown}"
                    both = f"{quoted(str(earlier))} and {quoted(str(later))}"
                    problems.add("image-list.label", where, path, both, column=column)
        problems.refuse()
        return again


def read_metadata(
    folder: Path,
    names: Sequence[str],
    images: Sequence[str],
    *,
    guess: bool,
) -> Metadata | None:
    """Return the lines of the tables `names`, or None if there is no table.

    guess: whether pandas guesses the types of a CSV file's columns, as for columns of 0 and 1.
    Raise UserError with all lines that name no image.
    """
    if not names:
        return None
    endings = {posixpath.splitext(name)[1] for name in names}
    if len(endings) > 1:
        raise refusal("image-list.forms", folder, names)
    tables = _tables(folder, names, guess=guess)
    keys = []
    for name, table in zip(names, tables, strict=True):
        keys.append(_key_of(folder / name, table.column_names))
    others: dict[str, list[str | None]] = {}
    for table in tables:
        for column in table.column_names:
            if column.endswith(_OTHER_FILE) and column not in keys:
                others[column] = []
    known = _Images(images)
    problems = Problems(message)

    def named_images(name: str, table: Any, column: str, *, needed: bool) -> list[Any]:
        """Return the image that each line of a table names in a column, or None. What is no image
        goes to `problems`."""
        if column not in table.column_names:
            return [None] * len(table)
        home, _, _ = name.rpartition("/")
        named = []
        for line, cell in enumerate(table.column(column).to_pylist(), start=1):
            path = known.path_of(home, cell)
            if path is None and (needed or cell):
                shown = quoted(str(cell)) if cell else "no file"
                problem = "outside" if leaves_folder(cell) else "image"
                where = f"{folder / name}: image {line}: {column}"
                problems.add(f"image-list.{problem}", where, shown)
            named.append(path)
        return named

    paths = []
    numbers = []
    for number, (name, table, key) in enumerate(zip(names, tables, keys, strict=True)):
        numbers += [number] * len(table)
        paths += named_images(name, table, key, needed=True)
        for column, further in others.items():
            further += named_images(name, table, column, needed=False)
    problems.refuse()
    if not paths:
        raise refusal("image-list.empty", folder, names)
    values, files = _joined(tables, keys, others)
    return Metadata(tuple(names), tuple(paths), tuple(numbers), values, files)


def as_written(table: Any) -> Any:
    """Return a table of text with whole numbers as numbers, and empty cells as null.

    pandas would read NA, None and nan as null, and both 007 and 7.0 as 7.
    """
    import pyarrow as pa

    columns = {}
    for name in table.column_names:
        texts = [text or None for text in table.column(name).to_pylist()]
        if any(texts) and all(text is None or _WHOLE_NUMBER.fullmatch(text) for text in texts):
            numbers = [text and int(text) for text in texts]
            columns[name] = pa.array(numbers, pa.int64())
        else:
            columns[name] = pa.array(texts, pa.string())
    return pa.table(columns)


class _Images:
    """The images of a folder, found by what a line writes."""

    def __init__(self, images: Sequence[str]) -> None:
        self.images = frozenset(images)
        self.composed: dict[str, str] | None = None

    def path_of(self, home: str, written: Any) -> str | None:
        """Return the image that a line of a table in `home` names, or None."""
        if not isinstance(written, str) or not written or leaves_folder(written):
            return None
        slashes = written.replace("\\", "/").strip()
        for text in (written, slashes):
            if (path := posixpath.normpath(posixpath.join(home, text))) in self.images:
                return path
        if self.composed is None:  # some systems take an accent apart in names of files
            self.composed = {unicodedata.normalize("NFC", image): image for image in self.images}
        path = posixpath.normpath(posixpath.join(home, slashes))
        return self.composed.get(unicodedata.normalize("NFC", path))


def leaves_folder(written: Any) -> bool:
    """Return whether what a line writes is no path inside the folder of its table."""
    text = str(written or "").replace("\\", "/")
    outside = f"{posixpath.normpath(text)}/".startswith(("/", "../"))
    return outside or "://" in text or bool(PureWindowsPath(text).drive)


def _key_of(path: Path, columns: Sequence[str]) -> str:
    """Return the column that names the image of a line. Raise UserError if there is none."""
    others = [column for column in columns if column.endswith(_OTHER_FILE)]
    keys = [column for column in (_FILE_NAME, f"image{_OTHER_FILE}") if column in columns]
    if len(others) == 1:
        keys += others
    if not keys:
        raise refusal("missing-column.file-name", path, expected=columns)
    return keys[0]


def _joined(
    tables: Sequence[Any], keys: Sequence[str], further: Mapping[str, Any]
) -> tuple[Any, tuple[str, ...]]:
    """Return the values of all tables as one, with columns of further images, and the names of
    these columns."""
    import pyarrow as pa

    plain = []
    for table, key in zip(tables, keys, strict=True):
        named = {key, *further}.intersection(table.column_names)
        plain.append(table.drop_columns(list(named)))
    try:
        values = plain[0]
        if len(plain) > 1:
            values = pa.concat_tables(plain, promote_options="default")
    except pa.ArrowException as error:
        raise refusal("unfit-column.types", found=error) from error
    names = []
    for column, paths in further.items():
        names.append(column.removesuffix(_OTHER_FILE))
        column_of_paths = pa.array(paths, pa.string())
        values = values.append_column(names[-1], column_of_paths)
    return values, tuple(names)


def _tables(folder: Path, names: Sequence[str], *, guess: bool) -> list[Any]:
    """Return the tables as pyarrow reads them. Values of CSV files are typed over all files."""
    import pyarrow as pa

    refuse_vast([folder / name for name in names], str(folder))
    tables = []
    for name in names:
        path = folder / name
        try:
            tables.append(_table(path, read_regular(path, _MOST_BYTES), guess=guess))
        except UnicodeDecodeError as error:
            raise refusal("unreadable-data.utf8", path, byte=error.start) from error
        except (ValueError, pa.ArrowException) as error:
            raise refusal("unreadable-data.metadata-table", path, error) from error
    if guess or not names[0].endswith(".csv"):
        return tables
    # A column that one file lacks is empty there.
    whole = as_written(pa.concat_tables(tables, promote_options="default"))
    typed = []
    for table in tables:
        start = sum(map(len, typed))
        typed.append(whole.slice(start, len(table)).select(table.column_names))
    return typed


def _table(path: Path, content: bytes, *, guess: bool) -> Any:
    import pyarrow as pa

    stream = io.BytesIO(content)
    match path.suffix:
        case ".parquet":
            import pyarrow.parquet as pq

            return pq.read_table(stream)
        case ".jsonl":
            from pyarrow import json

            block_size = max(1 << 20, len(content) + 1)
            options = json.ReadOptions(block_size=block_size)
            return json.read_json(stream, read_options=options)
        case _:
            from datasets.packaged_modules.folder_based_builder.folder_based_builder import pd

            # Without index_col, a comma at the end of each line would move every value by a column.
            dtype = None if guess else str
            frame = pd.read_csv(stream, index_col=False, dtype=dtype, na_filter=guess)
            return pa.Table.from_pandas(frame, preserve_index=False)
