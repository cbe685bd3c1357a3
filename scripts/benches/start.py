"""How long a build takes to its first image: workers that are forked from a server, beside workers
that are spawned.

Each run is a program of its own that builds wardrobe-mini twice, two steps an image, and stops each
build at its first image: the first build meets libraries that nobody has imported, the second a
program that is up. Both ways are run in turn; a ratio is of medians.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benches import Page
from benches.processes import json_of
from results_page import table

TITLE = "Time to the first image"
PARTS = ("start",)
WAYS = ("spawned", "forked")
CHANGES = (
    "generator.steps=2",
    "tokens=null",
    "screen.object_threshold=-1",
    "screen.shift_threshold=-1",
)


class _Drawn(Exception):
    """The first image is there."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the number of workers and of runs."""
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)


def measure(options: argparse.Namespace) -> Iterator[Page]:
    """Run both ways in turn."""
    load = os.getloadavg()[0]
    times: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for _ in range(options.runs):
        for way in WAYS:
            times[way].append(json_of("benches.start", way, options.workers, OMP_NUM_THREADS="1"))
    spawned, forked = (
        [statistics.median(column) for column in zip(*times[way], strict=True)] for way in WAYS
    )
    rows = [
        [f"{name} build", f"{slow:.1f} s", f"{fast:.1f} s", f"{slow / fast:.1f}"]
        for name, slow, fast in zip(("first", "second"), spawned, forked, strict=True)
    ]
    opening = [
        f"Seconds to the first image with {options.workers} workers on {os.cpu_count()} cores:"
        " medians over"
        f" {options.runs} of each way, run in turn. The machine's load was {load:.1f} before."
    ]
    yield Page(opening, {"start": table(["", *WAYS, "ratio"], rows)})


def seconds_to_the_first_image(way: str, workers: int) -> list[float]:
    """Return those of a first and a second build in this program."""
    from counterfoil.building.build_dataset import BuildProgress, build
    from counterfoil.engines import local
    from counterfoil.progress import listening

    if way == "spawned":
        local.begin_server = lambda imports, device: None
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first", "second"):
            started = time.perf_counter()

            def hear(event: object) -> None:
                if isinstance(event, BuildProgress) and event.images_done:
                    raise _Drawn

            with contextlib.suppress(_Drawn), listening(hear):
                build(
                    "wardrobe-mini",
                    Path(folder, name),
                    overrides=CHANGES,
                    device="cpu",
                    workers=workers,
                )
            seconds.append(time.perf_counter() - started)
    return seconds


if __name__ == "__main__":
    print(json.dumps(seconds_to_the_first_image(sys.argv[1], int(sys.argv[2]))))
