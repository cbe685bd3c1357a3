"""What is wrong with a recipe's generator for the pipeline that it names, by configurations alone, before weights load.

A build reads it first (`building/inputs.py`), and `check` where the configurations are on this machine.
Options of a call are read from its own signature: names with the nearest one, and evident types. Only what a recipe can
say gets through: numbers, true, false, null and lists of these. A parameter for pictures, tensors, mappings or
functions is none of a recipe's, whatever its name: libraries open a text there as a file. Text itself passes under the
few names that are known to be read as words, or where a call lists the words that it takes.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from counterfoil.errors import UserError
from counterfoil.models.config_files import shown
from counterfoil.models.devices import absent_library, quantize_problem
from counterfoil.models.diffusion import index_here
from counterfoil.models.generators import Family, family_of, known_families, why_no_family
from counterfoil.recipe.kinds import kind_of
from counterfoil.recipe.names import did_you_mean

if TYPE_CHECKING:
    from counterfoil.models.generators import Family
    from counterfoil.recipe import Recipe
    from counterfoil.recipe.schema_inputs import Generator

# Whose own step decides anew whether it is guided (what distilled pipelines call guidance is an input of one pass), and
# whose call begins at latents that it is given, and leaves those of each step to a callback.
_BY_STEP = ("StableDiffusionPipeline", "StableDiffusionXLPipeline")


def own_problems(recipe: Recipe, device: str | None = None) -> Iterator[str]:
    """What is wrong whatever the pipeline is: a library that is absent, a part of the steps that is none.

    `device` is where images are rendered, as far as it is known.
    """
    generator = recipe.generator
    if (problem := quantize_problem(generator.quantize, device)) is not None:
        yield problem
    if generator.lora and find_spec("peft") is None:
        yield absent_library("peft")
    if generator.offload == "sequential" and generator.adapter is not None:
        yield "generator.offload: sequential holds layers that the adapter must change; expected model or none"
    if generator.lora and (generator.quantize or generator.compile or generator.offload == "sequential"):
        yield "generator.lora: found with quantize, compile or offload sequential; expected unchanged layers"


def pipeline_problems(recipe: Recipe, index: Mapping[str, Any], unet: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Yield what does not go with the pipeline of this index; `unet` is its UNet's configuration, where it is here.

    diffusers is imported, which takes seconds, where a recipe has options or the pipeline is of no family with a file
    of its own; nothing is loaded.
    """
    generator, name = recipe.generator, _class_named(index)
    family = family_of(name)
    if family is None:
        what = f"a pipeline {name[:80]}, {why_no_family(name)}" if name else "no pipeline of diffusers"
        yield f"generator.model: '{generator.model}' is {what}; expected one of {known_families()}"
        return
    its = f"'{generator.model}' is a{'n' if family.name[0] in 'AEIOX' else ''} {family.name}"
    if recipe.tokens is not None and not family.takes_tokens:
        yield f"tokens: {its}, which takes no class tokens; expected null: prompts then name the classes"
    elif recipe.tokens is not None and recipe.tokens.learn is not None and not family.learns_tokens:
        yield f"tokens.learn: {its}, for which none can be learned here; expected tokens.path, or tokens null"
    if generator.size is not None and generator.size % family.multiple:
        near = max(family.multiple, round(generator.size / family.multiple) * family.multiple)
        draws = f"which draws multiples of {family.multiple}, such as {near}"
        yield f"generator.size: found {generator.size}; {its}, {draws}"
    called = called_class(name, family).__name__ if recipe.kind.edits else name
    yield from _edit_problems(generator, family, called, unet or {})
    if (problem := family.negative_problem(generator.negative_prompt, generator.options)) is not None:
        yield problem
    if recipe.samples.pairs == "attention" and family.pairs is None:
        yield f"samples.pairs: {its}, whose images cannot attend to their base; expected noise"
    # Levels that a pipeline has no way to, one problem a way.
    first = {shift.by: shift.of for shift in reversed(recipe.all_shifts()) if shift.by is not None}
    for by, shift in first.items():
        place = f"prompts.shifts.{shift}.severity"
        if by in ("prompt", "steps", "mix") and not family.levels:
            yield f"{place}: {its}, whose prompts encode to different shapes: no level lies between two; expected null"
        elif by == "steps" and called not in _BY_STEP:
            yield f"{place}: {its}, whose prompt cannot change between two steps; expected by: prompt"
        elif by == "mix" and family.edits != "inversion":
            yield f"{place}: {its}, which edits by a call of its own; expected null, or a model that inverts images"
    if generator.lora and family.lora is None:
        yield f"generator.lora: {its}, which takes no LoRA weights here; expected none"
    if generator.guidance_interval is not None and not family.interval:
        yield f"generator.guidance_interval: {its}, which is guided in every step; expected null"
    elif generator.guidance_interval is not None:
        yield from _interval_problems(generator, called_class(name, family).__name__, unet or {})
    if generator.options:
        yield from option_problems(called_class(name, family), generator.options, family.reserved)


def _class_named(index: Mapping[str, Any]) -> str:
    """The class that an index names; nothing where it names none, of which no family is."""
    name = index.get("_class_name")
    return name if isinstance(name, str) and name.isidentifier() else ""


def _interval_problems(generator: Generator, called: str, unet: Mapping[str, Any]) -> Iterator[str]:
    """Why a pipeline has no guidance in a part of its steps. `called` is the class whose call draws."""
    key, model = "generator.guidance_interval", generator.model
    if called not in _BY_STEP:
        yield f"{key}: '{model}' is a {called}, which is guided in every step; expected null"
    elif unet.get("time_cond_proj_dim") is not None:
        yield f"{key}: '{model}' is distilled: its guidance is an input, and every step asks it once; expected null"
    sizes = [name for name in generator.options if name.startswith("negative_")]
    if sizes:
        yield f"{key}: found options {', '.join(sizes)}, expected none together with it"


def has_settings_to_compare(recipe: Recipe) -> bool:
    """Whether `pipeline_problems` has anything to ask of a recipe's pipeline."""
    generator = recipe.generator
    asked = (
        recipe.tokens,
        generator.size,
        generator.negative_prompt,
        generator.guidance_interval,
        generator.options or None,
        generator.lora or None,
        recipe.samples.pairs if recipe.samples.pairs != "noise" else None,
        next((shift.level for shift in recipe.all_shifts() if shift.level is not None), None),
    )
    return recipe.kind.edits or (recipe.kind.draws and any(value is not None for value in asked))


# The one whose steps inversion follows back.
_SCHEDULER = "DDIM"
# The option that leaves out steps, so that the way back is another one than the way there.
_CUT_SHORT = "denoising_end"


def _edit_problems(generator: Generator, family: Family, called: str, unet: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a pipeline that edits rows, or that needs an image where none is edited.

    `called` is the class whose call draws, `unet` the UNet's configuration, as far as there is one.
    """
    its = f"generator.model: '{generator.model}' is {family.name}"
    if not kind_of(generator).edits:
        if family.needs_image:
            yield f"{its}, which draws from an image alone; expected another one, or generator.kind edit"
    elif family.edits is None:
        yield f"{its}, which edits no image; expected Stable Diffusion 1.x, 2.x or XL, or a pipeline that edits"
    elif family.edits == "inversion":
        if called not in _BY_STEP or unet.get("time_cond_proj_dim") is not None:
            own = f"generator.model: '{generator.model}' is a {called}"
            yield f"{own}, which is distilled or renders differently, so it cannot invert images; expected its teacher"
        if generator.scheduler not in (None, _SCHEDULER):
            yield (
                f"generator.scheduler: found '{generator.scheduler}'; images are inverted by {_SCHEDULER}, expected"
                f" null or '{_SCHEDULER}'"
            )
        if generator.batch_size % 2:
            yield (
                f"generator.batch_size: found {generator.batch_size}; half of a batch are rows and half their edits,"
                " expected an even number"
            )
        if _CUT_SHORT in generator.options:
            yield (
                f"generator.options.{_CUT_SHORT}: an image is inverted over all steps and drawn over all of them;"
                " expected none"
            )


def inverts(generator: Generator) -> bool | None:
    """Whether rows are edited by inversion, by the pipeline's index alone; None where that is not on this machine."""
    if not kind_of(generator).edits:
        return False
    try:
        index = index_here(generator.model, generator.revision)
    except UserError:  # reported by whoever checks the model itself
        return None
    family = family_of(_class_named(index or {}))
    return None if family is None else family.edits == "inversion"


# By what a recipe says it instead.
_SAID_BY = {
    "prompt": "prompts",
    "negative_prompt": "generator.negative_prompt",
    "height": "generator.size",
    "width": "generator.size",
    "num_inference_steps": "generator.steps",
    "guidance_scale": "generator.guidance",
    "generator": "samples.seed",
    "num_images_per_prompt": "samples.candidates",
}
# What is text to a model, by name: elsewhere libraries take a text for a file, such as BRIA FIBO 2's for its fonts.
TEXTS = frozenset({"system_prompt", "complex_human_instruction", "editing_prompt"})
_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", type(None): "null"}
_UNKNOWN = (inspect.Parameter.empty, Any)


def called_class(index_name: str, family: Family) -> type:
    """The class of diffusers that is called for a pipeline whose index names `index_name`, as it is opened.

    Imports diffusers, which takes seconds.
    """
    import diffusers
    from diffusers.pipelines.auto_pipeline import AUTO_TEXT2IMAGE_PIPELINES_MAPPING, _get_task_class

    named = getattr(diffusers, index_name)
    if family.as_named:
        return named
    return _get_task_class(AUTO_TEXT2IMAGE_PIPELINES_MAPPING, index_name, throw_error_if_not_exist=False) or named


def free_options(pipeline: type, reserved: frozenset[str]) -> dict[str, Any]:
    """Names that a recipe may give to a call of this class, in its order, with their annotations."""
    return {
        name: annotation
        for name, (annotation, default) in _parameters(pipeline).items()
        if name not in reserved and _says(annotation, default, name in TEXTS)
    }


def option_problems(pipeline: type, options: Mapping[str, Any], reserved: frozenset[str]) -> Iterator[str]:
    """What is wrong with the options of a recipe for a call of this class; `reserved` is what is set without them."""
    parameters, free = _parameters(pipeline), free_options(pipeline, reserved)
    for name, value in options.items():
        place = f"generator.options.{name}"
        if name in reserved:
            key = _SAID_BY.get(name)
            by = f"a recipe sets it with {key}" if key is not None else "it is set for each batch"
            yield f"{place}: {by}, not as an option"
        elif name not in parameters:
            takes = f"it takes {', '.join(free)}" if free else "it takes none"
            near = did_you_mean(name, free)
            yield f"{place}: a call of {pipeline.__name__} takes no such option{near or f'; {takes}'}"
        elif name not in free:
            takes = "what no recipe can say (pictures, tensors, functions, files)"
            yield f"{place}: {pipeline.__name__} takes there {takes}"
        else:
            annotation, default = parameters[name]
            if not (_takes(annotation, value, name in TEXTS) or (value is None and default is None)):
                yield f"{place}: found {shown(value)}, expected {_says(annotation, default, name in TEXTS)}"


def _parameters(pipeline: type) -> dict[str, tuple[Any, Any]]:
    """Name → annotation and default of what a call takes by name."""
    call: Any = pipeline.__call__
    try:
        hints = typing.get_type_hints(inspect.unwrap(call))
    except Exception:  # an annotation may name what is imported for types alone
        hints = {}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = {}
    for name, one in inspect.signature(call).parameters.items():
        if name != "self" and one.kind in by_name:
            annotation = hints.get(name, one.annotation)
            found[name] = (inspect.Parameter.empty if isinstance(annotation, str) else annotation, one.default)
    return found


def _branches(annotation: Any) -> Sequence[Any]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [inner for branch in typing.get_args(annotation) for inner in _branches(branch)]
    return [annotation]


def _items(annotation: Any) -> Sequence[Any] | None:
    """What a list may hold by its annotation; None for what is no list."""
    origin = typing.get_origin(annotation) or annotation
    if not (isinstance(origin, type) and issubclass(origin, list | tuple)):
        return None
    return [one for one in typing.get_args(annotation) if one is not Ellipsis] or [Any]


def _takes(annotation: Any, value: Any, text: bool) -> bool:
    """Whether an annotation lets a value pass, text only where `text`. One that says nothing lets any other."""
    for branch in _branches(annotation):
        items = _items(branch)
        if branch in _UNKNOWN and (text or not _has_text(value)):
            return True
        if items is not None:
            # How long a tuple is to be is not compared: diffusers writes tuple[int] for any number of them.
            if isinstance(value, list | tuple) and all(any(_takes(one, each, text) for one in items) for each in value):
                return True
        elif typing.get_origin(branch) is typing.Literal:
            if value in typing.get_args(branch):
                return True
        elif branch is float:
            if isinstance(value, int | float) and not isinstance(value, bool):
                return True
        elif branch in _WORDS and type(value) is branch and (text or branch is not str):
            return True
    return False


def _has_text(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, list | tuple) and any(map(_has_text, value)))


def _says(annotation: Any, default: Any, text: bool) -> str:
    """What a recipe can say for an annotation, in words; nothing where it cannot say anything."""
    words = [word for branch in _branches(annotation) if (word := _word(branch, text))]
    if default is None and words and "null" not in words:
        words.append("null")
    return " or ".join(dict.fromkeys(words)) if [word for word in words if word != "null"] else ""


def _word(branch: Any, text: bool) -> str:
    items = _items(branch)
    if branch in _UNKNOWN:
        return "a plain value" if text else "a number, true or false"
    if branch is str and not text:
        return ""
    if items is not None:
        inside = [word for item in items for one in _branches(item) if (word := _word(one, text))]
        return f"a list of {' or '.join(dict.fromkeys(inside))}" if inside else ""
    if typing.get_origin(branch) is typing.Literal:
        return " or ".join(shown(value) for value in typing.get_args(branch))
    return _WORDS.get(branch, "")
