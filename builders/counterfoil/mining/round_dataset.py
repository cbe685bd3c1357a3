"""A round that renders is a dataset: a layer beside its build, resumed and verified as any, which a target answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from counterfoil.building import BuildProgress
from counterfoil.building.build_dataset import build
from counterfoil.dataset import read_dataset
from counterfoil.errors import UserError
from counterfoil.evaluation.dataset import OpenDataset, open_dataset
from counterfoil.keep import ACCEPTED
from counterfoil.mining.audited import AuditedTarget, answers_of
from counterfoil.models.classifiers import describe_classifier
from counterfoil.prediction.class_map import map_classes
from counterfoil.progress import Stage, renamed
from counterfoil.recipe import Recipe, load_recipe
from counterfoil.recipe.prompts import BASE
from counterfoil.screen import ScreenDoubts, screen_doubts
from counterfoil.sources import LabelledImages
from counterfoil.store.atomic import make_folder, write_atomically
from counterfoil.tokens.learn_tokens import TokenProgress

LAYER, DATASET = "recipe.yaml", "dataset"
_OF_NO_IMAGE = ("mine", "evaluate", "publish")


def carried_overrides(overrides: Sequence[str]) -> list[str]:
    """Those that a round carries: what changes no image is left out, so that a round serves another margin as well."""
    return [one for one in overrides if one.partition("=")[0].strip().split(".")[0] not in _OF_NO_IMAGE]


def keep_layer(path: Path, layer: str) -> None:
    """Write a round's recipe. UserError where another one stands there: its images are of other hypotheses."""
    make_folder(path.parent)
    if not path.exists():
        write_atomically(path, layer.encode())
    elif path.read_bytes() != layer.encode():
        raise UserError(
            f"{path.parent} was rendered for other hypotheses, or by other settings",
            "Name another folder with --out, or remove that one.",
        )


def built_round(place: Path, name: str, device: str, workers: int | None) -> OpenDataset | None:
    """The round in the folder `place`, whose layer is there, built and opened; None where no base image was accepted.

    Raises as `build` does. What an earlier run had rendered is not rendered again.
    """

    def stage(told: BuildProgress | TokenProgress | Stage | ScreenDoubts) -> Stage:
        if isinstance(told, Stage):
            return told
        if isinstance(told, ScreenDoubts):  # told once, with the findings
            return Stage(f"{name}: a doubted screen", 1, 1)
        if isinstance(told, TokenProgress):
            return Stage(f"{name}: class tokens", told.classes_done, told.classes)
        return Stage(f"{name}: images", told.images_done, told.images)

    with renamed(stage):
        built = build(load_recipe(place / LAYER), place / DATASET, device=device, workers=workers)
    return open_dataset(place / DATASET) if built.counts.get(BASE, {}).get(ACCEPTED) else None


def round_doubts(place: Path) -> ScreenDoubts | None:
    """What speaks against the screen of the round in the folder `place`, by what its build measured."""
    standing = read_dataset(place / DATASET, "thresholds") if (place / DATASET).is_dir() else None
    if standing is None or standing.recipe is None or standing.read_thresholds is None:
        return None
    return screen_doubts(standing.recipe, standing.read_thresholds)


def answered(
    opened: OpenDataset, name: str, target: str, recipe: Recipe, device: str
) -> tuple[LabelledImages, AuditedTarget]:
    """A round's accepted images, called `name`, and what the target answers to them."""
    images = replace(opened.labelled(), name=name)
    class_map = map_classes(recipe.classes, describe_classifier(target, recipe.classes))
    return images, answers_of((images,), {target: class_map}, recipe, device)[target]
