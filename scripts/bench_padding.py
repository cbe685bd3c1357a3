"""How much of what a build renders is padding, by candidates a cell, rows a shard, batch size and workers.

    python scripts/bench_padding.py [--write]

Plans of ten classes under a base and five shifts, each a group of its own, with 10 to 60 candidates a cell. Only plans
whose groups hold ten batches or more count. Each line tells the worst of its plans: where every shard ends its batches,
and as spans of shards are dealt (`building/spans.py`), with the candidates of that plan; and how much later the last
worker ends than with nothing padded and nobody idle. Nothing is rendered.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import results_page
from counterfoil.building.spans import Load, cuts, padded_share

RESULTS = Path(__file__).parent / "RESULTS.md"
CLASSES, GROUPS, LEAST = 10, 6, 10
CANDIDATES = range(10, 61)
ROWS = (100, 500, 1000, 5000)
SIZES = (8, 16, 20, 32)
WORKERS = (1, 2, 8)


@dataclass(frozen=True)
class Dealt:
    """What becomes of one plan."""

    candidates: int
    alone: float
    padded: float
    late: float


def shards(candidates: int, rows: int) -> list[Load]:
    """Whole cells, as many as a shard has rows for; the last of a group holds the rest."""
    cells = max(1, rows // candidates)
    return [Load(min(cells, CLASSES - at) * candidates) for _ in range(GROUPS) for at in range(0, CLASSES, cells)]


def last_end(loads: Sequence[Load], size: int, ends: Sequence[int], workers: int) -> int:
    """Batches until the last worker has ended."""
    free = [0] * workers
    for first, last in pairwise([0, *ends]):
        images = sum(load.by_prompt for load in loads[first:last])
        heapq.heapreplace(free, free[0] + -(-images // size))
    return max(free)


def dealt(candidates: int, rows: int, size: int, workers: int) -> Dealt:
    loads = shards(candidates, rows)
    ends = cuts(loads, size, workers)
    least = candidates * CLASSES * GROUPS / size / workers
    return Dealt(
        candidates,
        padded_share(loads, size, range(1, len(loads) + 1)),
        padded_share(loads, size, ends),
        last_end(loads, size, ends, workers) / least - 1,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into scripts/RESULTS.md")
    arguments = parser.parse_args()
    table = [
        "| Workers | Rows a shard | Batch | Plans | Worst, shard by shard | Worst, in spans | its candidates | Late |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for workers in WORKERS:
        for rows in ROWS:
            for size in SIZES:
                enough = [n for n in CANDIDATES if n * CLASSES >= LEAST * size]
                found = [dealt(candidates, rows, size, workers) for candidates in enough]
                worst = max(found, key=lambda one: one.padded)
                alone, late = max(one.alone for one in found), max(one.late for one in found)
                cells = [workers, f"{rows:,}", size, len(found), f"{alone:.1%}", f"{worst.padded:.1%}"]
                cells += [worst.candidates, f"{late:.1%}"]
                table.append(f"| {' | '.join(map(str, cells))} |")
    print("\n".join(table))
    if arguments.write:
        opening = [
            "`python scripts/bench_padding.py`, which renders nothing: the share of rendered images that are padding,",
            "the worst of the plans with 10 to 60 candidates a cell whose groups hold ten batches or more. With eight",
            "workers such a plan has few batches for each, and time is put before padding. *Late*: how much later the",
            "last worker ends, at worst, than with nothing padded and nobody idle.",
        ]
        results_page.write(RESULTS, "bench_padding", "Padding", opening, {"padding": table}, ["padding"])


if __name__ == "__main__":
    main()
