"""Counterfoil: recipes become counterfactual image datasets that show where vision models fail."""

__version__ = "0.1.0"
