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
from counterfoil.data.pins import InputDataset, SourcePin
from counterfoil.data.tables import MOST_BYTES as MOST_IMAGE_BYTES
from counterfoil.data.tables import Rows
from counterfoil.documents import sha256_json
from counterfoil.errors import Problems, RunFailure, UserError, first_of, some_of
from counterfoil.recipe.names import is_local, quoted
from counterfoil.recipe.rows_table import MOST_BYTES, MOST_LINES
from counterfoil.regular_files import UnfitFile, read_regular

# In image folders of the Hub: the name of the table, and of its column of file names.
_METADATA = "metadata.csv"
_FILE_NAME = "file_name"
_TABLES = (".parquet", ".arrow")
_MOST_COLUMNS = 200
_HINT = "The first line names the columns, and each line after it is one image of the folder."


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
        raise UserError(
            f"{where}: has no column '{files}' with the names of the image files",
            f"Its columns are {', '.join(at)}; name one as generator.image_column.",
        )
    written = tuple(line[at[files]] for line in lines)
    names = [posixpath.normpath(text.strip()) for text in written]
    problems = []
    for name in dict.fromkeys(names):
        if f"{name}/".startswith(("/", "../")) or "\\" in name:
            problems.append(f"{where}: names {quoted(name)}, which does not lie in the folder")
    for name, times in Counter(names).items():
        if times > 1 and name != ".":
            problems.append(
                f"{where}: names {quoted(name)} more than once, expected an image of its own a line"
            )
    if problems:
        hint = "Give each image a line, with its path in the folder, such as base/mug_0.png."
        raise UserError(first_of(problems), hint)
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
                raise RunFailure(
                    f"{folder / file} {error.strerror or 'cannot be read'}", "Restore it."
                ) from error
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
    raise UserError(
        f"{folder}: has {len(tables)} CSV files ({some_of(tables)}), expected one",
        f"Keep one that lists every image, or call it {_METADATA}.",
    )


def _read(path: Path, where: str) -> tuple[list[str], list[list[str]]]:
    """Return the column names and each line's values. An unnamed column is taken for the row
    numbers that pandas writes.
    """
    problems = Problems(f"{where}, line ")
    lines: list[list[str]] = []
    try:
        text = read_regular(path, MOST_BYTES, follow=False).decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{where}: {error.strerror or 'cannot be read'}") from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{where}: is not UTF-8 text (byte {error.start})", "Save it as CSV in UTF-8."
        ) from error
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        twice = [name for name, times in Counter(header).items() if times > 1]
        if twice or not header or len(header) > _MOST_COLUMNS:
            problem = (
                f"the column {quoted(twice[0])} twice" if twice else f"{len(header):,} columns"
            )
            raise UserError(
                f"{where}, line 1: found {problem}, expected 1 to {_MOST_COLUMNS} names, each once",
                _HINT,
            )
        for line in filter(None, reader):
            if len(line) != len(header):
                problems.add(f"{reader.line_num}: {len(line)} values, expected {len(header)}")
            lines.append(line)
            if len(lines) > MOST_LINES:
                raise UserError(f"{where}: has more than {MOST_LINES:,} lines")
    except csv.Error as error:
        all_problems = first_of(problems.lines, count=problems.count)
        all_problems.append(f"{where}, line {reader.line_num}: is not CSV: {error}")
        raise UserError(all_problems, _HINT) from error
    problems.refuse(_HINT)
    if not lines:
        raise UserError(f"{where}: lists no image", _HINT)
    return header, lines
