"""Kind `diffusers`: pin a model and its adapter, and draw images from noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from counterfoil.errors import UserError
from counterfoil.generate.image_embeddings import ImageEmbeddings, read_image_embeddings
from counterfoil.generate.kinds.kind import ImageMaker, Materials
from counterfoil.generate.render import Renderer
from counterfoil.models.adapters import adapter_width, load_adapter, pin_adapter
from counterfoil.models.config_files import read_config
from counterfoil.models.diffusion import (
    INDEX,
    fetch_configurations,
    generator_pipeline,
    pipeline_family,
)
from counterfoil.models.generators import Family
from counterfoil.models.loras import load_loras
from counterfoil.models.names import pin_model
from counterfoil.models.pipeline_settings import (
    has_settings_to_compare,
    own_problems,
    pipeline_problems,
)
from counterfoil.recipe import Recipe
from counterfoil.recipe.kinds import GENERATOR
from counterfoil.recipe.kinds.diffusers import DiffusersKind


class DiffusersMaker(ImageMaker):
    def pins(self, recipe: Recipe) -> dict[str, Any]:
        generator = recipe.drawing
        pins = {GENERATOR: pin_model(generator.model, generator.revision).document()}
        adapter = generator.get("adapter")
        if adapter is not None:
            pins["adapter"] = pin_adapter(adapter, generator.get("adapter_revision")).document()
        return pins

    def check(self, recipe: Recipe, device: str | None = None) -> None:
        problems = list(own_problems(recipe, device))
        if has_settings_to_compare(recipe):
            try:
                model = recipe.drawing.model
                folder = fetch_configurations(model, recipe.generator.revision)
                unet = folder / "unet" / "config.json"
                parts = read_config(unet, model) if unet.is_file() else None
                problems += pipeline_problems(recipe, read_config(folder / INDEX, model), parts)
            except UserError as error:
                raise UserError([*problems, *error.problems], error.hint) from error
        if problems:
            raise UserError(problems)

    def embeddings(self, recipe: Recipe) -> ImageEmbeddings | None:
        """Return the image embeddings that a recipe draws from, or None if it draws from prompts
        alone.

        This method reads only configurations and the headers of weights. Raise UserError with every
        problem: invalid embeddings, a generator that takes no embeddings or embeddings of another
        width, and an adapter or prompts that would have no effect.
        """
        embeddings = read_image_embeddings(recipe)
        generator = recipe.generator
        if not isinstance(generator, DiffusersKind):
            return None
        if embeddings is None and generator.adapter is None:
            return None
        family, width = pipeline_family(generator.model, generator.revision)
        problems = list(_problems(recipe, generator, embeddings, family, width))
        if problems:
            raise UserError(problems)
        return embeddings

    def renderer(self, materials: Materials) -> Renderer:
        generator = materials.recipe.generator
        assert isinstance(generator, DiffusersKind)
        pipeline = generator_pipeline(
            generator,
            materials.device,
            materials.revision,
            materials.tokens,
        )
        adapter = None
        if materials.embeddings is not None and generator.adapter is not None:
            revision = materials.adapter_revision or generator.adapter_revision
            adapter = load_adapter(pipeline, generator.adapter, revision)
        loras = load_loras(pipeline, generator.lora, materials.loras)
        return Renderer(pipeline, materials.recipe, materials.embeddings, adapter, loras)


def _problems(
    recipe: Recipe,
    generator: DiffusersKind,
    embeddings: ImageEmbeddings | None,
    family: Family,
    width: Any,
) -> Iterator[str]:
    if generator.adapter is not None:
        if family.takes != "adapter":
            yield (
                f"generator.adapter: '{generator.model}' is a {family.name}, which takes no"
                " adapter; expected null"
            )
            return
        width = adapter_width(generator.adapter, generator.adapter_revision)
    elif family.takes is None or (family.takes == "adapter" and embeddings is not None):
        without = "" if family.takes is None else " without a generator.adapter"
        yield (
            f"generator.model: '{generator.model}' is a {family.name}, which takes no image"
            f" embeddings{without}"
        )
        return
    if embeddings is not None and embeddings.width != width:
        taker = generator.model if generator.adapter is None else generator.adapter
        yield (
            f"prompts: the embeddings have {embeddings.width:,} numbers, and '{taker}' takes"
            f" {width:,}; expected vectors of the CLIP that it was made for"
        )
    if family.takes != "every":
        return
    for shift in recipe.all_shifts():
        key = f"prompts.{'' if shift.name == 'base' else 'shifts.'}{shift.name}"
        if shift.embedding is None:
            yield f"{key}.embedding: missing, and {family.name} draws nothing without one"
        if shift.prompt is not None and not family.prompted:
            yield f"{key}.prompt: {family.name} takes no prompt, expected null"
