"""Draw images of prompts and score them with CLIP: beside one call of diffusers an image, as
Dataset Interfaces' published code draws.

Both load the lab's models, take the same prompts, seeds and steps, and keep images and scores.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from peers_bench.pair import Agreement, Pair

NEEDS = ("diffusers",)
OF_SHIFT = 8
STEPS = 6
# Forty images, two full batches.
OVERRIDES = ("tokens=null", f"generator.steps={STEPS}", "prompts.shifts.red=null")
MOST_ROUNDS = 3


def pairs(present: Sequence[str]) -> Iterator[Pair]:
    """Yield a whole build of the embedded recipe, in one process."""
    from counterfoil.building.build_dataset import build
    from counterfoil.recipe.loader import load_recipe

    recipe = load_recipe("wardrobe-mini", OVERRIDES)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)

        def drawn(out: Path) -> Path:
            build(
                "wardrobe-mini",
                out,
                overrides=OVERRIDES,
                limit=OF_SHIFT,
                workers=1,
                device="cpu",
            )
            return out

        rows = list(stored(drawn(work / "first")))
        built = [0]

        def ours() -> Path:
            built[0] += 1
            return drawn(work / f"built-{built[0]}")

        def peers() -> dict[str, np.ndarray]:
            return one_at_a_time(recipe, rows, work / "plain")

        def same(built: Path, plain: dict[str, np.ndarray]) -> Agreement:
            differences = []
            for row in stored(built):
                other = plain[row["key"]].astype(int)
                differences.append(np.abs(pixels_of(row).astype(int) - other))
            most = np.max(differences)
            share = float(np.mean(np.array(differences) > 0))
            words = f"{len(rows)} images; grey levels differ by {most} at most, in {share:.2%}"
            return Agreement(most <= 1, words)

        yield Pair(
            what=f"{len(rows)} images at {STEPS} steps with CLIP scores, the lab's models",
            peer="diffusers",
            way="one call and one CLIP call an image",
            ours=ours,
            peers=peers,
            agreement=same,
            most_rounds=MOST_ROUNDS,
        )


def stored(dataset: Path) -> Iterator[dict[str, Any]]:
    """Yield all candidates that have an image."""
    from counterfoil.store.reading import read_rows

    for what in ("data", "rejected"):
        yield from read_rows(dataset, what=what)


def pixels_of(row: dict[str, Any]) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB"))


def one_at_a_time(recipe: Any, rows: Sequence[dict[str, Any]], out: Path) -> dict[str, np.ndarray]:
    """Draw, score and save each row's image by itself."""
    import torch

    from counterfoil.models.clip import load_clip
    from counterfoil.models.diffusion import load_pipeline

    out.mkdir(exist_ok=True)
    pipeline = load_pipeline(recipe.drawing.model, dtype="float32")
    clip = load_clip(recipe.screen.model)
    images = {}
    for row in rows:
        with torch.inference_mode():
            drawn = pipeline(
                row["prompt"],
                generator=torch.Generator().manual_seed(row["seed"]),
                num_inference_steps=recipe.drawing.steps,
                guidance_scale=recipe.drawing.guidance,
                output_type="pt",
            ).images
        levels = (drawn[0].permute(1, 2, 0).numpy().clip(0, 1) * 255).round().astype(np.uint8)
        image = Image.fromarray(levels)
        clip.embed_images([image], 1)
        clip.embed_texts([row["prompt"]])
        image.save(out / f"{row['key']}.png")
        images[row["key"]] = levels
    return images
