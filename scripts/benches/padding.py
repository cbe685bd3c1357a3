"""How much of what a build renders is padding, by candidates a cell, rows a shard, batch size and
workers.

Plans of ten classes under a base and five shifts, each a group of its own, with 10 to 60 candidates
a cell. Only plans whose groups hold ten batches or more count. Each line tells the worst of its
plans: where every shard ends its batches, and as spans of shards are dealt (`building/spans.py`),
with the candidates of that plan; and how much later the last worker ends than with nothing padded
and nobody idle. Nothing is rendered.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Iterator, Sequence
from itertools import pairwise, product

from benches import Page
from counterfoil.building.spans import Load, cuts
from results_page import table

TITLE = "Padding"
PARTS = ("padding",)
CLASSES = 10
GROUPS = 6
LEAST = 10
CANDIDATES = range(10, 61)
ROWS = (100, 500, 1000, 5000)
SIZES = (8, 16, 20, 32)
WORKERS = (1, 2, 8)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add nothing: this bench has no options."""


def measure(options: argparse.Namespace) -> Iterator[Page]:
    """Judge all plans."""
    rows = []
    for workers, shard_rows, size in product(WORKERS, ROWS, SIZES):
        enough = [count for count in CANDIDATES if count * CLASSES >= LEAST * size]
        plans = {count: dealt(count, shard_rows, size, workers) for count in enough}
        worst = max(plans, key=lambda count: plans[count][1])
        shares = [f"{share:.1%}" for share in map(max, zip(*plans.values(), strict=True))]
        rows.append([workers, f"{shard_rows:,}", size, len(plans), *shares[:2], worst, shares[2]])
    titles = (
        "Workers",
        "Rows a shard",
        "Batch",
        "Plans",
        "Worst, shard by shard",
        "Worst, in spans",
        "its candidates",
        "Late",
    )
    opening = [
        "`python scripts/bench.py padding`, which renders nothing: the share of rendered images"
        " that are padding,",
        "the worst of the plans with 10 to 60 candidates a cell whose groups hold ten batches or"
        " more. With eight",
        "workers such a plan has few batches for each, and time is put before padding. *Late*: how"
        " much later the",
        "last worker ends, at worst, than with nothing padded and nobody idle.",
    ]
    yield Page(opening, {"padding": table(titles, rows, words=0)})


def dealt(candidates: int, rows: int, size: int, workers: int) -> tuple[float, float, float]:
    """Return the shares that are padding, shard by shard and in spans, and how much later the last
    worker ends."""
    # Whole cells, as many as a shard has rows for; the last of a group holds the rest.
    cells = max(1, rows // candidates)
    loads = [
        Load(min(cells, CLASSES - at) * candidates)
        for _ in range(GROUPS)
        for at in range(0, CLASSES, cells)
    ]
    ends = cuts(loads, size, workers)
    images = candidates * CLASSES * GROUPS
    alone, padded = (
        1 - images / (size * sum(batches(loads, size, cut)))
        for cut in (range(1, len(loads) + 1), ends)
    )
    # The last worker ends after so many batches: each takes the next span when it is free.
    free = [0] * workers
    for count in batches(loads, size, ends):
        heapq.heapreplace(free, free[0] + count)
    return alone, padded, max(free) * size * workers / images - 1


def batches(loads: Sequence[Load], size: int, ends: Sequence[int]) -> list[int]:
    """Return the batches of each span, the last of them padded."""
    images = (
        sum(load.by_prompt for load in loads[first:last]) for first, last in pairwise([0, *ends])
    )
    return [-(-count // size) for count in images]
