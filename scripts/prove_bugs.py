"""Prove the method `bugs` in the lab, where every image's attributes are known, beside what others would do.

    python scripts/prove_bugs.py --write          # the tables, into bugs_proof/RESULTS.md
    python scripts/prove_bugs.py --targets lab:resnet10t --parts search # one classifier's runs
    python scripts/prove_bugs.py --settings                             # the seed that settings are chosen on

Images are drawn once, whoever asks for them, and kept under --kept with all classifiers' answers; so are true renders,
captions and what each run found. A killed proof goes on, and a further classifier draws only what is new. Intervals are
over classifiers, by Student's t, from five on; of the shares of counts, by the package's own rule for few units.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

# One thread: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import results_page as report
from bugs_proof.parts import PARTS
from bugs_proof.plan import ARMS, PANELS, PRINTED_SEED, SETTINGS_SEED, TARGETS, Asked, Group
from bugs_proof.proof import Proof

RESULTS = Path(__file__).parent / "bugs_proof" / "RESULTS.md"
# Section of RESULTS.md and its title: classifiers of the two panels are not averaged together.
SECTIONS: dict[Group, tuple[str, str]] = {
    "wardrobe": ("prove_bugs", "Bugs found in what a generator draws"),
    "planted": ("prove_bugs planted", "Bugs found where they were planted"),
}
OPENING = [
    "The truth is of renders on garments that no model has seen; findings are judged on fresh pairs. Arms test at",
    "equal images. In brackets: 95 % over classifiers, where there are five or more.",
]


def main() -> int:
    arguments = _arguments()
    kept = arguments.kept.resolve()
    # Captions and features are of this proof alone, and may be large.
    os.environ["XDG_CACHE_HOME"] = str(kept / "cache")
    seed = SETTINGS_SEED if arguments.settings else PRINTED_SEED
    asked = Asked(seed, tuple(arguments.set), arguments.fresh, arguments.renders)
    for group, (section, title) in SECTIONS.items():
        targets = [target for target in arguments.targets if target in PANELS[group]]
        tables = _tables(targets, asked, kept, arguments) if targets else {}
        if tables and arguments.write:
            measured_in = dict.fromkeys(tables, _measured_in(asked, targets))
            report.write(RESULTS, section, title, OPENING, tables, list(PARTS), measured_in)
    return 0


def _tables(targets: list[str], asked: Asked, kept: Path, arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Of each part its heading and table over some targets, printed as they come."""
    proofs = [Proof(target, asked, kept, arguments.captioner) for target in targets]
    tables: dict[str, list[str]] = {}
    for part in arguments.parts:
        results = {}
        for proof in proofs:
            began = time.monotonic()
            results[proof.target] = PARTS[part].measure(proof, arguments.arms)
            print(f"{part} {proof.target}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        tables[part] = [f"### {PARTS[part].title}", "", *PARTS[part].table(results)]
        print("\n".join([*tables[part], ""]), flush=True)
    return tables


def _measured_in(asked: Asked, targets: list[str]) -> str:
    changed = f", with {', '.join(asked.overrides)}" if asked.overrides else ""
    return (
        f"{report.by_kind(targets)}, recipe `wardrobe-bugs`, `samples.seed` {asked.seed}{changed}; the truth of"
        f" {asked.renders} renders a cell, {asked.fresh} fresh pairs a finding"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=Path, default=Path(".train/bugs-proof"), help="images, answers, truth and runs")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="PART")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS), metavar="MODEL")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS), metavar="ARM")
    parser.add_argument("--captioner", default="lab:captioner", help="another one: local-dir:PATH")
    parser.add_argument("--settings", action="store_true", help="the run that settings are chosen on")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes of the recipe, as of `mine`")
    parser.add_argument("--renders", type=int, default=60, help="true renders a cell")
    parser.add_argument("--fresh", type=int, default=32, help="fresh pairs a finding")
    parser.add_argument("--write", action="store_true", help=f"put the tables into scripts/bugs_proof/{RESULTS.name}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
