"""Work reports its progress in order; a listener can end the work, which then releases what it
holds."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import counterfoil
from counterfoil.progress import Stage, listening, rename_stages, report_progress, track


def counted(count: int) -> str:
    for done in range(count):
        report_progress("counting", done, count)
    return f"{count} done"


@contextmanager
def held(let_go: list[str]) -> Iterator[None]:
    try:
        yield
    finally:
        let_go.append("lock")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_reported_is_heard_in_order_from_work_inside_work_too() -> None:
    heard: list[Stage] = []
    with listening(heard.append):
        assert [counted(2), counted(1)] == ["2 done", "1 done"]
    assert heard == [Stage("counting", 0, 2), Stage("counting", 1, 2), Stage("counting", 0, 1)]
    counted(1)
    assert len(heard) == 3, "nobody listens any more"


def test_an_item_is_reported_once_the_next_is_asked_for() -> None:
    heard: list[Stage] = []
    with listening(heard.append):
        for item in track("abc", "letters"):
            assert len(heard) == "abc".index(item)
        for _ in track(iter("abc"), "some", total=5):
            break
    assert heard == [Stage("letters", done, 3) for done in (1, 2, 3)]


@pytest.mark.parametrize("error", [ValueError("full"), KeyboardInterrupt(), SystemExit(3)])
def test_what_a_listener_raises_ends_the_work_and_what_it_holds_is_let_go(
    error: BaseException,
) -> None:
    let_go: list[str] = []
    passed: list[str] = []

    def hear(events: Stage) -> None:
        if events.done == 1:
            raise error

    with pytest.raises(type(error)) as raised, listening(hear), held(let_go):
        counted(3)
        passed.append("on")
    assert raised.value is error
    assert let_go == ["lock"] and passed == []


def test_work_that_lives_with_its_errors_does_not_live_with_a_listeners() -> None:
    passed: list[str] = []

    def hear(events: Stage) -> None:
        raise ValueError("full")

    def lenient() -> None:
        try:
            with rename_stages("again"):
                counted(2)
        except Exception:
            passed.append("taken for an error of the work")

    with pytest.raises(ValueError, match="full") as raised, listening(hear):
        lenient()
    assert passed == [] and raised.value.__cause__ is None
    with listening(lambda events: None):
        counted(1)


def test_what_is_reported_within_is_reported_in_other_words() -> None:
    heard: list[Any] = []
    with listening(heard.append):
        with (
            rename_stages("inner"),
            rename_stages(lambda events: Stage(events.name.upper(), events.done, events.total)),
        ):
            counted(1)
        with rename_stages(lambda events: events.name):
            counted(1)
        counted(1)
    assert heard == [Stage("inner", 0, 1), "counting", Stage("counting", 0, 1)]


def test_whoever_listens_within_hears_alone() -> None:
    outer: list[Stage] = []
    inner: list[Stage] = []
    with listening(outer.append):
        with listening(inner.append):
            counted(1)
        assert outer == []
        counted(1)
    assert inner == outer == [Stage("counting", 0, 1)]


def test_a_terminal_shows_one_line_unless_it_is_reported_not_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def shown() -> str:
        monkeypatch.setattr(sys, "stderr", terminal := Terminal())
        for done in range(1, 4):
            report_progress("files", done, 3)
        return terminal.getvalue()

    line = shown()
    assert "files: 1 of 3" in line and "\n" not in line
    assert line.rpartition("\r")[2] == "", "the line is gone"
    counterfoil.disable_progress_bars()
    try:
        assert shown() == ""
        heard: list[Stage] = []
        with listening(heard.append):
            counted(1)
        assert heard, "who listens hears it"
    finally:
        counterfoil.enable_progress_bars()
    thread = threading.Thread(target=counted, args=(2,))
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    thread.start()
    thread.join()
    assert terminal.getvalue() == "", "a thread of a pool writes nothing"
