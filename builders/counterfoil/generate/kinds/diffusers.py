"""Kind `diffusers`: the model and its adapter are pinned, and a `Renderer` draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from counterfoil.generate.kinds.kind import ImageMaker, Materials, NamedInput
from counterfoil.generate.render import Renderer
from counterfoil.models import pin_model
from counterfoil.models.adapters import load_adapter, pin_adapter
from counterfoil.models.diffusion import generator_pipeline
from counterfoil.models.loras import load_loras
from counterfoil.recipe.kinds import GENERATOR
from counterfoil.recipe.layering import without_folders

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe


class DiffusersMaker(ImageMaker):
    """Draws images from noise."""

    def pins(self, recipe: Recipe) -> dict[str, Any]:
        generator = recipe.generator
        pins = {GENERATOR: pin_model(generator.model, generator.revision).document()}
        if generator.adapter is not None:
            pins["adapter"] = pin_adapter(generator.adapter, generator.adapter_revision).document()
        return pins

    def renderer(self, materials: Materials) -> Renderer:
        generator = materials.recipe.generator
        pipeline = generator_pipeline(generator, materials.device, materials.revision, materials.tokens)
        adapter = None
        if materials.embeddings is not None and generator.adapter is not None:
            revision = materials.adapter_revision or generator.adapter_revision
            adapter = load_adapter(pipeline, generator.adapter, revision)
        loras = load_loras(pipeline, *materials.loras)
        return Renderer(pipeline, materials.recipe, materials.embeddings, adapter, loras)

    def inputs(self, recipe: Recipe, pinned: Mapping[str, Any]) -> list[NamedInput]:
        models = pinned.get("models") or {}
        return [("generator", without_folders(recipe.generator.model), models.get(GENERATOR) or {})]
