"""A finished dataset directory as it stands: what works on built datasets begins here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from counterfoil.errors import RunFailure, UserError
from counterfoil.plan import Plan, make_plan
from counterfoil.recipe import Recipe, load_own_recipe, plan_hash, screen_hash
from counterfoil.store.layout import LOCK, MANIFEST, RECIPE
from counterfoil.store.lock import Lock, read_lock
from counterfoil.store.reading import no_dataset, read_receipts
from counterfoil.store.receipts import Receipt


@dataclass(frozen=True, slots=True)
class FinishedDataset:
    """The recipe, plan (by class names), lock and receipts of a directory whose shards are all done."""

    recipe: Recipe
    plan: Plan
    lock: Lock
    receipts: Sequence[Receipt]


def read_finished(directory: Path) -> FinishedDataset:
    """UserError where there is no dataset, a recipe that it was not built with, or shards still to do.

    RunFailure for receipts of shards that the recipe does not plan.
    """
    lock = read_lock(directory)
    if lock is None:
        raise no_dataset(directory)
    recipe = load_own_recipe(directory)
    hashes = {"plan": plan_hash(recipe), "screen": screen_hash(recipe)}
    if any(lock.hashes.get(name) != value for name, value in hashes.items()):
        raise UserError(
            f"{directory / RECIPE} is not the recipe that the dataset was built with ({LOCK} has other hashes)",
            hint="Restore it from a copy; changes of thresholds go into a file for `counterfoil calibrate --apply`.",
        )
    plan, receipts = make_plan(recipe), read_receipts(directory)
    planned = {(shard.group, shard.number) for shard in plan.shards}
    others = [receipt.path for receipt in receipts if (receipt.group, receipt.shard) not in planned]
    if others:
        raise RunFailure(
            [f"{directory / path} is of a shard that the recipe does not plan" for path in others[:10]],
            hint="Restore the dataset from a copy.",
        )
    if len(receipts) < plan.n_shards or not (directory / MANIFEST).is_file():
        raise UserError(
            f"{directory} is not finished: {len(receipts)} of {plan.n_shards} shards are done",
            hint="Run `counterfoil build` with the same --out first; it goes on where it stopped.",
        )
    return FinishedDataset(recipe, plan, lock, receipts)
