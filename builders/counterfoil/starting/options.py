"""The options of `init`, for the command and the function."""

from __future__ import annotations

from pathlib import Path

from counterfoil.options import DATA, MODELS, OUTPUT, argument, option, options

RECIPE = "recipe.yaml"


@options
class InitOptions:
    """What `init` takes."""

    source: str | Path = argument(typed=str, metavar="SOURCE", default_words="none with --detector")
    """Your images: a folder with a folder for each class (below a folder for each split, if you
    have splits), one with images and their boxes or masks, a folder of Parquet files, one that
    `datasets` saved, or USER/NAME[@REVISION] on the Hub. Not needed with --detector."""
    out: str | Path = argument("--out", "-o", default=RECIPE)
    """Recipe file to write."""
    name: str | None = option(None, OUTPUT)
    """Name of the dataset to build. Default: taken from SOURCE."""
    config: str | None = option(None, DATA)
    """Config to use, if the dataset has several."""
    image_column: str | None = option(None, DATA)
    """Column that holds the images. Default: the only one."""
    label_column: str | None = option(None, DATA)
    """Column that holds the labels. Default: the only one."""
    mask_column: str | None = option(None, DATA)
    """Column that holds the masks of a segmenter. `segmentation` draws them from the outlines of COCO
    files. Default: found by name."""
    train_split: str | None = option(None, DATA)
    """Split to train on. Default: found by name."""
    validation_split: str | None = option(None, DATA)
    """Split that sets the thresholds. Default: found by name."""
    copies: int | None = option(None, DATA, least=0, metavar="N")
    """Images of each split to compare, to find test images that are copies of training images; 0:
    none. Default: 10,000, or fewer large ones."""
    generator: str | None = option(None, metavar="MODEL")
    """Model that draws images: lab:sd (dry run), a Hub id or a diffusers folder.

    Default: one that this machine can run."""
    clip: str | None = option(None, metavar="MODEL")
    """CLIP that screens images: open_clip's ARCH/TAG, lab:clip, hf-hub:… or a folder.

    Default: one that this machine can run."""
    detector: str | Path | None = option(None, metavar="FILE")
    """An exported detector, NAME.onnx: look at its graph and write the config.json beside it, which
    says how its outputs are read."""
    device: str = option("auto", MODELS)
    """Device to propose models for: auto, cpu, cuda …"""
    force: bool = False
    """Overwrite an existing file."""
