"""Which options a call of a pipeline takes, by its own signature: names with the nearest one, and evident types.

Only what a recipe can say gets through: numbers, true, false, null and lists of these. A parameter for pictures,
tensors, mappings or functions is none of a recipe's, whatever its name: libraries open a text there as a file. Text
itself passes under the few names that are known to be read as words, or where a call lists the words that it takes.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from counterfoil.models.config_files import shown
from counterfoil.recipe.names import did_you_mean

if TYPE_CHECKING:
    from counterfoil.models.generators import Family

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
            told = f"a recipe says it by {key}" if key is not None else "it is set for each batch"
            yield f"{place}: {told}, and an option may not"
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
