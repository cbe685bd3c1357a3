"""What a search for bugs costs: images drawn to the same decisions, and confirmed findings an image.

    python scripts/bench_bugs.py --write              # into scripts/RESULTS.md
    python scripts/bench_bugs.py --targets lab:resnet10t

Simulated hypotheses and runs first (`bugs_proof/sequential.py`): the sequential test against exact McNemar tests of
the fixed number of pairs that has the same power. Then simulated findings (`bugs_proof/estimates.py`): what their rates
are told to be, by the pairs that tested them and by fresh ones. Then the real runs of `scripts/prove_bugs.py`,
replayed: the pairs that each drew, and the fixed number that would have confirmed as many. Last, findings for each
thousand images, beside random contexts that are tested on as many.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import results_page as report
from bugs_proof.estimates import (
    DESIGN,
    FEWEST,
    RUN,
    simulated_estimates,
    small_differences,
    table_of_estimates,
    table_of_families,
    table_of_small,
)
from bugs_proof.plan import ARMS, LAB, PRINTED_SEED, TARGETS, Arm, Asked
from bugs_proof.proof import Proof
from bugs_proof.runs import replayed
from bugs_proof.sequential import Design, saved, simulated_rows, simulated_runs, table_of_rows, table_of_runs
from directions_proof.intervals import POSITIVE, mean_of

RESULTS = Path(__file__).parent / "RESULTS.md"
ARMS_COMPARED: tuple[Arm, ...] = ("bugs", "random")


def main() -> int:
    arguments = _arguments()
    design = Design()
    rows, runs = simulated_rows(design, arguments.runs), simulated_runs(design, arguments.runs)
    found = [row for row in rows if row.difference > 0]
    tables = {
        "simulated": [
            "### Simulated hypotheses",
            "",
            f"{arguments.runs:,} tests a line, {design.hypotheses} hypotheses in the run, α = {design.alpha:g}, at most"
            f" {design.most:,} pairs. *fixed*: McNemar's pairs of the same power. Over all lines the sequential test"
            f" draws {saved(found):.2f} of the fixed number's pairs.",
            "",
            *table_of_rows(rows),
            "",
            "### Simulated runs",
            "",
            "Half of the hypotheses show nothing. *fixed*: the one number of pairs for each with which as many are"
            f" confirmed. Over all lines the sequential test draws {saved(runs):.2f} of them.",
            "",
            *table_of_runs(runs),
        ],
        "estimates": _estimates(arguments.runs),
    }
    if arguments.targets:
        kept = arguments.kept.resolve()
        os.environ["XDG_CACHE_HOME"] = str(kept / "cache")
        asked = Asked(PRINTED_SEED, tuple(arguments.set))
        proofs = [Proof(target, asked, kept, arguments.captioner) for target in arguments.targets]
        tables["real"] = ["### Real runs, replayed", "", *_real(proofs)]
        tables["yield"] = ["### Findings an image", "", *_yield(proofs)]
    print("\n".join(line for lines in tables.values() for line in (*lines, "")))
    if arguments.write:
        opening = [
            "Pairs are of images that the screen accepts; an image of the base serves all hypotheses of a class."
        ]
        measured_in: dict[str, str] = dict.fromkeys(("real", "yield"), report.by_kind(arguments.targets))
        order = ["simulated", "estimates", "real", "yield"]
        report.write(RESULTS, "bench_bugs", "What a search for bugs costs", opening, tables, order, measured_in)
    return 0


def _estimates(runs: int) -> list[str]:
    rows, families = simulated_estimates(runs=runs)
    ten = [row for row in rows if row.difference == 0.1]
    offs, covered = [100 * row.test.off for row in ten], [row.test.covered for row in ten]
    told = [row for row in rows if row.confirmed >= FEWEST]
    return [
        "### What is told of findings",
        "",
        f"{runs:,} runs a base, each of {len(RUN)} hypotheses with the differences"
        f" {', '.join(f'{one:+g}' for one in sorted(set(RUN)))} ({RUN.count(0.0)} show nothing);"
        f" at most {DESIGN.most} pairs, α = {DESIGN.alpha:g}. *test*: differences and 95 % intervals of the pairs that"
        " tested; *off*: the mean of what is told less the truth, in points, with its standard error; *fresh*: of pairs"
        " drawn once after the test. *perhaps under*: of the confirmed, those told to be perhaps under 5 points."
        f" At +0.1 the test's pairs are {min(offs):.0f} to {max(offs):.0f} points off and covered"
        f" {min(covered):.0%} to {max(covered):.0%}; over all lines fresh pairs are covered"
        f" {min(row.fresh.covered for row in told):.1%} to {max(row.fresh.covered for row in told):.1%}.",
        "",
        *table_of_estimates(rows),
        "",
        "All intervals of a run's findings at once: as widened for being selected (FCR) on the test's pairs, and as"
        " told of fresh ones (Bonferroni).",
        "",
        *table_of_families(families),
        "",
        "What the test denies is that a description is no worse than its base, so that with pairs enough it confirms"
        " differences under the margin of 5 points too:",
        "",
        *table_of_small(small_differences(runs)),
    ]


def _real(proofs: Sequence[Proof]) -> list[str]:
    lines = [
        "*fixed*: the pairs of each hypothesis with which exact McNemar tests would confirm as many of the run, if true"
        " rates are as measured.",
        "",
        "| classifier | hypotheses | confirmed | pairs a hypothesis | fixed | ratio |",
        "| -- | --: | --: | --: | --: | --: |",
    ]
    for proof in proofs:
        one = replayed(proof.run("bugs"), proof.audit.mine.fdr)
        if one is None:
            lines.append(f"| {proof.target} | 0 | | | | |")
            continue
        ends = "– | –" if one.fixed is None else f"{one.fixed} | {one.pairs / one.fixed:.2f}"
        tested = len(proof.run("bugs").tested)
        lines.append(f"| {proof.target} | {tested} | {one.confirmed:.0%} | {one.pairs:.0f} | {ends} |")
    return lines


def _yield(proofs: Sequence[Proof]) -> list[str]:
    lines = ["| arm | findings | images | findings for 1,000 images |", "| -- | --: | --: | --: |"]
    for arm in ARMS_COMPARED:
        runs = [proof.run(arm) for proof in proofs]
        each = mean_of([1000 * len(run.findings) / max(1, run.images) for run in runs], POSITIVE).text()
        findings, images = sum(len(run.findings) for run in runs), sum(run.images for run in runs)
        lines.append(f"| {ARMS[arm]} | {findings} | {images:,} | {each} |")
    return lines


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4000, help="simulated tests a line")
    parser.add_argument(
        "--targets", nargs="*", choices=TARGETS, default=list(LAB), metavar="MODEL", help="none: no real"
    )
    parser.add_argument(
        "--kept", type=Path, default=Path(".train/bugs-proof"), help="as scripts/prove_bugs.py keeps it"
    )
    parser.add_argument("--captioner", default="lab:captioner")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes of the recipe, as there")
    parser.add_argument("--write", action="store_true", help=f"put the tables into scripts/{RESULTS.name}")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
