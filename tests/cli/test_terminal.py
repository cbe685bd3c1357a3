"""Nothing that a stranger named moves a cursor, rings a bell or changes a title."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from rich.table import Table

import counterfoil.cli
from counterfoil.cli.terminal import note, open_page, say, terminal

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202edraw\r"


def shown(name: str) -> None:
    table = Table(title=name)
    table.add_column(name)
    table.add_row(name)
    console = terminal()
    console.print(table)
    console.print(f"[bold]{name}[/bold]")
    console.print(name, markup=False, highlight=False)
    say(name)


def test_names_reach_a_terminal_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    shown(EVIL)
    note(EVIL)
    out, err = capsys.readouterr()
    assert "owned" in out and "owned" in err
    assert not [each for each in out + err if not each.isprintable() and each != "\n"]


def test_a_page_opens_in_the_browser_of_a_machine_that_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    page = tmp_path / "a page.html"
    open_page(page, False)
    assert capsys.readouterr().err == ""
    open_page(page, True)
    assert capsys.readouterr().err.splitlines() == [f"There is no browser here to open {page} in."]
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    open_page(page, True)
    assert (tmp_path / "opened").read_text().strip() == page.as_uri()
    assert capsys.readouterr().err == ""


def test_commands_say_everything_through_it() -> None:
    folder = Path(counterfoil.cli.__file__).parent
    sources = {file.name: file.read_text() for file in folder.glob("*.py") if file.name != "terminal.py"}
    assert not [name for name, text in sources.items() if re.search(r"\bConsole\(", text)]
    # Documents, whose form escapes what it holds, are piped as they are.
    echo = [name for name, text in sources.items() if "typer.echo(" in text]
    assert sorted(echo) == ["calibrate.py", "main.py", "recipes.py"]
