"""The storm: every command of the program is in it."""

from __future__ import annotations

import typer

import storm
from counterfoil.cli.main import app


def test_every_command_is_killed() -> None:
    commands = typer.main.get_command(app)
    assert {command.words.split()[0] for command in storm.COMMANDS} == set(
        getattr(commands, "commands", {})
    )
