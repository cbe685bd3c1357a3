"""A first recipe for a machine without a GPU: photographs of one's own, as they are and under known changes.

How many images and which changes are chosen so that building and evaluating fit ten minutes on two cores.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from counterfoil.models.names import LAB
from counterfoil.recipe.prompts import KIND_OF
from counterfoil.starting.found_data import FoundData
from counterfoil.starting.proposed_models import LARGE_GENERATOR
from counterfoil.starting.written_recipe import Naming, opening, said, sources, values

# One or two a kind, all of severity 3: what photographs meet when a model is used. The first three stay where there are
# so many classes that more would take an hour.
KINDS = (
    "fog", "motion_blur", "darker", "gaussian_noise", "defocus_blur", "contrast", "jpeg_compression", "low_resolution",
    "occlusion",
)  # fmt: skip
_FEW_KINDS = 3
# By evaluate: a class of fewer images is in no average.
_FEWEST, _MOST_OF_A_CLASS = 5, 50
_MOST_IMAGES = 3000
# Of a worker's core, as measured: making an image of 256 pixels takes .02, and a ResNet-50's answer at 224 pixels .34.
_SECONDS_AN_IMAGE = 0.36
_CORES = 2
# Published constants are for pictures of 224 pixels: larger ones are hit less hard.
SIDE = 256
_LOSSLESS_BELOW = 97
TOLD = (
    "Without a GPU a drawn image takes minutes. So each shift is a known change of your own photographs, which needs no"
    " download: the numbers are of your model on your images. It cannot show new scenes. Where there is a GPU,"
    f" --generator {LARGE_GENERATOR} has them drawn."
)


@dataclass(frozen=True, slots=True)
class Extent:
    """Images of each class and the changes that are done to them; minutes: to build and evaluate them on two cores."""

    a_class: int
    kinds: tuple[str, ...]
    minutes: int


def extent_of(found: FoundData) -> Extent:
    """As many images as fit ten minutes; more only where there are so many classes that each would have too few."""
    classes = len(found.classes)
    kinds = KINDS if classes * _FEWEST * (1 + len(KINDS)) <= _MOST_IMAGES else KINDS[:_FEW_KINDS]
    fitting = _MOST_IMAGES // (classes * (1 + len(kinds)))
    a_class = max(_FEWEST, min(_MOST_OF_A_CLASS, fitting))
    there = [each.images[found.validation_split] for each in found.classes if each.images is not None]
    images = sum(min(a_class, count) for count in there) if there else classes * a_class
    seconds = images * (1 + len(kinds)) * _SECONDS_AN_IMAGE / _CORES
    return Extent(a_class, kinds, max(1, round(seconds / 60)))


def corrupt_recipe_text(found: FoundData, naming: Naming) -> str:
    """The YAML text, whose values are those of `found`."""
    extent = extent_of(found)
    n, side = len(found.classes), found.side
    generator: dict[str, Any] = {"kind": "corrupt", "split": found.validation_split}
    large = not found.reference.dataset.startswith(LAB) and (side is None or side > SIDE)
    if large:
        generator["size"] = SIDE
    lossless = not large and (side is None or side < _LOSSLESS_BELOW)
    image = {"format": "png"} if lossless else {"format": "jpg", "quality": 95}
    once = found.train_split == found.validation_split
    minutes = "a minute" if extent.minutes == 1 else f"{extent.minutes} minutes"
    lines = [
        *opening(
            naming.name, f"{n:,} classes of photographs, as they are and under {len(extent.kinds)} known changes."
        ),
        "source:",
        *sources(
            found, naming, "Split that classifiers learn from.", "Split that the images of this dataset are from."
        ),
        "",
        said(TOLD),
        said(
            "Your model should not have learned from these images: what it has seen flatters it."
            + (" The data has one split, so only you know." if once else "")
            + (f" Larger ones are reduced to a shorter side of {SIDE} pixels first." if large else "")
        ),
        "generator:",
        values(generator, 2),
        "",
        said(
            "What is done to each image, by the definitions of Hendrycks and Dietterich 2019, at a severity from 1"
            " (slight) to 5 (severe). The base is the image as it is. Also to be had: "
            + ", ".join(name for name in KIND_OF if name not in extent.kinds)
            + "."
        ),
        "prompts:",
        "  shifts:",
        *(f"    {name}: {{corruption: {name}, severity: 3}}" for name in extent.kinds),
        "",
        "samples:",
        said(
            "Images of each class, the same ones under every shift; a smaller class gives all. Building and evaluating"
            f" take about {minutes} on two cores with a model as large as ResNet-50 at 224 pixels, and less with a"
            " smaller one.",
            2,
        ),
        values({"candidates": extent.a_class, "seed": 0}, 2),
        "",
        "output:",
        *([] if lossless else [said("Images are encoded again; {format: png} is lossless, and larger.", 2)]),
        values({"image": image, "rows_per_shard": 500}, 2),
        "",
        "evaluate:",
        said(
            "Name your own models here, or to `counterfoil evaluate --models`: local-dir:./my-model (a folder that timm"
            " saved, whose outputs have the names of your classes), transformers:./my-model, predictions:answers.csv.",
            2,
        ),
        values({"models": []}, 2),
    ]
    return "\n".join(lines).rstrip() + "\n"
