"""Floor 11: finding where a classifier fails: named on one half of the images, tested on the other, made a recipe."""

from counterfoil.mining.method import Captions, DiscoverHalf, Found, Hypothesis, Method, MethodSettings

__all__ = ["Captions", "DiscoverHalf", "Found", "Hypothesis", "Method", "MethodSettings"]
