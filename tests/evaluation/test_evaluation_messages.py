"""The texts of problems with evaluations and comparisons: each is stated with the values of its gaps."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from counterfoil.comparing import messages as comparing_messages
from counterfoil.errors import MessageTable
from counterfoil.evaluation import messages as evaluation_messages
from support.messages import gaps_of, mentioned, statements

PACKAGE = Path(__file__).parents[2] / "builders" / "counterfoil"
TABLES = {"comparing": comparing_messages.message, "evaluation": evaluation_messages.message}
SENTENCES = [(table, name) for table in TABLES.values() for name in table.sentences]
# These are chosen by a word within their name.
CHOSEN = {
    "invalid-detections.entries", "invalid-detections.entry", "invalid-masks.image",
    "invalid-masks.twice", "unclear-category.meaningless", "unclear-category.meanings",
}  # fmt: skip


@pytest.mark.parametrize("folder", TABLES)
def test_every_sentence_has_a_code_and_every_code_a_sentence(folder: str) -> None:
    table = TABLES[folder]
    assert {name.partition(".")[0] for name in table.sentences} == {*table.codes}
    assert all(re.fullmatch("[a-z]+(-[a-z]+)*", code) for code in table.codes)
    assert {*table.advice} <= {*table.sentences, *table.codes}


@pytest.mark.parametrize("folder", TABLES)
def test_each_sentence_is_stated_with_the_values_of_its_gaps(folder: str) -> None:
    table = TABLES[folder]
    stated = list(statements(PACKAGE / folder, table))
    assert [name for name, values in stated if gaps_of(table, name) - values] == []
    unsaid = {*table.sentences} - mentioned(PACKAGE / folder, table)
    assert unsaid == (CHOSEN if folder == "evaluation" else set())


@pytest.mark.parametrize(("table", "name"), SENTENCES, ids=[name for _, name in SENTENCES])
def test_a_sentence_and_its_advice_can_be_said(table: MessageTable, name: str) -> None:
    """Say it with the kinds of values that its gaps are for."""
    advice = table.advice.get(name) or table.advice.get(name.partition(".")[0]) or ""
    values: dict[str, Any] = {"hint": ""}
    for _, gap, spec, _ in Formatter().parse(f"{table.sentences[name]} {advice}"):
        if gap is None or gap in values:
            continue
        values[gap] = "text"
        if spec in (",", "g") or "|" in (spec or ""):
            values[gap] = 2
        elif spec in ("some", "first"):
            values[gap] = ["a", "b"]
    problem = table(name, "a.b", **values)
    assert problem.startswith("a.b: ")
    assert problem.endswith(f" [{problem.code}]")
