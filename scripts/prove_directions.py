"""Prove failure directions in planted worlds, whose failures are known row by row, against what others would do.

    python scripts/prove_directions.py --write          # the tables, into directions_proof/RESULTS.md
    python scripts/prove_directions.py --settings --parts ranking       # one part, where settings were chosen
    python scripts/prove_directions.py --worlds correlation-100 --parts honesty --proof-rows 10000

Classifiers come from `scripts/train_planted.py`; a world without one is told and left out. What a part measures in a
world is kept as JSON under --kept, keyed by the code, the classifier and the settings: it can be killed and started
again, and only what changed is measured again. Intervals are over worlds, by bootstrap over worlds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

# One thread unless the caller says more: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from counterfoil.lab.planted import ROWS
from directions_proof import report
from directions_proof.kept import measured
from directions_proof.parts import PARTS
from directions_proof.plan import FULL, SETTINGS
from directions_proof.worlds import AuditedWorld

RESULTS = Path(__file__).parent / "directions_proof" / "RESULTS.md"


def main() -> int:
    arguments = _arguments()
    parts = arguments.parts or list(PARTS)
    found: dict[str, dict[str, dict]] = {}
    for part in parts:
        chosen = PARTS[part]
        names = arguments.worlds or (chosen.settings_worlds if arguments.settings else chosen.worlds)
        trained = [name for name in names if (arguments.work / name / "config.json").exists()]
        present = trained if chosen.classified else names
        _tell_missing(part, names, present)
        settings = {"proof_rows": arguments.proof_rows} if chosen.looks_at_proof else None
        found[part] = {}
        for name in present:
            began = time.monotonic()
            audited = AuditedWorld(name, arguments.work, arguments.kept)
            if part == "ranking" and arguments.biased:
                from directions_proof.biased import train_biased

                train_biased(audited)
            found[part][name] = measured(part, audited, chosen.measure(arguments.proof_rows), settings)
            print(f"{part} {name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    sections = {part: PARTS[part].table(results) for part, results in found.items() if results}
    print("\n".join(line for part, lines in sections.items() for line in (f"### {PARTS[part].title}", "", *lines, "")))
    if arguments.write:
        report.write(RESULTS, sections, found, arguments.proof_rows)
    return 0


def _tell_missing(part: str, names: Sequence[str], present: Sequence[str]) -> None:
    missing = [name for name in names if name not in present]
    if missing:
        print(f"{part}: {len(missing)} of {len(names)} worlds have no classifier: {' '.join(missing)}", file=sys.stderr)
        print(f"    python scripts/train_planted.py {' '.join(missing)} --early", file=sys.stderr)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path(".train/planted"), help="where the classifiers are")
    parser.add_argument(
        "--kept", type=Path, default=Path(".train/directions-proof"), help="embeddings, predictions and results"
    )
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=[], metavar="PART", help=", ".join(PARTS))
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--settings", action="store_true", help=f"the {len(SETTINGS)} worlds that settings came from")
    which.add_argument("--worlds", nargs="+", default=[], metavar="KIND-SEED", help=f"these; else {len(FULL)} worlds")
    parser.add_argument(
        "--proof-rows", type=int, default=ROWS["proof"], help="rows of the truth, at most (its first ones)"
    )
    parser.add_argument(
        "--biased", action="store_true", help="train Learning from Failure's classifiers too, a minute each"
    )
    parser.add_argument(
        "--write", action="store_true", help=f"put the tables into scripts/directions_proof/{RESULTS.name}"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
