"""Write and read text files: JSON documents and CSV tables.

Each kind of document has a dataclass with a `FORM`. The class inherits from `Strict`, or its
`__pydantic_config__` is `STRICT`. The JSON must have no unknown keys, only finite numbers and a
bounded size. In a CSV table, a spreadsheet would read a text that begins with `= + - @`, a tab or a
line break as a formula. Such a text gets a `'` before it. Spreadsheets hide the `'`, and other
readers should remove it. Numbers are unchanged. In both, characters that act on what shows them are
escaped (`visible`).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Protocol, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from counterfoil.errors import UserError, first_of
from counterfoil.field_texts import paragraph_lines
from counterfoil.regular_files import on_a_line, read_regular, visible_text

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


class Strict:
    """The base of dataclasses for documents and their parts. It rejects unknown keys and non-finite
    numbers."""

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
# Paths may name people: nothing that is built from a document (recipe, card, dataset) contains
# them.
File = Annotated[
    str | None,
    Field(description="Path below its folder; null if it does not come from a folder of images."),
]


def _printable(text: str) -> str:
    if not (text.isprintable() and 0 < len(text) <= _LONGEST_TEXT):
        raise ValueError(f"expected a printable text of at most {_LONGEST_TEXT} characters")
    return text


# Text of one line that any terminal and file can hold.
Printable = Annotated[str, AfterValidator(_printable)]


@dataclass(frozen=True, slots=True)
class Form:
    """The name of a kind of document, a hint for files that are not of this kind, and limits.

    version: the expected value of the key `version`; None if the document has no such key or checks
    the key itself.
    longest: the largest number of values in one list. most: the largest number of values in the
    document.
    """

    called: str
    hint: str
    version: int | None = None
    longest: int = _LONGEST_LIST
    most: int | None = None


class OtherVersion(UserError):
    """A document that another version of Counterfoil wrote."""


class _HasForm(Protocol):
    FORM: ClassVar[Form]


Document = TypeVar("Document", bound=_HasForm)


def read_document(
    path: Path,
    kind: type[Document],
    most_bytes: int = MOST_BYTES,
    *,
    where: str | None = None,
) -> Document:
    """Read a document that may come from anyone. where: its name in messages. UserError lists every
    problem."""
    where = where or str(path)
    try:
        text = read_regular(path, most_bytes)
    except OSError as error:
        raise UserError(f"{where} {error.strerror or error}", kind.FORM.hint) from error
    return parse_document(kind, text, where)


def parse_document(kind: type[Document], text: str | bytes, where: str) -> Document:
    """Parse a document. UserError, with every problem, if the document does not have the form of
    its kind."""
    form = kind.FORM
    finite = _checked(text, where, form)
    try:
        document = _adapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        shown = []
        for problem in problems[:_MOST_SHOWN]:
            what = _WORDS.get(problem["type"], problem["msg"])
            shown.append(_problem(problem["loc"], what, problem["input"]))
        lines = "; ".join(first_of(shown, _MOST_SHOWN, len(problems)))
        raise UserError(f"{where} is not {form.called}: {lines}", form.hint) from None
    if not finite:
        raise UserError(f"{where} is damaged: it has a number that is not finite", form.hint)
    return document


def _checked(text: str | bytes, where: str, form: Form) -> bool:
    """Check JSON syntax, version and limits, and return whether all numbers are finite.

    Values are counted before pydantic sees them, because each wrong value would become an error
    that takes memory. A repeated key is refused, because JSON readers differ in which of its values
    they take. UserError, or OtherVersion, if a check fails.
    """
    size = len(text) if isinstance(text, bytes) else len(text.encode(errors="surrogatepass"))
    if size > MOST_BYTES:
        raise UserError(f"{where} has {size:,} bytes, expected at most {MOST_BYTES:,}", form.hint)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) == len(pairs):
            return mapping
        known = set()
        twice = next(key for key, _ in pairs if key in known or known.add(key))
        shown = f"{twice[:_LONGEST_SHOWN]!r:.60}"
        raise UserError(f"{where}: {shown} appears more than once", form.hint)

    try:
        _refuse_many_lists(text)
        document = json.loads(text, object_pairs_hook=once)
    except RecursionError:
        raise UserError(f"{where} is damaged: it is nested too deeply", form.hint) from None
    except ValueError as error:
        raise UserError(f"{where} is damaged: {error}", form.hint) from None
    if form.version is not None and isinstance(document, dict):
        _refuse_other_version(document, form.version, where, form)
    count = 0
    finite = True
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, float):
            finite = finite and math.isfinite(value)
        inner: list[Any] = []
        if isinstance(value, dict):
            inner = list(value.values())
        elif isinstance(value, list):
            inner = value
        count += len(inner)
        if len(inner) > form.longest:
            raise UserError(
                f"{where} has a list of {len(inner):,} values, expected at most {form.longest:,}",
                form.hint,
            )
        if form.most is not None and count > form.most:
            raise UserError(f"{where} has more than {form.most:,} values", form.hint)
        waiting += inner
    return finite


def _refuse_other_version(
    document: Mapping[str, Any],
    expected: int,
    where: str,
    form: Form,
) -> None:
    if "version" not in document:
        raise UserError(f"{where} is not {form.called}: version: is missing", form.hint)
    version = document["version"]
    if type(version) is int and version != expected:
        age = "an earlier" if version < expected else "a later"
        raise OtherVersion(
            f"{where} is of {age} version of Counterfoil: found version {version}, expected"
            f" {expected}",
            form.hint,
        )


def _problem(path: tuple[int | str, ...], what: str, value: Any) -> str:
    """Describe a problem in one line. Keys may come from anyone."""
    parts = [str(part)[:40] for part in path]
    name = on_a_line(".".join(parts))[:80] or "document"
    what = what.removeprefix("Value error, ")
    what = what.replace("Tuple should", "List should")
    words = f"{name}: {what}"
    if isinstance(value, str):
        words += f", found {value[:_LONGEST_SHOWN]!r:.40}"
    elif value is None or (isinstance(value, int | float) and abs(value) < 1e15):
        words += f", found {json.dumps(value)}"
    return on_a_line(words)[:_LONGEST_SHOWN]


def document_text(document: Any) -> str:
    """Return a document as JSON text. ValueError for a non-finite number or a value of a wrong
    type."""
    values = document.to_json() if hasattr(document, "to_json") else plain_value(document)
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    text = f"{visible_text(text)}\n"
    _adapter(type(document)).validate_json(text, strict=True)
    return text


def plain_value(value: Any) -> Any:
    """Convert a value to JSON's types: dataclasses in field order, other mappings by key, NumPy's
    numbers."""
    if is_dataclass(value):
        return {field.name: plain_value(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain_value(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain_value(entry) for entry in value]
    item = getattr(value, "item", None)
    return item() if callable(item) else value


def unwrapped_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema with one line for each paragraph of a description."""

    def unwrap(part: dict[str, Any]) -> dict[str, Any]:
        if isinstance(part.get("description"), str):
            part["description"] = paragraph_lines(part["description"])
        return part

    return json.loads(json.dumps(schema), object_hook=unwrap)


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def csv_text(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """Return a CSV header and one line per row; None is an empty cell. By default, the first row
    gives the columns."""
    rows = list(rows)
    if columns is None:
        if not rows:
            return ""
        columns = list(rows[0])
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(as_cell, columns))
    for row in rows:
        writer.writerow([as_cell(row.get(column)) for column in columns])
    return file.getvalue()


def preview_column(table: str, preview: int | None) -> str:
    """Return a CSV table with a last column `preview`, if the dataset is a preview."""
    if preview is None:
        return table
    header, *rows = csv.reader(io.StringIO(table))
    header.append("preview")
    marked = [dict(zip(header, [*row, preview], strict=True)) for row in rows]
    return csv_text(marked, header)


def as_cell(value: Any) -> Any:
    """Return a value as a cell that a spreadsheet takes for data, and a text that is `visible`."""
    if not isinstance(value, str):
        return value
    # Before Python 3.13 the writer does not quote a lone carriage return, which readers take for
    # the end of a line.
    value = visible_text(value.replace("\r\n", "\n").replace("\r", "\n"))
    if not value.startswith(_BEGIN_FORMULAS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def document_bytes(document: Any) -> bytes:
    """Return JSON with sorted keys, two spaces, UTF-8 and a final newline. ValueError for NaN,
    which is not JSON."""
    text = json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{visible_text(text)}\n".encode()


def canonical_json(value: Any) -> str:
    """Write JSON with sorted keys and no spaces: equal values give equal text. ValueError for NaN
    and infinity."""
    return json.dumps(
        value,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    )


def sha256_json(value: Any) -> str:
    text = canonical_json(value)
    return hashlib.sha256(text.encode()).hexdigest()


# A list or mapping takes two bytes of JSON and 64 of memory. Entries of tables have one in twenty
# bytes or fewer.
_SPARE_LISTS = 1_000_000
_BYTES_A_LIST = 8
# The largest JSON numbers that stay whole: 64 bits. Others become floats, perhaps infinite ones.
_LONGEST_WHOLE = 19


def _refuse_many_lists(text: str | bytes) -> None:
    """Raise ValueError for JSON whose lists and mappings take much more memory than its text."""
    lists = (
        text.count(b"[") + text.count(b"{")
        if isinstance(text, bytes)
        else text.count("[") + text.count("{")
    )
    if lists > _SPARE_LISTS + len(text) // _BYTES_A_LIST:
        raise ValueError(f"it has about {lists:,} lists and mappings in {len(text):,} bytes")


def _whole(text: str) -> int | float:
    return int(text) if len(text) <= _LONGEST_WHOLE else float(text)


def parse_json(content: bytes) -> Any:
    """Parse a JSON file that may come from anyone. ValueError if it is not JSON, too deep, or of
    too many lists.

    Whole numbers of over 19 characters become floats.
    """
    _refuse_many_lists(content)
    try:
        return json.loads(content, parse_int=_whole)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


_LONGEST_ENTRY = 1 << 20
_CHUNK = 1 << 22
_SPACES = re.compile(r"[ \t\n\r]*")


def parse_entries(content: bytes) -> Iterator[dict[str, Any]]:
    """Yield the mappings of a JSON list that may come from anyone, without holding all of them.

    ValueError if it is no such list, or if an entry has over a million characters. Numbers are as
    in `parse_json`.
    """
    decoder = json.JSONDecoder(parse_int=_whole)
    encoding = json.detect_encoding(content)
    text = io.TextIOWrapper(io.BytesIO(content), encoding, newline="")
    left = text.read(_CHUNK)
    start = 0

    def more() -> bool:
        """Read on, and keep what is not yet parsed. Return whether there was more."""
        nonlocal left, start
        chunk = text.read(_CHUNK)
        left = left[start:] + chunk
        start = 0
        return bool(chunk)

    def next_mark() -> str:
        nonlocal start
        while True:
            start = _SPACES.match(left, start).end()  # pyrefly: ignore[missing-attribute]
            if start < len(left) or not more():
                return left[start : start + 1]

    mark = next_mark()
    if mark != "[":
        raise ValueError("it is no list of mappings")
    start += 1
    mark = next_mark()
    whole = mark == "]"
    start += whole
    while not whole:
        if mark != "{":
            raise ValueError(f"it is no list of mappings: found {left[start : start + 20]!r}")
        try:
            entry, end = decoder.raw_decode(left, start)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        except ValueError:
            # The entry may end in the next chunk.
            if len(left) - start <= _LONGEST_ENTRY and more():
                continue
            raise
        yield entry
        start = end
        mark = next_mark()
        start += 1
        if mark not in (",", "]"):
            raise ValueError(f"it is no list of mappings: found {mark!r} after an entry")
        whole = mark == "]"
        if not whole:
            mark = next_mark()
    if next_mark():
        raise ValueError("it goes on after its list")


_MOST_LINES = 20
_MOST_CHARACTERS = 60
_MOST_IN_ONE = 3  # lines of an error that are joined into one
_ABSENT = object()


def document_differences(stored: Any, current: Any, path: str = "") -> list[str]:
    """Return one line for each value that differs, at most 20, and a line that counts the
    others."""
    lines = _compare(stored, current, path)
    return first_of(lines, _MOST_LINES)


def _compare(stored: Any, current: Any, path: str) -> list[str]:
    left, right = _named(stored), _named(current)
    if left is None or right is None:
        if type(stored) is type(current) and stored == current:
            return []
        return [f"{path or 'content'}: {_shown(stored)} there, {_shown(current)} here"]
    lines = []
    for key in {**left, **right}:
        below = f"{path}.{key}" if path else str(key)
        lines += _compare(left.get(key, _ABSENT), right.get(key, _ABSENT), below)
    if not lines and isinstance(stored, list | tuple) and list(left) != list(right):
        lines.append(f"{path or 'content'}: the same entries in another order")
    return lines


def _named(value: Any) -> Mapping[str, Any] | None:
    """Return the entries of a mapping or a list by name; None for a plain value.

    The name of a list's entry is its `id`, `name` or `shift`, or else its position.
    """
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, list | tuple):
        return None
    if all(isinstance(entry, Mapping) for entry in value):
        for key in ("id", "name", "shift"):
            names = [entry.get(key) for entry in value]
            are_texts = all(isinstance(name, str) for name in names)
            if are_texts and len(set(names)) == len(names):
                return dict(zip(names, value, strict=True))
    return {f"[{position}]": entry for position, entry in enumerate(value)}


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def in_one_line(lines: Sequence[str]) -> str:
    shown = list(lines[:_MOST_IN_ONE])
    more = len(lines) - len(shown)
    if more:
        shown.append(f"and {more} more")
    return "; ".join(shown)
