"""Files of text: documents that one class writes and reads (strict, finite, bounded JSON), and tables as CSV.

A document is a dataclass that is `Strict`, or whose `__pydantic_config__` is `STRICT`. `document_text` writes it and
proves that it can be read again; `parse_document` reads what anybody may have written, or says everything that is
wrong with it.

What a dataset stores is written in one way (`document_bytes`), so that equal content is equal bytes; `differences`
says how two such documents differ.

A table opens in a spreadsheet as data, whatever a stranger's model, class, caption or group is called. A text that
begins with one of `= + - @`, a tab or a line break would be a formula there: it gets a `'` before it, which
spreadsheets do not show. Numbers, also negative ones, stand as they are. Whoever reads such a table by program takes
the `'` off again where one of these characters follows it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from counterfoil.errors import CounterfoilError, UserError
from counterfoil.regular_files import read_regular

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


class Strict:
    """What a dataclass inherits to be a document, or a part of one: it takes no key and no number that is none."""

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = STRICT


MOST_BYTES = 64_000_000
_LONGEST_LIST = 100_000
_LONGEST_TEXT = 200
_BEGIN_FORMULAS = ("=", "+", "-", "@", "\t", "\n")
_MOST_SHOWN = 10
_LONGEST_SHOWN = 160
_WORDS = {"missing": "is missing", "unexpected_keyword_argument": "is not a key of this form"}

Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Interval = tuple[float, float]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
# Paths may name people: no recipe, card or dataset that is made of a document takes them over.
File = Annotated[
    str | None, Field(description="Path below its folder; null if it does not come from a folder of images.")
]

Document = TypeVar("Document")


def _printable(text: str) -> str:
    if not (text.isprintable() and 0 < len(text) <= _LONGEST_TEXT):
        raise ValueError(f"expected a printable text of at most {_LONGEST_TEXT} characters")
    return text


# Text of one line that any terminal and file can hold.
Printable = Annotated[str, AfterValidator(_printable)]


def parse_document(
    kind: type[Document],
    text: str | bytes,
    where: str,
    *,
    version: int,
    hint: str,
    called: str | None = None,
    longest: int = _LONGEST_LIST,
    most: int | None = None,
) -> Document:
    """The document that a text holds. UserError, with every problem, for one that is not of this version's form.

    called: what such a document is, by default the class. longest: how many values a list of it may have.
    most: how many values in all.
    """
    refuse_long(text, where, longest, most)
    try:
        return _adapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        shown = [
            _problem(one["loc"], _WORDS.get(one["type"], one["msg"]), one["input"]) for one in problems[:_MOST_SHOWN]
        ]
        more = [f"and {len(problems) - _MOST_SHOWN:,} more"] if len(problems) > _MOST_SHOWN else []
        what = called or f"a {kind.__name__.lower()} document of version {version}"
        raise UserError(f"{where} is not {what}: " + "; ".join(shown + more), hint=hint) from None


def _problem(place: tuple[int | str, ...], what: str, found: Any) -> str:
    """A problem in a line, whatever a stranger called a key."""
    called = ".".join(str(one)[:40] for one in place)[:80] or "document"
    words = f"{called}: {what.removeprefix('Value error, ').replace('Tuple should', 'List should')}"
    if isinstance(found, str):
        words += f", found {found[:_LONGEST_SHOWN]!r:.40}"
    elif found is None or (isinstance(found, int | float) and abs(found) < 1e15):
        words += f", found {json.dumps(found)}"
    return "".join(letter if letter.isprintable() else " " for letter in words)[:_LONGEST_SHOWN]


def document_text(document: Any) -> str:
    """A document as JSON text, in its own order (`to_json`) where it has one; equal documents give equal text.

    ValueError for a number that is not finite, or a value of another type than the document's.
    """
    values = document.to_json() if hasattr(document, "to_json") else plain(document)
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    _adapter(type(document)).validate_json(text, strict=True)
    return text


def schema_text(kind: type[Any], title: str) -> str:
    """The JSON Schema of a document, as text."""
    schema = _adapter(kind).json_schema(mode="serialization")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps(head | without_titles(schema), indent=2, ensure_ascii=False) + "\n"


def read_document(path: Path) -> bytes:
    """The bytes of a document that somebody made. UserError for what is no regular file, or too large."""
    try:
        return read_regular(path, MOST_BYTES)
    except OSError as error:
        raise UserError(f"{path} {error.strerror or error}") from error


def refuse_long(text: str | bytes, where: str, longest: int = _LONGEST_LIST, most: int | None = None) -> None:
    """UserError for a document, or a list in it, longer than any that is written: every wrong item takes memory.

    And for one that has a key twice: readers of JSON differ in which of them they believe.
    """
    size = len(text) if isinstance(text, bytes) else len(text.encode(errors="surrogatepass"))
    if size > MOST_BYTES:
        raise UserError(f"{where} has {size:,} bytes, expected at most {MOST_BYTES:,}")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            known: set[str] = set()
            twice = next(key for key, _ in pairs if key in known or known.add(key))
            raise UserError(f"{where}: {twice[:_LONGEST_SHOWN]!r:.60} appears more than once")
        return found

    try:
        waiting: list[Any] = [json.loads(text, object_pairs_hook=once)]
    except (ValueError, RecursionError):
        return  # whoever validates it reports it
    count = 0
    while waiting:
        value = waiting.pop()
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
        count += len(inner)
        if len(inner) > longest:
            raise UserError(f"{where} has a list of {len(inner):,} values, expected at most {longest:,}")
        if most is not None and count > most:
            raise UserError(f"{where} has more than {most:,} values")
        waiting += inner


def plain(value: Any) -> Any:
    """A value as JSON's types: dataclasses in the order of their fields, other mappings by key, NumPy's numbers as
    Python's."""
    if is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(one) for one in value]
    item = getattr(value, "item", None)
    return item() if callable(item) else value


def without_titles(schema: Any, *, of_properties: bool = False) -> Any:
    """The schema without the titles that only repeat a property's name."""
    if isinstance(schema, list):
        return [without_titles(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_titles(value, of_properties=key in ("properties", "$defs"))
        for key, value in schema.items()
        if of_properties or key != "title"
    }


@cache
def _adapter(kind: type[Document]) -> TypeAdapter[Document]:
    return TypeAdapter(kind)


def csv_text(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """A header and a line a row; None is an empty cell. Without `columns` those of the first row; no row, no text."""
    rows = list(rows)
    if columns is None and not rows:
        return ""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]) if columns is None else columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({column: as_cell(value) for column, value in row.items()} for row in rows)
    return file.getvalue()


def as_cell(value: Any) -> Any:
    """A value as it stands in such a table."""
    if not isinstance(value, str):
        return value
    # Before Python 3.13 the writer leaves a lone carriage return bare, which readers take for the end of a line.
    value = value.replace("\r\n", "\n").replace("\r", "\n")
    if not value.startswith(_BEGIN_FORMULAS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def document_bytes(document: Any) -> bytes:
    """Sorted keys, two spaces, UTF-8, a final newline; refuses NaN, which is not JSON."""
    text = json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def parse_json(content: bytes) -> Any:
    """The value of a JSON file that may come from anybody. ValueError for what is none, or nested without bound."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


_MOST_LINES = 20
_MOST_CHARACTERS = 60
_MOST_IN_ONE = 3  # of one fault or error, where it is shown in one line
_ABSENT = object()


def differences(there: Any, here: Any, path: str = "") -> list[str]:
    """Lines for every value that differs, in the order of `there`, at most 20 and a count of the rest."""
    lines = _compare(there, here, path)
    if len(lines) > _MOST_LINES:
        lines[_MOST_LINES:] = [f"… and {len(lines) - _MOST_LINES} more"]
    return lines


def _compare(there: Any, here: Any, path: str) -> list[str]:
    left, right = _named(there), _named(here)
    if left is None or right is None:
        if type(there) is type(here) and there == here:
            return []
        return [f"{path or 'content'}: {_shown(there)} there, {_shown(here)} here"]
    lines = []
    for key in {**left, **right}:
        below = f"{path}.{key}" if path else str(key)
        lines += _compare(left.get(key, _ABSENT), right.get(key, _ABSENT), below)
    if not lines and isinstance(there, list | tuple) and list(left) != list(right):
        lines.append(f"{path or 'content'}: the same entries in another order")
    return lines


def _named(value: Any) -> Mapping[str, Any] | None:
    """A mapping or a list as name → entry; None for a plain value. Entries go by id, name or shift."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, list | tuple):
        return None
    for name in ("id", "name", "shift"):
        names: list[Any] = [entry.get(name) if isinstance(entry, Mapping) else None for entry in value]
        if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
            return dict(zip(names, value, strict=True))
    return {f"[{position}]": entry for position, entry in enumerate(value)}


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def error_lines(error: Exception, path: Path) -> tuple[str, ...]:
    """The lines of an error about a file, without the path that they begin with."""
    if not isinstance(error, CounterfoilError):
        return (f"{type(error).__name__}: {error}",)
    return tuple(line.removeprefix(f"{path} ").removeprefix(f"{path}: ") for line in error.problems)


def in_one_line(lines: Sequence[str]) -> str:
    """The first three of some lines, and how many more there are."""
    more = len(lines) - _MOST_IN_ONE
    return "; ".join(lines[:_MOST_IN_ONE]) + (f"; and {more} more" if more > 0 else "")
