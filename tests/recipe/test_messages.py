"""The texts of problems: every sentence is stated somewhere with its gaps, and lines end with a
code."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from counterfoil.errors import MessageTable, ProblemLine, UserError
from counterfoil.recipe import load_recipe, load_recipe_text
from counterfoil.recipe.messages import message
from support.messages import gaps, statements
from support.recipes import problems, refusal

PACKAGE = Path(__file__).parents[2] / "builders" / "counterfoil" / "recipe"


def test_every_sentence_has_a_code_and_every_code_a_sentence() -> None:
    assert {name.partition(".")[0] for name in message.sentences} == {*message.codes}
    assert all(re.fullmatch("[a-z]+(-[a-z]+)*", code) for code in message.codes)


def test_each_sentence_is_stated_with_the_values_of_its_gaps() -> None:
    stated = list(statements(PACKAGE, message))
    wrong = [
        (name, values) for name, values in stated if not gaps(message.sentences[name]) <= values
    ]
    assert not wrong
    # These are chosen by a value: errors of pydantic, words in texts, and what a cut changes.
    chosen = {
        "unknown-name", "wrong-type", "out-of-range", "missing-word.caption", "wrong-kind.caption",
        "unknown-placeholder", "unknown-placeholder.only", "not-in-a-cut", "not-in-a-cut.scores", "not-in-a-cut.shift",
    }  # fmt: skip
    assert {*message.sentences} - {name for name, _ in stated} == chosen


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            "nme=x",
            "nme (--set nme=x): unknown key; did you mean 'name'? (keys here: recipe, name, ",
        ),
        (
            "samples.candidates='3'",
            "samples.candidates (--set samples.candidates='3'): found '3', expected a whole number"
            " from 1 to 1000000; write it without quotes [wrong-type]",
        ),
        (
            "output.format=parquett",
            "output.format (--set output.format=parquett): found 'parquett', expected parquet or"
            " webdataset; did you mean 'parquet'? [unknown-name]",
        ),
        (
            "prompts.base.prompt=a photo",
            "prompts.base.prompt (--set prompts.base.prompt=a photo): found 'a photo', expected it"
            " to contain '{class}' [missing-class]",
        ),
        (
            "prompts.shifts.red.classes=['011']",
            "prompts.shifts.red.classes[0] (--set prompts.shifts.red.classes=['011']): found '011',"
            " expected the id of a class; did you mean '01'? [unknown-class]",
        ),
        (
            "screen.keep=[{misclassified: {models: [a], at_least: 2}}]",
            "screen.keep[0].misclassified (--set screen.keep=[{misclassified: {models: [a],"
            " at_least: 2}}]): at_least is 2, expected at most the number of judges (1)"
            " [out-of-range]",
        ),
        (
            "samples.candidates",
            "--set samples.candidates: expected KEY=VALUE, such as samples.candidates=5"
            " [invalid-override]",
        ),
        (
            "publish.repo=me",
            "publish.repo (--set publish.repo=me): found 'me', expected user/name [invalid-value]",
        ),
    ],
)
def test_a_whole_line(change: str, line: str) -> None:
    lines = problems(load_recipe, "wardrobe-mini", [change])
    assert any(problem.startswith(line) for problem in lines), lines


EXPECTED = {
    "name=3": "found the number 3, expected text; put it in quotes",
    "generator.steps=2.5": "found the number 2.5, expected a whole number from 1 to 1000",
    "screen.keep_rejected=yes": "found 'yes', expected true or false",
    "screen.shift_threshold=true": "found true, expected a number, or `value:` or `percentile:`",
    "generator.guidance=.inf": "found the number inf, expected a finite number",
    "generator.guidance=-1": "found the number -1, expected a number of at least 0",
    "samples=[1]": "found a list, expected a mapping of keys",
    "evaluate.models={a: b}": "found a mapping, expected a list",
    "recipe=2": "found the number 2, expected 1",
    "source.classes=[]": "found an empty list, expected at least one item",
    "source.classes=[3]": "found the number 3, expected a class: a name, or a mapping with name",
    "prompts.base=3": "found the number 3, expected a prompt, or a mapping of keys",
    "generator.size=63": "found the number 63, expected a multiple of 8",
    "generator.size=x": "found 'x', expected a whole number from 8 to 4096",
    "samples.seed=-1": "found the number -1, expected a whole number from 0 to below 9007199254740992",
    "prompts.shifts.red.severity={levels: [0, .5]}": "found the number 0, expected a number above 0"
    " to 1",
    "prompts.shifts.rad=null": "found null, expected a prompt, or a mapping of keys; did you mean"
    " 'red'?",
    "screen.keep=[top]": "missing, expected a whole number from 1 to 1000000",
}


@pytest.mark.parametrize("change", EXPECTED)
def test_what_a_key_takes_is_said_in_words(change: str) -> None:
    lines = problems(load_recipe, "wardrobe-mini", [change])
    assert any(f": {EXPECTED[change]}" in line for line in lines), lines


def test_a_problem_keeps_its_code_and_path_when_a_worker_sends_it() -> None:
    error = refusal(load_recipe_text, "extends: wardrobe-mini\nnme: x\n")
    (problem,) = pickle.loads(pickle.dumps(error)).problems
    assert problem == error.problems[0]
    assert (problem.code, problem.path, problem.values["hint"]) == (
        "unknown-key",
        "nme",
        "; did you mean 'name'?",
    )


def test_plain_lines_stay_as_they_are() -> None:
    error = UserError(["a line", ProblemLine("another", "a-code")])
    assert str(error) == "a line\nanother"
    assert [problem.code for problem in error.problems] == ["", "a-code"]


def test_a_table_is_read_as_it_is_written() -> None:
    table = MessageTable.read(
        "wrong: What is wrong.\n"
        "  found {found}: no {{brace}}\n"
        "  again: found {found} again,\n"
        "    expected each once\n"
        "\n"
        "late: What comes too late.\n"
        "  too late\n"
    )
    assert table.codes == {"wrong": "What is wrong.", "late": "What comes too late."}
    assert table("wrong", found=3) == "found 3: no {brace} [wrong]"
    problem = table("wrong.again", found="x").at("a.b", "file:3")
    assert problem == "a.b (file:3): found x again, expected each once [wrong]"
    assert (problem.code, problem.path) == ("wrong", "a.b")
