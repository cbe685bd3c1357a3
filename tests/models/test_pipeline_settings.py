"""Settings of a recipe for a pipeline: options are checked against its signature, edits against its
abilities."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import diffusers
import pytest
from diffusers.pipelines.auto_pipeline import AUTO_TEXT2IMAGE_PIPELINES_MAPPING

from counterfoil.models.generators import FAMILIES, family_of
from counterfoil.models.generators.family import RESERVED
from counterfoil.models.pipeline_settings import (
    TEXTS,
    called_class,
    edits_by_inversion,
    free_options,
    has_settings_to_compare,
    option_problems,
    pipeline_problems,
)
from counterfoil.recipe import Recipe, load_recipe


def problems(pipeline: type, **options: Any) -> list[str]:
    return list(option_problems(pipeline, options, RESERVED))


def only(pipeline: type, **options: Any) -> str:
    (problem,) = problems(pipeline, **options)
    return problem


def test_what_a_call_takes_passes() -> None:
    assert not problems(diffusers.FluxPipeline, max_sequence_length=256, true_cfg_scale=4.0)
    assert not problems(
        diffusers.StableDiffusionXLPipeline, original_size=(1024, 1024), guidance_rescale=0
    )
    assert not problems(diffusers.SanaPipeline, complex_human_instruction=(), clean_caption=False)


def test_a_name_that_the_call_lacks_is_reported_with_the_nearest() -> None:
    message = only(diffusers.FluxPipeline, max_sequence_lenght=256)
    assert message.startswith(
        "generator.options.max_sequence_lenght: a call of FluxPipeline takes no such option"
    )
    assert "did you mean 'max_sequence_length'?" in message


def test_where_none_is_near_the_options_that_there_are_are_reported() -> None:
    message = only(diffusers.FluxPipeline, foo=1)
    assert "it takes" in message and "max_sequence_length" in message and "height" not in message


def test_an_option_of_another_pipeline_is_none_of_this_one() -> None:
    assert problems(diffusers.StableDiffusionPipeline, true_cfg_scale=4.0)
    assert problems(diffusers.StableDiffusion3Pipeline, true_cfg_scale=4.0)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("height", "generator.size"),
        ("num_inference_steps", "generator.steps"),
        ("guidance_scale", "generator.guidance"),
        ("negative_prompt", "generator.negative_prompt"),
        ("prompt", "prompts"),
        ("latents", "set for each batch"),
        ("num_images_per_prompt", "samples.candidates"),
    ],
)
def test_what_a_recipe_says_elsewhere_is_no_option(name: str, key: str) -> None:
    assert key in only(diffusers.StableDiffusionPipeline, **{name: 1})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max_sequence_length", 2.5, "a whole number"),
        ("max_sequence_length", True, "a whole number"),
        ("max_sequence_length", None, "a whole number"),
        ("true_cfg_scale", "4", "a number"),
        ("true_cfg_scale", False, "a number"),
    ],
)
def test_a_value_of_an_evidently_wrong_type_is_reported_in_words(
    name: str, value: Any, expected: str
) -> None:
    message = only(diffusers.FluxPipeline, **{name: value})
    assert message.startswith(f"generator.options.{name}: found ")
    assert message.endswith(f"expected {expected} [pipeline-setting]")


def test_every_problem_is_reported() -> None:
    lines = problems(
        diffusers.FluxPipeline, height=512, max_sequence_length="x", nothing=1, true_cfg_scale=1
    )
    assert len(lines) == 3


class Odd:
    def __call__(
        self,
        prompt: str,
        mode: Literal["fast", "slow"] = "fast",
        sizes: list[int] | None = None,
        plain: Any = None,
        picture: object = None,
        hooks: Callable[[int], None] | None = None,
        tables: dict[str, Any] | None = None,
        files: list[str] | None = None,
        **kwargs: Any,
    ) -> None: ...


def test_what_only_code_can_give_is_no_option_whatever_its_name() -> None:
    assert list(free_options(Odd, frozenset({"prompt"}))) == ["mode", "sizes", "plain"]
    for name in ("picture", "hooks", "tables", "files"):
        # A text that stood for a picture would be opened as a file or an address.
        assert "what no recipe can say" in only(Odd, **{name: "https://example.org/x.png"})
    assert "takes no such option" in only(Odd, anything=1), (
        "what a call swallows unnamed is not asked for"
    )


def test_words_and_lists_are_compared_too() -> None:
    assert not problems(Odd, mode="slow", sizes=(1, 2), plain=3)
    assert not problems(Odd, sizes=None)
    assert only(Odd, mode="slwo").endswith("expected 'fast' or 'slow' [pipeline-setting]")
    assert only(Odd, sizes=(1, "x")).endswith(
        "expected a list of a whole number or null [pipeline-setting]"
    )


def test_no_pipeline_lets_a_text_pass_for_a_picture() -> None:
    """Arguments for pictures take no text, in every class that diffusers opens as text to image."""
    for pipeline in AUTO_TEXT2IMAGE_PIPELINES_MAPPING.values():
        free = free_options(pipeline, RESERVED)
        assert not {"image", "mask_image", "control_image", "ip_adapter_image", "video"} & set(
            free
        ), pipeline


def test_no_text_passes_where_nothing_says_what_a_parameter_is() -> None:
    assert not problems(Odd, plain=(1, 2))
    for value in ("/etc/passwd", ("/etc/passwd",)):
        assert only(Odd, plain=value).endswith(
            "expected a number, true or false or null [pipeline-setting]"
        )


def driven() -> dict[type, frozenset[str]]:
    """Return every class of diffusers that a recipe can have called, with its reserved
    arguments."""
    reserved: dict[type, frozenset[str]] = {}
    for name in dir(diffusers):
        if name.endswith("Pipeline") and (family := family_of(name)) is not None:
            reserved[called_class(name, family)] = family.reserved
    return reserved


@pytest.mark.release(of="families")
def test_text_passes_only_where_it_was_looked_at_in_every_class_that_is_driven() -> None:
    """If a new diffusers adds an argument, see what it does with the text, then add the name to
    TEXTS or here."""
    every = driven()
    texts = set[str]()
    passes = set[str]()
    assert len(every) > 50
    for pipeline, reserved in every.items():
        for name, parameter in inspect.signature(pipeline.__call__).parameters.items():
            # no recipe can say a table
            annotation = re.sub(r"dict\[str", "", str(parameter.annotation))
            if name not in reserved and re.search(r"\bstr\b|Path", annotation):
                texts.add(name)
            problems_of_text = list(option_problems(pipeline, {name: "text"}, reserved))
            if not problems_of_text or not list(
                option_problems(pipeline, {name: ("text",)}, reserved)
            ):
                passes.add(name)
    # Files of fonts, which would be opened.
    assert texts - TEXTS == {"fonts"}
    assert passes == TEXTS


def test_no_file_of_fonts_is_opened_for_a_recipe() -> None:
    family = family_of("BriaFibo2Pipeline")
    assert family is not None
    pipeline = called_class("BriaFibo2Pipeline", family)
    for fonts in ("/etc/passwd", ("/etc/passwd",), ()):
        (message,) = option_problems(pipeline, {"fonts": fonts}, family.reserved)
        assert message.startswith(
            "generator.options.fonts: BriaFibo2Pipeline takes there what no recipe can say"
        )


@pytest.mark.parametrize("name", [name for family in FAMILIES for name in family.pipelines])
def test_the_class_is_the_one_that_is_called(name: str) -> None:
    family = family_of(name)
    assert family is not None
    pipeline = called_class(name, family)
    assert family_of(pipeline.__name__) is family
    assert not free_options(pipeline, family.reserved).keys() & family.reserved


def test_an_index_for_another_task_is_called_as_text_to_image() -> None:
    family = family_of("StableDiffusionImg2ImgPipeline")
    assert family is not None
    assert (
        called_class("StableDiffusionImg2ImgPipeline", family) is diffusers.StableDiffusionPipeline
    )


def recipe(kind: str, **settings: Any) -> Recipe:
    generator = {"kind": kind, "model": "someone/model", "steps": 2, "batch_size": 4} | settings
    if kind == "edit":
        generator["split"] = "validation"
    written = ", ".join(f"{name}: {value}" for name, value in generator.items())
    return load_recipe("wardrobe-mini", [f"generator={{{written}}}", "tokens=null"])


def problems_with(recipe: Recipe, pipeline: str, **unet: Any) -> list[str]:
    return list(pipeline_problems(recipe, {"_class_name": pipeline}, unet))


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
    assert problems_with(recipe("edit"), pipeline) == []


@pytest.mark.parametrize("pipeline", ["FluxPipeline", "StableDiffusion3Pipeline"])
def test_these_do_not(pipeline: str) -> None:
    (problem,) = problems_with(recipe("edit"), pipeline)
    assert "edits no image" in problem and problem.startswith("generator.model")
    assert problems_with(recipe("diffusers"), pipeline) == []


def test_without_an_image_they_draw_nothing() -> None:
    (problem,) = problems_with(recipe("diffusers"), "QwenImageEditPipeline")
    assert "draws from an image alone" in problem and "generator.kind edit" in problem


def test_what_inversion_asks_is_reported_together() -> None:
    edited = recipe("edit", batch_size=5, scheduler="Euler")
    problems = problems_with(edited, "LatentConsistencyModelPipeline", time_cond_proj_dim=256)
    assert [problem.partition(":")[0] for problem in problems] == [
        "generator.model",
        "generator.scheduler",
        "generator.batch_size",
    ]
    # A pipeline that edits draws one image a call, by its own steps.
    assert problems_with(edited, "StableDiffusionInstructPix2PixPipeline") == []


def test_an_inversion_over_a_part_of_the_steps_is_reported() -> None:
    (problem,) = problems_with(
        recipe("edit", options="{denoising_end: 0.8}"), "StableDiffusionXLPipeline"
    )
    assert problem.startswith("generator.options.denoising_end") and "expected none" in problem
    assert (
        problems_with(
            recipe("diffusers", options="{denoising_end: 0.8}"), "StableDiffusionXLPipeline"
        )
        == []
    )


@pytest.mark.parametrize(
    ("pipeline", "known"),
    [("StableDiffusionXLPipeline", True), ("FluxKontextPipeline", False), (None, None)],
)
def test_whether_rows_are_inverted_is_reported_by_the_index_where_it_is_here(
    pipeline: str | None, known: bool | None, tmp_path: Path
) -> None:
    if pipeline is not None:
        (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": pipeline}))
    model = f"local-dir:{tmp_path}"
    assert edits_by_inversion(recipe("edit", model=f"'{model}'").generator) is known
    assert edits_by_inversion(recipe("diffusers", model=f"'{model}'").generator) is False


def test_a_negative_prompt_that_does_nothing_is_reported() -> None:
    led = {"options": "{true_cfg_scale: 3.0}"}
    plain = {"negative_prompt": "blurred"}
    (problem,) = problems_with(recipe("edit", **plain), "FluxKontextPipeline")
    assert "reads it where generator.options.true_cfg_scale is above 1" in problem
    assert problems_with(recipe("edit", **plain, **led), "FluxKontextPipeline") == []
