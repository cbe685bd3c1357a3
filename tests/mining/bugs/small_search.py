"""A real search for bugs at the smallest size that has every stage: two classes, three steps, eight pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counterfoil.mining.bugs.drawing import DrawnRound, RoundAsked
from counterfoil.mining.bugs.rounds import RoundDrawer
from counterfoil.mining.findings import Findings
from counterfoil.mining.mine_recipe import mine
from counterfoil.mining.mined_files import MineResult
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.store.layout import INDEX

RECIPE, TARGET = "wardrobe-bugs", "lab:resnet10t"
T_SHIRT, SANDAL = "00", "05"
# Two steps draw no sandals. One that may report nearly everything goes through every stage with eight pairs.
DRAWN = ("generator.steps=3", "generator.batch_size=8", "screen.object_threshold=0.2", "samples.seed=0")
SEARCHED = (
    f'mine.settings.classes=["{T_SHIRT}", "{SANDAL}"]',
    "mine.settings.baseline=12",
    "mine.settings.fewest_failures=1",
    "mine.settings.clusters=1",
    "mine.settings.captions=2",
    "mine.settings.described=2",
    "mine.settings.batch=4",
    "mine.settings.pairs=8",
    "mine.settings.estimate_pairs=8",
    "mine.settings.adversarial=4",
    "mine.fdr=0.9",
    "mine.margin=0",
)
WRITTEN = ("findings.json", "findings.csv", "report.html", "recipe.yaml", "adversarial.yaml", "mine.yaml")


def searched(out: Path, *sets: str, target: str = TARGET, **more: Any) -> MineResult:
    """`mine` with the small settings, and with `sets` over them."""
    overrides = [*DRAWN, *SEARCHED, *sets]
    return mine(RECIPE, out, overrides=overrides, target=target, device="cpu", workers=1, **more)


def findings_of(folder: Path) -> Findings:
    return Findings.from_json((folder / "findings.json").read_bytes(), str(folder))


def files_of(folder: Path) -> dict[str, bytes]:
    """What mining wrote in its folder, by name, beside the rounds, and beside the page that names the folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != INDEX}


def round_recipes(folder: Path) -> Mapping[str, Recipe]:
    """The recipe of each round, by the round's name."""
    found = [path for kind in ("rounds", "tries") for path in sorted(folder.glob(f"{kind}/*/recipe.yaml"))]
    return {f"{path.parents[1].name}/{path.parent.name}": load_recipe(path) for path in found}


@contextmanager
def described_images(*, fail: bool) -> Iterator[None]:
    """Rounds are drawn as they are; the target is right about every base, and about every described image or none."""
    real = RoundDrawer.__call__

    def drawn_so(self: RoundDrawer, asked: RoundAsked) -> DrawnRound:
        drawn = real(self, asked)
        failed = (drawn.shifts > 0) & fail
        return replace(drawn, failed=failed, answers=np.where(failed, (drawn.labels + 1) % 10, drawn.labels))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoundDrawer, "__call__", drawn_so)
        yield
