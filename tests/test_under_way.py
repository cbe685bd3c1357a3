"""Work under way tells its progress in order and gives its result, also from work inside of it."""

from __future__ import annotations

import pytest

from counterfoil.under_way import UnderWay, finish, show, told_as


def counted(count: int) -> UnderWay[int, str]:
    yield from range(count)
    return f"{count} done"


def twice(count: int) -> UnderWay[int, list[str]]:
    return [(yield from counted(count)), (yield from counted(1))]


def test_the_result_is_what_the_work_returns() -> None:
    assert finish(twice(3)) == ["3 done", "1 done"]


def test_what_is_told_is_drawn_in_order() -> None:
    drawn: list[int] = []
    assert show(twice(2), drawn.append) == ["2 done", "1 done"]
    assert drawn == [0, 1, 0]


def test_an_error_of_the_drawing_ends_the_work_and_what_it_holds_is_let_go() -> None:
    let_go: list[str] = []

    def holding() -> UnderWay[int, str]:
        try:
            return (yield from counted(2))
        finally:
            let_go.append("lock")

    def refuse(told: int) -> None:
        raise ValueError(told)

    work = holding()
    with pytest.raises(ValueError, match="0"):
        show(work, refuse)
    assert let_go == ["lock"]
    assert list(work) == []


def test_work_in_other_words_is_the_same_work() -> None:
    drawn: list[str] = []
    assert show(told_as(twice(2), str), drawn.append) == ["2 done", "1 done"]
    assert drawn == ["0", "1", "0"]


def test_work_in_other_words_ends_when_nobody_asks_any_more() -> None:
    inner = counted(2)
    work = told_as(inner, str)
    next(work)
    work.close()
    assert list(inner) == []
