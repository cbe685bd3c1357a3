"""Floor 11: finding where a classifier fails: named on one half of the images, tested on the other, made a recipe."""

from counterfoil.mining.method import CandidateCaptions, DiscoverHalf, Found, Hypothesis, Method
from counterfoil.recipe.schema_mine import MethodSettings

__all__ = ["CandidateCaptions", "DiscoverHalf", "Found", "Hypothesis", "Method", "MethodSettings"]
