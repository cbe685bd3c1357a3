"""Chosen contexts as a layer of a recipe: what a classifier can learn from, and two controls of as many images.

Group `contexts` has a shift a class and context with the paper's prompt; `class_name` draws each class without any
context (the paper's *random debugging*), and `random_contexts` as many other contexts of the class. Samples of one
class and index begin with the same noise in all of them. What the confirm half says decides nothing here: it is there
to judge what is learned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from counterfoil.mining.contexts.choosing import images_a_context
from counterfoil.mining.contexts.templates import plain_prompt, prompt_in
from counterfoil.mining.findings import ClassContext, Finding, Findings
from counterfoil.mining.findings_layer import derived_seed, mined_from, mined_shift, origin_of, shifts_layer
from counterfoil.mining.shift_names import slugs
from counterfoil.recipe import Recipe, RecipeClass
from counterfoil.recipe.names import derived_name
from counterfoil.recipe.schema_mine import ContextsSettings

CONTEXTS, CLASS_NAME, RANDOM_CONTEXTS = "contexts", "class_name", "random_contexts"
# Candidates for each image that is wanted, before a cell gives up.
_PATIENCE = 4
_MOST_NAMED = 8


def contexts_layer(
    findings: Findings, recipe: Recipe, source: str | Path, overrides: Sequence[str], folder: Path
) -> str | None:
    """The text of `recipe.yaml` in `folder`; None where no context was chosen, and over a recipe of rows.

    recipe: as it was mined, with `overrides`; source: how its person named it.
    """
    if recipe.generator.takes_rows:
        return None
    shifts = context_shifts(findings, recipe, ContextsSettings.model_validate(findings.method.settings))
    if not shifts:
        return None
    seed = derived_seed(recipe.samples.seed, "layer", findings)
    changes = {"samples": {"seed": seed}, "name": derived_name(recipe.name, "contexts")}
    return shifts_layer(shifts, changes, recipe, source, overrides, folder)


def context_shifts(findings: Findings, recipe: Recipe, settings: ContextsSettings) -> dict[str, dict[str, Any]]:
    """Shift → what the recipe says of it, group after group."""
    by_id = {cls.id: cls for cls in recipe.classes}
    tested = {(one.classes[0], one.caption): one for one in findings.findings}
    chosen: dict[str, dict[str, Any]] = {}
    alone: dict[str, dict[str, Any]] = {}
    anyhow: dict[str, dict[str, Any]] = {}
    draw = np.random.default_rng(derived_seed(recipe.samples.seed, "random contexts", findings))
    stems = slugs([audit.name for audit in findings.classes])
    for audit, stem in zip(findings.classes, stems, strict=True):
        cls = by_id[audit.id]
        own = [context for context in audit.contexts if context.rank is not None]
        others = [context for context in audit.contexts if context.rank is None]
        if not own:
            continue
        counts = [images_a_context(_failed_images(one), settings.images, settings.at_most_images) for one in own]
        names = slugs([f"{stem} {context.words}" for context in own])
        for name, context, count in zip(names, own, counts, strict=True):
            told = _came_from(findings, context, tested.get((cls.id, context.caption)))
            chosen[name] = _shift(settings, recipe, cls, context, CONTEXTS, count, told)
        if not settings.controls:
            continue
        plain = mined_shift(
            plain_prompt(settings), None, CLASS_NAME, [cls], {"role": CLASS_NAME, **origin_of(findings)}
        )
        alone[f"{stem}_{CLASS_NAME}"] = plain | _samples(sum(counts))
        order = draw.permutation(len(others))[: len(own)].tolist()
        # Fewer are left than were chosen: as many images all the same, or mending could not compare this class.
        numbers = counts if len(order) == len(own) else _spread(sum(counts), len(order))
        names = slugs([f"{stem} random {others[at].words}" for at in order])
        for place, name, count in zip(order, names, numbers, strict=True):
            told = {"role": "random_context", "caption": others[place].caption, **origin_of(findings)}
            anyhow[name] = _shift(settings, recipe, cls, others[place], RANDOM_CONTEXTS, count, told)
    return chosen | alone | anyhow


def control_notes(findings: Findings, recipe: Recipe, settings: ContextsSettings) -> tuple[str, ...]:
    """A word of the classes whose contexts were all chosen, so that no other one is left for a control."""
    if not settings.controls or recipe.generator.takes_rows:
        return ()
    every = [
        one.name for one in findings.classes if one.contexts and all(each.rank is not None for each in one.contexts)
    ]
    if not every:
        return ()
    more = f" and {len(every) - _MOST_NAMED} more" if len(every) > _MOST_NAMED else ""
    return (
        f"All contexts of {', '.join(every[:_MOST_NAMED])}{more} were chosen: none is left to draw for"
        f" {RANDOM_CONTEXTS}, so that mending has no such control there",
    )


def _failed_images(context: ClassContext) -> int:
    """An image that several pooled classifiers fail on is one."""
    return context.failures if context.failed_images is None else context.failed_images


def _spread(images: int, contexts: int) -> list[int]:
    """So many images over so many contexts, as evenly as they go."""
    return [images // contexts + (place < images % contexts) for place in range(contexts)]


def _came_from(findings: Findings, context: ClassContext, one: Finding | None) -> dict[str, Any]:
    """What a chosen context came from: its rank among those of its class, its counts, and the test of it."""
    counts = {"failures": context.failures, "of_failures": context.of_failures}
    counts |= {"right": context.right, "of_right": context.of_right}
    test = {"role": "hard", "caption": context.caption, **origin_of(findings)}
    if one is not None:
        test = mined_from(findings, one) | {"confirmed": one.confirmed}
    return test | {"rank": context.rank, "counts": counts, "lift": context.lift}


def _shift(
    settings: ContextsSettings,
    recipe: Recipe,
    cls: RecipeClass,
    context: ClassContext,
    group: str,
    images: int,
    told: Mapping[str, Any],
) -> dict[str, Any]:
    # Without a threshold of the recipe nothing says which score is enough.
    caption = context.caption if recipe.screen.shift_threshold is not None else None
    return mined_shift(prompt_in(settings, context.words), caption, group, [cls], told) | _samples(images)


def _samples(images: int) -> dict[str, Any]:
    return {"samples": {"accepted": images, "at_most": _PATIENCE * images}}
