"""The nearest rows of a pool are dealt to prompts as by a plain reference, each once, with any
chunks."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from counterfoil.generate import nearest_rows as nearest_rows_module
from counterfoil.generate.nearest_rows import nearest_rows


def unit(rng: np.random.Generator, count: int, width: int, levels: int) -> NDArray[np.float64]:
    """Return unit vectors of few different numbers, so that many are equally near."""
    rows = rng.integers(-levels, levels + 1, (count, width)).astype(np.float64)
    rows[np.abs(rows).sum(1) == 0, 0] = 1
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def dealt_plainly(
    pool: NDArray[np.floating],
    prompts: NDArray[np.floating],
    wanted: list[int],
    usable: NDArray[np.bool_],
) -> list[list[tuple[int, int]]]:
    """Return (row, rank) of each prompt, dealt in rounds over whole orders of the pool."""
    grid = [
        np.rint(np.nan_to_num(matrix.astype(np.float64)) * 2**26).astype(np.int64).astype(object)
        for matrix in (pool, prompts)
    ]
    orders = []
    for prompt in grid[1]:
        scores = {row: int((grid[0][row] * prompt).sum()) for row in np.flatnonzero(usable)}
        orders.append(sorted(scores, key=lambda row: (-scores[row], row)))
    taken: set[int] = set()
    dealt: list[list[tuple[int, int]]] = [[] for _ in wanted]
    for turn in range(max(wanted)):
        for index, count in enumerate(wanted):
            if turn < count:
                rank, row = next(
                    (rank, row) for rank, row in enumerate(orders[index], 1) if row not in taken
                )
                taken.add(int(row))
                dealt[index].append((int(row), rank))
    return dealt


@given(
    seed=st.integers(0, 2**32 - 1),
    prompts=st.integers(1, 6),
    most=st.integers(1, 9),
    spare=st.integers(0, 40),
    levels=st.sampled_from([1, 3, 1000]),
    chunk=st.sampled_from([1, 7, 4096]),
    entries=st.sampled_from([1, 20, 1 << 24]),
    half=st.booleans(),
)
def test_as_whole_orders_would_deal_them(
    seed: int,
    prompts: int,
    most: int,
    spare: int,
    levels: int,
    chunk: int,
    entries: int,
    half: bool,
) -> None:
    rng = np.random.default_rng(seed)
    wanted = rng.integers(1, most + 1, prompts).tolist()
    unusable = int(rng.integers(0, 5))
    pool = unit(rng, sum(wanted) + spare + unusable, 4, levels).astype(
        np.float16 if half else np.float32
    )
    usable = np.ones(len(pool), dtype=bool)
    usable[rng.permutation(len(pool))[:unusable]] = False
    pool[~usable] = np.nan
    texts = unit(rng, prompts, 4, levels).astype(np.float32)
    if prompts > 2:
        texts[1] = texts[0]  # two prompts with the same nearest rows
    with patch.multiple(nearest_rows_module, _CHUNK_ROWS=chunk, _LIST_ENTRIES=entries):
        dealt = nearest_rows(pool, texts, wanted, usable)
    assert [
        list(zip(share.rows.tolist(), share.ranks.tolist(), strict=True)) for share in dealt
    ] == dealt_plainly(pool, texts, wanted, usable)
    for share, text in zip(dealt, texts, strict=True):
        assert np.allclose(share.scores, pool[share.rows].astype(np.float64) @ text, atol=1e-6)


@pytest.mark.parametrize("entries", [1, 20, 1 << 24])
def test_rows_that_may_repeat_are_the_nearest_of_each_prompt_alone(entries: int) -> None:
    rng = np.random.default_rng(3)
    pool = unit(rng, 90, 4, 3)
    texts = unit(rng, 6, 4, 3)
    wanted = [5, 1, 9, 0, 3, 9]
    usable = rng.random(90) < 0.8
    with patch.multiple(nearest_rows_module, _CHUNK_ROWS=7, _LIST_ENTRIES=entries):
        dealt = nearest_rows(pool, texts, wanted, usable, repeats=True)
    for index, count in enumerate(wanted):
        (alone,) = dealt_plainly(pool, texts[[index]], [count], usable)
        rows = dealt[index].rows.tolist()
        assert list(zip(rows, dealt[index].ranks.tolist(), strict=True)) == alone
    every = np.concatenate([share.rows for share in dealt])
    assert len(np.unique(every)) < len(every)


def test_no_row_is_given_twice_and_no_prompt_is_starved() -> None:
    """Ten equal prompts share the nearest rows: each gets one of every ten."""
    rng = np.random.default_rng(0)
    pool = unit(rng, 400, 8, 1000)
    texts = np.repeat(unit(rng, 1, 8, 1000), 10, axis=0)
    dealt = nearest_rows(pool, texts, [30] * 10, np.ones(400, dtype=bool))
    every = np.concatenate([share.rows for share in dealt])
    assert len(np.unique(every)) == 300
    for index, share in enumerate(dealt):
        assert share.ranks.tolist() == [10 * turn + index + 1 for turn in range(30)]


def test_more_of_one_prompt_moves_no_row_of_the_rounds_before() -> None:
    rng = np.random.default_rng(1)
    pool = unit(rng, 300, 8, 1000)
    texts = unit(rng, 5, 8, 1000)
    few, more = (
        nearest_rows(pool, texts, [count] * 5, np.ones(300, dtype=bool)) for count in (10, 40)
    )
    for share, other in zip(few, more, strict=True):
        assert share.rows.tolist() == other.rows[:10].tolist()


def test_more_than_there_is_is_refused() -> None:
    rng = np.random.default_rng(2)
    usable = np.ones(10, dtype=bool)
    usable[3] = False
    with pytest.raises(ValueError, match="10 rows are wanted of 9"):
        nearest_rows(unit(rng, 10, 4, 9), unit(rng, 2, 4, 9), [5, 5], usable)
