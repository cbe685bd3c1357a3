"""Mining made small: two classes of a planted world, where a sneaker that is not on the road is taken for others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from counterfoil.mining.mine_recipe import MineResult, mine

WORLD = "lab:planted/correlation-0"
"""Planted: sneakers come with the road in training; a third of them are elsewhere in every other split."""
OVERRIDES = (
    f"source.dataset={WORLD}",
    "source.classes=[{id: '05', name: sandal, source_label: 5}, {id: '07', name: sneaker, source_label: 7}]",
    "tokens=null",
    "generator.adapter=lab:decoder",
    "evaluate.models=[lab:resnet10t]",
    "mine.train_rows=100",
    "mine.settings.permutations=20",
)


def mine_sneakers(out: Path, *changes: str, **options: Any) -> MineResult:
    given: dict[str, Any] = {"target": WORLD, "on": ["validation"], "device": "cpu", "workers": 1} | options
    return mine("wardrobe-star", out, overrides=[*OVERRIDES, *changes], **given)
