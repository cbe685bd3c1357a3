"""Floor 11: finding where a classifier fails: hypotheses named on one half, tested on the other, written as a recipe."""

from counterfoil.mining.method import Captions, DiscoverHalf, Found, Hypothesis, Method, MethodSettings

__all__ = ["Captions", "DiscoverHalf", "Found", "Hypothesis", "Method", "MethodSettings"]
