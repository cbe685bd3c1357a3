"""How long a build takes to its first image: workers that are forked from a server, beside workers that are spawned.

    python scripts/bench_start.py [--workers 2] [--runs 3] [--write]

Each run is a program of its own that builds wardrobe-mini twice, two steps an image, and stops each build at its first
image: the first build meets libraries that nobody has imported, the second a program that is up. Both ways are run in
turn; a ratio is of medians.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import results_page

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "scripts" / "RESULTS.md"
WAYS = ("spawned", "forked")
CHANGES = ("generator.steps=2", "tokens=null", "screen.object_threshold=-1", "screen.shift_threshold=-1")


class _Drawn(Exception):
    """The first image is there."""


def measured(way: str, workers: int) -> list[float]:
    """In this program: seconds to the first image of a first and a second build."""
    from counterfoil.building import BuildProgress, build
    from counterfoil.engines import local
    from counterfoil.progress import listening

    if way == "spawned":
        local.begin_server = lambda imports, device: None
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first", "second"):
            started = time.perf_counter()

            def hear(told: object) -> None:
                if isinstance(told, BuildProgress) and told.images_done:
                    raise _Drawn

            with contextlib.suppress(_Drawn), listening(hear):
                build("wardrobe-mini", Path(folder, name), overrides=CHANGES, device="cpu", workers=workers)
            seconds.append(time.perf_counter() - started)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.way:
        print(json.dumps(measured(asked.way, asked.workers)))
        return
    load = os.getloadavg()[0]
    found: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for _ in range(asked.runs):
        for way in WAYS:
            line = [sys.executable, __file__, "--way", way, "--workers", str(asked.workers)]
            done = subprocess.run(line, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, check=True)
            found[way].append(json.loads(done.stdout.splitlines()[-1]))
    medians = {way: [statistics.median(column) for column in zip(*rows, strict=True)] for way, rows in found.items()}
    table = ["| | spawned | forked | ratio |", "| -- | --: | --: | --: |"]
    for place, name in enumerate(("first build", "second build")):
        spawned, forked = (medians[way][place] for way in WAYS)
        table.append(f"| {name} | {spawned:.1f} s | {forked:.1f} s | {spawned / forked:.1f} |")
    opening = [
        f"Seconds to the first image with {asked.workers} workers on {os.cpu_count()} cores: medians over {asked.runs}"
        f" of each way, run in turn. The machine's load was {load:.1f} before."
    ]
    print("\n".join([*opening, "", *table]))
    if asked.write:
        title = "Time to the first image"
        results_page.write(RESULTS, "bench_start", title, opening, {"start": table}, ["start"])


if __name__ == "__main__":
    main()
