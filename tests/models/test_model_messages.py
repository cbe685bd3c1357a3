"""The texts of problems with models and answers: each is stated somewhere with the values of its
gaps."""

from __future__ import annotations

import re
from pathlib import Path

from counterfoil.models.messages import failure, message, refusal
from support.messages import gaps_of, mentioned, said, statements

PACKAGE = Path(__file__).parents[2] / "builders" / "counterfoil"
FOLDERS = (PACKAGE / "models", PACKAGE / "prediction")


def test_every_sentence_has_a_code_and_every_code_a_sentence() -> None:
    assert {name.partition(".")[0] for name in message.sentences} == {*message.codes}
    assert all(re.fullmatch("[a-z]+(-[a-z]+)*", code) for code in message.codes)
    assert {*message.advice} <= {*message.sentences, *message.codes}


def test_each_sentence_is_stated_with_the_values_of_its_gaps() -> None:
    stated = [pair for folder in FOLDERS for pair in statements(folder, message)]
    assert [name for name, values in stated if gaps_of(message, name) - values] == []
    named = set().union(*(mentioned(folder, message) for folder in FOLDERS))
    assert {*message.sentences} == named


def test_every_sentence_and_its_advice_can_be_said() -> None:
    for name in message.sentences:
        problem = said(message, name)
        assert problem.startswith("a.b: ")
        assert problem.endswith(f" [{problem.code}]")
        assert problem.path == "a.b"


def test_a_problem_of_a_model_names_it() -> None:
    refused = refusal("missing-model-file.config", "model 'x'", "a", "b.json", what="a model")
    (problem,) = refused.problems
    assert problem == "model 'x': a has no b.json, so it is not a model [missing-model-file]"
    assert (problem.path, refused.hint) == ("model 'x'", "Name another folder.")
    failed = failure("failed-model.changed", "model 'x'")
    assert str(failed.problems[0]).startswith("model 'x': changed while the run started")
