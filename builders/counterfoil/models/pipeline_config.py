"""What a diffusers pipeline says of itself, judged before anything of it loads: known libraries, sane sizes."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.models.config_files import LARGEST_NUMBER, is_integer, number_problems, read_config, shown
from counterfoil.models.generators import Family, family_of, known_families, why_no_family
from counterfoil.models.transformers_config import folder_problems, followed_problems
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.schema_inputs import LARGEST_SIDE

INDEX = "model_index.json"
# Where the parts of pipelines come from. Some are of a pipeline's own module of diffusers, as its safety checker is.
_LIBRARIES = ("diffusers", "transformers")
# They name code or kernels of the author's, or of another repository.
_NOT_FOLLOWED = ("auto_map", "attn_implementation", "_attn_implementation", "quantization_config")
_MOST_TIMES = 100_000  # published schedulers have a thousand
# A text encoder's layers, as CLIP and language models name them, and as T5 does.
_LAYER = re.compile(r"\.(?:layers|block)\.(\d+)\.")
_OF_IMAGES = re.compile(r"vis")  # a language model that also sees names those layers apart
# They are taken out again after loading, and older names of theirs are gone from transformers.
_NOT_KEPT = ("safety_checker", "feature_extractor", "image_encoder")
_SCALE = 8  # pixels a latent; the usual autoencoders' scale


def refuse_odd_pipeline(model: str, folder: Path) -> None:
    """UserError, with every problem, for parts that are not of diffusers or transformers, or of absurd sizes.

    `folder` holds the index and the parts' configurations.
    """
    index = read_config(folder / INDEX, model)
    problems = [*_part_problems(index), *(f"{INDEX}: {problem}" for problem in followed_problems(index, _NOT_FOLLOWED))]
    for part in [name for name, value in index.items() if isinstance(value, list) and name.isidentifier()]:
        if not problems:
            found = folder_problems(model, folder / part, _NOT_FOLLOWED)
            problems += [f"{part}/{problem}" for problem in found]
        file = folder / part / "config.json"
        if not problems and file.exists():
            config = read_config(file, model)
            problems += number_problems(config, f"{part}/config.json")
            problems += _side_problems(part, config)
            problems += _depth_problems(part, config, file.parent)
    schedule = folder / "scheduler" / "scheduler_config.json"
    if not problems and schedule.exists():
        config = read_config(schedule, model)
        problems += number_problems(config, "scheduler")
        steps = config.get("num_train_timesteps", 1000)
        if not is_integer(steps, 1, _MOST_TIMES):
            problems.append(f"scheduler: num_train_timesteps is {shown(steps)}, expected 1 to {_MOST_TIMES:,}")
    if problems:
        raise UserError([f"model '{model}': {problem}" for problem in problems[:20]], "It is not loaded.")


def family_in(folder: Path, model: str) -> Family:
    """The family of a pipeline that `refuse_odd_pipeline` has let pass."""
    family = family_of(read_config(folder / INDEX, model)["_class_name"])
    assert family is not None
    return family


def _part_problems(index: Mapping[str, Any]) -> Iterator[str]:
    name = index.get("_class_name")
    if not isinstance(name, str) or not name.isidentifier():
        yield f"{INDEX} names the pipeline {name!r:.80}, expected a class of diffusers"
    elif (why := why_no_family(name)) is not None:
        yield f"{INDEX} names the pipeline {name[:80]}, {why}; it is not driven, expected one of {known_families()}"
    for part, value in index.items():
        if part.startswith("_") or not isinstance(value, list):
            continue
        if len(value) != 2 or not all(each is None or isinstance(each, str) for each in value):
            yield f"{INDEX} gives '{part[:40]}' as {value!r:.80}, expected [library, class]"
            continue
        library, class_name = value
        if library is None:
            continue
        if class_name is None or not class_name.isidentifier() or (module := _library(library)) is None:
            yield f"{INDEX} takes '{part[:40]}' from {library!r:.80}, expected {' or '.join(_LIBRARIES)}"
        elif part not in _NOT_KEPT and not inspect.isclass(getattr(module, class_name, None)):
            near = did_you_mean(class_name, [known for known in dir(module) if known[:1].isupper()])
            yield f"{INDEX} takes '{part[:40]}' to be {class_name[:80]}, which {library} does not have{near}"


def _library(name: str) -> Any:
    """The library of a part, or the module of one of diffusers' own pipelines; None for any other."""
    if name in _LIBRARIES:
        return importlib.import_module(name)
    import diffusers

    own = Path(diffusers.__file__).parent / "pipelines" / name
    return getattr(diffusers.pipelines, name, None) if name.isidentifier() and own.is_dir() else None


def _depth_problems(part: str, config: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Layers that a text encoder's weights do not hold would be made up; transformers does not say so."""
    files = [file for file in folder.glob("*.safetensors") if file.is_file()]
    if not part.startswith("text_encoder") or not files:
        return
    from safetensors import SafetensorError, safe_open

    held: set[int] = set()
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                keys = [key for key in file.keys() if not _OF_IMAGES.search(key)]  # noqa: SIM118
                held |= {int(found[1]) for key in keys if (found := _LAYER.search(key))}
        except (SafetensorError, OSError):
            return  # loading says so
    inner = config.get("text_config")
    places = [config, inner] if isinstance(inner, Mapping) else [config]
    names = ("num_hidden_layers", "num_layers")
    told = next(((name, place[name]) for name in names for place in places if name in place), (names[0], None))
    if held and told[1] != len(held):
        yield f"{part}/config.json: {told[0]} is {shown(told[1])}, and its weights have {len(held)}"


def _side_problems(part: str, config: Mapping[str, Any]) -> Iterator[str]:
    if part not in ("unet", "transformer"):
        return
    size = config.get("sample_size")
    if size is None and part == "transformer":
        return  # many draw any side
    sides = size if isinstance(size, list) else [size]
    for side in sides:
        if not is_integer(side, 1, LARGEST_NUMBER):
            yield f"{part}/config.json: sample_size is {shown(size)}, expected a whole number"
        elif side is not None and side * _SCALE > LARGEST_SIDE:
            yield (
                f"{part}/config.json: sample_size is {side}, which draws {side * _SCALE} pixels a side, expected at"
                f" most {LARGEST_SIDE}"
            )
