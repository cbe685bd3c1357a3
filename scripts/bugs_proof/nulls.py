"""Part *nulls*: how often a run confirms anything when nothing is there.

The pairs of a real run with description and base exchanged at random: of each pair that disagrees,
either is now the failing one with the same chance, whatever the classifier. Looks come where they
came. What is confirmed is false.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np

from bugs_proof.proof import Proof
from bugs_proof.runs import Run, bits
from counterfoil.arrays import Bools, Floats
from counterfoil.paired_stats import log_e_values, tango_uppers
from counterfoil.sequential_stats import e_bh
from directions_proof.intervals import mean_percent
from proof_files import Facts, Results

REPLICATES = 1000


def measure(proof: Proof) -> Facts:
    """Count over exchanged runs how many confirm anything, and how many hypotheses are confirmed in
    all."""
    return exchanged(proof.run("bugs"), proof.audit.mine.fdr, proof.audit.mine.margin)


def exchanged(run: Run, alpha: float, margin: float, replicates: int = REPLICATES) -> Facts:
    """Count the same for one run; every replicate exchanges each pair anew."""
    rng = np.random.default_rng(0)
    tested = [finding for finding in run.tested if finding.looks]
    threshold = log(max(1, len(tested)) / alpha)
    ends = [
        _ends(
            bits(finding.own), bits(finding.base), finding.looks, threshold, margin, replicates, rng
        )
        for finding in tested
    ]
    runs = false = 0
    for replicate in range(replicates if ends else 0):
        rejected = e_bh([log_e[replicate] for log_e, _ in ends], alpha)
        confirmed = sum(
            yes and not futile[replicate] for yes, (_, futile) in zip(rejected, ends, strict=True)
        )
        runs += confirmed > 0
        false += confirmed
    return {
        "replicates": replicates,
        "runs": runs,
        "false": false,
        "tested": len(tested),
        "alpha": alpha,
    }


def _ends(
    failed: Bools,
    base: Bools,
    looks: Sequence[tuple[int, float]],
    threshold: float,
    margin: float,
    replicates: int,
    rng: np.random.Generator,
) -> tuple[Floats, Bools]:
    """Return (replicates,) the log of the e-value at which an exchanged test ends, and whether it
    ends as futile."""
    worse = rng.random((replicates, len(failed))) < 0.5
    apart = failed ^ base
    pairs = np.asarray([count for count, _ in looks], np.int64)
    failing = np.concatenate(
        [np.zeros((replicates, 1), np.int64), (worse & apart).cumsum(axis=1)], axis=1
    )[:, pairs]
    discordant = np.concatenate([[0], apart.cumsum()])[pairs]
    log_e = log_e_values(failing, discordant)
    uppers = [
        tango_uppers(failing[:, at], discordant[at] - failing[:, at], pairs[at], 0.95)
        for at in range(len(pairs))
    ]
    futile = np.stack(uppers, axis=1) < margin
    ended = futile | (log_e >= threshold)
    at = np.where(ended.any(axis=1), ended.argmax(axis=1), len(pairs) - 1)
    return log_e[np.arange(replicates), at], futile[np.arange(replicates), at]


def table(results: Results) -> list[str]:
    """Return Markdown: one line for all targets."""
    rows = [result for result in results.values() if result["tested"]]
    share = mean_percent([row["runs"] / row["replicates"] for row in rows])
    tested = sum(row["tested"] for row in rows)
    false = sum(row["false"] / row["replicates"] for row in rows)
    alpha = rows[0]["alpha"] if rows else float("nan")
    return [
        f"Pairs of the real runs, exchanged at random, {REPLICATES:,} times a run; α = {alpha:g}.",
        "",
        "| runs | hypotheses | exchanged runs that confirm anything | false confirmations a run of"
        " all targets |",
        "| --: | --: | --: | --: |",
        f"| {len(rows)} | {tested} | {share} | {false:.3f} |",
    ]
