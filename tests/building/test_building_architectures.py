"""Stable Diffusion 1.x, 2.x, XL and 3, made miniature with random weights, build through the same code."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import pytest
import torch
from PIL import Image

from counterfoil.errors import UserError
from counterfoil.models.diffusion import load_pipeline
from counterfoil.plan import make_plan
from counterfoil.recipe import load_recipe
from counterfoil.store.reading import read_rows
from miniature_pipelines import WIDTH, stable_diffusion_1, stable_diffusion_2, stable_diffusion_xl
from modern_pipelines import stable_diffusion_3
from tiny_builds import tiny


def test_tokens_of_one_text_encoder_are_refused_where_there_are_two(tmp_path: Path) -> None:
    stable_diffusion_xl().save_pretrained(str(tmp_path / "xl"))
    with pytest.raises(UserError, match="vectors for 1 text encoders, expected 2"):
        load_pipeline(f"local-dir:{tmp_path / 'xl'}", tokens={"<bag>": (torch.zeros(1, WIDTH),)})


@pytest.mark.parametrize(
    "make",
    [
        stable_diffusion_1,
        pytest.param(stable_diffusion_2, marks=pytest.mark.whole),
        stable_diffusion_xl,
        stable_diffusion_3,
    ],
)
def test_a_pipeline_builds_what_diffusers_alone_draws(make: Callable[[], Any], tmp_path: Path) -> None:
    torch.manual_seed(3)
    model = tmp_path / make.__name__
    make().save_pretrained(str(model))
    changes = [
        "source.classes=[{id: bag, name: bag, source_label: 8}]",
        "prompts.shifts.in_the_snow=null", "prompts.shifts.red=null",
        f"generator.model=local-dir:{model}", "generator.batch_size=2",
        "generator.steps=2", "generator.guidance=3.0",
    ]  # fmt: skip
    out = tmp_path / "dataset"
    result = tiny(out, *changes)
    assert result.counts == {"base": {"accepted": 2}, "pencil_sketch": {"accepted": 2}}

    reference: Any = diffusers.DiffusionPipeline.from_pretrained(str(model), torch_dtype=torch.float32)
    if hasattr(reference, "safety_checker"):
        reference.safety_checker = None
    reference.set_progress_bar_config(disable=True)
    plan = make_plan(load_recipe(out))
    stored = {row["key"]: row["image"]["bytes"] for row in read_rows(out)}
    for shard in plan.shards:
        samples = list(shard.samples(plan))
        drawn = reference(
            prompt=[sample.prompt for sample in samples], guidance_scale=3.0, num_inference_steps=2, output_type="np",
            generator=[torch.Generator("cpu").manual_seed(sample.seed) for sample in samples],
        ).images  # fmt: skip
        assert drawn.std() > 0.01
        for sample, pixels in zip(samples, drawn, strict=True):
            with Image.open(io.BytesIO(stored[sample.key])) as picture:
                found = np.asarray(picture).astype(int)
            # One level: the reference runs on as many threads as it likes.
            assert np.abs(found - (pixels * 255).round().astype(int)).max() <= 1
