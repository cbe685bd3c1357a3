"""Small input datasets that tests mine: sneakers that fail in a corner, and scenes with several
conditions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from counterfoil.lab.world import Scene, load_garments, render
from counterfoil.mining.mine_recipe import MineResult, mine
from support.images import encoded

# Planted: sneakers come with the road in training; a third of them are elsewhere in every other
# split.
WORLD = "lab:planted/correlation-0"
OVERRIDES = (
    f"source.dataset={WORLD}",
    "source.classes=[{id: '05', name: sandal, source_label: 5}, {id: '07', name: sneaker,"
    " source_label: 7}]",
    "tokens=null",
    "generator.adapter=lab:decoder",
    "evaluate.models=[lab:resnet10t]",
    "mine.train_rows=100",
    "mine.settings.permutations=20",
)


def mine_sneakers(out: Path, *changes: str, **options: Any) -> MineResult:
    given: dict[str, Any] = {
        "target": WORLD,
        "on": ["validation"],
        "device": "cpu",
        "workers": 1,
    } | options
    return mine("wardrobe-star", out, overrides=[*OVERRIDES, *changes], **given)


T_SHIRT = 0
SANDAL = 5
CLASSES = (
    "source.classes=[{id: '00', name: t-shirt, source_label: 0}, {id: '05', name: sandal,"
    " source_label: 5}]"
)
CAPTIONS = """
reference: a photo of a {noun}
templates: ["a photo of a {adjective} {noun} {preposition}"]
adjectives: [null, blue]
prepositions: [null, in the beach, in the snow, on the road, in the forest]
"""
PLACES = ("beach", "snow", "road", "forest")


def scenes(first: int, count: int, labels: Sequence[int] = (T_SHIRT, SANDAL)) -> list[Scene]:
    """Return scenes of `audit` garments from number `first`, balanced over classes, about 40 % on
    the beach."""
    rng = np.random.default_rng(first)
    garments = {
        label: np.flatnonzero(load_garments("audit").labels == label).tolist() for label in labels
    }
    result = []
    for number in range(first, first + count):
        background = "beach" if rng.random() < 0.4 else PLACES[int(rng.integers(1, len(PLACES)))]
        label = labels[number % len(labels)]
        garment = garments[label][number // len(labels)]
        colour = ("blue", "red")[number % 4 // 2]
        result.append(
            Scene("audit", garment, label, colour=colour, background=background, seed=number)
        )
    return result


@cache
def png(scene: Scene) -> bytes:
    return encoded(render(scene))


def save_split(
    folder: Path, split: str, shown: Sequence[Scene], broken: Sequence[int] = (), **columns: Any
) -> None:
    """Write a split of the folder's dataset. Rows in `broken` hold no image."""
    images = [
        {"bytes": b"no image" if row in broken else png(scene), "path": None}
        for row, scene in enumerate(shown)
    ]
    columns = columns or {"label": [scene.label for scene in shown]}
    table = datasets.Dataset.from_dict({"image": images, **columns}).cast_column(
        "image", datasets.Image()
    )
    folder.mkdir(parents=True, exist_ok=True)
    table.to_parquet(str(folder / f"{split}.parquet"))


def answer(
    path: Path,
    shown: Sequence[Scene],
    fails: Callable[[Scene], bool],
    split: str = "validation",
    *more: str,
) -> str:
    """Write predictions and return them as a target. A failing answer is the other class."""
    lines = ["key,class_id"]
    for row, scene in enumerate(shown):
        given = scene.label if not fails(scene) else T_SHIRT + SANDAL - scene.label
        lines.append(f"{split}_{row:08d},{given:02d}")
    path.write_text("\n".join([*lines, *more]) + "\n")
    return f"predictions:{path}"


def on_the_beach(scene: Scene) -> bool:
    """Return whether the answer fails: for nearly every scene on the beach, and a few elsewhere."""
    return scene.seed % 8 != 0 if scene.background == "beach" else scene.seed % 20 == 0


def recipe_sets(folder: Path, **changes: Any) -> list[str]:
    """Return the overrides that make `wardrobe-mini` the recipe of the folder's dataset."""
    captions = folder.parent / "captions.yaml"
    captions.write_text(CAPTIONS)
    settings = f"mine.settings={{captions: {captions}, permutations: 5}}"
    return [
        f"source.dataset={folder}", CLASSES, "tokens=null", "source.unit_column=null", "screen.judge=null", settings,
        *(f"{key}={value}" for key, value in changes.items()),
    ]  # fmt: skip
