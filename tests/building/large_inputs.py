"""Stand-ins for full-size inputs: miniature pipelines, noise as an input dataset, tokens, a
classifier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import timm
import torch
from safetensors.torch import save_file
from timm.models import save_for_hf

from counterfoil.recipe import load_recipe
from miniature_pipelines import WIDTH, stable_diffusion_1, stable_diffusion_2, stable_diffusion_xl
from support.images import encoded

PIPELINES = {"sd1": stable_diffusion_1, "sd2": stable_diffusion_2, "xl": stable_diffusion_xl}
SIDE = 8  # pixels that the miniatures render: 4 x 4 latents


def save_pipeline(folder: Path, kind: str) -> str:
    """Save a pipeline with random weights, a miniature of the architecture of `kind`, and return
    its name."""
    torch.manual_seed(3)
    pipeline: Any = PIPELINES[kind]()
    pipeline.unet.register_to_config(sample_size=SIDE // pipeline.vae_scale_factor)
    pipeline.save_pretrained(str(folder / kind))
    return f"local-dir:{folder / kind}"


def save_source(folder: Path, recipe: str, images: int) -> Path:
    """Save an input dataset of noise for a recipe: so many images a class, in the splits that the
    recipe names."""
    source = load_recipe(recipe).source
    noise = np.random.default_rng(0)
    features = datasets.Features(
        {source.image_column: datasets.Image(), source.label_column: datasets.Value("int64")}
    )
    splits: dict[str | datasets.NamedSplit, datasets.Dataset] = {}
    for split in (source.train_split, source.validation_split):
        labels = [
            entry.source_label for entry in load_recipe(recipe).classes for _ in range(images)
        ]
        cells = [{"bytes": _png(noise), "path": None} for _ in labels]
        rows = {source.image_column: cells, source.label_column: labels}
        splits[split] = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict(splits).save_to_disk(str(folder / f"source-of-{recipe}"))
    return folder / f"source-of-{recipe}"


def save_tokens(folder: Path, recipe: str) -> Path:
    """Save a token of random numbers for every class of a recipe, as wide as the miniatures' text
    encoders."""
    numbers = torch.Generator().manual_seed(0)
    tokens = folder / f"tokens-of-{recipe}"
    tokens.mkdir()
    for entry in load_recipe(recipe).classes:
        vectors = 0.02 * torch.randn(1, WIDTH, generator=numbers)
        save_file({f"<{entry.id}>": vectors}, tokens / f"{entry.id}.safetensors")
    return tokens


def save_classifier(folder: Path, outputs: int) -> str:
    """Save a tiny timm model with random weights and return its name."""
    torch.manual_seed(0)
    model: Any = timm.create_model("test_resnet", num_classes=outputs)
    model.pretrained_cfg |= {"input_size": [3, 32, 32]}
    save_for_hf(model, str(folder / "classifier"), safe_serialization=True)
    return f"local-dir:{folder / 'classifier'}"


def _png(noise: np.random.Generator) -> bytes:
    return encoded(noise.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8))
