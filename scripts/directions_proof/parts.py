"""The parts of the proof by name: the file that measures a world and makes the table, and in which
worlds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from counterfoil.models.names import LAB_WEIGHTS
from directions_proof.plan import (
    ABSENCES,
    ABSENCES_SETTINGS,
    FULL,
    INTERVENED,
    INTERVENED_SETTINGS,
    LABELS,
    LABELS_SETTINGS,
    SETTINGS,
    SIDE,
    STRENGTHS,
    kind_of,
)
from directions_proof.worlds import AuditedWardrobe, AuditedWorld
from proof_files import CLASSIFIERS, Facts, Results


@dataclass(frozen=True, slots=True)
class Part:
    """`file` has `measure`, what a world's JSON holds, and `table`; it is imported when its part is
    asked for.

    worlds: planted ones, and the lab's classifiers on the wardrobe. looks_at_proof: whether
    `measure` is given how many rows of the truth to draw. classified: whether it asks the world's
    classifier.
    """

    title: str
    file: str
    worlds: Sequence[str] = FULL
    settings_worlds: Sequence[str] = SETTINGS
    looks_at_proof: bool = False
    classified: bool = True

    def audited(self, name: str, classifiers: Path, kept: Path) -> AuditedWorld | None:
        """Return a world and its classifier; None if the classifier that it needs is missing."""
        of_wardrobe = name in CLASSIFIERS
        folder = LAB_WEIGHTS if of_wardrobe else classifiers
        if self.classified and not (folder / name / "config.json").exists():
            return None
        return (AuditedWardrobe if of_wardrobe else AuditedWorld)(name, folder, kept)

    def measure(self, audited: AuditedWorld, proof_rows: int) -> Facts:
        """Return what is measured in one world."""
        function = import_module(f"directions_proof.{self.file}").measure
        return function(audited, proof_rows) if self.looks_at_proof else function(audited)

    def table(self, results: Results) -> list[str]:
        """Return Markdown of all worlds."""
        return import_module(f"directions_proof.{self.file}").table(results)


# Where something was planted that a caption can name.
_NAMED, _NAMED_SETTINGS = (
    [name for name in names if kind_of(name) in SIDE] for names in (FULL, SETTINGS)
)

PARTS: dict[str, Part] = {
    "ranking": Part("Ranking within the planted class", "ranking"),
    "captions": Part("Captions", "captions", _NAMED, _NAMED_SETTINGS),
    "strength": Part(
        "Strength and the measured gap",
        "strength",
        STRENGTHS,
        [name for name in SETTINGS if kind_of(name) == "correlation"],
    ),
    "honesty": Part("Honesty", "honesty", looks_at_proof=True),
    "power": Part("Power", "power", CLASSIFIERS, CLASSIFIERS),
    "labels": Part("Wrong labels", "labels", LABELS, LABELS_SETTINGS),
    "absences": Part("Absences", "absences", ABSENCES, ABSENCES_SETTINGS, classified=False),
    "closest": Part("Closest to the captions", "closest", _NAMED, _NAMED_SETTINGS),
    "decoded": Part("Decoded directions", "decoded", _NAMED, _NAMED_SETTINGS),
    "interventions": Part("Interventions", "interventions", INTERVENED, INTERVENED_SETTINGS),
}
