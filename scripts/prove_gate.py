"""Prove how often a gate changes its answer although the model stays the same: a gate of one
threshold, and one with three answers.

    python scripts/prove_gate.py --write    # the table, into RESULTS.md

Each run draws other images; nothing is built and no model is loaded. Under two minutes of one core.
"""

from __future__ import annotations

import os
from itertools import pairwise, product

# One thread: sums are then the same on every machine of a kind.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import proving
from counterfoil.evaluation.gate import GateLine
from prove_intervals import gated
from results_page import table

SEED = 100
LIMIT = 0.8
POINTS = (0, 1, 2)
IMAGES = (500, 2000)
CLASSES = 10
RUNS = 120
SERIES = 2


def runs_of_one_model() -> list[str]:
    """Judge the same model in series of runs, each on images of its own."""
    line = GateLine("", "accuracy", "base", LIMIT)
    rows = []
    for points, images in product(POINTS, IMAGES):
        rng = np.random.default_rng([SEED, points, images])
        share = LIMIT + points / 100
        shares = np.full((1, CLASSES, 2), share)
        sizes = np.full(CLASSES, images // CLASSES)
        verdicts: list[str] = []
        passes: list[str] = []
        for _ in range(RUNS * SERIES):
            (judged,) = gated(rng, shares, sizes, [line], kept=1.0).judged
            assert judged.estimate is not None
            verdicts.append(judged.verdict)
            passes.append("pass" if judged.estimate.value >= LIMIT else "fail")
        answered = [_percent(verdicts, answer) for answer in ("pass", "undecided", "fail")]
        contradictions = [_contradictions(each) for each in (passes, verdicts)]
        row = [f"{points}", f"{images:,}", _percent(passes, "fail"), contradictions[0], *answered]
        rows.append([*row, contradictions[1]])
    return [
        "### Runs of one model",
        "",
        f"A model whose true accuracy is so many points above the limit of {100 * LIMIT:.0f} %, in"
        f" {SERIES} series of {RUNS} runs, each on other images of {CLASSES} classes. A decided run"
        " *contradicts* if the decided run before it says the opposite; shares are of all runs. One"
        " threshold passes a run whose measured accuracy reaches the limit. Three answers are those"
        f" of `accuracy(base) >= {100 * LIMIT:.0f}`.",
        "",
        *table(
            [
                "points above",
                "images",
                "one threshold: fail",
                "contradicts",
                "three answers: pass",
                "undecided",
                "fail",
                "contradicts",
            ],
            rows,
            0,
        ),
    ]


def _percent(answers: list[str], answer: str) -> str:
    return f"{100 * answers.count(answer) / len(answers):.1f} %"


def _contradictions(answers: list[str]) -> str:
    """Return how often a decided answer contradicts the decided answer before, within a series."""
    count = 0
    for first in range(0, len(answers), RUNS):
        decided = [answer for answer in answers[first : first + RUNS] if answer != "undecided"]
        count += sum(before != now for before, now in pairwise(decided))
    return f"{100 * count / len(answers):.1f} %"


def main() -> None:
    options = proving.parser(__doc__, ["runs"]).parse_args()
    opening = [f"The table is of seed {SEED}. No setting was chosen on it."]
    tables = [proving.Table("runs", runs_of_one_model())]
    proving.tell("prove_gate", "Gates that flap", opening, tables, ["runs"], options.write)


if __name__ == "__main__":
    main()
