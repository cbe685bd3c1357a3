"""Strict YAML: 1.2 scalars, refused keys, lines, and text that survives a round trip."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterfoil.errors import UserError
from counterfoil.recipe.strict_yaml import LocatedMapping, dump_yaml, read_yaml
from support.refusals import problems_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-4", 5e-4),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-.inf", -math.inf),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("No", "No"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("010", 10),
        ("0o10", 8),
        ("0x1f", 31),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2026-11-20", "2026-11-20"),
        ("'5'", "5"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    loaded = read_yaml(text, "x.yaml")
    assert loaded == value
    assert type(loaded) is type(value)


def test_every_duplicate_and_non_string_key_is_reported_with_its_line() -> None:
    text = "a: 1\nb:\n  c: 1\n  c: 2\n1: x\ntrue: y\na: 3\n? [1, 2]\n: z\n"
    problems = problems_of(read_yaml, text, "x.yaml")
    assert [problem.split(" ")[0] for problem in problems] == [
        "x.yaml:4:",
        "x.yaml:5:",
        "x.yaml:6:",
        "x.yaml:7:",
        "x.yaml:8:",
    ]
    assert "'c' again, first in line 3" in problems[0]
    assert "quotes" in problems[1]


def test_the_key_on_stays_text() -> None:
    assert read_yaml("on: 1", "x.yaml") == {"on": 1}


def test_lines_are_remembered() -> None:
    value = read_yaml("a: 1\nb:\n  - x\n  - c: 2\n", "x.yaml")
    assert isinstance(value, LocatedMapping)
    assert value.origins["b"].line == 2
    assert value["b"].origins[1].line == 4
    assert value["b"][1].origins["c"].line == 4


@pytest.mark.parametrize(
    "text",
    [
        "a: [1",
        "a: !!python/object/apply:os.system ['true']",
        "a: !!set {x}",
        "a: !!binary aGVsbG8=",
        "a: !!int x",
        "a: b: c",
        "--- 1\n--- 2",
        "a: \x00",
        "",
        "&x [*x]",
        "a: \ud800",
        "[" * 5000,
    ],
)
def test_what_is_not_plain_yaml_is_a_user_error_that_names_the_place(text: str) -> None:
    with pytest.raises(UserError, match=r"x\.yaml"):
        read_yaml(text, "x.yaml")


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


def test_aliases_that_expand_without_bound_are_refused_before_they_do() -> None:
    # 10^60 values: expanding them would never end.
    with pytest.raises(UserError, match=r"x\.yaml:\d+: more than 200,000 values"):
        read_yaml(bomb(60), "x.yaml")


def test_aliases_within_bounds_stand_for_what_they_name() -> None:
    value = read_yaml(bomb(4), "x.yaml")
    assert value["a3"] == [value["a2"]] * 10
    assert read_yaml("a: &x 1\nb: [*x, *x]", "x.yaml") == {"a": 1, "b": [1, 1]}


def test_nesting_without_end_is_refused_and_does_not_end_the_interpreter() -> None:
    """Read in a process of its own: the C stack, where it overflows, takes the interpreter with
    it."""
    code = """
from counterfoil.errors import UserError
from counterfoil.recipe.strict_yaml import read_yaml
for opening in ("[", "{a: ", "- ", "? "):
    try:
        read_yaml(opening * 50_000, "x.yaml")
    except UserError as error:
        print(error.problems[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    line = "x.yaml:1: nested too deeply, expected at most 40 levels [too-large]\n"
    assert (done.returncode, done.stdout) == (0, 4 * line)


def test_as_deep_as_is_allowed_is_read() -> None:
    assert read_yaml("[" * 40 + "]" * 40, "x.yaml") is not None
    with pytest.raises(UserError, match="nested too deeply"):
        read_yaml("[" * 41 + "]" * 41, "x.yaml")


def test_a_text_of_over_a_million_characters_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"x\.yaml: has 1,000,003 characters, expected at most 1,000,000"
    ):
        read_yaml("a: " + "x" * 1_000_000, "x.yaml")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(json_values)
def test_dumped_yaml_reads_back_as_the_same_value(value: object) -> None:
    assert read_yaml(dump_yaml(value), "x.yaml") == value


@given(st.from_regex(r"[-+0-9.eExo_:~a-fnulyesTRUE]{1,8}", fullmatch=True))
def test_dumped_text_stays_text(text: str) -> None:
    assert read_yaml(dump_yaml({"a": text}), "x.yaml") == {"a": text}
