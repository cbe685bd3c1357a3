"""The parts of the proof by name: what measures a target, and what makes the table of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bugs_proof import kid, nulls, ranks, reachable, scoring, screen, transfer
from bugs_proof.plan import Arm
from bugs_proof.proof import Proof
from proof_files import Facts, Results


@dataclass(frozen=True, slots=True)
class Part:
    """measure: of a target and the arms that are compared, what its JSON holds."""

    title: str
    measure: Callable[[Proof, Sequence[Arm]], Facts]
    table: Callable[[Results], list[str]]


PARTS: dict[str, Part] = {
    "reachable": Part(
        "What could be found", lambda proof, arms: reachable.measure(proof), reachable.table
    ),
    "search": Part("What was found", scoring.measure_search, scoring.table_search),
    "recall": Part("Recall over reachable cells", scoring.measure_recall, scoring.table_recall),
    "precision": Part("Precision", scoring.measure_precision, scoring.table_precision),
    "rates": Part(
        "Estimated against true rates",
        lambda proof, arms: scoring.measure_rates(proof),
        scoring.table_rates,
    ),
    "screen": Part(
        "With the screen and without it", lambda proof, arms: screen.measure(proof), screen.table
    ),
    "nulls": Part("Where nothing is there", lambda proof, arms: nulls.measure(proof), nulls.table),
    "transfer": Part("Transfer", lambda proof, arms: transfer.measure(proof), transfer.table),
    "ranks": Part("Rules of descriptions", lambda proof, arms: ranks.measure(proof), ranks.table),
    "kid": Part("Distance to the source", lambda proof, arms: kid.measure(proof), kid.table),
}
