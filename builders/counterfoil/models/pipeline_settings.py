"""What is wrong with a recipe's generator for the pipeline that it names, by configurations alone, before weights load.

A build reads it first (`building/generator_settings.py`), and `check` where the configurations are on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from counterfoil.models.edit_settings import edit_problems
from counterfoil.models.generators import Family, family_of, known_families, why_no_family
from counterfoil.models.pipeline_options import called_class, option_problems
from counterfoil.models.quantized import quantize_problem

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe


# Whose own step decides anew whether it is guided. What distilled pipelines call guidance is an input of one pass.
GUIDED_BY_STEP = ("StableDiffusionPipeline", "StableDiffusionXLPipeline")


def own_problems(recipe: Recipe, device: str | None = None) -> Iterator[str]:
    """What is wrong whatever the pipeline is: a library that is absent, a part of the steps that is none.

    `device` is where images are rendered, as far as it is known.
    """
    generator = recipe.generator
    if (problem := quantize_problem(generator.quantize, device)) is not None:
        yield problem
    if generator.offload == "sequential" and generator.adapter is not None:
        yield "generator.offload: sequential keeps layers that an adapter would change; expected model or none"


def pipeline_problems(recipe: Recipe, index: Mapping[str, Any], unet: Mapping[str, Any] | None = None) -> Iterator[str]:
    """What does not go with the pipeline that this index names; `unet` is its UNet's configuration, where it is here.

    diffusers is imported, which takes seconds, where a recipe has options or the pipeline is of no family with a file
    of its own; nothing is loaded.
    """
    generator, name = recipe.generator, index.get("_class_name")
    family = family_of(name) if isinstance(name, str) and name.isidentifier() else None
    if family is None or not isinstance(name, str):
        why = why_no_family(name) if isinstance(name, str) and name.isidentifier() else None
        told = f"a pipeline {name[:80]}, {why}" if why and name else "no pipeline of diffusers"
        yield f"generator.model: '{generator.model}' is {told}; expected one of {known_families()}"
        return
    its = f"'{generator.model}' is {_article(family.name)}"
    if recipe.tokens is not None and not family.takes_tokens:
        yield f"tokens: {its}, which takes no class tokens; expected null: prompts then name the classes"
    elif recipe.tokens is not None and recipe.tokens.learn is not None and not family.learns_tokens:
        yield f"tokens.learn: {its}, for which none can be learned here; expected tokens.path, or tokens null"
    if generator.size is not None and generator.size % family.multiple:
        near = max(family.multiple, round(generator.size / family.multiple) * family.multiple)
        draws = f"which draws multiples of {family.multiple}, such as {near}"
        yield f"generator.size: found {generator.size}; {its}, {draws}"
    called = called_class(name, family).__name__ if generator.kind == "edit" else name
    yield from edit_problems(generator, family, called, unet or {})
    if (problem := family.negative_problem(generator.negative_prompt, generator.options)) is not None:
        yield problem
    if (problem := pair_problem(recipe, family)) is not None:
        yield problem
    if generator.guidance_interval is not None and not family.interval:
        yield f"generator.guidance_interval: {its}, which is guided in every step; expected null"
    elif generator.guidance_interval is not None:
        yield from _interval_problems(recipe, called_class(name, family).__name__, unet or {})
    if generator.options:
        yield from option_problems(called_class(name, family), generator.options, family.reserved)


def pair_problem(recipe: Recipe, family: Family) -> str | None:
    """Why no image of a family is drawn beside its base, where the recipe asks for that; None where it may be."""
    if recipe.samples.pairs != "attention" or family.pairs is not None:
        return None
    its = f"'{recipe.generator.model}' is {_article(family.name)}"
    return f"samples.pairs: {its}, whose images cannot attend to a base beside them; expected noise"


def _interval_problems(recipe: Recipe, called: str, unet: Mapping[str, Any]) -> Iterator[str]:
    """As `generate/steps.py` refuses a pipeline that is loaded."""
    key, model = "generator.guidance_interval", recipe.generator.model
    if called not in GUIDED_BY_STEP:
        yield f"{key}: '{model}' is a {called}, which is guided in every step; expected null"
    elif unet.get("time_cond_proj_dim") is not None:
        yield f"{key}: '{model}' is distilled: its guidance is an input, and every step asks it once; expected null"
    sizes = [name for name in recipe.generator.options if name.startswith("negative_")]
    if sizes:
        yield f"{key}: found options {', '.join(sizes)}, expected none beside it"


def _article(name: str) -> str:
    return f"a{'n' if name[0] in 'AEIOX' else ''} {name}"


def has_settings_to_compare(recipe: Recipe) -> bool:
    """Whether `pipeline_problems` has anything to ask of a recipe's pipeline."""
    generator = recipe.generator
    asked = (
        recipe.tokens,
        generator.size,
        generator.negative_prompt,
        generator.guidance_interval,
        generator.options or None,
        recipe.samples.pairs if recipe.samples.pairs != "noise" else None,
    )
    return generator.kind == "edit" or (generator.kind == "diffusers" and any(value is not None for value in asked))
