"""Rules for when an answer is a failure: of its class, of its parent, or by thresholds of
conditions.

The rules of parents come from the open-ended failure search of Wiles et al. 2022, section 3:
failures are those "where any of the top-3 predicted labels are not under the same parent as the
true label y in the WORDNET hierarchy". `parent` reads it as none of the three, `parent_any` as one
or more.

A classifier of conditions gives a
separate answer for each condition (sigmoid, not softmax). The answer is yes if the score reaches a
threshold. As in Jain et al. 2023 (Appendix A.3), the threshold has the largest F1 on validation
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.arrays import AnyFloats, Bools, Floats, Ints
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.errors import UserError
from counterfoil.models.classifiers import Classifier, load_classifier
from counterfoil.models.classifiers.of_predictions import RecordedClassifier, refuse_by_row
from counterfoil.models.messages import message, refusal
from counterfoil.models.score_scale import UNKNOWN
from counterfoil.prediction.class_map import ClassMap, map_classes
from counterfoil.prediction.inference import Predictions, each_once, no_answers
from counterfoil.prediction.passes import score_models
from counterfoil.recipe import RecipeClass, load_recipe
from counterfoil.recipe.keep.misclassified import ANSWERED, ANY_PARENT, PARENTS
from counterfoil.stats import best_threshold

if TYPE_CHECKING:
    from counterfoil.models.classifiers import ClassifierFacts

_FIRST = 3
_MINED = "mine.failure"


def failed_answers(
    rule: str,
    predictions: Predictions,
    labels: Ints,
    classes: Sequence[RecipeClass],
    class_map: ClassMap,
    setting: str = _MINED,
) -> Bools:
    """Return which answers are failures (n,). The value is False for an unreadable image.

    labels: (n,) positions in `classes`. ImageNet's outputs for classes that the recipe lacks have
    the parents of the bundled list. setting: the rule's key in a recipe, for messages. UserError if
    the rule needs more answers than the model ranks, needs parents that the classes lack, or names
    an unknown class.
    """
    if rule == "top1":
        return predictions.readable & ~predictions.correct
    if rule.startswith(ANSWERED):
        class_id = rule.removeprefix(ANSWERED)
        ids = [cls.id for cls in classes]
        if class_id not in ids:
            raise refusal(
                "unfit-rule.class",
                setting,
                class_id,
                ids,
                first=ids[0],
            )
        label = ids.index(class_id)
        given = np.isin(predictions.prediction, class_map.targets[label])
        return predictions.readable & given & (labels != label)
    if not ranks_enough(predictions, class_map):
        kept = predictions.answers.shape[1]
        ranked = min(kept, class_map.num_classes)
        raise refusal(
            "unfit-rule.ranked",
            setting,
            ranked,
            _FIRST,
            rule=rule,
            key=setting,
        )
    first = predictions.answers[:, :_FIRST]
    if rule in PARENTS:
        missing = [cls.id for cls in classes if cls.parent is None]
        if missing:
            raise refusal(
                "unfit-rule.parents",
                setting,
                len(missing),
                rule=rule,
                first=missing[0],
                key=setting,
            )
    targets = class_map.targets
    answers = [(cls, targets[cls.label]) for cls in classes]
    if class_map.outputs == "imagenet" and any(cls.kinds for cls in classes):
        named = set(chain.from_iterable(targets for _, targets in answers))
        for cls in load_recipe("imagenet-star").classes:
            if named.isdisjoint(cls.imagenet):
                answers.append((cls, cls.imagenet))
    right = np.full((len(classes), class_map.num_classes), False)
    for label in np.unique(labels):
        cls = classes[label]
        for other, outputs in answers:
            if other is cls or (rule in PARENTS and other.under_parent_of(cls)):
                right[cls.label, list(outputs)] = True
    given = right[labels[:, None], first]
    passes = given.any(axis=1)
    if rule == ANY_PARENT:
        passes = given.all(axis=1)
    return predictions.readable & ~passes


def refuse_unanswered(
    rule: str,
    classes: Sequence[RecipeClass],
    class_map: ClassMap,
    setting: str = _MINED,
) -> None:
    """Raise UserError for a rule that `failures` would refuse, before the model answers any
    image."""
    no_labels = np.zeros(0, dtype=np.int64)
    failed_answers(
        rule,
        no_answers(0, class_map),
        no_labels,
        classes,
        class_map,
        setting,
    )


def ranks_enough(predictions: Predictions, class_map: ClassMap) -> bool:
    """Return whether a model ranks at least three answers and has more outputs, so that all three
    can be wrong."""
    return predictions.answers.shape[1] >= _FIRST and class_map.num_classes > _FIRST


@dataclass(frozen=True, slots=True)
class ConditionScores:
    """A classifier's scores of n images for K conditions: float64 [n, K]. A high score means yes.

    Unreadable images have the score NaN.
    """

    classifier: Classifier
    values: Floats
    readable: Bools


def map_conditions(
    names: Sequence[str],
    classes: Sequence[RecipeClass],
    facts: ClassifierFacts,
) -> ClassMap:
    """Match a classifier's outputs with conditions. Target k of the returned map is the output of
    condition k.

    A named output is matched by the name of the condition, or by the id of the condition's class
    (label 2k). An output without a name is matched by position. UserError if no map can be found,
    and for a file of predictions with only one label for each image.
    """
    refuse_one_label(facts.name, facts.most_ranked, names)
    conditions = []
    for k, name in enumerate(names):
        class_id = classes[2 * k].id
        conditions.append(RecipeClass(class_id, name, k, k, ()))
    return map_classes(conditions, facts, folders=False)


def refuse_one_label(model: str, most_ranked: int | None, conditions: Sequence[str]) -> None:
    """Raise UserError for a model that gives each image one label."""
    if most_ranked == 1:
        named = ", ".join(conditions[:8])
        if len(conditions) > 8:
            named += " …"
        where = f"model {model!r}"
        raise refusal("unmatched-classes.one-label", where, named)


def condition_scores(
    images: LabelledImages,
    name: str,
    conditions: ClassMap,
    folder: Path,
    device: str,
    batch_size: int,
    load: Callable[[str], Classifier] = load_classifier,
) -> ConditionScores:
    """Return a classifier's scores for conditions: sigmoids of its logits, or the scores in a file
    of predictions.

    The logits themselves are returned for a condition if different ones have the same sigmoid.

    conditions: the result of `map_conditions`. The answers of a model are cached in `folder`.
    UserError if a file has no answer or two answers for an image; RunFailure if the model cannot
    compute.
    """
    classifier = load(name)
    outputs = [target[0] for target in conditions.targets]
    refuse_by_row(classifier, images.preview)
    if isinstance(classifier, RecordedClassifier):
        # Conditions are ranked by the scores as they are written.
        values = np.full((len(images), len(outputs)), np.nan)
        answers = classifier.recorded(images.keys, images.paths)
        for at, scores in each_once(images, name, answers, conditions.num_classes):
            values[at] = scores[:, outputs]
        unknown = np.isnan(values).any(axis=1)
        return ConditionScores(classifier, values, np.asarray(~unknown))
    # Scores do not depend on labels, so all labels are set to 0: the map has only K rows, and
    # labels may be larger.
    unlabelled = replace(images, labels=np.zeros(len(images), dtype=np.int64))
    scored = score_models(
        unlabelled,
        [name],
        {name: conditions},
        folder,
        device,
        batch_size,
        lambda _: classifier,
        logits=True,
    )
    answers = scored[name].predictions
    assert answers.logits is not None  # they are requested
    given = answers.logits[:, outputs]
    small = np.exp(-np.abs(given))  # the sigmoid, without overflow at either end
    values = np.where(given >= 0, 1.0, small) / (1.0 + small)
    are_logits = classifier.score_scale not in ("sigmoids", UNKNOWN)
    for column, logits in enumerate(given.T):
        # Above a logit of 33, different logits have one sigmoid. Ranks and thresholds tell them
        # apart.
        distinct = np.unique(logits).size
        if not are_logits or np.unique(values[:, column]).size < distinct:
            values[:, column] = logits
    values[~answers.readable] = np.nan
    return ConditionScores(scored[name].classifier, values, answers.readable)


def best_thresholds(scores: AnyFloats, present: Bools, names: Sequence[str]) -> Floats:
    """Return the threshold with the largest F1 on these rows, for each condition: [n, K] scores and
    truth -> [K].

    A score of at least the threshold means yes. If several thresholds have the largest F1, the
    lowest is taken. Answers must be evaluated on other rows. ValueError for NaN scores; UserError,
    with all problems, for conditions that no row or every row has.
    """
    _refuse_misfit(scores, present)
    problems = []
    for name, has in zip(names, present.T, strict=True):
        if has.all() or not has.any():
            which = "every" if has.all() else "no"
            where = f"condition '{name}'"
            problems.append(message("unmatched-classes.condition", where, which, rows=len(has)))
    if problems:
        raise UserError(problems)
    thresholds = []
    for column, has in zip(scores.T, present.T, strict=True):
        threshold, _ = best_threshold(column, partial(_f1, has))
        thresholds.append(float(threshold))
    return np.asarray(thresholds)


def binary_answers(scores: AnyFloats, present: Bools, thresholds: Floats) -> Bools:
    """Return which answers are wrong: [n, K] scores and truth, [K] thresholds -> bool [n, K].
    ValueError for NaN."""
    _refuse_misfit(scores, present)
    if thresholds.shape != scores.shape[1:] or np.isnan(thresholds).any():
        raise ValueError(f"expected {scores.shape[1]} thresholds, found {thresholds}")
    return (scores >= thresholds) != present


def _f1(has: Bools, order: Ints, last: Ints) -> Floats:
    # 2 tp / (2 tp + fp + fn); a quotient of equal fractions is equal to the bit, so ties are ties.
    hits = np.cumsum(has[order])[last]
    answered_or_true = last + 1 + has.sum()
    return 2 * hits / answered_or_true


def _refuse_misfit(scores: AnyFloats, present: Bools) -> None:
    if scores.ndim != 2 or scores.shape != present.shape:
        raise ValueError(
            f"expected scores and truth of one shape (n, K), found {scores.shape} and"
            f" {present.shape}"
        )
    without = int(np.isnan(scores).any(axis=1).sum())
    if without:
        raise ValueError(f"{without} rows have no score: leave them out")
