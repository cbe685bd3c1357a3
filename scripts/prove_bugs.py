"""Prove the method `bugs` in the lab, where every image's attributes are known, beside what others would do.

    python scripts/prove_bugs.py --write                                # the printed tables, into scripts/RESULTS.md
    python scripts/prove_bugs.py --targets lab:resnet10t --parts search # one target's runs, all arms
    python scripts/prove_bugs.py --settings                             # the seed that settings were chosen on

Images are drawn once, whoever asks for them, and kept under --kept with all classifiers' answers; so are the true
renders, captions and what each run found. A killed proof goes on, and a further target draws what is new.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

# One thread: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from bugs_proof.audits import Audit
from bugs_proof.plan import LAB, PRINTED_SEED, SETTINGS_SEED, TARGETS, Asked
from bugs_proof.truth import measure_all, truth_of

RESULTS = Path(__file__).parent / "RESULTS.md"


def main() -> int:
    arguments = _arguments()
    kept = arguments.kept.resolve()
    os.environ["XDG_CACHE_HOME"] = str(kept / "cache")
    asked = Asked(SETTINGS_SEED if arguments.settings else PRINTED_SEED, renders=arguments.renders)
    audit = Audit(arguments.targets[0], asked, kept)
    truth = truth_of(audit)
    print("mix", {k: len(v) for k, v in truth.mix.items()}, flush=True)
    for done, of in measure_all(truth):
        print(f"truth {done}/{of}", flush=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, default=Path(".train/bugs-proof"), help="images, answers, truth and runs")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(LAB), metavar="MODEL")
    parser.add_argument("--settings", action="store_true", help="the run that settings are chosen on")
    parser.add_argument("--renders", type=int, default=60, help="true renders a cell")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
