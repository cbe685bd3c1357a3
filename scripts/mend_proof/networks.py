"""What the whole network gains when it is trained again, beside its head, by images that a method
chooses.

A world's first rows are saved as a folder: `train`, `validation` (audited), `pool` (rows of the
world's `test`) and `test` (rows of its `proof`). The classifier is a small network, trained on
`train` by the recipe of `mend --fit network` from a seed of its own. Of the pool, as many images a
class are chosen by each of the methods of `mend --with METHOD:SPLIT`, or at random. Everything goes
through the package; only the slice is known here alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import datasets
import numpy as np
import timm

from counterfoil.data.labelled_sources import labelled_split
from counterfoil.lab.planted import PlantedWorld
from counterfoil.mending import one_model
from counterfoil.mending.baselines import BASELINES, TRAINED
from counterfoil.mending.evaluating import GRID
from counterfoil.mending.fitting import FittedHead, KeptHeads, Lesson
from counterfoil.mending.given import given_variants
from counterfoil.mending.network import NETWORK, Network, fit_network
from counterfoil.mending.prepared import MendSettings, mend_source, prepare_inputs
from counterfoil.mending.variants import ANY
from counterfoil.models.classifiers import load_classifier
from counterfoil.models.classifiers.head import head_of
from counterfoil.prediction.embedding import classifier_embedder, embed
from counterfoil.recipe import load_recipe
from directions_proof.intervals import mean_of, mean_percent
from lab_training.classify import save_model
from proof_files import Facts, Results
from proof_pictures import png_of

ROWS = {"train": 1200, "validation": 1500, "pool": 1500, "test": 2000}
_OF = {"pool": "test", "test": "proof"}
SIDE = 32
ARCHITECTURE = "resnet10t"
ARGUMENTS = {"channels": [16, 24, 32, 48], "stem_width": 8}
EPOCHS = 15
LAMBDA = 0.5
# Of the classifier; what is mended begins at others.
_OWN_SEED = 1
BEFORE = "as it was"
RETRAINED = "retrained alone"
RANDOM = "random"
_ORDER = (BEFORE, RETRAINED, RANDOM, *BASELINES)
FITS = ("lbfgs", NETWORK)


def measured_world(world: PlantedWorld, folder: Path) -> Facts:
    """Return by fit and arm the accuracy in the slice, in the rest of its class and on all rows of
    the test."""
    recipe = _saved(world, folder)
    name = f"local-dir:{_trained(world, recipe, folder / 'classifier')}"
    return {fit: _mended(world, recipe, name, fit, folder / fit) for fit in FITS}


def _mended(world: PlantedWorld, recipe: Path, name: str, fit: str, out: Path) -> dict[str, Facts]:
    network = fit == NETWORK
    given = [f"{baseline}:pool" for baseline in BASELINES if network or baseline not in TRAINED]
    source = mend_source(recipe, (), "test", None, 0, None, ["pool"])
    settings = MendSettings(
        (0.0, LAMBDA) if network else GRID, fit, None, 0, None, effects=False, epochs=EPOCHS
    )
    prepared = prepare_inputs(source, given_variants(given), {}, settings)
    fitted: list[FittedHead] = []

    class Recorded(KeptHeads):
        def fitted(self, train: Lesson, debug: Lesson | None, lam: float) -> FittedHead:
            head = super().fitted(train, debug, lam)
            if lam in (0, LAMBDA):
                fitted.append(head)
            return head

    # `mend_one` leaves heads at the chosen λ alone
    with mock.patch.object(one_model, "KeptHeads", Recorded):
        mended = one_model.mend_one(
            one_model.load_mendable([name], source)[name], prepared, out, "cpu"
        )
    assert source.test is not None
    classifier = load_classifier(name)
    embedder = (
        Network.of(classifier).prepared() if network else classifier_embedder(classifier, "cpu")
    )
    features = np.asarray(embed(source.test, embedder, out / "features", precision="float32"))
    labels = source.test.labels
    members = np.asarray([world.in_slice("proof", row) for row in range(len(labels))])
    of_class = world.true_classes("proof")[: len(labels)] == world.planted
    # The head retrained alone comes first, then of every variant the heads at 0 and at LAMBDA.
    retrained = fitted[0]
    at_lambda = fitted[2::2]
    original = Network.of(classifier) if network else head_of(classifier)

    def shares(head: Any) -> Facts:
        right = head.logits(features).argmax(axis=1) == labels
        return {
            "slice": float(right[members].mean()),
            "rest": float(right[of_class & ~members].mean()),
            "all": float(right.mean()),
        }

    arms = {BEFORE: shares(original), RETRAINED: shares(retrained.head)}
    for variant, head in zip(mended.summary.arms[1:], at_lambda, strict=True):
        # All methods have the same control.
        arm = RANDOM if variant.what == ANY else variant.name.partition(":")[0]
        arms[arm] = shares(head.head) | {"chosen": variant.lam}
    return arms


def _saved(world: PlantedWorld, folder: Path) -> Path:
    """Save a world's first rows as a folder, and write a recipe over it."""
    recipe = folder / "recipe.yaml"
    if recipe.exists():
        return recipe
    (folder / "source").mkdir(parents=True, exist_ok=True)
    for split, count in ROWS.items():
        rows = range(count)
        name = _OF.get(split, split)
        table = datasets.Dataset.from_dict(
            {
                "image": [{"bytes": png_of(world.pixels(name, row)), "path": None} for row in rows],
                "label": world.labels(name)[:count].tolist(),
                "garment": [f"{name}-{world.scene(name, row).garment}" for row in rows],
            }
        ).cast_column("image", datasets.Image())
        table.to_parquet(str(folder / "source" / f"{split}.parquet"))
    files = [{"split": split, "path": f"{split}.parquet"} for split in ROWS]
    listed = json.dumps({"configs": [{"config_name": "default", "data_files": files}]})
    (folder / "source" / "README.md").write_text(f"---\n{listed}\n---\n")
    classes = [
        {"id": f"{label:02d}", "name": words, "source_label": label}
        for label, words in enumerate(world.class_names)
    ]
    source = {"dataset": str(folder / "source"), "unit_column": "garment", "classes": classes}
    layer = {"extends": "wardrobe-mini", "name": world.name, "tokens": None, "source": source}
    recipe.write_text(
        json.dumps(
            layer | {"screen": {"judge": None}, "mine": {"on": ["validation"], "others": []}}
        )
    )
    return recipe


def _trained(world: PlantedWorld, recipe: Path, folder: Path) -> Path:
    """Train the classifier where there is none yet."""
    if (folder / "config.json").exists():
        return folder.resolve()
    outputs = len(world.class_names)
    module = timm.create_model(ARCHITECTURE, num_classes=outputs, **ARGUMENTS)

    def save(module: Any) -> None:
        training = {"world": world.name, "epochs": EPOCHS, "seed": _OWN_SEED}
        save_model(module, folder, ARCHITECTURE, ARGUMENTS, outputs, training, world.class_names)
        config = json.loads((folder / "config.json").read_text())
        config["pretrained_cfg"]["input_size"] = [3, SIDE, SIDE]
        (folder / "config.json").write_text(json.dumps(config))

    save(module)
    opened = load_recipe(recipe)
    images = labelled_split(opened.source, "train", opened.classes)
    network = Network.of(load_classifier(f"local-dir:{folder.resolve()}"))
    features = np.asarray(embed(images, network.prepared(), folder), np.float32)
    save(
        fit_network(
            network, Lesson(features, images.labels), None, 0.0, epochs=EPOCHS, seed=_OWN_SEED
        ).head.module
    )
    return folder.resolve()


def table(results: Mapping[str, Results]) -> list[str]:
    """Return Markdown: accuracies by fit and arm, and what an arm gains over random images in the
    slice."""
    lines = [
        f"Accuracy on the test, of images of the pool at λ = {LAMBDA:g}; the last column is the λ"
        " that `mend` chooses.",
        "",
        "| fit | images of the pool | slice | rest of the class | all rows | slice, less retrained"
        " alone | slice, less"
        " random | chosen λ |",
        "| -- | -- | --: | --: | --: | --: | --: | :-- |",
    ]
    for fit, words in zip(FITS, ("head", "network"), strict=True):
        worlds = [result[fit] for result in results.values()]
        for arm in _ORDER:
            having = [world for world in worlds if arm in world]
            if not having or (arm == BEFORE and fit == NETWORK):
                continue
            cells = [
                mean_percent([world[arm][which] for world in having])
                for which in ("slice", "rest", "all")
            ]
            for other in (RETRAINED, RANDOM):
                known = arm in (BEFORE, RETRAINED) or arm == other
                gains = [world[arm]["slice"] - world[other]["slice"] for world in having]
                cells.append("" if known else mean_of(gains).text())
            lambdas = ", ".join(
                f"{world[arm]['chosen']:g}" for world in having if "chosen" in world[arm]
            )
            few = "" if len(having) == len(worlds) else f" ({len(having)} worlds)"
            lines.append(
                f"| {'' if arm == BEFORE else words} | {arm}{few} | {' | '.join(cells)} | {lambdas}"
                " |"
            )
    return lines
