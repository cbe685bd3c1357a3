"""The end of a build: the card of the finished shards, then the manifest; and what the shards hold, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from counterfoil.card.card import make_card
from counterfoil.errors import RunFailure
from counterfoil.plan import make_plan
from counterfoil.recipe import load_recipe_text
from counterfoil.store import DatasetStore, Receipt
from counterfoil.store.lock import read_lock


def close_dataset(store: DatasetStore, recipe_yaml: str, placeholders: Mapping[str, str] | None) -> str:
    """Write card, figures, croissant.json and manifest of a dataset whose shards are all done; the manifest's hash.

    `recipe_yaml` is the directory's own recipe: a card made from it is the same wherever it is made.
    """
    lock = read_lock(store.directory)
    if lock is None:
        raise RunFailure(f"{store.directory} lost its lock while it was being built", "Build it again.")
    own = make_plan(load_recipe_text(recipe_yaml, folder=store.directory), placeholders)
    card = make_card(store.directory, own, lock.document(), store.checked_receipts())
    return store.finish(card.readme, card.figures, card.documents)


def counts_of(receipts: Sequence[Receipt]) -> dict[str, dict[str, int]]:
    """Shift → reason → candidates, over receipts; shifts in the order of the receipts."""
    totals: dict[str, Counter[str]] = {}
    for receipt in receipts:
        for shift, reasons in receipt.counts.items():
            totals.setdefault(shift, Counter()).update(reasons)
    return {shift: dict(reasons) for shift, reasons in totals.items()}
