"""A real run as a simulated one is told: measured rates, and the fixed number of pairs of equal power."""

from __future__ import annotations

from bugs_proof.runs import Run
from bugs_proof.sequential import Design, Row, Sequential, run_of
from bugs_proof.sequential import Run as Replayed


def replayed(run: Run, alpha: float) -> Replayed | None:
    """The run's pairs a hypothesis against McNemar's fixed number; None where nothing was tested on any pair.

    The test's rates stand for the true ones. Of tests that stopped when they looked well they are too large (1 to 19
    points at a true difference of 10, `estimates.py`), which favours the fixed number.
    """
    rows = []
    for one in run.tested:
        count = one.count
        if count.pairs:
            said = Sequential(
                float(one.confirmed), float(one.state == "futile"), float(one.state == "open" and not one.confirmed),
                count.pairs, count.pairs,
            )  # fmt: skip
            discordant = count.discordant / count.pairs
            rows.append(Row(count.base_rate, count.difference, float("nan"), discordant, said, None))
    return run_of(rows, Design(hypotheses=len(rows), alpha=alpha)) if rows else None
