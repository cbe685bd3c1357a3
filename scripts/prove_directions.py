"""Prove failure directions in planted worlds, whose failures are known row by row, against what others would do.

    python scripts/prove_directions.py --write          # the tables, into directions_proof/RESULTS.md
    python scripts/prove_directions.py --settings --parts ranking       # one part, where settings were chosen
    python scripts/prove_directions.py --worlds correlation-100 --parts honesty --proof-rows 10000

Classifiers come from `scripts/train_planted.py`; a world without one is told and left out. What a part measures in a
world is kept as JSON under --kept, keyed by the code, the classifier and the settings: it can be killed and started
again, and only what changed is measured again. Intervals are over worlds: Student's t, from five
worlds on.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

# One thread unless the caller says more: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import results_page as report
from counterfoil.lab.planted import ROWS
from counterfoil.models.names import folder_sha256
from directions_proof.parts import PARTS
from directions_proof.plan import FULL, SETTINGS
from directions_proof.worlds import AuditedWorld
from proof_files import PACKAGE, code_of, digest_of, imported_by, measured

# What every part stands on, beside its own file and those of its folder that it imports. Reports and recipes of mining
# change no number.
_MINING = ("methods", "captions.py", "hypotheses.py", "pools.py", "collected.py", "label_check.py")
_BENEATH = (*(f"mining/{name}" for name in _MINING), "lab/planted.py", "stats.py")
RESULTS = Path(__file__).parent / "directions_proof" / "RESULTS.md"
OPENING = [
    "Settings were chosen on seeds 0 to 3; these are others.",
    "In brackets: 95 % over worlds, where there are five or more.",
]


def main() -> int:
    arguments = _arguments()
    parts = arguments.parts or list(PARTS)
    found: dict[str, dict[str, dict]] = {}
    for part in parts:
        chosen = PARTS[part]
        names = arguments.worlds or (chosen.settings_worlds if arguments.settings else chosen.worlds)
        worlds = [chosen.audited(name, arguments.work, arguments.kept) for name in names]
        present = [audited for audited in worlds if audited is not None]
        _tell_missing(part, names, [audited.name for audited in present])
        settings = {"proof_rows": arguments.proof_rows} if chosen.looks_at_proof else None
        found[part] = {}
        for audited in present:
            began = time.monotonic()
            if part == "ranking" and arguments.biased:
                from directions_proof.biased import train_biased

                train_biased(audited)
            measure = chosen.measure(arguments.proof_rows)
            key = digest_of([_code(part), *_classifiers(audited), settings])
            path = audited.kept / "results" / part / f"{audited.name}-{key}.json"
            found[part][audited.name] = measured(path, lambda audited=audited, measure=measure: measure(audited))
            print(f"{part} {audited.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    tables = {
        part: [f"### {PARTS[part].title}", "", *PARTS[part].table(results)]
        for part, results in found.items()
        if results
    }
    print("\n".join(line for lines in tables.values() for line in (*lines, "")))
    if arguments.write:
        measured_in = {part: _measured_in(part, list(found[part]), arguments.proof_rows) for part in tables}
        report.write(RESULTS, "prove_directions", "Failure directions", OPENING, tables, list(PARTS), measured_in)
    return 0


def _classifiers(audited: AuditedWorld) -> list[str | None]:
    """What was trained in this world."""
    folders = (audited.folder, audited.early_folder, audited.biased_folder)
    return [folder_sha256(folder) if (folder / "config.json").exists() else None for folder in folders]


@cache
def _code(part: str) -> str:
    own = imported_by("directions_proof", PARTS[part].file, ("plan", "intervals"))
    return code_of([*(PACKAGE / name for name in _BENEATH), *own])


def _measured_in(part: str, worlds: Sequence[str], proof_rows: int) -> str:
    truth = f", the truth of {proof_rows:,} rows of `proof` a world" if PARTS[part].looks_at_proof else ""
    return f"{report.by_kind(worlds)}{truth}"


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
