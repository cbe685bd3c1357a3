"""What a search for bugs costs: images drawn to the same decisions, and confirmed findings an
image.

Simulated hypotheses and runs first (`bugs_proof/sequential.py`): the sequential test against exact
McNemar tests of the fixed number of pairs that has the same power. Then simulated findings
(`bugs_proof/estimates.py`): what their rates are told to be, by the pairs that tested them and by
fresh ones. Then the real runs of `scripts/prove_bugs.py`, replayed: the pairs that each drew, and
the fixed number that would have confirmed as many. Last, findings for each thousand images, beside
random contexts that are tested on as many.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from benches import Page
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
from bugs_proof.sequential import (
    Design,
    saved,
    simulated_rows,
    simulated_runs,
    table_of_rows,
    table_of_runs,
)
from directions_proof.intervals import POSITIVE, mean_of
from results_page import by_kind, table

TITLE = "What a search for bugs costs"
PARTS = ("simulated", "estimates", "real", "yield")
ARMS_COMPARED: tuple[Arm, ...] = ("bugs", "random")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add how much is simulated, and whose real runs are looked at."""
    parser.add_argument("--runs", type=int, default=4000, help="simulated tests a line")
    parser.add_argument(
        "--targets",
        nargs="*",
        choices=TARGETS,
        default=list(LAB),
        metavar="MODEL",
        help="none: no real",
    )
    parser.add_argument(
        "--kept",
        type=Path,
        default=Path(".train/bugs-proof"),
        help="as scripts/prove_bugs.py keeps it",
    )
    parser.add_argument("--captioner", default="lab:captioner")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="changes of the recipe, as there"
    )


def measure(options: argparse.Namespace) -> Iterator[Page]:
    """Simulate, and look at what was kept of real runs."""
    opening = [
        "Pairs are of images that the screen accepts; an image of the base serves all hypotheses of"
        " a class."
    ]
    design = Design()
    rows = simulated_rows(design, options.runs)
    runs = simulated_runs(design, options.runs)
    gains = [row for row in rows if row.difference > 0]
    tables = {
        "simulated": [
            "### Simulated hypotheses",
            "",
            f"{options.runs:,} tests a line, {design.hypotheses} hypotheses in the run, α ="
            f" {design.alpha:g}, at most"
            f" {design.most:,} pairs. *fixed*: McNemar's pairs of the same power. Over all lines"
            " the sequential test"
            f" draws {saved(gains):.2f} of the fixed number's pairs.",
            "",
            *table_of_rows(rows),
            "",
            "### Simulated runs",
            "",
            "Half of the hypotheses show nothing. *fixed*: the one number of pairs for each with"
            " which as many are"
            f" confirmed. Over all lines the sequential test draws {saved(runs):.2f} of them.",
            "",
            *table_of_runs(runs),
        ],
        "estimates": _estimates(options.runs),
    }
    yield Page(opening, tables)
    if options.targets:
        kept = options.kept.resolve()
        os.environ["XDG_CACHE_HOME"] = str(kept / "cache")
        run = Asked(PRINTED_SEED, tuple(options.set))
        proofs = [Proof(target, run, kept, options.captioner) for target in options.targets]
        tables["real"] = ["### Real runs, replayed", "", *_real(proofs)]
        tables["yield"] = ["### Findings an image", "", *_yield(proofs)]
        yield Page(opening, tables, dict.fromkeys(("real", "yield"), by_kind(options.targets)))


def _estimates(runs: int) -> list[str]:
    rows, families = simulated_estimates(runs=runs)
    ten = [row for row in rows if row.difference == 0.1]
    offs = [100 * row.test.off for row in ten]
    covered = [row.test.covered for row in ten]
    reported = [row for row in rows if row.confirmed >= FEWEST]
    return [
        "### What is told of findings",
        "",
        f"{runs:,} runs a base, each of {len(RUN)} hypotheses with the differences"
        f" {', '.join(f'{effect:+g}' for effect in sorted(set(RUN)))} ({RUN.count(0.0)} show"
        " nothing);"
        f" at most {DESIGN.most} pairs, α = {DESIGN.alpha:g}. *test*: differences and 95 %"
        " intervals of the pairs that"
        " tested; *off*: the mean of what is told less the truth, in points, with its standard"
        " error; *fresh*: of pairs"
        " drawn once after the test. *perhaps under*: of the confirmed, those told to be perhaps"
        " under 5 points."
        f" At +0.1 the test's pairs are {min(offs):.0f} to {max(offs):.0f} points off and covered"
        f" {min(covered):.0%} to {max(covered):.0%}; over all lines fresh pairs are covered"
        f" {min(row.fresh.covered for row in reported):.1%} to"
        f" {max(row.fresh.covered for row in reported):.1%}.",
        "",
        *table_of_estimates(rows),
        "",
        "All intervals of a run's findings at once: as widened for being selected (FCR) on the"
        " test's pairs, and as"
        " told of fresh ones (Bonferroni).",
        "",
        *table_of_families(families),
        "",
        "What the test denies is that a description is no worse than its base, so that with pairs"
        " enough it confirms"
        " differences under the margin of 5 points too:",
        "",
        *table_of_small(small_differences(runs)),
    ]


def _real(proofs: Sequence[Proof]) -> list[str]:
    rows = []
    for proof in proofs:
        replay = replayed(proof.run("bugs"), proof.audit.mine.fdr)
        if replay is None:
            rows.append([proof.target, 0, "", "", "", ""])
            continue
        ends = (
            ["–", "–"]
            if replay.fixed is None
            else [f"{replay.fixed}", f"{replay.pairs / replay.fixed:.2f}"]
        )
        tested = len(proof.run("bugs").tested)
        rows.append([proof.target, tested, f"{replay.confirmed:.0%}", f"{replay.pairs:.0f}", *ends])
    return [
        "*fixed*: the pairs of each hypothesis with which exact McNemar tests would confirm as many"
        " of the run, if true"
        " rates are as measured.",
        "",
        *table(
            ["classifier", "hypotheses", "confirmed", "pairs a hypothesis", "fixed", "ratio"], rows
        ),
    ]


def _yield(proofs: Sequence[Proof]) -> list[str]:
    rows = []
    for arm in ARMS_COMPARED:
        runs = [proof.run(arm) for proof in proofs]
        each = mean_of(
            [1000 * len(run.findings) / max(1, run.images) for run in runs], POSITIVE
        ).text()
        findings = sum(len(run.findings) for run in runs)
        images = sum(run.images for run in runs)
        rows.append([ARMS[arm], findings, f"{images:,}", each])
    return table(["arm", "findings", "images", "findings for 1,000 images"], rows)
