"""Who is mended, by which runs and settings.

A run's seed deals the halves, draws the training rows and says which of a prompt's pictures are
used. Worlds of seeds 0 to 3 and, of the wardrobe's classifiers, runs of seeds 0 to 3 chose every
setting; printed are worlds and runs from 100.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from proof_files import CLASSIFIERS, PACKAGE, Facts, code_of, imported_by

RunResults: TypeAlias = Mapping[str, Sequence[Facts]]
"""Numbers of a part: those of each target, in each run."""
Rank = Literal["count", "lift"]
RANKS: tuple[Rank, ...] = ("count", "lift")

WORLDS: tuple[str, ...] = (
    "correlation-103", "correlation-105", "rare-100", "rare-101", "noisy-100", "noisy-102",
)  # fmt: skip
"""Two a kind, named before any was measured: the two strongest correlations from 100 with a place,
the first scarce subtypes, and the first whose labels are flipped in train alone. Where other splits
are noisy too, the labels are what fails. All their contexts are places (of a kind), so that they
share pictures."""

CHOSEN_IN: tuple[str, ...] = (*WORLDS, "correlation-104")
"""Where choosing is looked at, which draws nothing: one with a colour too."""

SETTINGS_WORLDS: tuple[str, ...] = ("correlation-0", "correlation-1", "rare-0", "noisy-0")

WARDROBE: tuple[str, ...] = tuple(f"lab:{name}" for name in CLASSIFIERS)

AROUND: tuple[str, ...] = ("lab:resnet10t", "lab:vit_tiny_patch16")
"""Who goes once around by the real commands: ten minutes each on a busy core."""

RUNS: tuple[int, ...] = (100, 101, 102, 103, 104)
SETTINGS_RUNS: tuple[int, ...] = (0, 1)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run chooses, draws and mends. Whatever is not the paper's was chosen on the settings
    seeds.

    k: contexts a class. a_failure: pictures a failure; most: of a context, at most; pool: pictures
    a prompt that runs draw theirs from, and pool_plain of a class's name. per_class: training
    images a class. lambdas: the grid. fewest: rows of a context on the discover half before its
    accuracy counts when λ is chosen. most_loss: of overall accuracy there. screen: which pictures
    are used: `all`, `recipe` (as `wardrobe-contexts` screens) or `class` (CLIP finds its own class
    most like it, which no recipe asks).
    """

    k: int = 3
    rank: Rank = "count"
    fewest_failures: int = 2
    a_failure: int = 5
    most: int = 12
    pool: int = 20
    pool_plain: int = 45
    per_class: int = 600
    lambdas: tuple[float, ...] = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
    fewest: int = 5
    most_loss: float = 0.005
    screen: str = "recipe"


def kind_of(target: str) -> str:
    """Return the kind of a target: `correlation` of `correlation-100`; `wardrobe` of the wardrobe's
    own classifiers."""
    return "wardrobe" if target.startswith("lab:") else target.rpartition("-")[0]


_BENEATH = (
    "mending/fitting.py", "mending/evaluating.py", "mending/variants.py",
    "mining/methods/contexts.py", "mining/methods/svm.py", "mining/methods/directions.py", "data/labelled_images.py",
    "lab/planted.py", "lab/scenes.py",
)  # fmt: skip


def code_of_part(name: str) -> str:
    """Hash a file of this folder, the files of this folder that it imports, and the package
    beneath."""
    return code_of(
        [
            *(PACKAGE / name for name in _BENEATH),
            *imported_by("mend_proof", name, ("plan", "parts")),
        ]
    )


def groups_of(results: RunResults) -> Mapping[str, RunResults]:
    """Return the results of each kind of target, and of all worlds where there are several
    kinds."""
    by_kind: dict[str, dict[str, Sequence[Facts]]] = {}
    for name, runs in results.items():
        by_kind.setdefault(kind_of(name), {})[name] = runs
    groups = {f"{kind} ({len(of_kind)})": of_kind for kind, of_kind in by_kind.items()}
    worlds = {name: runs for name, runs in results.items() if kind_of(name) != "wardrobe"}
    if len(by_kind.keys() - {"wardrobe"}) > 1:
        groups[f"all worlds ({len(worlds)})"] = worlds
    return groups
