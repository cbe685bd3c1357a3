"""CSV that a spreadsheet opens as data: no cell is a formula, and every value is what it was, line breaks aside.

And documents of strangers, which have bounds.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from counterfoil import documents
from counterfoil.documents import csv_text
from counterfoil.errors import UserError

FORMULAS = ("=", "+", "-", "@", "\t", "\n")
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
cells = st.one_of(
    texts, st.builds("".join, st.tuples(st.sampled_from(FORMULAS), texts)), st.integers(), st.none(),
    st.floats(allow_nan=False).map(lambda value: f"{value:.4f}"),
)  # fmt: skip


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


@given(st.lists(st.fixed_dictionaries({"a": cells, "b": cells}), min_size=1, max_size=4))
@example([{"a": '=HYPERLINK("http://x")', "b": "-3.2"}, {"a": "-inf", "b": "+1"}, {"a": "@sum", "b": None}])
def test_no_cell_is_a_formula_and_none_is_changed(rows: list[dict[str, Any]]) -> None:
    header, *lines = read(csv_text(rows, ["a", "b"]))
    assert header == ["a", "b"]
    for row, line in zip(rows, lines, strict=True):
        for value, cell in zip((row["a"], row["b"]), line, strict=True):
            plain = "" if value is None else str(value).replace("\r\n", "\n").replace("\r", "\n")
            assert cell in (plain, f"'{plain}")
            if cell.startswith(FORMULAS):
                float(cell)  # a number is none
            assert (cell != plain) == (plain.startswith(FORMULAS) and cell.startswith("'"))


def test_without_rows_there_is_a_header_where_columns_are_known() -> None:
    assert csv_text([]) == ""
    assert csv_text([], ["a", "b"]) == "a,b\n"


def test_a_document_is_measured_in_bytes_whatever_its_letters_take(monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(["é" * 30, "\ud800"], ensure_ascii=False)
    size = len(text.encode(errors="surrogatepass"))
    assert size > len(text) + 30
    monkeypatch.setattr(documents, "MOST_BYTES", size)
    documents.refuse_long(text, "it")
    monkeypatch.setattr(documents, "MOST_BYTES", size - 1)
    for each in (text, text.encode(errors="surrogatepass")):
        with pytest.raises(UserError, match=f"it has {size} bytes, expected at most {size - 1}"):
            documents.refuse_long(each, "it")
