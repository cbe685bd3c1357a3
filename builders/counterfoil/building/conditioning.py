"""The image embeddings of a build: read, and refused before weights load where the generator cannot draw from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from counterfoil.errors import UserError
from counterfoil.generate.image_embeddings import ImageEmbeddings, read_image_embeddings
from counterfoil.models.adapters import adapter_width
from counterfoil.models.diffusion import pipeline_family

if TYPE_CHECKING:
    from counterfoil.models.generators import Family
    from counterfoil.recipe import Recipe


def image_embeddings(recipe: Recipe) -> ImageEmbeddings | None:
    """The vectors that a recipe draws from; None where it draws from prompts alone.

    UserError, collected, for vectors that `read_image_embeddings` refuses, and for a generator that takes none, needs
    others, or is given an adapter or a prompt that would do nothing. Reads configurations and heads of files alone.
    """
    embeddings = read_image_embeddings(recipe)
    generator = recipe.generator
    if embeddings is None and generator.adapter is None:
        return None
    family, width = pipeline_family(generator.model, generator.revision)
    problems = list(_problems(recipe, embeddings, family, width))
    if problems:
        raise UserError(problems)
    return embeddings


def _problems(recipe: Recipe, embeddings: ImageEmbeddings | None, family: Family, width: Any) -> Iterator[str]:
    generator = recipe.generator
    if generator.adapter is not None:
        if family.takes != "adapter":
            yield f"generator.adapter: '{generator.model}' is a {family.name}, which takes no adapter; expected null"
            return
        width = adapter_width(generator.adapter, generator.adapter_revision)
    elif family.takes is None or (family.takes == "adapter" and embeddings is not None):
        told = "" if family.takes is None else " without a generator.adapter"
        yield f"generator.model: '{generator.model}' is a {family.name}, which takes no image embeddings{told}"
        return
    if embeddings is not None and embeddings.width != width:
        taker = generator.model if generator.adapter is None else generator.adapter
        yield (
            f"prompts: the embeddings have {embeddings.width:,} numbers, and '{taker}' takes {width:,}; expected"
            " vectors of the CLIP that it was made for"
        )
    if family.takes == "every":
        yield from _of_every_sample(recipe, family)


def _of_every_sample(recipe: Recipe, family: Family) -> Iterator[str]:
    """What is missing, or would be read by nobody, where each picture is drawn from an embedding."""
    for shift in recipe.all_shifts():
        place = f"prompts.{'' if shift.name == 'base' else 'shifts.'}{shift.name}"
        if shift.embedding is None:
            yield f"{place}.embedding: missing, and {family.name} draws nothing without one"
        if shift.prompt is not None and not family.prompted:
            yield f"{place}.prompt: no prompt reaches {family.name}, expected null"
