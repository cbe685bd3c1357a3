"""Find the rows of a pool nearest to each of many prompts, no row for two of them: pure functions on arrays.

Rows are dealt in rounds: in each, every prompt that wants more takes the nearest free row, in the prompts' order. So no
prompt is left with the far end of the pool, and how many rows one wants changes no earlier round. Of equally near rows
the first is nearer.

A score is exact: vectors are rounded to a grid on which no sum of products needs more digits than a float64 has. So
neither block sizes, nor the order in which a library adds, nor the machine decide between two rows. The pool is read in
chunks, and of each prompt only a short list is kept, and taken again from the free rows when it runs out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Products of two numbers on this grid are whole multiples of 2^-52, and sums of them over unit vectors stay below 2.
_GRID = 2.0**26
_CHUNK_ROWS = 4096  # of the pool at once
_BLOCK_PROMPTS = 512  # whose scores are held at once
_LIST_ENTRIES = 1 << 24  # of all lists together: 268 MB
_SHORTEST_LIST = 64


@dataclass(frozen=True, slots=True)
class NearestRows:
    """What one prompt was given, in the order of the rounds.

    rows: int64. ranks: int64, the place of each among all usable rows by nearness to this prompt, 1 for the nearest.
    scores: float64, its cosine with the prompt.
    """

    rows: NDArray[np.int64]
    ranks: NDArray[np.int64]
    scores: NDArray[np.float64]


def nearest_rows(
    pool: NDArray[np.floating],
    prompts: NDArray[np.floating],
    wanted: Sequence[int],
    usable: NDArray[np.bool_],
    *,
    chunk_rows: int = _CHUNK_ROWS,
    list_entries: int = _LIST_ENTRIES,
) -> list[NearestRows]:
    """Return for each of c prompts as many rows of the pool as it wants, each row for one prompt alone.

    pool: (n, width) and prompts: (c, width), unit vectors; unusable rows may hold anything. wanted: c counts. usable:
    (n,). `list_entries` (in all lists) and `chunk_rows` bound memory and change no result. ValueError if more rows are
    wanted than usable.
    """
    if sum(wanted) > int(usable.sum()):
        raise ValueError(f"{sum(wanted):,} rows are wanted of {int(usable.sum()):,}")
    prompts, free = _on_grid(prompts), usable.copy()
    given: list[list[int]] = [[] for _ in wanted]
    near: list[list[float]] = [[] for _ in wanted]
    length = max([_SHORTEST_LIST, *(2 * count for count in wanted)])
    while still := [index for index, count in enumerate(wanted) if len(given[index]) < count]:
        short = max(1, min(length, list_entries // len(still)))
        lists = _lists(pool, prompts[still], free, short, chunk_rows)
        _deal(dict(zip(still, lists, strict=True)), wanted, given, near, free)
        length *= 2  # who wants much of the same rows would come back often
    ranks = _ranks(pool, prompts, usable, given, near, chunk_rows)
    return [
        NearestRows(np.asarray(rows, dtype=np.int64), rank, np.asarray(scores, dtype=np.float64))
        for rows, rank, scores in zip(given, ranks, near, strict=True)
    ]


def _deal(
    lists: dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]],
    wanted: Sequence[int],
    given: list[list[int]],
    near: list[list[float]],
    free: NDArray[np.bool_],
) -> None:
    """Deal in rounds until no prompt wants more or a list runs out; continue a round that was broken off."""
    at = dict.fromkeys(lists, 0)
    for turn in range(min(len(given[place]) for place in lists), max(wanted)):
        for place, (rows, scores) in lists.items():
            if len(given[place]) != turn or turn == wanted[place]:
                continue
            while at[place] < len(rows) and not free[rows[at[place]]]:
                at[place] += 1
            if at[place] == len(rows):
                return
            row = int(rows[at[place]])
            free[row] = False
            given[place].append(row)
            near[place].append(float(scores[at[place]]))


def _lists(
    pool: NDArray[np.floating], prompts: NDArray[np.float64], free: NDArray[np.bool_], length: int, chunk_rows: int
) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Return at most `length` free rows of each prompt with their scores, the nearest first."""
    found = [(np.empty(0, dtype=np.int64), np.empty(0)) for _ in range(len(prompts))]
    for rows, start, scores in _scored(pool, prompts, free, chunk_rows):
        for index, score in enumerate(scores, start=start):
            kept, best = found[index]
            # An equal one is further back than those that a full list has.
            better = np.flatnonzero(score > best[-1]) if len(kept) == length else np.arange(len(rows))
            if len(better):
                both = np.concatenate([best, score[better]])
                first = np.argsort(-both, kind="stable")[:length]
                found[index] = np.concatenate([kept, rows[better]])[first], both[first]
    return found


def _ranks(
    pool: NDArray[np.floating],
    prompts: NDArray[np.float64],
    usable: NDArray[np.bool_],
    given: Sequence[Sequence[int]],
    near: Sequence[Sequence[float]],
    chunk_rows: int,
) -> list[NDArray[np.int64]]:
    """Return each row's rank among the usable rows of a prompt, from 1."""
    ranks = [np.ones(len(own), dtype=np.int64) for own in given]
    for rows, start, scores in _scored(pool, prompts, usable, chunk_rows):
        for index, own in enumerate(scores, start=start):
            mine = np.asarray(near[index])
            in_order = np.sort(own)
            beyond = np.searchsorted(in_order, mine, side="right")
            ranks[index] += len(own) - beyond
            for tied in np.flatnonzero(beyond > np.searchsorted(in_order, mine, side="left")).tolist():
                ranks[index][tied] += int(((own == mine[tied]) & (rows < given[index][tied])).sum())
    return ranks


def _scored(
    pool: NDArray[np.floating], prompts: NDArray[np.float64], chosen: NDArray[np.bool_], chunk_rows: int
) -> Iterator[tuple[NDArray[np.int64], int, NDArray[np.float64]]]:
    """Yield chosen rows chunk by chunk, the first prompt of a block, and its scores (prompts, rows)."""
    every = np.flatnonzero(chosen)
    for first in range(0, len(every), chunk_rows):
        rows = every[first : first + chunk_rows]
        vectors = _on_grid(pool[rows]).T
        for start in range(0, len(prompts), _BLOCK_PROMPTS):
            yield rows, start, prompts[start : start + _BLOCK_PROMPTS] @ vectors


def _on_grid(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.rint(np.asarray(vectors, dtype=np.float64) * _GRID) / _GRID
