"""Check a recipe's generator settings against its pipeline. Only configurations are read; no
weights load.

The signature of a pipeline's `__call__` defines the options that the pipeline takes. A recipe may
set an option to a number, true, false, null or a list of these. A recipe may set an option to text
in two cases only: the option is one of `TEXTS`, or its annotation lists the allowed words. For
other options, a library could open the text as a file.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from counterfoil.errors import ProblemLine, UserError, did_you_mean
from counterfoil.models.config_files import shown_setting
from counterfoil.models.diffusion import index_here
from counterfoil.models.generators import Family, family_of, known_families, why_no_family
from counterfoil.models.messages import message
from counterfoil.models.quantizing import absent_library, quantize_problem

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe
    from counterfoil.recipe.kinds import DrawingKind, GeneratorKind

# These pipelines apply guidance in each step, unless they are distilled: then guidance is an input
# of a single pass. They accept initial latents, and they pass the latents of each step to a
# callback.
_BY_STEP = ("StableDiffusionPipeline", "StableDiffusionXLPipeline")


def own_problems(recipe: Recipe, device: str | None = None) -> Iterator[ProblemLine]:
    """Yield the problems of the generator's settings that do not depend on the pipeline, such as a
    missing library."""
    generator = recipe.drawing
    sequential = generator.offload == "sequential"
    if (problem := quantize_problem(generator.quantize, device)) is not None:
        yield problem
    if generator.get("lora") and find_spec("peft") is None:
        yield absent_library("peft")
    if sequential and generator.get("adapter") is not None:
        yield message("pipeline-setting.adapter", "generator.offload")
    changes_layers = generator.quantize or generator.get("compile") or sequential
    if generator.get("lora") and changes_layers:
        yield message("pipeline-setting.layers", "generator.lora")


def pipeline_problems(
    recipe: Recipe, index: Mapping[str, Any], unet: Mapping[str, Any] | None = None
) -> Iterator[ProblemLine]:
    """Yield a problem for each setting of the recipe that does not fit the pipeline.

    index: the pipeline's model_index.json. unet: the configuration of its UNet, if known. If the
    recipe has options, or if no family lists the pipeline, the function imports diffusers, which
    takes seconds.
    """
    generator = recipe.drawing
    size = generator.size
    name = _class_named(index)
    family = family_of(name)
    if family is None:
        kind = "no pipeline of diffusers"
        if name:
            kind = f"a pipeline {name[:80]}, {why_no_family(name)}"
        yield message(
            "pipeline-setting.family",
            "generator.model",
            generator.model,
            known_families(),
            kind=kind,
        )
        return
    its = f"'{generator.model}' is a{'n' if family.name[0] in 'AEIOX' else ''} {family.name}"
    if recipe.tokens is not None and not family.takes_tokens:
        yield message("pipeline-setting.tokens", "tokens", its)
    elif recipe.tokens is not None and recipe.tokens.learn is not None and not family.learns_tokens:
        yield message("pipeline-setting.learn", "tokens.learn", its)
    if size is not None and family.side not in (None, size):
        yield message("pipeline-setting.side", "generator.size", size, family.side, its=its)
    elif size is not None and size % family.multiple:
        near = max(family.multiple, round(size / family.multiple) * family.multiple)
        yield message(
            "pipeline-setting.multiple", "generator.size", size, family.multiple, its=its, near=near
        )
    called = called_class(name, family).__name__ if recipe.kind.edits else name
    yield from _edit_problems(generator, family, called, unet or {})
    negative = family.negative_problem(generator.negative_prompt, generator.options)
    if negative is not None:
        yield negative
    if recipe.samples.pairs == "attention" and family.pairs is None:
        yield message("pipeline-setting.pairs", "samples.pairs", its)
    yield from _level_problems(recipe, family, called, its)
    if generator.get("lora") and family.lora is None:
        yield message("pipeline-setting.lora", "generator.lora", its)
    if generator.get("guidance_interval") is not None:
        yield from _interval_problems(generator, family, name, unet or {}, its)
    if generator.options:
        yield from option_problems(called_class(name, family), generator.options, family.reserved)


def _level_problems(recipe: Recipe, family: Family, called: str, its: str) -> Iterator[ProblemLine]:
    """Yield at most one problem for each method of making severity levels, for the first shift with
    that method."""
    first = {shift.by: shift.of for shift in reversed(recipe.all_shifts()) if shift.by is not None}
    for by, shift in first.items():
        key = f"prompts.shifts.{shift}.severity"
        if by in ("prompt", "steps", "mix") and not family.levels:
            yield message("pipeline-setting.level", key, its)
        elif by == "steps" and called not in _BY_STEP:
            yield message("pipeline-setting.level-steps", key, its)
        elif by == "mix" and family.edits != "inversion":
            yield message("pipeline-setting.level-mix", key, its)


def _interval_problems(
    generator: DrawingKind, family: Family, name: str, unet: Mapping[str, Any], its: str
) -> Iterator[ProblemLine]:
    """Yield problems of guidance that is limited to a part of the steps."""
    key = "generator.guidance_interval"
    if not family.interval:
        yield message("pipeline-setting.guided", key, its)
        return
    drawn_by = called_class(name, family).__name__
    if drawn_by not in _BY_STEP:
        yield message("pipeline-setting.guided", key, f"'{generator.model}' is a {drawn_by}")
    elif unet.get("time_cond_proj_dim") is not None:
        yield message("pipeline-setting.distilled", key, generator.model)
    sizes = [option for option in generator.options if option.startswith("negative_")]
    if sizes:
        yield message("pipeline-setting.sizes", key, sizes)


def _class_named(index: Mapping[str, Any]) -> str:
    name = index.get("_class_name")
    return name if isinstance(name, str) and name.isidentifier() else ""


def has_settings_to_compare(recipe: Recipe) -> bool:
    if not recipe.kind.draws:
        return False
    generator = recipe.drawing
    settings = (
        recipe.tokens,
        generator.size,
        generator.negative_prompt,
        generator.get("guidance_interval"),
        generator.options or None,
        generator.get("lora") or None,
        recipe.samples.pairs if recipe.samples.pairs != "noise" else None,
        next((shift.level for shift in recipe.all_shifts() if shift.level is not None), None),
    )
    return recipe.kind.edits or any(value is not None for value in settings)


# Inversion runs the steps of this scheduler in reverse.
_SCHEDULER = "DDIM"
# This option skips the last steps of drawing, so drawing would not undo the inversion.
_CUT_SHORT = "denoising_end"


def _edit_problems(
    generator: DrawingKind, family: Family, called: str, unet: Mapping[str, Any]
) -> Iterator[ProblemLine]:
    """Yield problems if the recipe edits rows and the pipeline cannot, or if the pipeline needs an
    image to edit."""
    key = "generator.model"
    its = f"'{generator.model}' is {family.name}"
    if not generator.edits:
        if family.needs_image:
            yield message("pipeline-setting.image", key, its)
    elif family.edits is None:
        yield message("pipeline-setting.no-edits", key, its)
    elif family.edits == "inversion":
        if called not in _BY_STEP or unet.get("time_cond_proj_dim") is not None:
            yield message("pipeline-setting.invert", key, f"'{generator.model}' is a {called}")
        scheduler = generator.scheduler
        if scheduler not in (None, _SCHEDULER):
            yield message(
                "pipeline-setting.scheduler", "generator.scheduler", scheduler, _SCHEDULER
            )
        if generator.batch_size % 2:
            yield message("pipeline-setting.odd", "generator.batch_size", generator.batch_size)
        if _CUT_SHORT in generator.options:
            yield message("pipeline-setting.cut-short", f"generator.options.{_CUT_SHORT}")
    elif generator.size is not None and generator.size < family.least:
        yield message(
            "pipeline-setting.least",
            "generator.size",
            generator.size,
            family.least,
            family=family.name,
        )


def edits_by_inversion(generator: GeneratorKind) -> bool | None:
    """Return whether the generator edits rows by inversion, or None if no pipeline index is on this
    machine."""
    if not generator.edits:
        return False
    try:
        index = index_here(generator.get("model"), generator.revision)
    except UserError:  # the model's own check reports this error
        return None
    family = family_of(_class_named(index or {}))
    return None if family is None else family.edits == "inversion"


# Argument of the pipeline's `__call__` → recipe key that sets the argument.
_KEYS = {
    "prompt": "prompts",
    "negative_prompt": "generator.negative_prompt",
    "height": "generator.size",
    "width": "generator.size",
    "num_inference_steps": "generator.steps",
    "guidance_scale": "generator.guidance",
    "generator": "samples.seed",
    "num_images_per_prompt": "samples.candidates",
}
# The model reads the text of these arguments. A pipeline may open the text of another argument as a
# file: BRIA FIBO 2 opens font files.
TEXTS = frozenset({"system_prompt", "complex_human_instruction", "editing_prompt"})
_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    type(None): "null",
}
_UNKNOWN = (inspect.Parameter.empty, Any)


def called_class(index_name: str, family: Family) -> type:
    """Return the pipeline class that diffusers opens when model_index.json names the class
    `index_name`.

    The function imports diffusers, which takes seconds.
    """
    import diffusers
    from diffusers.pipelines.auto_pipeline import AUTO_TEXT2IMAGE_PIPELINES_MAPPING, _get_task_class

    named_class = getattr(diffusers, index_name)
    if family.as_named:
        return named_class
    return (
        _get_task_class(
            AUTO_TEXT2IMAGE_PIPELINES_MAPPING, index_name, throw_error_if_not_exist=False
        )
        or named_class
    )


def free_options(pipeline: type, reserved: frozenset[str]) -> dict[str, Any]:
    """Return the arguments of the class's `__call__` that a recipe may set: name → annotation, in
    signature order."""
    return {
        name: annotation
        for name, (annotation, default) in _parameters(pipeline).items()
        if name not in reserved and _expected_words(annotation, default, name in TEXTS)
    }


def option_problems(
    pipeline: type, options: Mapping[str, Any], reserved: frozenset[str]
) -> Iterator[ProblemLine]:
    """Yield a problem for each option that `pipeline.__call__` does not take, and for options in
    `reserved`."""
    parameters = _parameters(pipeline)
    free = free_options(pipeline, reserved)
    called = pipeline.__name__
    for name, value in options.items():
        key = f"generator.options.{name}"
        if name in reserved and name in _KEYS:
            yield message("pipeline-setting.option-of-key", key, _KEYS[name])
        elif name in reserved:
            yield message("pipeline-setting.option-of-batch", key)
        elif name not in parameters:
            takes = f"; it takes {', '.join(free) or 'none'}"
            near = did_you_mean(name, free) or takes
            yield message("pipeline-setting.no-option", key, called, near=near)
        elif name not in free:
            yield message("pipeline-setting.option-of-objects", key, called)
        else:
            annotation, default = parameters[name]
            text = name in TEXTS
            if value is None and default is None:
                continue
            if not _takes(annotation, value, text):
                expected = _expected_words(annotation, default, text)
                yield message("pipeline-setting.option", key, shown_setting(value), expected)


def _parameters(pipeline: type) -> dict[str, tuple[Any, Any]]:
    call: Any = pipeline.__call__
    try:
        hints = typing.get_type_hints(inspect.unwrap(call))
    except Exception:  # an annotation may use a name that is imported only for type checking
        hints = {}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = {}
    for name, parameter in inspect.signature(call).parameters.items():
        if name != "self" and parameter.kind in by_name:
            annotation = hints.get(name, parameter.annotation)
            known = inspect.Parameter.empty if isinstance(annotation, str) else annotation
            parameters[name] = (known, parameter.default)
    return parameters


def _branches(annotation: Any) -> Sequence[Any]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return [inner for branch in typing.get_args(annotation) for inner in _branches(branch)]
    return [annotation]


def _items(annotation: Any) -> Sequence[Any] | None:
    """Return the annotations of the items of a list or tuple, or None if `annotation` is not a list
    or tuple."""
    origin = typing.get_origin(annotation) or annotation
    if not (isinstance(origin, type) and issubclass(origin, list | tuple)):
        return None
    return [item for item in typing.get_args(annotation) if item is not Ellipsis] or [Any]


def _takes(annotation: Any, value: Any, text: bool) -> bool:
    """Return whether an annotation allows a value. A missing annotation allows any value.

    text: whether free text is allowed. Words that the annotation lists (`Literal`) are always
    allowed.
    """
    return any(_branch_takes(branch, value, text) for branch in _branches(annotation))


def _branch_takes(branch: Any, value: Any, text: bool) -> bool:
    items = _items(branch)
    if branch in _UNKNOWN and (text or not _has_text(value)):
        return True
    if items is not None:
        # The length of a tuple is not compared: diffusers writes tuple[int] for any length.
        if not isinstance(value, list | tuple):
            return False
        return all(any(_takes(item, element, text) for item in items) for element in value)
    if typing.get_origin(branch) is typing.Literal:
        return value in typing.get_args(branch)
    if branch is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return branch in _WORDS and type(value) is branch and (text or branch is not str)


def _has_text(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_text, value))
    return isinstance(value, str)


def _expected_words(annotation: Any, default: Any, text: bool) -> str:
    """Describe the values that a recipe can give for an annotation. Return an empty text if no
    value is possible."""
    words = _words(annotation, text)
    if default is None and words:
        words["null"] = None
    if [*words] == ["null"]:
        return ""
    return " or ".join(words)


def _words(annotation: Any, text: bool) -> dict[str, None]:
    """Return the words for the branches of an annotation, each once."""
    words = (_word(branch, text) for branch in _branches(annotation))
    return dict.fromkeys(filter(None, words))


def _word(branch: Any, text: bool) -> str:
    items = _items(branch)
    if branch in _UNKNOWN:
        return "a plain value" if text else "a number, true or false"
    if branch is str and not text:
        return ""
    if items is not None:
        words: dict[str, None] = {}
        for item in items:
            words |= _words(item, text)
        return f"a list of {' or '.join(words)}" if words else ""
    if typing.get_origin(branch) is typing.Literal:
        return " or ".join(shown_setting(value) for value in typing.get_args(branch))
    return _WORDS.get(branch, "")
