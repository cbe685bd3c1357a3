"""Every "Next:" line that a command prints in these tests is one that the commands take."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import typer

import counterfoil.cli.terminal as terminal


@pytest.fixture(autouse=True)
def next_lines_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = terminal.print_note  # by which `next_command` prints

    def parsed(text: str) -> None:
        from counterfoil.cli.main import app

        if not text.startswith("Next: "):
            return printed(text)
        program, name, *words = shlex.split(text.removeprefix("Next: "))
        group: Any = typer.main.get_command(app)
        with group.make_context(program, [name, *words], resilient_parsing=False) as context:
            _, command, rest = group.resolve_command(context, [name, *words])
            assert program == "counterfoil" and command is not None, name
            command.make_context(name, list(rest), parent=context)
        return printed(text)

    monkeypatch.setattr(terminal, "print_note", parsed)
