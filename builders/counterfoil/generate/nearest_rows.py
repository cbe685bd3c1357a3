"""Find the rows of a pool that are nearest to each of many prompts. Unless rows may repeat, no row
is given to two prompts.

Rows are dealt in rounds. In each round, every prompt that needs more rows takes the nearest free
row, in the order of the prompts. Of equally near rows, it takes the first. Vectors are rounded to a
grid on which a float64 holds every sum of products exactly, so scores are equal on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from counterfoil.arrays import AnyFloats, Bools, Floats, Ints

# Products of two numbers on this grid are multiples of 2^-52, and their sums over unit vectors stay
# below 2.
_GRID = 2.0**26
# Bounds of memory, which change no result.
_CHUNK_ROWS = 4096  # rows of the pool that are scored at once
_BLOCK_PROMPTS = 512  # prompts that are scored at once
_LIST_ENTRIES = 1 << 24  # entries of all lists together, which take 268 MB
_SHORTEST_LIST = 64


@dataclass(frozen=True, slots=True)
class NearestRows:
    """The rows that a prompt got, in the order of the rounds."""

    rows: Ints
    ranks: Ints
    """The rank of each row among all usable rows by nearness to this prompt, from 1."""
    scores: Floats
    """The cosine of each row with the prompt."""


def nearest_rows(
    pool: AnyFloats,
    prompts: AnyFloats,
    wanted: Sequence[int],
    usable: Bools,
    *,
    repeats: bool = False,
) -> list[NearestRows]:
    """Return the wanted number of rows of the pool for each of c prompts. No row is given to two
    prompts, unless rows may repeat.

    pool: unit vectors (n, width), where unusable rows may contain anything. prompts: unit vectors
    (c, width). wanted: the c numbers of rows. usable: whether each row may be given, (n,). Raise
    ValueError if there are too few usable rows.
    """
    needed = max(wanted) if repeats else sum(wanted)
    count = int(usable.sum())
    if needed > count:
        raise ValueError(f"{needed:,} rows are wanted of {count:,}")
    prompts = _on_grid(prompts)
    free = usable.copy()
    given: list[list[int]] = [[] for _ in wanted]
    near: list[list[float]] = [[] for _ in wanted]
    if repeats:
        at_once = max(1, _LIST_ENTRIES // needed)
        for first in range(0, len(wanted), at_once):
            block = prompts[first : first + at_once]
            lists = _lists(pool, block, usable, needed)
            for prompt, (rows, scores) in enumerate(lists, first):
                count = wanted[prompt]
                given[prompt] = rows[:count].tolist()
                near[prompt] = scores[:count].tolist()
    length = max(_SHORTEST_LIST, 2 * max(wanted, default=0))
    while still := [prompt for prompt, rows in enumerate(given) if len(rows) < wanted[prompt]]:
        short = max(1, min(length, _LIST_ENTRIES // len(still)))
        lists = _lists(pool, prompts[still], free, short)
        by_prompt = dict(zip(still, lists, strict=True))
        _deal(by_prompt, wanted, given, near, free)
        length *= 2  # prompts that share their nearest rows would need many rounds
    ranks = _ranks(pool, prompts, usable, given, near)
    nearest = []
    for rows, rank, scores in zip(given, ranks, near, strict=True):
        indices = np.asarray(rows, dtype=np.int64)
        cosines = np.asarray(scores, dtype=np.float64)
        nearest.append(NearestRows(indices, rank, cosines))
    return nearest


def _deal(
    lists: dict[int, tuple[Ints, Floats]],
    wanted: Sequence[int],
    given: list[list[int]],
    near: list[list[float]],
    free: Bools,
) -> None:
    """Deal rows in rounds until every prompt has its rows, or until a list ends.

    A list that ends interrupts a round, and the next call continues this round.
    """
    at = dict.fromkeys(lists, 0)
    fewest = min(len(given[prompt]) for prompt in lists)
    for turn in range(fewest, max(wanted)):
        for prompt, (rows, scores) in lists.items():
            if len(given[prompt]) != turn or turn == wanted[prompt]:
                continue
            position = at[prompt]
            while position < len(rows) and not free[rows[position]]:
                position += 1
            if position == len(rows):
                return
            row = int(rows[position])
            free[row] = False
            given[prompt].append(row)
            near[prompt].append(float(scores[position]))
            at[prompt] = position


def _lists(
    pool: AnyFloats,
    prompts: Floats,
    free: Bools,
    length: int,
) -> list[tuple[Ints, Floats]]:
    """Return, for each prompt, at most `length` free rows with their scores. The nearest row is
    first."""
    nothing = (np.empty(0, dtype=np.int64), np.empty(0))
    lists = [nothing] * len(prompts)
    for rows, start, scores in _scored(pool, prompts, free):
        for index, score in enumerate(scores, start=start):
            nearest, best = lists[index]
            # A row must score higher than the last row of a full list, because earlier rows win
            # ties.
            better = np.arange(len(rows))
            if len(nearest) == length:
                better = np.flatnonzero(score > best[-1])
            if len(better):
                all_rows = np.append(nearest, rows[better])
                all_scores = np.append(best, score[better])
                first = np.argsort(-all_scores, kind="stable")[:length]
                lists[index] = (all_rows[first], all_scores[first])
    return lists


def _ranks(
    pool: AnyFloats,
    prompts: Floats,
    usable: Bools,
    given: Sequence[Sequence[int]],
    near: Sequence[Sequence[float]],
) -> list[Ints]:
    """Return the rank of each given row among the usable rows, from 1, by nearness to its
    prompt."""
    ranks = [np.ones(len(rows), dtype=np.int64) for rows in given]
    for rows, start, scores in _scored(pool, prompts, usable):
        for index, chunk in enumerate(scores, start=start):
            rising = np.sort(chunk)
            not_above = np.searchsorted(rising, near[index], side="right")
            below = np.searchsorted(rising, near[index], side="left")
            rank = ranks[index]
            rank += len(chunk) - not_above
            for tied in np.flatnonzero(not_above > below).tolist():
                equal = chunk == near[index][tied]
                earlier = rows < given[index][tied]
                rank[tied] += int((equal & earlier).sum())
    return ranks


def _scored(
    pool: AnyFloats,
    prompts: Floats,
    chosen: Bools,
) -> Iterator[tuple[Ints, int, Floats]]:
    """Yield a chunk of chosen rows, the first prompt of a block, and the scores of the block
    (prompts, rows)."""
    every = np.flatnonzero(chosen)
    for first in range(0, len(every), _CHUNK_ROWS):
        rows = every[first : first + _CHUNK_ROWS]
        vectors = _on_grid(pool[rows]).T
        for start in range(0, len(prompts), _BLOCK_PROMPTS):
            block = prompts[start : start + _BLOCK_PROMPTS]
            yield rows, start, block @ vectors


def _on_grid(vectors: AnyFloats) -> Floats:
    doubles = np.asarray(vectors, dtype=np.float64)
    return np.rint(doubles * _GRID) / _GRID
