"""What people see of a dataset: its card, with the metadata that the Hub reads, and contact sheets."""

from counterfoil.dataset.card.card import Card, make_card

__all__ = ["Card", "make_card"]
