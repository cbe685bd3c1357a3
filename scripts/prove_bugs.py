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
from collections.abc import Iterator
from pathlib import Path

# One thread: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import proving
from bugs_proof.parts import PARTS
from bugs_proof.plan import ARMS, PANELS, PRINTED_SEED, SETTINGS_SEED, TARGETS, Asked, Group
from bugs_proof.proof import Proof
from results_page import by_kind

# Section of RESULTS.md and its title: classifiers of the two panels are not averaged together.
SECTIONS: dict[Group, tuple[str, str]] = {
    "wardrobe": ("prove_bugs", "Bugs found in what a generator draws"),
    "planted": ("prove_bugs planted", "Bugs found where they were planted"),
}
OPENING = [
    "The truth is of renders on garments that no model has seen; findings are judged on fresh pairs. Arms test at",
    "equal images. In brackets: 95 % over classifiers, where there are five or more.",
]


def main() -> None:
    parser = proving.parser(__doc__, PARTS, "the run that settings are chosen on")
    parser.add_argument("--kept", type=Path, default=Path(".train/bugs-proof"), help="images, answers, truth and runs")
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS), metavar="MODEL")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS), metavar="ARM")
    parser.add_argument("--captioner", default="lab:captioner", help="another one: local-dir:PATH")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes of the recipe, as of `mine`")
    parser.add_argument("--renders", type=int, default=60, help="true renders a cell")
    parser.add_argument("--fresh", type=int, default=32, help="fresh pairs a finding")
    options = parser.parse_args()
    # Captions and features are of this proof alone, and may be large.
    os.environ["XDG_CACHE_HOME"] = str(options.kept.resolve() / "cache")
    for group, (section, title) in SECTIONS.items():
        targets = [target for target in options.targets if target in PANELS[group]]
        # The screen has a section of its own, because its contexts are no search's findings.
        others = [part for part in PARTS if part != "screen"]
        for name, called, parts in (
            (section, title, others),
            (f"{section} screen", f"{title}: the CLIP screen", ["screen"]),
        ):
            wanted = [part for part in parts if part in options.parts]
            if targets and wanted:
                proving.tell(name, called, OPENING, tables(targets, wanted, options), parts, options.write)


def tables(targets: list[str], parts: list[str], options: argparse.Namespace) -> Iterator[proving.Table]:
    """Measure each part with all targets of a panel."""
    seed = SETTINGS_SEED if options.settings else PRINTED_SEED
    run = Asked(seed, tuple(options.set), options.fresh, options.renders)
    proofs = [Proof(target, run, options.kept.resolve(), options.captioner) for target in targets]
    changed = f", with {', '.join(run.overrides)}" if run.overrides else ""
    measured_in = (
        f"{by_kind(targets)}, recipe `wardrobe-bugs`, `samples.seed` {run.seed}{changed}; the truth of"
        f" {run.renders} renders a cell, {run.fresh} fresh pairs a finding"
    )
    for name in parts:
        results = {}
        for proof in proofs:
            began = time.monotonic()
            results[proof.target] = PARTS[name].measure(proof, options.arms)
            print(f"{name} {proof.target}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        yield proving.Table(name, [f"### {PARTS[name].title}", "", *PARTS[name].table(results)], measured_in)


if __name__ == "__main__":
    main()
