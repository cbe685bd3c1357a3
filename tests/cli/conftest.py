"""Every "Next:" line that a command prints in these tests is one that the commands take."""

from __future__ import annotations

from typing import Any

import pytest
import typer

import counterfoil.cli.progress as progress


@pytest.fixture(autouse=True)
def next_lines_parse(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = progress.next_command

    def parsed(program: str, name: str, *words: str) -> None:
        from counterfoil.cli.main import app

        group: Any = typer.main.get_command(app)
        with group.make_context(program, [name, *words], resilient_parsing=False) as context:
            _, command, rest = group.resolve_command(context, [name, *words])
            assert program == "counterfoil" and command is not None, name
            command.make_context(name, list(rest), parent=context)
        printed(program, name, *words)

    monkeypatch.setattr(progress, "next_command", parsed)
