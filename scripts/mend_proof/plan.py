"""Who is mended, by which runs and settings, and the files of the proof: whole or not at all, found by what decides it.

A run's seed deals the halves, draws the training rows and says which of a prompt's pictures are used. Worlds of seeds 0
to 3 and, of the wardrobe's classifiers, runs of seeds 0 to 3 chose every setting; printed are worlds and runs from 100.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

Rank = Literal["count", "lift"]
RANKS: tuple[Rank, ...] = ("count", "lift")

WORLDS: tuple[str, ...] = (
    "correlation-103", "correlation-105", "rare-100", "rare-101", "noisy-100", "noisy-102",
)  # fmt: skip
"""Two a kind, named before any was measured: the two strongest correlations from 100 with a place, the first scarce
subtypes, and the first whose labels are flipped in train alone. Where other splits are noisy too, the labels are what
fails. All their contexts are places (of a kind), so that they share pictures."""

CHOSEN_IN: tuple[str, ...] = (*WORLDS, "correlation-104")
"""Where choosing is looked at, which draws nothing: one with a colour too."""

SETTINGS_WORLDS: tuple[str, ...] = ("correlation-0", "correlation-1", "rare-0", "noisy-0")

WARDROBE: tuple[str, ...] = (
    "lab:resnet10t",
    "lab:resnet14t",
    "lab:convnext_atto",
    "lab:convnext_pico",
    "lab:vit_tiny_patch8",
    "lab:vit_tiny_patch16",
    "lab:mobilenetv3_small_050",
    "lab:lcnet_035",
)

AROUND: tuple[str, ...] = ("lab:resnet10t", "lab:vit_tiny_patch16")
"""Who goes once around by the real commands: ten minutes each on a busy core."""

RUNS: tuple[int, ...] = (100, 101, 102, 103, 104)
SETTINGS_RUNS: tuple[int, ...] = (0, 1)


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run chooses, draws and mends. Whatever is not the paper's was chosen on the settings seeds.

    k: contexts a class. a_failure: pictures a failure; most: of a context, at most; pool: pictures a prompt that runs
    draw theirs from, and pool_plain of a class's name. per_class: training images a class. lambdas: the grid. fewest:
    rows of a context on the discover half before its accuracy counts when λ is chosen. most_loss: of overall accuracy
    there. screen: which pictures are used: `all`, `recipe` (as `wardrobe-contexts` screens) or `class` (CLIP finds its
    own class most like it, which no recipe asks).
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
    """`correlation` of `correlation-100`; `wardrobe` of the wardrobe's own classifiers."""
    return "wardrobe" if target.startswith("lab:") else target.rpartition("-")[0]


def saved(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file whole or not at all, by a function that takes an open one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{id(write):x}.part")
    with temporary.open("wb") as stream:
        write(stream)
    temporary.replace(path)


def measured(path: Path, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The JSON of a path, measured where it is not there."""
    if not path.exists():
        found = measure()
        saved(path, lambda to: to.write((json.dumps(found, indent=1) + "\n").encode()))
    return json.loads(path.read_text(encoding="utf-8"))


_HERE = Path(__file__).parent
_PACKAGE = _HERE.parents[1] / "builders" / "counterfoil"
_BENEATH = (
    "mending/fitting.py", "mending/judging.py", "mending/arms.py",
    "mining/methods/contexts.py", "mining/methods/svm.py", "mining/methods/directions.py", "data/labelled_images.py",
    "lab/planted.py", "lab/scenes.py",
)  # fmt: skip
_IMPORT = re.compile(r"^(?:from mend_proof\.(\w+) import|from mend_proof import (.+))", re.MULTILINE)
_TELLS_NO_NUMBER = frozenset({"plan", "parts"})


def code_of(name: str) -> str:
    """A hash of a file of this folder, of those of this folder that it imports, and of the package beneath."""
    digest = hashlib.sha256()
    files = [_HERE / f"{name}.py" for name in sorted(_imported(name))]
    for place in (*(_PACKAGE / name for name in _BENEATH), *files):
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _imported(name: str) -> set[str]:
    found, waiting = set(), {name}
    while waiting:
        found |= waiting
        texts = [(_HERE / f"{one}.py").read_text(encoding="utf-8") for one in waiting]
        named = [
            one for text in texts for pair in _IMPORT.findall(text) for one in (pair[0], *pair[1].split(", ")) if one
        ]
        waiting = set(named) - found - _TELLS_NO_NUMBER
    return found
