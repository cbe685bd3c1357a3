"""What a recipe says: its schema, loading, overrides, prompts and canonical hashes."""

from counterfoil.recipe.layering import bundled_recipes, find_recipe
from counterfoil.recipe.loader import (
    dump_recipe,
    layer_text,
    load_own_recipe,
    load_recipe,
    load_recipe_text,
)
from counterfoil.recipe.prompts import RecipeClass, Shift, object_caption_for, prompt_for
from counterfoil.recipe.schema import Recipe
from counterfoil.recipe.schema_inputs import LearnSettings, Source
from counterfoil.recipe.schema_prompts import ObjectThresholdSpec, ThresholdSpec

__all__ = [
    "LearnSettings", "ObjectThresholdSpec", "Recipe", "RecipeClass", "Shift", "Source", "ThresholdSpec",
    "bundled_recipes", "dump_recipe", "find_recipe", "layer_text", "load_own_recipe", "load_recipe",
    "load_recipe_text", "object_caption_for", "prompt_for",
]  # fmt: skip
