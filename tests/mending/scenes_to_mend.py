"""A small world to mend in: three kinds of shoes, of which the lab's ResNet does not know sandals in the snow.

The input dataset is a folder of rendered scenes in three splits; the images to mend with are a dataset whose samples
are rendered scenes too, in the groups `contexts`, `class_name` and `random_contexts`.
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
from counterfoil.lab.world import Scene, load_garments, render
from counterfoil.plan import Plan, Sample, make_plan
from counterfoil.recipe import dump_recipe, load_recipe, sha256_json
from counterfoil.store import Candidate, DatasetStore
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
_COLOURS = ("red", "blue", "green", "white")


def scene(split: str, row: int) -> Scene:
    """A row of a split; no two splits have a garment in common."""
    _, unusual = SPLITS[split]
    label, number = list(LABELS.values())[row % 3], row // 3
    place = UNUSUAL[number % 2] if number % 10 < unusual else USUAL[number % len(USUAL)]
    garment = np.flatnonzero(load_garments("audit").labels == label)[FIRST[split] + number]
    colour = _COLOURS[number % len(_COLOURS)]
    return Scene("audit", int(garment), label, colour=colour, background=place, seed=1000 * FIRST[split] + row)


@cache
def png(one: Scene) -> bytes:
    return encoded(render(one))


def save_source(folder: Path) -> None:
    """The three splits, with the garment of each row and the place where it is."""
    folder.mkdir(parents=True)
    for split, (rows, _) in SPLITS.items():
        shown = [scene(split, row) for row in range(rows)]
        table = datasets.Dataset.from_dict(
            {
                "image": [{"bytes": png(one), "path": None} for one in shown],
                "label": [one.label for one in shown],
                "garment": [f"{one.label}-{one.garment}" for one in shown],
                "place": [one.background for one in shown],
            }
        ).cast_column("image", datasets.Image())
        table.to_parquet(str(folder / f"{split}.parquet"))


def write_recipe(path: Path, **more: Any) -> Path:
    """A recipe over the source beside it."""
    classes = [{"id": id, "name": NAMES[id], "source_label": label} for id, label in LABELS.items()]
    source = {"dataset": str(path.parent / "source"), "unit_column": "garment", "classes": classes}
    layer = {"extends": "wardrobe-mini", "name": "scenes", "tokens": None, "source": source, "screen": {"judge": None}}
    path.write_text(json.dumps(layer | {"mine": {"on": ["validation"]}} | more))
    return path


def mined_layer(mined: Mapping[str, Any] | None = None, groups: Sequence[str] = ()) -> dict[str, Any]:
    """What lays the three groups over the recipe; mined: more of `mined_from`."""
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
    shifts = {name: one for name, one in shifts.items() if one is None or not groups or one["group"] in groups}
    base = {"prompt": "a photo of a {class}", "classes": ["05"]}
    return {"name": "scenes-mined", "prompts": {"base": base, "shifts": shifts}}


def build_scenes(
    out: Path, recipe: Path, layer: Mapping[str, Any], *, accept: str = "", seed: int = 77, of_class: int = 0
) -> Path:
    """A dataset of rendered scenes at `out`, its samples accepted whose shift's name begins with `accept`, or base.

    of_class: so many classes further on is what the images show.
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
    hashes = {"plan": plan.recipe.plan_hash, "screen": plan.recipe.screen_hash, "inputs": sha256_json(inputs)}
    with DatasetStore.open(out, plan, hashes, inputs, {"device": "cpu"}, recipe_yaml=dump_recipe(plan.recipe)) as store:
        for shard in store.pending():
            store.writer.write(
                shard, [_drawn(one, plan, accept, of_class) for cell in shard.cells for one in plan.samples(cell)]
            )
        store.finish("# Scenes\n", {})
    return out


def _drawn(sample: Sample, plan: Plan, accept: str, of_class: int) -> Candidate:
    label = list(LABELS.values())[(sample.label + of_class) % len(LABELS)]
    place = next((word for word in (*UNUSUAL, *USUAL) if word in sample.shift), USUAL[sample.index % len(USUAL)])
    own = np.flatnonzero(load_garments("pretrain").labels == label)
    colour = _COLOURS[sample.index % len(_COLOURS)]
    number = (7 * sample.seed) % len(own)
    shown = Scene("pretrain", int(own[number]), label, colour=colour, background=place, seed=sample.seed % 100_000)
    good = sample.shift == "base" or sample.shift.startswith(accept)
    verdict = clip_verdict((0.4 if good else 0.0, None), (0.1, None))
    return Candidate(sample=sample, verdict=verdict, reason="accepted" if good else "low_object", image=png(shown))


@dataclass(frozen=True)
class World:
    """The small world on a disk: a recipe of its source, and the dataset to mend with."""

    recipe: Path
    built: Path
