"""A folder of images with a CSV file that describes each image.

The CSV file may come from anyone, so a file is opened only if the folder's own listing has its
name. Values stay text, so that a class called `00` keeps its zeros.
"""

from __future__ import annotations

import csv
import io
import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from counterfoil.data.folders import pinned_content
from counterfoil.data.messages import failure, message, refusal
from counterfoil.data.pins import InputDataset, SourcePin
from counterfoil.data.tables import MOST_BYTES as MOST_IMAGE_BYTES
from counterfoil.data.tables import Rows
from counterfoil.documents import sha256_json
from counterfoil.errors import Problems, quoted
from counterfoil.recipe.names import is_local
from counterfoil.recipe.rows_table import MOST_BYTES, MOST_LINES
from counterfoil.regular_files import UnfitFile, read_regular

# In image folders of the Hub: the name of the table, and of its column of file names.
_METADATA = "metadata.csv"
_FILE_NAME = "file_name"
_TABLES = (".parquet", ".arrow")
_MOST_COLUMNS = 200


def listed_rows(source: InputDataset, pin: SourcePin) -> Rows | None:
    """Return the rows of a folder's CSV file, whose column `source.image_column` has paths. Return
    None for another dataset.

    Raise UserError with every problem, and RunFailure if the folder has changed.
    """
    folder = Path(source.dataset)
    table = _table_of(folder) if is_local(source.dataset) and folder.is_dir() else None
    if table is None:
        return None
    content = pinned_content(folder, source.dataset, pin.content)
    where = f"{source.dataset}/{table}"
    header, lines = _read(folder / table, where)
    at = {column: number for number, column in enumerate(header) if column}
    files = source.image_column
    if files == "image" and files not in at and _FILE_NAME in at:
        files = _FILE_NAME
    if files not in at:
        raise refusal("missing-column.images", where, files, at)
    written = tuple(line[at[files]] for line in lines)
    names = [posixpath.normpath(text.strip()) for text in written]
    problems = Problems(message)
    for name in dict.fromkeys(names):
        if f"{name}/".startswith(("/", "../")) or "\\" in name:
            problems.add("image-list.above", where, name)
    for name, times in Counter(names).items():
        if times > 1 and name != ".":
            problems.add("image-list.twice", where, name)
    problems.refuse()
    existing = frozenset(content.listing.files)

    def images(chosen: Sequence[int]) -> Iterator[bytes | None]:
        for row in chosen:
            file = names[row]
            image = None
            try:
                if file in existing:
                    image = read_regular(folder / file, MOST_IMAGE_BYTES, follow=False)
            except UnfitFile:
                image = None
            except OSError as error:
                raise failure("unreadable-data.listed", folder / file, error) from error
            yield image

    return Rows(
        dataset=where,
        split="",
        count=len(lines),
        columns=tuple(at),
        pinned=sha256_json({"content": content.sha256, "table": table, "image_column": files}),
        column=lambda column: tuple(line[at[column]] for line in lines),
        class_names=lambda column: None,
        images=images,
        paths=lambda: written,
    )


def _table_of(folder: Path) -> str | None:
    """Find the folder's CSV file: `metadata.csv`, or the only CSV file. Return None if there is no
    such file, or if the folder has other tables.
    """
    names = sorted(entry.name for entry in folder.iterdir())
    visible = [name for name in names if not name.startswith(".")]
    tables = [name for name in visible if name.lower().endswith(".csv")]
    if not tables or any(name.lower().endswith(_TABLES) for name in names):
        return None
    if _METADATA in tables:
        return _METADATA
    if len(tables) == 1:
        return tables[0]
    raise refusal("unclear-choice.tables", folder, len(tables), tables)


def _read(path: Path, where: str) -> tuple[list[str], list[list[str]]]:
    """Return the column names and each line's values. An unnamed column is taken for the row
    numbers that pandas writes.
    """
    problems = Problems(message)
    lines: list[list[str]] = []
    header = []
    try:
        text = read_regular(path, MOST_BYTES, follow=False).decode("utf-8-sig")
    except OSError as error:
        raise refusal("unreadable-data", where, error) from error
    except UnicodeDecodeError as error:
        raise refusal("unreadable-data.utf8", where, byte=error.start) from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        twice = [name for name, times in Counter(header).items() if times > 1]
        if twice or not header or len(header) > _MOST_COLUMNS:
            columns = (
                f"the column {quoted(twice[0])} twice" if twice else f"{len(header):,} columns"
            )
            raise refusal("image-list.header", f"{where}: line 1", columns, _MOST_COLUMNS)
        for line in filter(None, reader):
            if len(line) != len(header):
                of_line = f"{where}: line {reader.line_num}"
                problems.add("image-list.columns", of_line, len(line), len(header))
            lines.append(line)
            if len(lines) > MOST_LINES:
                raise refusal("too-much-data.lines", where, expected=MOST_LINES)
    except csv.Error as error:
        problems.add("image-list.csv", f"{where}: line {reader.line_num}", error)
    problems.refuse()
    if not lines:
        raise refusal("image-list.none", where)
    return header, lines
