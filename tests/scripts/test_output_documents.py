"""The schema of what commands print with `--json` is the stored one, names every command, and
refuses what is wrong."""

from __future__ import annotations

import json

import pytest
import typer

from counterfoil.cli.main import app
from counterfoil.recipe.layering import bundled_folder
from output_documents import output_json_schema
from printed_json import check_printed_json, commands_with_schema


def test_the_stored_schema_is_that_of_the_declared_documents() -> None:
    text = (bundled_folder() / "output.schema.json").read_text(encoding="utf-8")
    assert json.loads(text) == output_json_schema()


def test_every_command_that_prints_json_has_a_schema() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    printing = {
        name
        for name, command in commands.items()
        if any("--json" in option.opts for option in command.params)
    }
    # `demo` prints what `evaluate` prints, and `show` a recipe.
    assert printing - {"demo", "show"} == commands_with_schema()


def test_an_unknown_a_missing_and_a_wrong_key_are_refused() -> None:
    whole = {"address": "http://127.0.0.1:1"}
    check_printed_json(["open", "DIR", "--json"], json.dumps(whole))
    for wrong in (whole | {"port": 1}, {}, {"address": 1}):
        with pytest.raises(AssertionError, match="does not fit its schema"):
            check_printed_json(["open", "DIR", "--json"], json.dumps(wrong))
