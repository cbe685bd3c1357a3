"""The texts of problems with input datasets: each is stated somewhere with the values of its gaps."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from counterfoil.data.messages import failure, message, refusal
from counterfoil.errors import (
    MOST_SHOWN,
    ProblemLine,
    Problems,
    RunFailure,
    UserError,
    raise_together,
)
from support.messages import gaps_of, mentioned, said, statements
from support.refusals import refuses

PACKAGE = Path(__file__).parents[2] / "builders" / "counterfoil" / "data"
# These are chosen by a word within their name.
CHOSEN = {
    "image-list.image", "image-list.outside", "invalid-mask.empty", "invalid-outline.empty",
    "invalid-yolo.line", "invalid-yolo.shares", "invalid-yolo.side", "invalid-yolo.track",
    "unknown-label.given-class", "unknown-label.given-label", "unknown-label.given-shift",
}  # fmt: skip


def test_every_sentence_has_a_code_and_every_code_a_sentence() -> None:
    assert {name.partition(".")[0] for name in message.sentences} == {*message.codes}
    assert all(re.fullmatch("[a-z]+(-[a-z]+)*", code) for code in message.codes)
    assert {*message.advice} <= {*message.sentences, *message.codes}


def test_each_sentence_is_stated_with_the_values_of_its_gaps() -> None:
    stated = list(statements(PACKAGE, message))
    assert [name for name, values in stated if gaps_of(message, name) - values] == []
    assert {*message.sentences} - mentioned(PACKAGE, message) == CHOSEN


def test_every_sentence_and_its_advice_can_be_said() -> None:
    for name in message.sentences:
        assert said(message, name).code == name.partition(".")[0]


def test_a_number_comes_with_its_noun() -> None:
    single, several = (
        message("missing-label.loose", "photos", "a.png", images=n) for n in (1, 2_000)
    )
    assert single.startswith("photos: 1 image lies beside")
    assert several.startswith("photos: 2,000 images lie beside")


def test_the_nearest_name_is_suggested_and_the_names_are_listed() -> None:
    problem = message("unknown-split.dataset", "source: 'photos'", "tets", ["train", "test"])
    assert problem == (
        "source: 'photos': has no split 'tets'; did you mean 'test'? [unknown-split]"
    )
    assert problem.path == "source"
    assert problem.advice == "Its splits are train, test."
    names = [f"name {number}" for number in range(30)]
    advice = message("unknown-label.condition", "a", "b", names).advice
    assert advice is not None
    assert advice.endswith("name 19 and 10 more.")


def test_a_text_of_a_stranger_stays_on_its_line() -> None:
    problem = message("unknown-split.dataset", "photos", "a\nerror: b", ["train"])
    assert problem.splitlines() == [problem]
    assert "'a\\nerror: b'" in problem


def test_an_end_goes_before_the_code_and_a_reason_has_none() -> None:
    problem = message("unknown-dataset.path", "photos").with_end(" (again)")
    assert problem == "photos: there is no such dataset (again) [unknown-dataset]"
    plain = ProblemLine("photos is empty").at("source")
    assert plain.with_end(".") == "source: photos is empty."
    assert plain.only_at("data") == "data: photos is empty"
    error = UserError([problem, plain])
    assert error.reason == "photos: there is no such dataset (again); source: photos is empty"


def test_an_error_of_a_file_is_said_without_its_path(tmp_path: Path) -> None:
    with pytest.raises(OSError) as failed:
        (tmp_path / "gone").read_bytes()
    problem = message("unreadable-data", tmp_path / "gone", failed.value)
    assert problem == f"{tmp_path / 'gone'}: No such file or directory [unreadable-data]"


def test_the_advice_of_a_problem_is_the_hint_of_its_error_wherever_it_goes() -> None:
    error = refusal("unknown-dataset.path", "photos")
    hint = "Name a folder made by `counterfoil build`, or user/name."
    assert (str(error.problems[0]), error.hint) == (
        "photos: there is no such dataset [unknown-dataset]",
        hint,
    )
    sent = pickle.loads(pickle.dumps(error))
    assert (sent.problems, sent.hint, sent.problems[0].code) == (
        error.problems,
        hint,
        "unknown-dataset",
    )
    placed = error.at("source.dataset", "Or wait.")
    assert isinstance(placed, UserError)
    assert placed.problems[0].startswith("source.dataset: photos: ")
    assert placed.hint == f"{hint} Or wait."
    assert isinstance(failure("unreadable-data", "a", "b"), RunFailure)


def test_errors_that_are_raised_together_keep_their_codes_and_say_each_hint_once() -> None:
    errors = [refusal("unknown-dataset.path", "a"), failure("hub-unreachable.offline", "b")]
    with refuses("hub-unreachable", "b") as refused:
        raise_together(errors)
    assert [problem.code for problem in refused.value.problems] == [
        "unknown-dataset",
        "hub-unreachable",
    ]
    assert str(refused.value).count("Name a folder") == 1
    assert not refused.value.hint


def test_of_many_problems_the_first_are_made(tmp_path: Path) -> None:
    problems = Problems(message)
    for number in range(MOST_SHOWN + 5):
        problems.add("image-list.above", f"{tmp_path}: line {number}", number)
    with refuses("image-list", tmp_path) as refused:
        problems.refuse()
    assert len(refused.value.problems) == MOST_SHOWN + 1
    assert refused.value.problems[-1] == "… and 5 more"
    assert refused.value.hint == message.advice["image-list"]
