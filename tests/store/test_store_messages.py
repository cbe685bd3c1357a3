"""The texts of problems with built datasets: each is stated somewhere with the values of its gaps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from counterfoil.data.messages import message as of_inputs
from counterfoil.recipe.messages import message as of_recipes
from counterfoil.store.messages import message
from support.messages import gaps_of, mentioned, said, statements

PACKAGES = [
    Path(__file__).parents[2] / "builders/counterfoil" / name for name in ("store", "dataset")
]
# These are chosen by a word within their name.
CHOSEN = {
    "cannot-write.disk", "cannot-write.full", "damaged-shard.size",
    "other-build.inputs", "other-build.plan", "unplanned-shard.repeated", "unplanned-shard.row",
    "wrong-row.candidate", "wrong-row.sample",
}  # fmt: skip


def test_every_sentence_has_a_code_of_its_own_table_and_every_code_a_sentence() -> None:
    assert {name.partition(".")[0] for name in message.sentences} == {*message.codes}
    assert all(re.fullmatch("[a-z]+(-[a-z]+)*", code) for code in message.codes)
    assert {*message.advice} <= {*message.sentences, *message.codes}
    assert not {*message.codes} & ({*of_inputs.codes} | {*of_recipes.codes})


def test_each_sentence_is_stated_with_the_values_of_its_gaps() -> None:
    stated = [each for package in PACKAGES for each in statements(package, message)]
    assert [name for name, values in stated if gaps_of(message, name) - values] == []
    written = {name for package in PACKAGES for name in mentioned(package, message)}
    assert {*message.sentences} - written == CHOSEN


@pytest.mark.parametrize("name", message.sentences)
def test_a_sentence_and_its_advice_can_be_said(name: str) -> None:
    assert said(message, name).code == name.partition(".")[0]
