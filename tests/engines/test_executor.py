"""The number of deaths that a run survives, and the words for what ends it."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from trivial_work import Tens

from counterfoil.engines import local
from counterfoil.engines.engine import Finished
from counterfoil.engines.executor import (
    MOST_DEATHS_A_WORKER,
    MOST_DEATHS_OF_AN_ITEM,
    MOST_UNREADY,
    Deaths,
    Done,
    Unready,
    ending_of,
    hand_out,
    name_of_item,
)
from counterfoil.errors import RunFailure
from counterfoil.plan.layout import Shard


def died(deaths: Deaths, item: int, code: int = -signal.SIGSEGV) -> str:
    return deaths.count(item, f"item {item}", "cuda:1", ending_of(code), code)


def test_the_third_death_at_an_item_is_one_too_many_whatever_else_was_done() -> None:
    deaths = Deaths(None, 1, 1, finished=1000)
    for _ in range(MOST_DEATHS_OF_AN_ITEM - 1):
        assert "another worker restarts item 7" in died(deaths, 7)
    with pytest.raises(
        RunFailure,
        match="item 7: 3 workers died while working on it; the last one, on cuda:1, was ended by"
        " SIGSEGV",
    ):
        died(deaths, 7)


@pytest.mark.parametrize("at_once", [1, 4])
def test_a_run_ends_where_more_workers_die_than_items_are_finished(at_once: int) -> None:
    deaths = Deaths(None, 1, at_once)
    for item in range(MOST_DEATHS_A_WORKER * at_once - 1):
        died(deaths, item)
    deaths.finished += 1
    died(deaths, 98)
    with pytest.raises(
        RunFailure,
        match=f"{MOST_DEATHS_A_WORKER * at_once + 1} workers died, with 1 items finished",
    ):
        died(deaths, 99)


def test_workers_that_all_die_once_do_not_end_a_run() -> None:
    deaths = Deaths(None, 1, 64)
    for item in range(64):
        died(deaths, item)


def test_so_many_losses_before_one_is_ready_end_a_run_and_one_that_gets_ready_starts_the_count_anew() -> (
    None
):
    unready = Unready()
    for _ in range(2):
        for _ in range(MOST_UNREADY - 1):
            assert "starting another one" in unready.count("killed", None)
        unready.one_got_ready()
    unready.count("killed", None)
    unready.count("killed", None)
    with pytest.raises(
        RunFailure, match="3 Ray actors were lost before they were ready; the last: out of breath"
    ):
        unready.count("out of breath", None)


def test_many_workers_lost_with_their_machine_are_one_loss() -> None:
    unready = Unready()
    for _ in range(8):
        unready.count("its node has died", "ab")
    unready.count("its node has died", "cd")
    for _ in range(8):
        unready.count("its node has died", "ab")
    with pytest.raises(RunFailure, match="3 Ray actors were lost"):
        unready.count("its node has died", "ef")


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (-signal.SIGKILL, "use too much memory"),
        (1, "a library or driver"),
        (-signal.SIGSEGV, "a library or driver"),
    ],
)
def test_what_helps_goes_by_how_they_died(code: int, advice: str) -> None:
    deaths = Deaths(None, 1, 8)
    died(deaths, 0, code)
    died(deaths, 0, code)
    with pytest.raises(RunFailure) as failed:
        died(deaths, 0, code)
    assert advice in (failed.value.hint or "")


@dataclass(frozen=True)
class _Frugal:
    less_memory: str = "Take a smaller one."


def test_the_advice_about_memory_is_that_of_the_work_and_names_workers_where_there_are_several() -> (
    None
):
    for workers, device, advice in (
        (1, "cpu", ""),
        (3, "cpu", "(now 3)"),
        (3, "cuda:0", "(now 3 a device)"),
    ):
        hint = Deaths(_Frugal(), workers, 8).out_of_memory("it", device, "too large").hint or ""
        assert "Take a smaller one." in hint
        assert ("--workers" in hint) is bool(advice)
        assert advice in hint


def test_items_are_named_shortly() -> None:
    shards = tuple(Shard("base", number, 9, ()) for number in range(5))
    assert name_of_item(shards[3]) == "base-00003"
    assert name_of_item(shards) == "base-00000, base-00001, base-00002 and 2 more"
    assert name_of_item(["03", "05"]) == "03, 05"
    assert len(name_of_item("long" * 1000)) < 100


@dataclass(eq=False)
class Hand:
    """A worker that finishes every item at once."""

    device: str
    item: int | None = None

    def give(self, item: int) -> None:
        self.item = item


def test_who_is_there_works_where_another_cannot_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hands: list[Hand] = []

    def start(work: object, device: str, context: object) -> Hand:
        if hands:
            raise RunFailure("no process can start")
        hands.append(Hand(device))
        return hands[0]

    monkeypatch.setattr(local, "WorkerProcess", start)
    crew = local._Processes(Tens(tmp_path), ["one", "two"], 2)
    monkeypatch.setattr(crew, "heard", lambda: [(hand, Done(hand.item)) for hand in hands])
    events = hand_out(crew, [1, 2, 3], Deaths(None, 2, 2))
    assert next(events) == Finished(1, 1)
    with pytest.raises(StopIteration) as end:
        next(events)
    assert isinstance(end.value.value, RunFailure)
