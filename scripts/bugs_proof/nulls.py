"""Part *nulls*: how often a run confirms anything when nothing is there.

The pairs of a real run with description and base exchanged at random: of each pair that disagrees, either is now the
failing one with the same chance, whatever the classifier. Looks come where they came. What is confirmed is false.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Any

import numpy as np

from bugs_proof.proof import Proof
from bugs_proof.runs import Run, bits
from counterfoil.mining.bugs.pair_tests import PairCount, decide, e_bh, log_e_value
from directions_proof.intervals import mean_of

REPLICATES = 1000


def measure(proof: Proof) -> dict[str, Any]:
    """Over exchanged runs: how many confirm anything, and how many hypotheses are confirmed in all."""
    return exchanged(proof.run("bugs"), proof.audit.mine.fdr, proof.audit.mine.margin)


def exchanged(run: Run, alpha: float, margin: float, replicates: int = REPLICATES, seed: int = 0) -> dict[str, Any]:
    """The same of a run; every replicate exchanges each pair anew."""
    rng = np.random.default_rng(seed)
    tested = [(bits(one.own), bits(one.base), [pairs for pairs, _ in one.looks]) for one in run.tested]
    threshold = log(max(1, len(tested)) / alpha)
    runs = false = 0
    for _ in range(replicates):
        log_e, states = [], []
        for own, base, looks in tested:
            other = rng.random(len(own)) < 0.5
            found, state = 0.0, "open"
            for pairs in looks:
                failing = int(np.where(other, base & ~own, own & ~base)[:pairs].sum())
                discordant = int((own ^ base)[:pairs].sum())
                both = int((own & base)[:pairs].sum())
                found = log_e_value(failing, discordant)
                count = PairCount(pairs, both, failing, discordant - failing)
                state = decide(count, found, threshold, margin) if pairs else "open"
                if state != "open":
                    break
            log_e.append(found)
            states.append(state)
        confirmed = sum(yes and state != "futile" for yes, state in zip(e_bh(log_e, alpha), states, strict=True))
        runs += confirmed > 0
        false += confirmed
    return {"replicates": replicates, "runs": runs, "false": false, "tested": len(tested), "alpha": alpha}


def table(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Markdown: a line for all targets."""
    rows = [one for one in results.values() if one["tested"]]
    share = mean_of([one["runs"] / one["replicates"] for one in rows]).text(percent=True)
    tested = sum(one["tested"] for one in rows)
    false = sum(one["false"] / one["replicates"] for one in rows)
    alpha = rows[0]["alpha"] if rows else float("nan")
    return [
        f"Pairs of the real runs, exchanged at random, {REPLICATES:,} times a run; α = {alpha:g}.",
        "",
        "| runs | hypotheses | exchanged runs that confirm anything | false confirmations a run of all targets |",
        "| --: | --: | --: | --: |",
        f"| {len(rows)} | {tested} | {share} | {false:.3f} |",
    ]
