"""Prove failure directions in planted worlds, whose failures are known row by row, against what
others would do.

    python scripts/prove_directions.py --write          # the tables, into
    directions_proof/RESULTS.md python scripts/prove_directions.py --settings --parts ranking
    # one part, where settings were chosen python scripts/prove_directions.py --worlds
    correlation-100 --parts honesty --proof-rows 10000

Classifiers come from `scripts/train_planted.py`; a world without one is told and left out. What a
part measures in a world is kept as JSON under --kept, keyed by the code, the classifier and the
settings: it can be killed and started again, and only what changed is measured again. Intervals are
over worlds: Student's t, from five worlds on.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from proof_files import Facts

# One thread unless the caller says more: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import proving
from counterfoil.lab.planted import ROWS
from counterfoil.models.names import folder_sha256
from directions_proof.parts import PARTS
from directions_proof.plan import FULL, SETTINGS
from directions_proof.worlds import AuditedWorld
from proof_files import PACKAGE, code_of, digest_of, imported_by, measured
from results_page import by_kind

# What every part depends on, beside its own file and those of its folder that it imports. Reports
# and recipes of mining change no number.
_MINING = ("methods", "captions.py", "hypotheses.py", "pools.py", "collected.py", "label_check.py")
_BENEATH = (*(f"mining/{name}" for name in _MINING), "lab/planted.py", "stats.py")
OPENING = [
    "Settings were chosen on seeds 0 to 3; these are others.",
    "In brackets: 95 % over worlds, where there are five or more.",
]


def main() -> None:
    parser = proving.parser(__doc__, PARTS, f"the {len(SETTINGS)} worlds that settings came from")
    parser.add_argument(
        "--work", type=Path, default=Path(".train/planted"), help="where the classifiers are"
    )
    parser.add_argument(
        "--kept",
        type=Path,
        default=Path(".train/directions-proof"),
        help="embeddings, predictions and results",
    )
    parser.add_argument(
        "--worlds",
        nargs="+",
        default=[],
        metavar="KIND-SEED",
        help=f"these; else {len(FULL)} worlds",
    )
    parser.add_argument(
        "--proof-rows",
        type=int,
        default=ROWS["proof"],
        help="rows of the truth, at most (its first ones)",
    )
    parser.add_argument(
        "--biased",
        action="store_true",
        help="train Learning from Failure's classifiers too, a minute each",
    )
    options = parser.parse_args()
    proving.tell(
        "prove_directions",
        "Failure directions",
        OPENING,
        tables(options),
        list(PARTS),
        options.write,
    )


def tables(options: argparse.Namespace) -> Iterator[proving.Table]:
    """Measure each part in its worlds, in those that have a classifier."""
    for name in options.parts:
        part = PARTS[name]
        names = options.worlds or (part.settings_worlds if options.settings else part.worlds)
        worlds = [
            audited
            for world in names
            if (audited := part.audited(world, options.work, options.kept)) is not None
        ]
        missing = [world for world in names if world not in [audited.name for audited in worlds]]
        if missing:
            print(
                f"{name}: {len(missing)} of {len(names)} worlds have no classifier\n"
                f"    python scripts/train_planted.py {' '.join(missing)} --early",
                file=sys.stderr,
            )
        results: dict[str, Facts] = {}
        for audited in worlds:
            with proving.timed(f"{name} {audited.name}"):
                if name == "ranking" and options.biased:
                    from directions_proof.biased import train_biased

                    train_biased(audited)
                results[audited.name] = _kept(name, audited, options.proof_rows)
        if results:
            truth = (
                f", the truth of {options.proof_rows:,} rows of `proof` a world"
                if part.looks_at_proof
                else ""
            )
            lines = [f"### {part.title}", "", *part.table(results)]
            yield proving.Table(name, lines, f"{by_kind(list(results))}{truth}")


def _kept(name: str, audited: AuditedWorld, proof_rows: int) -> Facts:
    """Return what a part measures in a world, now or earlier with the same code, classifiers and
    settings."""
    part = PARTS[name]
    folders = (audited.folder, audited.early_folder, audited.biased_folder)
    trained = [
        folder_sha256(folder) if (folder / "config.json").exists() else None for folder in folders
    ]
    key = digest_of(
        [_code(name), *trained, {"proof_rows": proof_rows} if part.looks_at_proof else None]
    )
    path = audited.kept / "results" / name / f"{audited.name}-{key}.json"
    return measured(path, lambda: part.measure(audited, proof_rows))


@cache
def _code(part: str) -> str:
    files = imported_by("directions_proof", PARTS[part].file, ("plan", "intervals"))
    return code_of([*(PACKAGE / name for name in _BENEATH), *files])


if __name__ == "__main__":
    main()
