"""What reaches a terminal: no control characters, errors as messages with exit codes, pages in a
browser."""

from __future__ import annotations

import errno
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from huggingface_hub.errors import OfflineModeIsEnabled
from rich.markup import escape
from rich.table import Table

import counterfoil.cli
from counterfoil.cli import main
from counterfoil.cli.progress import StageProgress
from counterfoil.cli.terminal import (
    make_console,
    open_page,
    print_line,
    print_note,
    show_error,
)
from counterfoil.errors import RunFailure, UserError
from counterfoil.progress import Stage
from counterfoil.report import words
from counterfoil.report.terminal_tables import print_table
from counterfoil.report.words import TableCell, TableColumn, TableRow

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202edraw\r"


def shown(name: str) -> None:
    table = Table(title=name)
    table.add_column(name)
    table.add_row(name)
    console = make_console()
    console.print(table)
    console.print(f"[bold]{name}[/bold]")
    console.print(name, markup=False, highlight=False)
    print_line(name)


def test_names_reach_a_terminal_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown(EVIL)
    print_note(EVIL)
    out, err = capsys.readouterr()
    assert "owned" in out and "owned" in err
    assert not [letter for letter in out + err if not letter.isprintable() and letter != "\n"]


TEXTS = [
    ":cat:",
    "./photos:train: 3",
    "[red]mug[/red]",
    "[/]",
    "a\\\\[b]",
    ":+1:",
    "mug :smile: [bold]",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_neither_emoji_nor_markup(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    row = TableRow((TableCell(text, below=text), TableCell("1")))
    table = words.Table(text, (TableColumn(text, "text", note=text), TableColumn("rows")), (row,))
    print_line(text)
    make_console().print(text, markup=False, highlight=False)
    make_console().print(f"[bold]{escape(text)}[/bold]")
    print_table(make_console(), table.first(10, "rows", "f.csv"))
    out, _ = capsys.readouterr()
    assert out.count(text) == 8, out


@pytest.mark.parametrize("text", TEXTS)
def test_a_bar_shows_a_text_as_it_is(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with StageProgress() as bars:
        bars.draw(Stage(text, 1, 2))
    assert text in "".join(capsys.readouterr())


@pytest.mark.parametrize("printed", [print_line, print_note])
def test_a_line_break_in_a_name_begins_no_line_of_its_own(
    printed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    printed("Left out: mug\nNext: rm -r photos")
    assert "".join(capsys.readouterr()) == "Left out: mug\\nNext: rm -r photos\n"


def test_a_terminal_that_lacks_letters_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding, expected in (
        ("ascii", b"1\\u20132 \\xe9 \\udcff\n"),
        ("latin-1", b"1\\u20132 \xe9 \\udcff\n"),
    ):
        written = io.BytesIO()
        monkeypatch.setattr(
            sys, "stdout", io.TextIOWrapper(written, encoding=encoding, write_through=True)
        )
        monkeypatch.setattr(main, "app", lambda: print("1–2 é \udcff"))
        main.main()
        assert written.getvalue() == expected


def test_a_page_opens_in_the_browser_of_a_machine_that_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    page = tmp_path / "a page.html"
    open_page(page, False)
    assert capsys.readouterr().err == ""
    open_page(page, True)
    assert capsys.readouterr().err.splitlines() == [f"No browser was found. Open {page} yourself."]
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    open_page(page, True)
    assert (tmp_path / "opened").read_text().strip() == page.as_uri()
    assert capsys.readouterr().err == ""


def test_commands_say_everything_through_it() -> None:
    folder = Path(counterfoil.cli.__file__).parent
    sources = {
        file.name: file.read_text() for file in folder.glob("*.py") if file.name != "terminal.py"
    }
    assert not [name for name, text in sources.items() if re.search(r"\bConsole\(", text)]
    # Documents, whose form escapes what it holds, are piped as they are.
    echo = [name for name, text in sources.items() if "typer.echo(" in text]
    assert sorted(echo) == ["calibrate.py", "main.py", "recipes.py"]


def test_one_problem_is_one_line_and_its_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_error(UserError("a is wrong", hint="Do b.")) == 2
    assert capsys.readouterr() == ("", "error: a is wrong\nDo b.\n")


def test_problems_are_counted_and_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_error(RunFailure(["a", "[b]"])) == 1
    assert capsys.readouterr().err == "error: 2 problems\n  - a\n  - [b]\n"


@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.ENOSPC, "disk is full"), (errno.EACCES, "permission"), (errno.EROFS, "read-only")],
)
def test_faults_of_the_machine_say_what_to_do(
    capsys: pytest.CaptureFixture[str], number: int, hint: str
) -> None:
    assert show_error(OSError(number, "No", "/out/x")) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("error: /out/x: ") and hint in shown


def test_the_unexpected_asks_to_be_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COUNTERFOIL_DEBUG", raising=False)
    assert show_error(KeyError("x")) == 1
    shown = capsys.readouterr().err
    assert "internal error: KeyError: 'x'" in shown and "COUNTERFOIL_DEBUG=1" in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (httpx2.ConnectError("[Errno 111] Connection refused"), "the Hub cannot be reached"),
        (OfflineModeIsEnabled("offline"), "the Hub cannot be reached"),
        (MemoryError(), "out of memory"),
    ],
)
def test_what_is_no_fault_of_the_program_is_not_to_be_reported(
    capsys: pytest.CaptureFixture[str], error: Exception, message: str
) -> None:
    assert show_error(error) == 1
    shown = capsys.readouterr().err
    assert message in shown and "internal error" not in shown and "report" not in shown


def test_debug_shows_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTERFOIL_DEBUG", "1")
    try:
        raise UserError("a")
    except UserError as error:
        assert show_error(error) == 2
    assert "Traceback" in capsys.readouterr().err
