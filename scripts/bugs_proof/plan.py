"""Who is audited, on which images, and by which runs: those that settings are chosen on, and the
printed ones.

A run's seed is the recipe's `samples.seed`. Seeds 0 to 3 may choose settings; printed tables are of
seeds from 100.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from proof_files import CLASSIFIERS

RECIPE = "wardrobe-bugs"
SETTINGS_SEED = 0
PRINTED_SEED = 100
# Classes are drawn by their names, as the recipe has them. What a token learned of a sandal is a
# sandal on a beach, as the input dataset has it, and there next to nothing fails. Names draw coats,
# shirts and bags that the wardrobe's own classifiers do not know; they fail and are left out.
Group = Literal["wardrobe", "planted"]
LAB: tuple[str, ...] = tuple(f"lab:{name}" for name in CLASSIFIERS)
PLANTED: tuple[str, ...] = tuple(
    f"lab:planted/{name}"
    for name in ("correlation-0", "correlation-1", "correlation-3", "noisy-0", "rare-0", "null-0")
)
PANELS: dict[Group, tuple[str, ...]] = {"wardrobe": LAB, "planted": PLANTED}
TARGETS = (*LAB, *PLANTED)
Arm = Literal["bugs", "keywords", "domino", "random"]
ARMS: dict[Arm, str] = {
    "bugs": "bugs",
    "keywords": "Bias-to-Text's keywords",
    "domino": "Domino + captioner",
    "random": "random contexts",
}
# A cell is worth finding when its true drop is so large and so many of its class's base images show
# it.
WORTH_FINDING = 0.15
SHOWN = 0.02
# A confirmed finding is right when its true difference is above what the method tests against.
MARGIN = 0.05


@dataclass(frozen=True, slots=True)
class Asked:
    """One run of the proof. overrides: of the recipe, beside those of the seed and the way. fresh:
    pairs a finding."""

    seed: int
    overrides: tuple[str, ...] = ()
    fresh: int = 32
    renders: int = 60

    def changes(self, target: str) -> list[str]:
        """Return what a target changes in the bundled recipe."""
        return [f"samples.seed={self.seed}", f"mine.target={target}", *self.overrides]


def group_of(target: str) -> Group:
    """Return the group of targets whose panel answers together with this one."""
    return "planted" if target in PLANTED else "wardrobe"


def slug(target: str) -> str:
    """Return a target as part of a file's name: `planted-rare-0`."""
    return target.removeprefix("lab:").replace("/", "-")
