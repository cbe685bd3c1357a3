"""Stages are a bar each on a terminal; elsewhere a line each, when they are through."""

from __future__ import annotations

import pytest

from counterfoil.cli.progress import StageProgress
from counterfoil.under_way import Stage

TOLD = [
    Stage("files", 1, 2),
    Stage("files", 2, 2),
    Stage("lab:[resnet10t]", 900, 1200),
    Stage("lab:[resnet10t]", 1200, 1200),
]


def drawn(capsys: pytest.CaptureFixture[str]) -> str:
    with StageProgress() as progress:
        for stage in TOLD:
            progress.draw(stage)
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_a_pipe_gets_a_line_for_each_stage_that_is_through(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    assert drawn(capsys) == "files: 2 done\nlab:[resnet10t]: 1,200 done\n"


def test_a_terminal_gets_a_bar_for_each_stage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    shown = drawn(capsys)
    assert "lab:[resnet10t]" in shown and "1200/1200" in shown and "2/2" in shown
    assert " done" not in shown
