"""Whether a pipeline edits is told by configurations alone, before any weights: what lacks an image, what cannot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from counterfoil.models.pipeline_settings import has_settings_to_compare, inverts, pipeline_problems
from counterfoil.recipe import Recipe, load_recipe


def recipe(kind: str, **settings: Any) -> Recipe:
    own = {"kind": kind, "model": "someone/model", "steps": 2, "batch_size": 4} | settings
    if kind == "edit":
        own["split"] = "validation"
    written = ", ".join(f"{name}: {value}" for name, value in own.items())
    return load_recipe("wardrobe-mini", [f"generator={{{written}}}", "tokens=null"])


def told(made: Recipe, pipeline: str, **unet: Any) -> list[str]:
    return list(pipeline_problems(made, {"_class_name": pipeline}, unet))


@pytest.mark.parametrize(
    "pipeline",
    [
        "StableDiffusionPipeline",
        "StableDiffusionXLPipeline",
        "StableDiffusionInpaintPipeline",  # its parts are opened as text to image
        "StableDiffusionInstructPix2PixPipeline",
        "FluxKontextPipeline",
        "QwenImageEditPipeline",
        "QwenImageEditPlusPipeline",
    ],
)
def test_these_edit(pipeline: str) -> None:
    assert has_settings_to_compare(recipe("edit"))
    assert told(recipe("edit"), pipeline) == []


@pytest.mark.parametrize("pipeline", ["SanaPipeline", "FluxPipeline", "StableDiffusion3Pipeline", "Lumina2Pipeline"])
def test_these_do_not(pipeline: str) -> None:
    (problem,) = told(recipe("edit"), pipeline)
    assert "edits no image" in problem and problem.startswith("generator.model")
    assert told(recipe("diffusers"), pipeline) == []


@pytest.mark.parametrize("pipeline", ["StableDiffusionInstructPix2PixPipeline", "QwenImageEditPipeline"])
def test_without_an_image_they_draw_nothing(pipeline: str) -> None:
    (problem,) = told(recipe("diffusers"), pipeline)
    assert "draws from an image alone" in problem and "generator.kind edit" in problem


def test_what_inversion_asks_is_told_together() -> None:
    made = recipe("edit", batch_size=5, scheduler="Euler")
    problems = told(made, "LatentConsistencyModelPipeline", time_cond_proj_dim=256)
    assert [problem.partition(":")[0] for problem in problems] == [
        "generator.model",
        "generator.scheduler",
        "generator.batch_size",
    ]
    # A pipeline that edits draws one image a call, by its own steps.
    assert told(made, "StableDiffusionInstructPix2PixPipeline") == []


def test_an_inversion_over_a_part_of_the_steps_is_told() -> None:
    (problem,) = told(recipe("edit", options="{denoising_end: 0.8}"), "StableDiffusionXLPipeline")
    assert problem.startswith("generator.options.denoising_end") and "expected none" in problem
    assert told(recipe("diffusers", options="{denoising_end: 0.8}"), "StableDiffusionXLPipeline") == []


@pytest.mark.parametrize(
    ("pipeline", "known"), [("StableDiffusionXLPipeline", True), ("FluxKontextPipeline", False), (None, None)]
)
def test_whether_rows_are_inverted_is_told_by_the_index_where_it_is_here(
    pipeline: str | None, known: bool | None, tmp_path: Path
) -> None:
    if pipeline is not None:
        (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": pipeline}))
    model = f"local-dir:{tmp_path}"
    assert inverts(recipe("edit", model=f"'{model}'").generator) is known
    assert inverts(recipe("diffusers", model=f"'{model}'").generator) is False


def test_a_negative_prompt_that_does_nothing_is_told() -> None:
    led, plain = {"options": "{true_cfg_scale: 3.0}"}, {"negative_prompt": "blurred"}
    (problem,) = told(recipe("edit", **plain), "FluxKontextPipeline")
    assert "reads it where generator.options.true_cfg_scale is above 1" in problem
    assert told(recipe("edit", **plain, **led), "FluxKontextPipeline") == []
