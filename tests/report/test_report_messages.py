"""The texts of problems with evaluations and comparisons: each is stated with the values of its gaps."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

from counterfoil.data import messages as data_messages
from counterfoil.recipe import messages as recipe_messages
from counterfoil.report.messages import message
from support.messages import gaps_of, mentioned, statements

PACKAGE = Path(__file__).parents[2] / "builders" / "counterfoil"
FOLDERS = [PACKAGE / name for name in ("report", "comparing", "evaluation")]
# These are chosen by a word within their name.
CHOSEN = {
    "invalid-detections.entries", "invalid-detections.entry", "invalid-masks.image",
    "invalid-masks.twice", "unclear-category.meaningless", "unclear-category.meanings",
}  # fmt: skip


def test_every_sentence_has_a_code_of_this_table_and_every_code_a_sentence() -> None:
    assert {name.partition(".")[0] for name in message.sentences} == {*message.codes}
    assert all(re.fullmatch("[a-z]+(-[a-z]+)*", code) for code in message.codes)
    assert {*message.advice} <= {*message.sentences, *message.codes}
    for other in (recipe_messages.message, data_messages.message):
        assert not message.codes.keys() & other.codes.keys()


def test_each_sentence_is_stated_with_the_values_of_its_gaps() -> None:
    stated = [pair for folder in FOLDERS for pair in statements(folder, message)]
    assert [name for name, values in stated if gaps_of(message, name) - values] == []
    written = set[str]().union(*(mentioned(folder, message) for folder in FOLDERS))
    assert {*message.sentences} - written == CHOSEN


@pytest.mark.parametrize("name", message.sentences)
def test_a_sentence_and_its_advice_can_be_said(name: str) -> None:
    """Say it with the kinds of values that its gaps are for."""
    advice = message.advice.get(name) or message.advice.get(name.partition(".")[0]) or ""
    values: dict[str, Any] = {"hint": ""}
    for _, gap, spec, _ in Formatter().parse(f"{message.sentences[name]} {advice}"):
        if gap is None or gap in values:
            continue
        values[gap] = "text"
        if spec in (",", "g") or "|" in (spec or ""):
            values[gap] = 2
        elif spec in ("some", "first"):
            values[gap] = ["a", "b"]
    problem = message(name, "a.b", **values)
    assert problem.startswith("a.b: ")
    assert problem.endswith(f" [{problem.code}]")
