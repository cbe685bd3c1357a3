"""Publish under a storm: faults from a seed, kills at random requests, and what is left of the Hub
at the end.

    python scripts/storm_publish.py [DATASET] [--kills 100] [--rate 0.1] [--seed 7] [--write]

DATASET is a finished directory (default: the demo's, .demo/wardrobe-mini). It and a stricter cut of
it are published in turn to a loopback Hub (tests/loopback_hub) that drops connections, loses
answers, truncates bodies and answers 408, 412, 429 and 5xx. Each publication is killed up to ten
times; after each the branch must be the directory, with one commit more. At the end the dataset is
verified over the Hub and loaded by `load_dataset`. Prints a table; exits 1 where anything differs.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "publishing")]

from publishing_cases import Publisher, call, contents, keys_of, published, read, with_package  # noqa: E402

import results_page  # noqa: E402
from counterfoil import recut  # noqa: E402
from loopback_hub import Faults, LoopbackHub, Reader, client_environment  # noqa: E402
from program import new_parser  # noqa: E402

RESULTS = ROOT / "scripts" / "RESULTS.md"
REPO = "someone/storm"
KILLS_A_ROUND = 10


def stricter_cut(dataset: Path, out: Path) -> Path:
    """Cut a second version without rendering: fewer images pass a higher threshold."""
    cut = out.with_suffix(".yaml")
    cut.write_text("screen: {shift_threshold: 0.4}\n")
    recut(dataset, cut, out=out)
    return out


def killed_and_finished(
    hub: LoopbackHub, publisher: Publisher, directory: Path, chance: random.Random
) -> int:
    """Publish, killed up to ten times, then to the end; how many kills met it. RuntimeError where
    it ends otherwise."""
    kills = 0
    for _ in range(KILLS_A_ROUND + 1):
        last = kills == KILLS_A_ROUND
        limit = None if last else chance.randrange(1, 60 + 20 * kills)
        count = 0

        def on_request(request: object, limit: int | None = limit) -> None:
            nonlocal count
            count += 1
            if count == limit:
                publisher.kill()

        hub.on_request = on_request
        answer = publisher.ask(call(directory, REPO, files_per_commit=20))
        hub.on_request = None
        if "killed" in answer:
            kills += 1
        elif answer.get("published"):
            if last or answer["published"]["files_changed"] == 0:
                return kills
        else:
            raise RuntimeError(str(answer))
    return kills


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("dataset", nargs="?", type=Path, default=ROOT / ".demo" / "wardrobe-mini")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument(
        "--rate", type=float, default=0.1, help="share of requests that meet a fault"
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--write", action="store_true", help="put the table into scripts/RESULTS.md"
    )
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        versions = [arguments.dataset, stricter_cut(arguments.dataset, work / "cut")]
        faults = Faults.storm(seed=arguments.seed, rate=arguments.rate)
        with (
            LoopbackHub(work / "hub", faults=faults) as hub,
            Publisher(hub, work / "home") as publisher,
        ):
            kills = rounds = 0
            while kills < arguments.kills:
                directory = versions[rounds % 2]
                kills += killed_and_finished(hub, publisher, directory, chance)
                rounds += 1
                if published(hub, repo=REPO) != contents(directory):
                    print(f"round {rounds}: the branch is not {directory}")
                    return 1
                commits = len(hub.commits(REPO))
                if commits != rounds + 1:
                    print(f"round {rounds}: {commits} commits, expected {rounds + 1}")
                    return 1
                print(f"round {rounds}: {kills} kills, {len(hub.requests)} requests", flush=True)
            hub.faults = Faults()
            last = versions[(rounds - 1) % 2]
            with Reader(hub, work / "reader") as reader:
                loaded = read(reader, REPO) == keys_of(last)
            environment = with_package(client_environment(hub, work / "verifier"))
            line = [sys.executable, "-m", "counterfoil.cli.main", "verify", REPO]
            whole = subprocess.run(line, env=environment, capture_output=True, text=True)
            met = [
                request for request in hub.requests if request.fault and request.fault != "latency"
            ]
            again = sum(received.complete - 1 for received in hub.uploads.values())
            counts = {
                "kills": kills,
                "publications": rounds,
                "requests": len(hub.requests),
                "faults": len(met),
                "contents": len(hub.uploads),
                "received-again": again,
                "identical": "yes",
                "loads": "yes" if loaded else "NO",
                "verifies": "yes" if whole.returncode == 0 else "NO",
            }
            table = results_page.table([*counts], [counts.values()], words=0)
            print("\n".join(table))
            if arguments.write:
                opening = [
                    f"The demo's dataset and a stricter cut of it in turn, seed {arguments.seed};"
                    f" {arguments.rate:.0%}"
                    " of requests meet a fault, and publications are killed at random requests."
                ]
                title = "Publishing under a storm"
                results_page.write(
                    RESULTS, "storm_publish", title, opening, {"storm": table}, ["storm"]
                )
    return 0 if loaded and whole.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
