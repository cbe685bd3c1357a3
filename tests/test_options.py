"""Options are declared once: functions, commands, their help and the page say what the classes of
options say."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import counterfoil
import docs_reference
from counterfoil.cli.main import app
from counterfoil.errors import UserError
from counterfoil.field_texts import key_text, texts_of
from counterfoil.options import (
    EngineChoice,
    OnDevices,
    Option,
    argument,
    option,
    options,
    options_of,
    takes,
)
from docs_reference import keys as recipe_keys

FUNCTIONS = [
    name for name in counterfoil.__all__ if hasattr(getattr(counterfoil, name), "declared")
]
CLASSES = docs_reference.commands_of_classes()


def words(text: str) -> str:
    return " ".join(text.split())


def described(command: str) -> dict[str, Option]:
    """Return the options that the command line takes, by their spelling; the first class that has
    one describes it."""
    every: dict[str, Option] = {}
    for each in (each for declared in CLASSES[command] for each in options_of(declared)):
        if not each.in_python_only:
            every.setdefault(each.spelling, each)
    return every


def test_most_functions_are_made_of_a_class() -> None:
    assert {"build", "evaluate", "mend", "mine", "publish", "review", "verify"} <= {*FUNCTIONS}
    assert {
        "demo",
        "build",
        "evaluate",
        "mend",
        "mine",
        "publish",
        "review",
        "verify",
    } <= CLASSES.keys()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_parameters_and_the_texts_of_its_class(name: str) -> None:
    function = getattr(counterfoil, name)
    declared = function.declared
    parameters = inspect.signature(function).parameters
    assert parameters.keys() == {field.name for field in fields(declared)}
    text = words(function.__doc__)
    for field in fields(declared):
        parameter = parameters[field.name]
        assert (parameter.kind is parameter.KEYWORD_ONLY) == field.kw_only
        assert parameter.default == (
            inspect.Parameter.empty if field.default is MISSING else field.default
        )
    for each in options_of(declared):
        assert f" {each.name}: {words(f'{each.text} {each.more}')}" in text


@pytest.mark.parametrize("name", CLASSES)
def test_a_command_has_the_options_and_the_help_of_its_classes(name: str) -> None:
    group: Any = get_command(app)
    command = group.commands[name]
    expected = described(name)
    typed = {
        param.opts[0] if param.param_type_name == "option" else param.metavar: param
        for param in command.params
    }
    assert typed.keys() == expected.keys() | {"--json"}
    shown = CliRunner().invoke(app, [name, "--help-all"], env={"COLUMNS": "5000"}).output
    for spelling, each in expected.items():
        flags = "/".join(dict.fromkeys((*typed[spelling].opts, *typed[spelling].secondary_opts)))
        assert not each.flags or set(re.split("[,/]", ",".join(each.flags))) == set(
            flags.split("/")
        )
        assert words(each.text) in words(shown)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_help_of_the_package_has_a_line_for_each_function(name: str) -> None:
    if name not in ("mine_again", "try_descriptions"):  # of an earlier run: `mine` leads to them
        assert re.search(rf"^    {name}\([\w, ]+\) {{2,}}\w", counterfoil.__doc__, re.MULTILINE)


@pytest.mark.parametrize("name", CLASSES)
def test_a_paragraph_of_help_is_one_line_which_the_terminal_wraps(name: str) -> None:
    group: Any = get_command(app)
    assert "\n" not in group.commands[name].help.replace("\n\n", "")


def test_the_page_has_every_option_of_commands_and_functions() -> None:
    page = words(docs_reference.options_page())
    sections = dict(re.findall(r"## ([a-z]+) (.*?)(?=## [a-z]+ |$)", page))
    for name, classes in CLASSES.items():
        every: dict[tuple[str, str], Option] = {}
        for each in (each for declared in classes for each in options_of(declared)):
            every.setdefault((each.spelling, each.name), each)
        for each in every.values():
            assert words(each.text) in sections[name].replace("&lt;", "<")
    for name in FUNCTIONS:
        assert f"`counterfoil.{name}`" in page
        for each in options_of(getattr(counterfoil, name).declared):
            assert f"In Python `{each.name}`" in page


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["evaluate", "./no/folder"], "./no/folder: there is no such dataset"),
        (
            ["build", "--from", "./no/folder", "--out", "new"],
            "./no/folder: there is no such dataset",
        ),
        (["verify", "./no/folder"], "./no/folder"),
    ],
    ids=["evaluate", "build", "verify"],
)
def test_a_folder_is_not_taken_for_a_name_of_the_hub(words: list[str], shown: str) -> None:
    """Keep the `./`, which a Path would lose: it makes a folder of what could be a name."""
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, UserError)
    assert shown in str(done.exception)


def test_each_key_that_an_option_replaces_is_one_of_a_recipe() -> None:
    keys = {f"{at}.{name}" for at, name, _ in recipe_keys()}
    every = [each for name in FUNCTIONS for each in options_of(getattr(counterfoil, name).declared)]
    assert {each.key for each in every if each.key} <= keys and any(each.key for each in every)


def runs(text: str) -> set[tuple[str, ...]]:
    """Return every five words of a text that follow each other."""
    each = re.findall(r"\w+", text.lower())
    return {tuple(each[at : at + 5]) for at in range(len(each) - 4)}


def test_an_option_has_the_text_of_its_key_and_does_not_write_it_again() -> None:
    keyed: dict[str, set[str]] = {}
    for declared in (each for classes in CLASSES.values() for each in classes):
        written = texts_of(declared)
        for each in options_of(declared):
            if not each.key:
                continue
            keyed.setdefault(each.key, set()).add(each.name)
            text, _, more = key_text(each.key).partition("\n\n")
            again = runs(written.get(each.name, "")) & runs(key_text(each.key))
            assert not again, f"{declared.__name__}.{each.name} says again: {again}"
            assert each.text.startswith(text) and each.more.startswith(more)
            assert each.text.endswith("Default: the recipe's.")
            assert f"{each.text} {each.more}".count("Default:") == 1
    assert keyed["mine.on"] == {"on", "audited"} and len(keyed) > 7


@options
class _Base:
    size: int = option(1, least=1)
    """How large.

    In square metres."""


@options
class _Cranes(_Base):
    colours: Any = argument()
    """Of feathers."""
    names: Sequence[str] = ()  # type: ignore[name-defined]  # noqa: F821
    """Of cranes."""
    options: _Base | None = option(None, in_python_only=True)
    """All of the base."""


@takes(_Cranes)
def cranes(given: _Cranes) -> _Cranes:
    """Fold cranes.

    Returns:
        Them.
    """
    return given


def test_an_option_below_its_least_value_is_refused() -> None:
    with pytest.raises(UserError, match="size is 0: expected 1 or more"):
        cranes("red", size=0)


def test_options_in_an_object_give_way_to_those_by_name() -> None:
    assert cranes("red", options=_Base(size=3)).size == 3
    assert cranes("red", options=_Base(size=3), size=1).size == 1


def test_a_docstring_has_the_texts_before_what_is_returned() -> None:
    assert inspect.getdoc(cranes) == (
        "Fold cranes.\n\nArgs:\n    colours: Of feathers.\n    names: Of cranes.\n    options: All"
        " of the base.\n"
        "    size: How large.\n        In square metres.\n\nReturns:\n    Them."
    )
    assert cranes("red", names="one").names == ("one",)


def test_an_engine_is_named_in_python_as_on_the_command_line() -> None:
    named = OnDevices(engine="ray", address="auto", collect=True)
    assert named.chosen_engine == EngineChoice("ray", "auto", True)
    assert OnDevices(engine=EngineChoice("ray", "auto")).chosen_engine == EngineChoice(
        "ray", "auto"
    )
    assert OnDevices(engine=None).chosen_engine == OnDevices().chosen_engine == EngineChoice()
