"""Stage `tokens`: a class token for each class of the wardrobe, learned as a recipe learns them,
and what they change.

Settings were compared by the same measurements on another seed, so that neither the figures in
metrics.json nor the tables of `prove_interface.py` were looked at for choosing them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from counterfoil.building.build_dataset import build
from counterfoil.generate.tokens.class_tokens import TOKENS_MANIFEST, token_file_name, token_folder
from counterfoil.generate.tokens.learn_tokens import learn_tokens
from counterfoil.lab.scenes import wardrobe_scene
from counterfoil.lab.vocabulary import CLASSES, MARKS
from counterfoil.lab.world import Scene, load_garments, render
from counterfoil.models.names import LAB_TOKENS
from counterfoil.recipe import load_recipe
from interface_proof.looks import SHIFT_NAMES, Images, Looks, Viewer, dataset_images
from lab_training.state import update_metrics, write_training

RECIPE = "wardrobe-mini"
# Twice the steps at half the rate brought the drops less near to the truth (8.3 points against 5.8,
# on seed 2020 with ten images a cell). `seed` decides images, noise and times of the learning.
SETTINGS = {
    "steps": 200,
    "batch_size": 4,
    "learning_rate": 1.0e-2,
    "vectors": 2,
    "classes_in_flight": 5,
    "templates": ["a photo of a {class}"],
    "seed": 0,
}
MEASURED = {"seed": 1010, "candidates": 20}  # the bundled recipes draw with seed 0
TRUE_UNITS = 60
FIRST_SCENE = 1_000_000  # far behind the rows of every split


def make_tokens(work: Path) -> None:
    """Learn, copy what a recipe reads into the package, and measure. Killed and started again, it
    goes on."""
    learned = work / "class-tokens"
    learn_tokens(load_recipe(RECIPE, learning(SETTINGS)), learned, workers=1)
    folder = token_folder(LAB_TOKENS, None)
    folder.mkdir(parents=True, exist_ok=True)
    files = [token_file_name(cls.id) for cls in load_recipe(RECIPE).classes]
    for name in (*files, TOKENS_MANIFEST):
        (folder / name).write_bytes((learned / name).read_bytes())
    write_training(folder, "tokens", {"recipe": RECIPE, "tokens": {"learn": SETTINGS}})
    ways = {"by_name": "tokens=null", "by_token": f"tokens={{path: {LAB_TOKENS}}}"}
    measured = measure_ways(ways, work / "tokens-measured")
    print(yaml.safe_dump(measured, sort_keys=False), flush=True)
    update_metrics(folder, **measured)


def learning(settings: dict) -> list[str]:
    """Return the overrides of a bundled recipe that learn tokens with these settings."""
    tokens = {"path": None, "learn": settings}
    return [f"tokens={yaml.safe_dump(tokens, default_flow_style=True, width=10_000)}"]


def measure_ways(
    ways: Mapping[str, str], work: Path, samples: Mapping[str, int] = MEASURED
) -> dict:
    """Measure the lab's classifiers on images that are prompted in several ways and on true
    renders.

    `ways`: what each way is called and its override of the recipe. True renders are scenes of the
    input dataset's kind with garments that nothing was trained on.
    """
    models = load_recipe(RECIPE).evaluate.models
    viewer = Viewer(models)
    looks: dict[str, Looks] = {}
    shifts: tuple[str, ...] = ()
    for way, tokens in ways.items():
        settings = [f"samples.{key}={value}" for key, value in samples.items()]
        recipe = load_recipe(RECIPE, [*settings, "screen.keep_rejected=true", tokens])
        build(recipe, work / way, workers=1)
        looks[way] = viewer.answers(*dataset_images(work / way)).looks
        shifts = tuple(shift.name for shift in recipe.all_shifts())
    looks["true_renders"] = viewer.answers(TRUE_UNITS, heldout_images(TRUE_UNITS), shifts[1:]).looks
    marked = np.array([name in MARKS for name in CLASSES])
    drops = {way: _drops(look, shifts) for way, look in looks.items()}

    def by_way(flags: Callable[[Looks], np.ndarray]) -> dict[str, float]:
        return {way: round(100 * float(flags(look).mean()), 1) for way, look in looks.items()}

    return {
        "measured": {
            "recipe": RECIPE,
            "samples": dict(samples),
            "true_renders_a_cell": TRUE_UNITS,
            "unit": "per cent, unscreened images; drops and their errors in percentage points",
        },
        "base_accuracy": {
            name: by_way(lambda look, m=m: look.correct[0, :, :, m])
            for m, name in enumerate(models)
        },
        "base_accuracy_mean": by_way(lambda look: look.correct[0]),
        "base_accuracy_by_class": {
            name: by_way(lambda look, c=c: look.correct[0, c]) for c, name in enumerate(CLASSES)
        },
        "base_accuracy_of_marked_classes": by_way(lambda look: look.correct[0, marked]),
        "marked_classes_wear_their_pattern": by_way(lambda look: look.mark[0, marked]),
        "oracle_agrees_with_the_class": by_way(lambda look: look.object[0]),
        "drop": {
            shift: {way: round(float(drop[s].mean()), 1) for way, drop in drops.items()}
            for s, shift in enumerate(shifts[1:])
        },
        "drop_error_mean": {
            way: round(float(np.abs(drop - drops["true_renders"]).mean()), 1)
            for way, drop in drops.items()
            if way != "true_renders"
        },
    }


def _drops(looks: Looks, shifts: Iterable[str]) -> np.ndarray:
    """Return base accuracy less shifted accuracy in points [shift, model], over all classes and
    units."""
    accuracy = 100 * looks.correct[[SHIFT_NAMES.index(name) for name in shifts]].mean((1, 2))
    return accuracy[:1] - accuracy[1:]


def heldout_images(units: int) -> Images:
    """Return scenes as the input dataset has them, of held-out garments, under each shift."""

    def images(shift: int, label: int) -> Iterator[tuple[int, bool, np.ndarray]]:
        for unit in range(units):
            yield unit, True, render(_heldout_scene(unit, label).shifted(SHIFT_NAMES[shift]))

    return images


def _heldout_scene(unit: int, label: int) -> Scene:
    scene = wardrobe_scene("validation", FIRST_SCENE + unit * len(CLASSES) + label)
    garments = load_garments("heldout").of_class(label)
    return replace(scene, split="heldout", garment=int(garments[unit % len(garments)]))
