"""A dataset as it tells itself: recipe, lock, thresholds and tokens, each proved before anything is made from them.

The input dataset takes no part: thresholds stand as numbers in the directory, and tokens as vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.building.chosen_rows import rows_file
from counterfoil.building.inputs import Inputs
from counterfoil.building.judges import pin_judges
from counterfoil.dataset import SoundDataset, read_dataset
from counterfoil.dataset.pinned_models import wrong_model
from counterfoil.errors import UserError
from counterfoil.label_checks import without_validation
from counterfoil.recipe import Recipe, load_own_recipe
from counterfoil.recipe.names import without_folders
from counterfoil.sources.pool import wrong_pool
from counterfoil.store.differences import differences
from counterfoil.store.layout import EMBEDDINGS, LOCK, MANIFEST, RECIPE, ROWS, THRESHOLDS, TOKENS
from counterfoil.store.lock import Lock

# What making a dataset again needs of a published one, and comparing with it.
WANTED = (RECIPE, LOCK, THRESHOLDS, MANIFEST, f"{TOKENS}/**", "receipts/**", ROWS, EMBEDDINGS)


@dataclass(frozen=True, slots=True)
class Original:
    """A dataset and what it is made again from: its recipe, with overrides, and its inputs."""

    dataset: SoundDataset
    recipe: Recipe
    recipe_yaml: str
    inputs: Inputs


def read_original(directory: Path, overrides: Sequence[str] = (), *, own: bool = True) -> Original:
    """The original in a directory, with `a.b=c` overrides that change no image and no row of it.

    `own` is False for a published copy, in which nothing is settled. UserError where there is no dataset, or an
    override would make another; RunFailure, with every damaged file, when one of those that cannot be made again is not
    as the lock or the manifest says.
    """
    dataset = read_dataset(directory, "words", "thresholds", "tokens", "embeddings", "rows", own=own).sound()
    recipe = _overridden(dataset, overrides)
    portable = recipe.portable_yaml
    table = dataset.plan.retrieved or dataset.plan.edited
    rows = rows_file(recipe) if table is None else table.content
    return Original(
        dataset=dataset,
        recipe=recipe,
        recipe_yaml=dataset.recipe_yaml if portable == dataset.recipe.portable_yaml else portable,
        inputs=Inputs(dataset.lock.inputs, dataset.thresholds, dataset.tokens, rows, dataset.embeddings),
    )


def refuse_other_models(recipe: Recipe, lock: Lock) -> None:
    """UserError when a model that lies in a folder is not here, or has other content than the lock pins.

    Models of the Hub need no look: their pinned commits are what is loaded.
    """
    pins = lock.inputs["models"]
    problems: list[str] = []
    if recipe.generator.draws:
        problems += wrong_model("generator.model", recipe.generator.model, pins["generator"])
        if recipe.generator.adapter is not None:
            own = pins.get("adapter") or {"revision": None, "sha256": None}
            problems += wrong_model("generator.adapter", recipe.generator.adapter, own)
    if recipe.generator.takes_rows:
        problems += wrong_pool(recipe, lock.inputs.get("pool"))
    if recipe.screen.model is not None and recipe.screen.weights is None:  # else the name is one of open_clip's own
        problems += wrong_model("screen.model", recipe.screen.model, pins["screen"])
    if not problems and recipe.judges and pin_judges(recipe) != without_validation(lock.inputs.get("judges") or {}):
        place = "screen.keep" if recipe.screen.judge is None else "screen.judge"
        problems.append(f"{place}: the judges are not those that {LOCK} pins")
    if problems:
        raise UserError(
            problems,
            "The same weights must lie there; another model makes another dataset: `counterfoil build RECIPE`.",
        )


def _overridden(dataset: SoundDataset, overrides: Sequence[str]) -> Recipe:
    own = dataset.recipe
    if not overrides:
        return own
    recipe = load_own_recipe(dataset.directory, overrides)
    lines: list[str] = []
    if own.plan_hash != recipe.plan_hash:
        lines += differences(own.plan_document, recipe.plan_document) or ["plan: another hash"]
    if own.screen_hash != recipe.screen_hash:
        lines += differences(own.screen_document, recipe.screen_document) or ["screen: another hash"]
    # These make no image here, but the recipe would no longer say where the thresholds and the tokens come from.
    for section in ("source", TOKENS):
        before, after = (getattr(each, section) for each in (own, recipe))
        lines += differences(_portable(before), _portable(after), section)
    before, after = ({s.name: s.embedding and s.embedding.model_dump() for s in r.all_shifts()} for r in (own, recipe))
    lines += differences(before, after, "embedding")
    if lines:
        raise UserError(
            ["--set would make another dataset than the one to be made again:", *(f"  {line}" for line in lines)],
            "--set may say where a folder lies now, or change words of the card. For another dataset build its recipe:"
            f" counterfoil build {dataset.directory} --set … --out NEW",
        )
    return recipe


def _portable(section: Any) -> Any:
    values = None if section is None else section.model_dump(mode="json")
    for key in ("dataset", "path"):
        if values and isinstance(values.get(key), str):
            values[key] = without_folders(values[key])
    return values
