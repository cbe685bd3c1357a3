"""When an answer is a failure: `top1`, `top3`, `parent` (Wiles 2022, open-ended) and `answered:CLASS_ID`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.keep.failure_names import ANSWERED
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.predictions import RANKED, Predictions
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.names import did_you_mean

_FIRST = 3
_MINED = "mine.failure"


def failures(
    rule: str,
    predictions: Predictions,
    labels: NDArray[np.int64],
    classes: Sequence[RecipeClass],
    class_map: ClassMap,
    setting: str = _MINED,
) -> NDArray[np.bool_]:
    """(n,) which answers are failures; `labels` (n,) are positions in `classes`. False where an image has no answer.

    setting: where the rule stands in a recipe, for problems.

    UserError for a rule that needs more answers than the target ranks, parents that the classes do not have, or a class
    that there is not.
    """
    if rule == "top1":
        return predictions.readable & ~predictions.correct
    if rule.startswith(ANSWERED):
        place = _class_of(rule.removeprefix(ANSWERED), classes, setting)
        given = np.isin(predictions.prediction, class_map.targets[place])
        return predictions.readable & given & (labels != place)
    if not ranks_enough(predictions, class_map):
        raise UserError(
            f"{setting}: the rule '{rule}' reads the first {_FIRST} answers, and the classifier ranks "
            f"{min(predictions.answers.shape[1], class_map.num_classes)}",
            f"Set {setting}=top1.",
        )
    first = predictions.answers[:, :_FIRST]
    if rule == "top3":
        kinds: dict[int, int] = dict(enumerate(range(len(classes))))
    else:
        parents = _parents(classes, setting)
        places = {parent: place for place, parent in enumerate(sorted(set(parents)))}
        kinds = {label: places[parent] for label, parent in enumerate(parents)}
    kind_of_output = np.full((len(set(kinds.values())), class_map.num_classes), False)
    for label, targets in enumerate(class_map.targets):
        kind_of_output[kinds[label], list(targets)] = True
    wanted = np.asarray([kinds[label] for label in range(len(classes))])[labels]
    return predictions.readable & ~kind_of_output[wanted[:, None], first].any(axis=1)


def refuse_unanswered(rule: str, classes: Sequence[RecipeClass], class_map: ClassMap, setting: str = _MINED) -> None:
    """UserError, before any image is answered, for a rule that classes or a target cannot answer, as `failures`."""
    none = Predictions.empty(0, min(RANKED, class_map.num_classes, class_map.most_ranked or RANKED))
    failures(rule, none, np.zeros(0, dtype=np.int64), classes, class_map, setting)


def ranks_enough(predictions: Predictions, class_map: ClassMap) -> bool:
    """Whether a model ranks enough answers, and has enough outputs, for the first three to leave one to get wrong."""
    return predictions.answers.shape[1] >= _FIRST and class_map.num_classes > _FIRST


def _class_of(class_id: str, classes: Sequence[RecipeClass], setting: str) -> int:
    ids = [cls.id for cls in classes]
    if class_id not in ids:
        close = did_you_mean(class_id, ids)
        raise UserError(f"{setting}: no class has the id '{class_id}'{close}", f"As in {ANSWERED}{ids[0]}.")
    return ids.index(class_id)


def _parents(classes: Sequence[RecipeClass], setting: str) -> list[str]:
    missing = [cls.id for cls in classes if cls.parent is None]
    if missing:
        raise UserError(
            f"{setting}: the rule 'parent' needs the parent of every class, and {len(missing):,} have none, such as "
            f"'{missing[0]}'",
            f"Write `parent` in the list of classes, or set {setting}=top1.",
        )
    return [cls.parent or "" for cls in classes]
