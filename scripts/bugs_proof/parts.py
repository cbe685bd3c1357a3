"""The parts of the proof by name: what measures a target, and what makes the table of all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bugs_proof import kid, nulls, ranks, reachable, scoring, screen, transfer
from bugs_proof.proof import Proof
from proof_files import Facts, Results


@dataclass(frozen=True, slots=True)
class Part:
    """measure: of a target, what the table reads."""

    title: str
    measure: Callable[[Proof], Facts]
    table: Callable[[Results], list[str]]


PARTS: dict[str, Part] = {
    "reachable": Part("What could be found", reachable.measure, reachable.table),
    "search": Part("What was found", scoring.measure_search, scoring.table_search),
    "recall": Part("Recall over reachable cells", scoring.measure_recall, scoring.table_recall),
    "precision": Part("Precision", scoring.measure_precision, scoring.table_precision),
    "rates": Part("Estimated against true rates", scoring.measure_rates, scoring.table_rates),
    "screen": Part("With the screen and without it", screen.measure, screen.table),
    "nulls": Part("Where nothing is there", nulls.measure, nulls.table),
    "transfer": Part("Transfer", transfer.measure, transfer.table),
    "ranks": Part("Rules of descriptions", ranks.measure, ranks.table),
    "kid": Part("Distance to the source", kid.measure, kid.table),
}
