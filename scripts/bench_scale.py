"""What a large build costs its driver: a plan of ten million samples over a thousand workers, which are simulated.

    python scripts/bench_scale.py [--shifts 20] [--workers 1000] [--rate 4] [--card-shifts 2] [--write]

The driver's code is the real one, on real files: the plan, the directory's opening, spans of shards, events and
counts of a thousand workers, the progress that is shown, receipts, the closing. Workers are a clock that jumps from
batch to batch (`scale_bench/simulated_engine.py`), at the rate of images that one core of the lab's models was measured
at; they leave receipts, and stubs in place of tables. Each part is a process of its own, so that its peak of memory is
its own. What was simulated, and what is smaller than the rest, stands beside the table.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import results_page
from scale_bench.phases import CANDIDATES, ROWS
from scale_bench.simulated_engine import KINDS

RESULTS = Path(__file__).parent / "RESULTS.md"
CLASSES = 1000
# plan/estimate.py: 8 images a second of the lab's generator on two cores, models loading included.
LAB_RATE = 4


def main() -> int:
    asked = _arguments()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="counterfoil-scale-", dir=asked.folder) as kept:
        out = Path(kept) / "dataset"
        shards = asked.shifts * CLASSES * CANDIDATES // ROWS
        made = _phase("build", out, asked.shifts, asked.workers, asked.rate)
        resumed = []
        for missing in (shards // 100, shards // 2):
            _remove_receipts(out, missing)
            resumed.append((missing, _phase("build", out, asked.shifts, asked.workers, asked.rate)))
        closed = _phase("close", out, asked.shifts)
        local = _phase("local", Path(kept) / "local", 1, 2)
        lines = [*_run(asked, made, local), "", *_resumed(shards, resumed), "", *_closed(closed)]
        if asked.card_shifts:
            written = _phase("rows", Path(kept) / "rows", asked.card_shifts)
            carded = _phase("card", Path(kept) / "rows", asked.card_shifts)
            lines += ["", *_carded(asked, written, carded)]
    print("\n".join(lines))
    if asked.write:
        opening = [
            f"`python scripts/bench_scale.py --shifts {asked.shifts} --workers {asked.workers} --rate {asked.rate}"
            f" --card-shifts {asked.card_shifts}`. The machine's load was {load:.1f} on {os.cpu_count()} cores before.",
            "Workers are simulated, and write stubs of tables; all else is the code of a build, on real files. Aims:"
            " the driver under 1 GB, its time under 2 % of the run, 10,000 receipts taken up again in less than 10 s.",
        ]
        results_page.write(
            RESULTS, "bench_scale", "What a large build costs its driver", opening, {"scale": lines}, ["scale"]
        )
    return 0


def _run(asked: argparse.Namespace, made: dict[str, Any], local: dict[str, Any]) -> list[str]:
    shards, samples = made["shards"], asked.shifts * CLASSES * CANDIDATES
    driver = made["driver"] + made["opened"]
    before = sum(made["opening"].values())
    return [
        f"{samples:,} samples in {shards:,} shards, {asked.workers:,} workers of {asked.rate} images a second each:",
        "",
        "| what | measured |",
        "| -- | --: |",
        f"| the run, by its own clock | {made['clock'] / 60:.1f} min |",
        f"| until the first shard is handed out, libraries loaded | {made['opened']:.1f} s |",
        f"| the driver's time for a shard, scheduling, events and progress | {1000 * made['driver'] / shards:.2f} ms |",
        f"| … with the messages of the local engine's processes, {local['shards']} shards"
        f" | {1000 * local['driver'] / local['shards']:.2f} ms |",
        f"| the driver's time, of the run | {driver / made['clock']:.2%} |",
        f"| waiting for the driver, of the workers' time | {made['waited'] / asked.workers / made['clock']:.3%} |",
        f"| events | {made['events']:,} |",
        f"| the driver's peak of memory | {_megabytes(made['peak'])} |",
        f"| … of it libraries, before the plan | {_megabytes(made['idle'])} |",
        f"| what the driver asks of the disk for a shard | {sum(made['going'].values()) / shards:.4f} |",
        f"| … and once, to begin | {before} |",
    ]


def _resumed(shards: int, resumed: list[tuple[int, dict[str, Any]]]) -> list[str]:
    return [
        "Run again where receipts are missing, until the first shard is handed out:",
        "",
        f"| receipts there | missing | time | peak of memory | {' | '.join(KINDS)} |",
        f"| --: | --: | --: | --: | {' | '.join('--:' for _ in KINDS)} |",
        *(
            f"| {shards - missing:,} | {missing:,} | {numbers['opened']:.1f} s | {_megabytes(numbers['peak'])} | "
            f"{' | '.join(str(numbers['opening'][kind]) for kind in KINDS)} |"
            for missing, numbers in resumed
        ),
    ]


def _closed(closed: dict[str, Any]) -> list[str]:
    asked = ", ".join(f"{closed['files'][kind]:,} {kind}" for kind in KINDS)
    return [
        f"The end without the card, over {closed['receipts']:,} receipts: read and counted in {closed['read']:.1f} s;"
        f" read again, every file held against them, and the manifest written in {closed['finished']:.1f} s, with"
        f" {_megabytes(closed['peak'])} at most ({asked}).",
    ]


def _carded(asked: argparse.Namespace, written: dict[str, Any], carded: dict[str, Any]) -> list[str]:
    times = asked.shifts / asked.card_shifts
    return [
        f"The whole end with card, figures and croissant.json, over {carded['samples']:,} real rows in"
        f" {written['shards']:,} shards: {carded['closed']:.1f} s and {_megabytes(carded['peak'])} at most, of which"
        f" {_megabytes(carded['idle'])} before. It reads every row once, so that the plan above takes about"
        f" {times:.0f} times as long: {carded['closed'] * times:.0f} s, extrapolated.",
    ]


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def _remove_receipts(out: Path, count: int) -> None:
    receipts = sorted((out / "receipts").iterdir())
    for path in random.Random(0).sample(receipts, count):
        path.unlink()


def _phase(name: str, out: Path, *numbers: int) -> dict[str, Any]:
    """What a part of `scale_bench/phases.py` measured, in a process of its own."""
    print(f"{name} …", file=sys.stderr, flush=True)
    started = time.perf_counter()
    words = [sys.executable, "-m", "scale_bench.phases", name, str(out), *map(str, numbers)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=Path(__file__).parent, env=environment, check=True, stdout=subprocess.PIPE)
    print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return json.loads(done.stdout)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shifts", type=int, default=20, help="of ImageNet*, the base among them: half a million each")
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=LAB_RATE, help="images a second of a worker")
    parser.add_argument("--card-shifts", type=int, default=2, help="as many with real rows, for the card; 0 for none")
    parser.add_argument("--folder", type=Path, help="where the datasets are written; default the system's own")
    parser.add_argument("--write", action="store_true", help=f"put the tables into scripts/{RESULTS.name}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
