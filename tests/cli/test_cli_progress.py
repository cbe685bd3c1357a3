"""Stages are a bar each on a terminal; elsewhere a line each, when they are through. A build is
lines of its own."""

from __future__ import annotations

import re

import pytest

from counterfoil.building.build_dataset import BuildProgress
from counterfoil.cli import progress
from counterfoil.cli.progress import BuildDisplay, StageProgress
from counterfoil.progress import Stage

TOLD = [
    Stage("files", 1, 2),
    Stage("files", 2, 2),
    Stage("lab:[resnet10t]", 900, 1200),
    Stage("lab:[resnet10t]", 1200, 1200),
]


def drawn(capsys: pytest.CaptureFixture[str]) -> str:
    with StageProgress() as bars:
        for stage in TOLD:
            bars.draw(stage)
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


def test_a_narrow_terminal_shows_the_bar_and_the_time_left_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "FORCE_COLOR": "1",
        "TERM": "xterm",
        "COLUMNS": "80",
        "NO_COLOR": "1",
    }.items():
        monkeypatch.setenv(name, value)
    with StageProgress() as bars:
        bars.draw(
            Stage("some-model.of_a_very_long_name_in1k, at_night and in_the_snow", 150_000, 200_000)
        )
    _, err = capsys.readouterr()
    lines = [
        line
        for line in re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", err).splitlines()
        if "150000/200000" in line
    ]
    assert lines and all(
        len(line.rstrip()) <= 80 and re.search(r"\d+/\d+ \S*:\S\S$", line.rstrip())
        for line in lines
    )


def test_a_build_that_goes_on_says_how_much_is_there_and_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    display = BuildDisplay()
    display.update(BuildProgress(0, 6, 0, 600, {}, there=800))
    display.update(BuildProgress(1, 6, 100, 600, {}))
    assert capsys.readouterr().err.count("800 of 1,400 images are rendered already") == 1


def test_the_display_remembers_no_more_of_a_thousand_workers_than_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock)
    display = BuildDisplay()
    for batch in range(6_000):  # a thousand a second, ten images each
        clock = batch / 1000
        display.update(BuildProgress(0, 10, 10 * batch, 10_000_000, {}))
    assert len(display.history) <= 6 / 0.1 + 2
    assert display._rate() == pytest.approx(10_000, rel=1e-6)
    clock += 3600
    display.update(BuildProgress(0, 10, 60_000, 10_000_000, {}))
    assert len(display.history) == 1


def test_the_time_left_does_not_count_the_time_that_loading_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock)
    display = BuildDisplay()
    for now, images in ((0.0, 0), (25.0, 10), (26.0, 20), (27.0, 30)):
        clock = now
        display.update(BuildProgress(0, 10, images, 1_000, {}))
    assert display._rate() == pytest.approx(10)
