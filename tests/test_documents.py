"""CSV that a spreadsheet opens as data: no cell is a formula, and every value is what it was.

This leaves aside line breaks and characters that act on a terminal.

And documents of strangers, which have bounds, and one text for equal values, which is hashed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from counterfoil import documents
from counterfoil.documents import (
    Form,
    Strict,
    canonical_json,
    csv_text,
    document_text,
    parse_document,
    parse_entries,
    parse_json,
    read_document,
    sha256_json,
)
from counterfoil.errors import UserError
from counterfoil.regular_files import visible_text

FORMULAS = ("=", "+", "-", "@", "\t", "\n")
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
cells = st.one_of(
    texts, st.builds("".join, st.tuples(st.sampled_from(FORMULAS), texts)), st.integers(), st.none(),
    st.floats(allow_nan=False).map(lambda value: f"{value:.4f}"),
)  # fmt: skip


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


@given(st.lists(st.fixed_dictionaries({"a": cells, "b": cells}), min_size=1, max_size=4))
@example(
    [
        {"a": '=HYPERLINK("http://x")', "b": "-3.2"},
        {"a": "-inf", "b": "+1"},
        {"a": "@sum", "b": None},
    ]
)
def test_no_cell_is_a_formula_and_none_is_changed(rows: list[dict[str, Any]]) -> None:
    header, *lines = read(csv_text(rows, ["a", "b"]))
    assert header == ["a", "b"]
    for row, line in zip(rows, lines, strict=True):
        for value, cell in zip((row["a"], row["b"]), line, strict=True):
            plain = (
                ""
                if value is None
                else visible_text(str(value).replace("\r\n", "\n").replace("\r", "\n"))
            )
            assert cell in (plain, f"'{plain}")
            if cell.startswith(FORMULAS):
                float(cell)  # numbers are no formulas
            assert (cell != plain) == (plain.startswith(FORMULAS) and cell.startswith("'"))


def test_without_rows_there_is_a_header_where_columns_are_known() -> None:
    assert csv_text([]) == ""
    assert csv_text([], ["a", "b"]) == "a,b\n"


@dataclass(frozen=True)
class Note(Strict):
    FORM: ClassVar[Form] = Form("a note", "Write it again.", version=2, longest=4, most=12)
    words: tuple[str, ...] = ()
    weight: float = 0.0
    beside: Mapping[str, Any] = field(default_factory=dict)
    version: Literal[2] = 2


def test_a_document_is_measured_in_bytes_whatever_its_letters_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = json.dumps({"words": ["é" * 30], "version": 2}, ensure_ascii=False)
    size = len(text.encode())
    assert size > len(text)
    monkeypatch.setattr(documents, "MOST_BYTES", size)
    assert (
        parse_document(Note, text, "it")
        == parse_document(Note, text.encode(), "it")
        == Note(("é" * 30,))
    )
    monkeypatch.setattr(documents, "MOST_BYTES", size - 1)
    for content in (text, text.encode()):
        with pytest.raises(UserError, match=f"it has {size} bytes, expected at most {size - 1}"):
            parse_document(Note, content, "it")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is damaged: "),
        ("\xff", "it is damaged: "),
        ('{"version": 2, "beside": {"a": "\\ud800"}}', "it is not a note: "),
        ('{"beside": ' + '{"a":' * 100_000, "it is damaged: it is nested too deeply"),
        (
            '{"version": 2, "beside": {"a": [NaN]}}',
            "it is damaged: it has a number that is not finite",
        ),
        (
            '{"version": 2, "beside": {"a": -1e999}}',
            "it is damaged: it has a number that is not finite",
        ),
        ('{"words": [], "words": []}', "it: 'words' appears more than once"),
        (
            '{"version": 2, "words": ["a", "b", "c", "d", "e"]}',
            "it has a list of 5 values, expected at most 4",
        ),
        (
            '{"version": 2, "beside": {"a": [1, 2, 3], "b": [1, 2, 3], "c": [1, 2, 3]}}',
            "it has more than 12 values",
        ),
        (
            '{"version": 1}',
            "it is of an earlier version of Counterfoil: found version 1, expected 2",
        ),
        ('{"version": 3}', "it is of a later version of Counterfoil: found version 3, expected 2"),
        ('{"version": true}', "it is not a note: version: "),
        ('{"weight": 1.0}', "it is not a note: version: is missing"),
        (
            '{"version": 2, "words": 3, "weight": "much", "clock": 1}',
            "words: .*weight: .*'much'.*clock: is not a key of this form",
        ),
    ],
)
def test_a_document_of_another_form_is_refused_with_every_problem(text: str, problem: str) -> None:
    for content in (text, text.encode("latin-1")):
        with pytest.raises(UserError, match=problem) as caught:
            parse_document(Note, content, "it")
        assert caught.value.hint == "Write it again."


def test_a_document_is_read_from_regular_files_that_are_not_too_large(tmp_path: Path) -> None:
    path = tmp_path / "note.json"
    path.write_text(document_text(Note(("a",))))
    assert read_document(path, Note) == Note(("a",))
    with pytest.raises(UserError, match=f"{path} has .* bytes, expected at most 10"):
        read_document(path, Note, 10)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="the note is a pipe, expected a regular file"):
        read_document(path, Note, where="the note")


ENTRIES = [
    [],
    [{}],
    [{"a": 1}, {"b": [1, {"c": "]}, {"}], "d": "é\\"}],
    [{"a": 2**63 - 1, "b": -1e-7, "c": None, "d": True}] * 5,
]


@pytest.mark.parametrize("entries", ENTRIES, ids=range(len(ENTRIES)))
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_entries_are_read_in_parts_as_at_once(
    entries: Any, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_CHUNK", chunk)
    for text in (json.dumps(entries), json.dumps(entries, indent=1, ensure_ascii=False) + "\n"):
        for encoding in ("utf-8", "utf-8-sig", "utf-16"):
            assert list(parse_entries(text.encode(encoding))) == entries


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[",
        "[{}",
        "[{},",
        "[{},]",
        "[{} {}]",
        "[1]",
        "[[]]",
        "[{}]]",
        "[{}] 1",
        "[,]",
        '[{"a": }]',
        "nul",
        "[{]}]",
    ],
)
@pytest.mark.parametrize("chunk", [1, 1 << 20])
def test_what_is_no_list_of_mappings_is_refused(
    text: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "_CHUNK", chunk)
    with pytest.raises(ValueError):
        list(parse_entries(text.encode()))


def test_an_entry_has_a_longest_text_and_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        list(parse_entries(b'[{"a":' + b"[" * 100_000))
    monkeypatch.setattr(documents, "_CHUNK", 10)
    monkeypatch.setattr(documents, "_LONGEST_ENTRY", 40)
    assert len(list(parse_entries(b'[{"a": "' + b"x" * 20 + b'"}]'))) == 1
    with pytest.raises(ValueError):
        list(parse_entries(b'[{"a": "' + b"x" * 90 + b'"}]'))


@pytest.mark.parametrize("digits", [20, 400, 4_300, 100_000])
def test_a_number_of_many_digits_is_a_float(digits: int) -> None:
    text = b'[{"a": -' + b"9" * digits + b"}]"
    for entries in (parse_json(text), list(parse_entries(text))):
        assert entries == [{"a": -1e20 if digits == 20 else -math.inf}]


def test_many_lists_are_counted_before_they_take_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_SPARE_LISTS", 1_000)
    assert len(parse_json(b"[" + b"1," * 3_000 + b"1]")) == 3_001
    for bomb in (b"[" + b"[]," * 2_000 + b"1]", b"[" + b"{}," * 2_000 + b"1]"):
        with pytest.raises(ValueError, match=r"about 2,00\d lists and mappings"):
            parse_json(bomb)
        with pytest.raises(UserError, match="lists and mappings"):
            parse_document(Note, bomb, "it")


keys = st.text(max_size=5)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | keys,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(keys, values, max_size=4))
def test_canonical_json_is_json_and_does_not_depend_on_order(value: dict) -> None:
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(dict(reversed(value.items()))) == text
    assert sha256_json(value) == hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def test_canonical_json_has_no_spaces_and_no_nan() -> None:
    assert canonical_json({"b": [1, 2.0], "a": "é"}) == '{"a":"é","b":[1,2.0]}'
    with pytest.raises(ValueError):
        canonical_json(float("nan"))
