"""What a diffusers pipeline says of itself, judged before anything of it loads: known libraries, sane sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.models.config_files import LARGEST_NUMBER, is_integer, number_problems, read_config, shown
from counterfoil.models.generators import Family, family_of, known_families
from counterfoil.recipe.schema_inputs import LARGEST_SIDE

INDEX = "model_index.json"
# Where the parts of pipelines come from; the last is diffusers' own name for its safety checker.
_LIBRARIES = ("diffusers", "transformers", "stable_diffusion")
# Parts whose sizes decide what is allocated. Their configurations are read before the weights.
_SIZED = (
    "unet", "transformer", "vae", "movq", "text_encoder", "text_encoder_2", "image_encoder", "image_normalizer",
)  # fmt: skip
# They name code or kernels of the author's, or of another repository.
_NOT_FOLLOWED = ("auto_map", "attn_implementation", "_attn_implementation", "quantization_config")
_MOST_TIMES = 100_000  # published schedulers have a thousand
_LAYER = re.compile(r"\.layers\.(\d+)\.")
_SCALE = 8  # pixels a latent; the usual autoencoders' scale


def refuse_odd_pipeline(model: str, folder: Path) -> None:
    """UserError, with every problem, for parts that are not of diffusers or transformers, or of absurd sizes.

    `folder` holds the index and the parts' configurations.
    """
    index = read_config(folder / INDEX, model)
    problems = [*_part_problems(index)]
    for part in _SIZED:
        file = folder / part / "config.json"
        if not problems and file.exists():
            config = read_config(file, model)
            problems += number_problems(config, f"{part}/config.json")
            problems += _side_problems(part, config)
            problems += [f"{part}/config.json: {key} is not followed" for key in _NOT_FOLLOWED if config.get(key)]
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
    elif family_of(name) is None:
        yield f"{INDEX} names the pipeline {name[:80]}, which is not driven yet, expected one of {known_families()}"
    for part, value in index.items():
        if part.startswith("_") or not isinstance(value, list):
            continue
        if len(value) != 2 or not all(each is None or isinstance(each, str) for each in value):
            yield f"{INDEX} gives '{part[:40]}' as {value!r:.80}, expected [library, class]"
            continue
        library, class_name = value
        if library is not None and (library not in _LIBRARIES or class_name is None or not class_name.isidentifier()):
            yield f"{INDEX} takes '{part[:40]}' from {library!r:.80}, expected {' or '.join(_LIBRARIES[:2])}"


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
                held |= {int(found[1]) for key in file.keys() if (found := _LAYER.search(key))}  # noqa: SIM118
        except (SafetensorError, OSError):
            return  # loading says so
    told = config.get("num_hidden_layers")
    if held and told != len(held):
        yield f"{part}/config.json: num_hidden_layers is {shown(told)}, and its weights have {len(held)}"


def _side_problems(part: str, config: Mapping[str, Any]) -> Iterator[str]:
    if part not in ("unet", "transformer"):
        return
    size = config.get("sample_size")
    sides = size if isinstance(size, list) else [size]
    for side in sides:
        if not is_integer(side, 1, LARGEST_NUMBER):
            yield f"{part}/config.json: sample_size is {shown(size)}, expected a whole number"
        elif side is not None and side * _SCALE > LARGEST_SIDE:
            yield (
                f"{part}/config.json: sample_size is {side}, which draws {side * _SCALE} pixels a side, expected at"
                f" most {LARGEST_SIDE}"
            )
