"""Prove the method `bugs` in the lab, where every image's attributes are known, beside what others
would do.

    python scripts/prove_bugs.py --write          # the tables, into bugs_proof/RESULTS.md
    python scripts/prove_bugs.py --targets lab:resnet10t --parts search # one classifier's runs
    python scripts/prove_bugs.py --settings                             # the seed that settings are
    chosen on python scripts/prove_bugs.py --table FOLDER   # the paper's tables by the shipped
    commands, in minutes

Images are drawn once, whoever asks for them, and kept under --kept with all classifiers' answers;
so are true renders, captions and what each run found. A killed proof goes on, and a further
classifier draws only what is new. Intervals are over classifiers, by Student's t, from five on; of
the shares of counts, by the package's own rule for few units.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# One thread: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import proving
from bugs_proof import paper_table
from bugs_proof.parts import PARTS
from bugs_proof.plan import ARMS, PANELS, PRINTED_SEED, RECIPE, SETTINGS_SEED, TARGETS, Asked, Group
from bugs_proof.proof import Proof
from results_page import by_kind

# Section of RESULTS.md and its title: classifiers of the two panels are not averaged together.
SECTIONS: dict[Group, tuple[str, str]] = {
    "wardrobe": ("prove_bugs", "Bugs found in what a generator draws"),
    "planted": ("prove_bugs planted", "Bugs found where they were planted"),
}
OPENING = [
    "The truth is of renders on garments that no model has seen; findings are judged on fresh"
    " pairs. Arms test at",
    "equal images. In brackets: 95 % over classifiers, where there are five or more.",
]


def main() -> None:
    parser = proving.parser(__doc__, PARTS, "the run that settings are chosen on")
    parser.add_argument(
        "--kept",
        type=Path,
        default=Path(".train/bugs-proof"),
        help="images, answers, truth and runs",
    )
    parser.add_argument(
        "--targets", nargs="+", choices=TARGETS, default=list(TARGETS), metavar="MODEL"
    )
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS), metavar="ARM")
    parser.add_argument("--captioner", default="lab:captioner", help="another one: local-dir:PATH")
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="KEY=VALUE",
        help="changes of the recipe, as of `mine`",
    )
    parser.add_argument("--renders", type=int, default=60, help="true renders a cell")
    parser.add_argument("--fresh", type=int, default=32, help="fresh pairs a finding")
    parser.add_argument(
        "--table", type=Path, metavar="FOLDER", help="the paper's tables, of files in this folder"
    )
    parser.add_argument("--workers", type=int, help="of the commands behind --table")
    options = parser.parse_args()
    if any(change.startswith("mine.failure=") for change in options.set):
        parser.error(
            "--set mine.failure: the truth of this proof counts by top1, and the lab's classes have"
            " no parents"
        )
    # Captions and features are of this proof alone, and may be large.
    os.environ["XDG_CACHE_HOME"] = str(options.kept.resolve() / "cache")
    if options.table is not None:
        tell_table(options)
        return
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
                proving.tell(
                    name, called, OPENING, tables(targets, wanted, options), parts, options.write
                )


def tell_table(options: argparse.Namespace) -> None:
    """Run the shipped commands for the first target, and print the paper's tables from their
    files."""
    target = options.targets[0]
    seed = SETTINGS_SEED if options.settings else PRINTED_SEED + 1
    seconds = paper_table.run_commands(options.table, target, seed, options.workers)
    print(f"mine, build and evaluate: {seconds:.0f} s", file=sys.stderr)
    measured_in = (
        f"{target}, recipe `{RECIPE}` with {', '.join(paper_table.SHORT)}, `samples.seed` {seed}"
    )
    table = proving.Table("table", paper_table.lines(options.table, target), measured_in)
    section = "prove_bugs table"
    title = "The paper's tables by the shipped commands"
    proving.tell(section, title, [], [table], ["table"], options.write)


def tables(
    targets: list[str], parts: list[str], options: argparse.Namespace
) -> Iterator[proving.Table]:
    """Measure each part with all targets of a panel."""
    seed = SETTINGS_SEED if options.settings else PRINTED_SEED
    run = Asked(seed, tuple(options.set), options.fresh, options.renders)
    settings = (run, options.kept.resolve(), options.captioner, options.arms)
    proofs = [Proof(target, *settings) for target in targets]
    changed = f", with {', '.join(run.overrides)}" if run.overrides else ""
    measured_in = (
        f"{by_kind(targets)}, recipe `wardrobe-bugs`, `samples.seed` {run.seed}{changed}; the truth"
        " of"
        f" {run.renders} renders a cell, {run.fresh} fresh pairs a finding"
    )
    for name in parts:
        results = {}
        for proof in proofs:
            with proving.timed(f"{name} {proof.target}"):
                results[proof.target] = PARTS[name].measure(proof)
        yield proving.Table(
            name, [f"### {PARTS[name].title}", "", *PARTS[name].table(results)], measured_in
        )


if __name__ == "__main__":
    main()
