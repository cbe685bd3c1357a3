"""The parts of the proof by name: what measures a run of a target, and what makes the table of
all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mend_proof import around, choosing, collective, mending, null
from mend_proof.plan import AROUND, CHOSEN_IN, WORLDS, kind_of
from proof_files import Facts


@dataclass(frozen=True, slots=True)
class Part:
    """measure: of a run, what its JSON holds; or of one run of all the wardrobe's classifiers,
    where they are measured `together`. measured_as: the part whose results it shows too. runs: at
    most so many of a classifier of the wardrobe.
    """

    title: str
    measure: Callable[[Any], Facts]
    table: Callable[[Any], list[str]]
    together: bool = False
    worlds: bool = True
    runs: int = 5
    draws_nothing: bool = False
    measured_as: str | None = None
    only: tuple[str, ...] = ()

    def takes(self, target: str) -> bool:
        """Return whether a target is measured."""
        if self.only and target not in self.only:
            return False
        if kind_of(target) == "wardrobe":
            return True
        return self.worlds and (self.draws_nothing or target not in CHOSEN_IN or target in WORLDS)

    def most_runs(self, target: str) -> int:
        """Return the most runs of a target: fewer of the wardrobe's, whose features are ten times
        as wide."""
        return self.runs if kind_of(target) == "wardrobe" else 5


PARTS: dict[str, Part] = {
    "around": Part(
        "Once around by the real commands",
        around.measure,
        around.table,
        worlds=False,
        runs=1,
        only=AROUND,
    ),
    "mending": Part("Mending by the head alone", mending.measure, mending.table, runs=2),
    "null": Part(
        "Where drawn images say nothing",
        null.measure,
        null.table,
        worlds=False,
        runs=1,
        only=AROUND[:1],
    ),
    "choosing": Part(
        "Are the right contexts chosen?", choosing.measure, choosing.table, draws_nothing=True
    ),
    "others": Part(
        "The same by what the other methods find",
        mending.measure,
        mending.table_others,
        runs=2,
        measured_as="mending",
    ),
    "ranks": Part(
        "By count or by lift, where one place is usual",
        mending.measure_ranks,
        mending.table_ranks,
        worlds=False,
        runs=1,
    ),
    "collective": Part(
        "One set for several classifiers",
        collective.measure,
        collective.table,
        together=True,
        worlds=False,
        runs=3,
    ),
}
