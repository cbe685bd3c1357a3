"""The settings of a generator, refused all together before tokens are learned or weights are fetched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.errors import UserError
from counterfoil.models.config_files import read_config
from counterfoil.models.diffusion import INDEX, configurations
from counterfoil.models.pipeline_settings import has_settings_to_compare, own_problems, pipeline_problems

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe


def check_generator(recipe: Recipe, device: str | None = None) -> None:
    """UserError, with every problem, for a generator whose settings its pipeline or this machine does not have.

    Class tokens for a family that takes none, a side that is no multiple, options that its call does not take, guidance
    in a part of the steps where it cannot be left out, and an absent library for weights in fewer bits. `device` is
    where images are rendered. Only configurations are read, and fetched where there is something to compare with them;
    raises RunFailure where they cannot be.
    """
    if not recipe.generator.draws:
        return
    problems = list(own_problems(recipe, device))
    if has_settings_to_compare(recipe):
        try:
            folder = configurations(recipe.generator.model, recipe.generator.revision)
            index, unet = (folder / place for place in (INDEX, Path("unet", "config.json")))
            parts = read_config(unet, recipe.generator.model) if unet.is_file() else None
            problems += pipeline_problems(recipe, read_config(index, recipe.generator.model), parts)
        except UserError as error:
            raise UserError([*problems, *error.problems], error.hint) from error
    if problems:
        raise UserError(problems)
