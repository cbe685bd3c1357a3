"""A small world to mend in: three kinds of shoes, of which the lab's ResNet does not know sandals
in the snow.

The input dataset is a folder of rendered scenes in three splits; the images to mend with are a
dataset whose samples are rendered scenes too, in the groups `contexts`, `class_name` and
`random_contexts`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import datasets
import numpy as np

from clip_verdicts import clip_verdict
from counterfoil.documents import sha256_json
from counterfoil.lab.world import Scene, load_garments, render
from counterfoil.mending.mend_models import MendResult, mend
from counterfoil.plan.layout import Plan, Sample, make_plan
from counterfoil.recipe import dump_recipe, load_recipe
from counterfoil.store.dataset_store import DatasetStore
from counterfoil.store.rows import Candidate
from support.images import encoded

MODEL = "lab:resnet10t"
LABELS = {"05": 5, "07": 7, "09": 9}
NAMES = {"05": "sandal", "07": "sneaker", "09": "ankle boot"}
USUAL = ("beach", "water", "wall", "rocks")
UNUSUAL = ("snow", "forest")
# Rows of each split, and how many of ten are somewhere unusual.
SPLITS = {"train": (60, 0), "validation": (150, 5), "test": (60, 5)}
FIRST = {"train": 0, "validation": 20, "test": 70}
IMAGES = 8
CONTEXTS = {"in_the_snow": "in the snow", "in_the_forest": "in the forest"}
OTHERS = {"in_the_water": "in the water", "in_the_beach": "in the beach"}
GRID = (0.0, 0.5, 2.0)
_COLOURS = ("red", "blue", "green", "white")


def scene(split: str, row: int) -> Scene:
    """Return a row of a split; no two splits have a garment in common."""
    _, unusual = SPLITS[split]
    label = list(LABELS.values())[row % 3]
    number = row // 3
    background = UNUSUAL[number % 2] if number % 10 < unusual else USUAL[number % len(USUAL)]
    garment = np.flatnonzero(load_garments("audit").labels == label)[FIRST[split] + number]
    colour = _COLOURS[number % len(_COLOURS)]
    return Scene(
        "audit",
        int(garment),
        label,
        colour=colour,
        background=background,
        seed=1000 * FIRST[split] + row,
    )


@cache
def png(shown: Scene) -> bytes:
    return encoded(render(shown))


def save_source(folder: Path) -> None:
    """Save the three splits, with the garment of each row and the place where it is."""
    folder.mkdir(parents=True)
    for split, (rows, _) in SPLITS.items():
        shown = [scene(split, row) for row in range(rows)]
        table = datasets.Dataset.from_dict(
            {
                "image": [{"bytes": png(row), "path": None} for row in shown],
                "label": [row.label for row in shown],
                "garment": [f"{row.label}-{row.garment}" for row in shown],
                "place": [row.background for row in shown],
            }
        ).cast_column("image", datasets.Image())
        table.to_parquet(str(folder / f"{split}.parquet"))


def write_recipe(path: Path, **more: Any) -> Path:
    """Write a recipe over the source beside it."""
    classes = [{"id": id, "name": NAMES[id], "source_label": label} for id, label in LABELS.items()]
    source = {"dataset": str(path.parent / "source"), "unit_column": "garment", "classes": classes}
    layer = {
        "extends": "wardrobe-mini",
        "name": "scenes",
        "tokens": None,
        "source": source,
        "screen": {"judge": None},
    }
    path.write_text(json.dumps(layer | {"mine": {"on": ["validation"]}} | more))
    return path


def mined_layer(
    mined: Mapping[str, Any] | None = None, groups: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a layer with the three groups for the recipe; mined: more of `mined_from`."""
    every = load_recipe("wardrobe-mini").prompts.shifts
    shifts: dict[str, Any] = dict.fromkeys(every)
    sandal = {"kind": "mined", "classes": ["05"]}
    for group, places in (("contexts", CONTEXTS), ("random_contexts", OTHERS)):
        for rank, (name, words) in enumerate(places.items()):
            shifts[f"{group}_{name}"] = sandal | {
                "group": group,
                "prompt": f"a photo of a {{class}} {words}",
                "mined_from": {"words": f"sandal {words}", "rank": rank, **(mined or {})},
            }
    shifts["class_name"] = sandal | {"group": "class_name", "prompt": "a photo of a {class}"}
    shifts = {
        name: shift
        for name, shift in shifts.items()
        if shift is None or not groups or shift["group"] in groups
    }
    base = {"prompt": "a photo of a {class}", "classes": ["05"]}
    return {"name": "scenes-mined", "prompts": {"base": base, "shifts": shifts}}


def build_scenes(
    out: Path,
    recipe: Path,
    layer: Mapping[str, Any],
    *,
    accept: str = "",
    seed: int = 77,
    of_class: int = 0,
) -> Path:
    """Build a dataset of rendered scenes at `out`; accept the base, and shifts whose name begins
    with `accept`.

    of_class: the images show the class so many classes further on.
    """
    samples = {"samples": {"candidates": IMAGES, "seed": seed}}
    text = json.dumps({"extends": str(recipe)} | dict(layer) | samples)
    path = out.parent / f"{out.name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    plan = make_plan(load_recipe(path))
    pin = {"revision": None, "sha256": "0" * 64, "license": None}
    inputs = {
        "models": {"generator": {"name": "lab:sd", **pin}, "screen": {"name": "lab:clip", **pin}},
        "source": {},
        "tokens": None,
        "thresholds": None,
    }
    hashes = {
        "plan": plan.recipe.plan_hash,
        "screen": plan.recipe.screen_hash,
        "inputs": sha256_json(inputs),
    }
    with DatasetStore.open(
        out,
        plan,
        hashes,
        inputs,
        {"device": "cpu"},
        recipe_yaml=dump_recipe(plan.recipe),
    ) as store:
        for shard in store.pending():
            store.writer.write(
                shard,
                [
                    _drawn(sample, plan, accept, of_class)
                    for cell in shard.cells
                    for sample in plan.samples(cell)
                ],
            )
        store.finish("# Scenes\n", {})
    return out


def _drawn(sample: Sample, plan: Plan, accept: str, of_class: int) -> Candidate:
    label = list(LABELS.values())[(sample.label + of_class) % len(LABELS)]
    background = next(
        (word for word in (*UNUSUAL, *USUAL) if word in sample.shift),
        USUAL[sample.index % len(USUAL)],
    )
    garments = np.flatnonzero(load_garments("pretrain").labels == label)
    colour = _COLOURS[sample.index % len(_COLOURS)]
    number = (7 * sample.seed) % len(garments)
    shown = Scene(
        "pretrain",
        int(garments[number]),
        label,
        colour=colour,
        background=background,
        seed=sample.seed % 100_000,
    )
    good = sample.shift == "base" or sample.shift.startswith(accept)
    verdict = clip_verdict((0.4 if good else 0.0, None), (0.1, None))
    return Candidate(
        sample=sample,
        verdict=verdict,
        reason="accepted" if good else "low_object",
        image=png(shown),
    )


@dataclass(frozen=True)
class World:
    """The small world on a disk: a recipe of its source, and the dataset to mend with."""

    recipe: Path
    built: Path

    @property
    def using(self) -> list[str]:
        """The names of the images that `mended` learns from."""
        return [str(self.built), "dfr:clip", "dfr:place"]


def mend_scenes(
    world: World, out: Path, using: str | list[str] | None = None, **options: Any
) -> MendResult:
    """Mend the ResNet with the world's dataset, or with others."""
    return mend(
        MODEL,
        world.recipe,
        using or str(world.built),
        out,
        device="cpu",
        **options,
    )
