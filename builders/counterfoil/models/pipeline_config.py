"""What a diffusers pipeline says of itself, judged before anything of it loads: known libraries, sane sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.models.config_files import number_problems, read_config
from counterfoil.recipe.schema_inputs import LARGEST_SIDE

INDEX = "model_index.json"
# Where the parts of pipelines come from; the last is diffusers' own name for its safety checker.
_LIBRARIES = ("diffusers", "transformers", "stable_diffusion")
# Parts whose sizes decide what is allocated. Their configurations are read before the weights.
_SIZED = ("unet", "transformer", "vae", "text_encoder", "text_encoder_2")
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
    if problems:
        raise UserError([f"model '{model}': {problem}" for problem in problems[:20]], "It is not loaded.")


def _part_problems(index: Mapping[str, Any]) -> Iterator[str]:
    name = index.get("_class_name")
    if not isinstance(name, str) or not name.isidentifier():
        yield f"{INDEX} names the pipeline {name!r:.80}, expected a class of diffusers"
    for part, value in index.items():
        if part.startswith("_") or not isinstance(value, list):
            continue
        if len(value) != 2 or not all(each is None or isinstance(each, str) for each in value):
            yield f"{INDEX} gives '{part[:40]}' as {value!r:.80}, expected [library, class]"
            continue
        library, kind = value
        if library is not None and (library not in _LIBRARIES or kind is None or not kind.isidentifier()):
            yield f"{INDEX} takes '{part[:40]}' from {library!r:.80}, expected {' or '.join(_LIBRARIES[:2])}"


def _side_problems(part: str, config: Mapping[str, Any]) -> Iterator[str]:
    if part not in ("unet", "transformer"):
        return
    size = config.get("sample_size")
    sides = size if isinstance(size, list) else [size]
    for side in sides:
        if isinstance(side, int) and side * _SCALE > LARGEST_SIDE:
            yield (
                f"{part}/config.json: sample_size is {side}, which draws {side * _SCALE} pixels a side, expected at"
                f" most {LARGEST_SIDE}"
            )
