"""The classifiers beside the target: whether they fail on the same sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import CounterfoilError, raise_together
from counterfoil.mining.audited import Audited, answers_of, class_map_of
from counterfoil.mining.condition_judgements import chosen_thresholds, conditions_scored, judged_conditions
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.failures import failures
from counterfoil.recipe import Recipe
from counterfoil.recipe.schema_mine import Mine

_MEASURED = "Findings are also measured on other classifiers; without them: --set 'mine.others=[]'"


def other_models(recipe: Recipe, mine: Mine, hint: str = _MEASURED) -> dict[str, ClassMap]:
    """The classifiers beside the target that findings are measured on, with their class maps.

    UserError, before anything heavy, for those that are not there or do not fit.
    """
    names = recipe.evaluate.models if mine.others is None else mine.others
    maps: dict[str, ClassMap] = {}
    errors: list[CounterfoilError] = []
    for name in dict.fromkeys(names):
        if name != mine.target:
            try:
                maps[name] = class_map_of(recipe, name)
            except CounterfoilError as error:
                errors.append(error)
    raise_together(errors, hint)
    return maps


def other_failures(
    recipe: Recipe, mine: Mine, audits: Sequence[Audited], maps: Mapping[str, ClassMap], device: str
) -> list[dict[str, NDArray[np.bool_]]]:
    """By audit, (n,) failures of other classifiers on the same images, by the same rule.

    Each has its own thresholds of conditions, from the same discover half as the target's.
    """
    found: list[dict[str, NDArray[np.bool_]]] = [{} for _ in audits]
    audited, conditions = audits[0], recipe.source.conditions
    if conditions is not None:
        present = np.stack([one.labels == one.classes[0] for one in audits], axis=1)
        for name, class_map in maps.items():
            scored = conditions_scored(audited.parts, name, class_map, recipe.classes, device)
            own = replace(scored, values=scored.values[audited.rows])
            thresholds = chosen_thresholds(own, present, audited.halves.discover, conditions.names)
            for place, one in enumerate(judged_conditions(own, present, thresholds)):
                found[place][name] = one.failed
    elif maps:
        answers = answers_of(audited.parts, maps, recipe, device)
        labels = np.concatenate([part.labels for part in audited.parts])
        for name, own in answers.items():
            failed = failures(mine.failure, own.predictions, labels, recipe.classes, own.class_map)
            found[0][name] = failed[audited.rows]
    return found
