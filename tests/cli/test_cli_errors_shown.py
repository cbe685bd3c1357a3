"""What a person sees of each kind of error, and the exit code."""

from __future__ import annotations

import errno

import httpx2
import pytest
from huggingface_hub.errors import OfflineModeIsEnabled

from counterfoil.cli.terminal import show_error
from counterfoil.errors import RunFailure, UserError


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
def test_faults_of_the_machine_say_what_to_do(capsys: pytest.CaptureFixture[str], number: int, hint: str) -> None:
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
    ("error", "said"),
    [
        (httpx2.ConnectError("[Errno 111] Connection refused"), "the Hub cannot be reached"),
        (OfflineModeIsEnabled("offline"), "the Hub cannot be reached"),
        (MemoryError(), "out of memory"),
    ],
)
def test_what_is_no_fault_of_the_program_is_not_to_be_reported(
    capsys: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    assert show_error(error) == 1
    shown = capsys.readouterr().err
    assert said in shown and "internal error" not in shown and "report" not in shown


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERFOIL_DEBUG", "1")
    try:
        raise UserError("a")
    except UserError as error:
        assert show_error(error) == 2
    assert "Traceback" in capsys.readouterr().err
