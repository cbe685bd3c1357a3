"""How often the second judge errs: what it answers to the source's validation images, counted once for the lock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from counterfoil.label_checks import MOST_A_CLASS, OTHER, counted
from counterfoil.models.classifiers import describe_classifier, load_classifier
from counterfoil.models.devices import one_thread
from counterfoil.models.loading_errors import skipped_reason
from counterfoil.prediction.class_map import map_classes
from counterfoil.prediction.passes import score_models
from counterfoil.sources.labelled_images import first_of_classes, rows_of
from counterfoil.sources.labelled_sources import labelled_split
from counterfoil.user_cache import user_cache

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe
    from counterfoil.sources.pins import SourcePin

_BATCH = 64


def validation_answers(
    recipe: Recipe, judge: str, source: SourcePin, device: str
) -> tuple[Mapping[str, Mapping[str, int]] | None, str | None]:
    """By class id, how many validation images the judge answers as which class id; or None, and why there are none.

    At most 200 images a class, those whose keys have the lowest hashes. The judge answers as it answers to candidates:
    with one of all its outputs. Predictions are kept in the user's cache. Raises what the judge's own loading raises.
    """
    if recipe.source.conditions is not None:
        return None, "a row of its source has several labels, or none"
    try:
        images = labelled_split(recipe.source, recipe.source.validation_split, recipe.classes, source, units=False)
    except Exception as error:
        return None, skipped_reason(f"the input dataset '{recipe.source.dataset}'", error).problems[0]
    images = rows_of(images, first_of_classes(images.keys, images.labels, MOST_A_CLASS))
    class_map = map_classes(recipe.classes, describe_classifier(judge, recipe.classes))
    with one_thread():
        scored = score_models(
            images, [judge], {judge: class_map}, user_cache() / "predictions", device, _BATCH,
            lambda name: load_classifier(name, classes=recipe.classes),
        )  # fmt: skip
        answers = scored[judge].predictions
    ids = [cls.id for cls in recipe.classes]
    # The first class that an output is right for, where it is right for several.
    named = {output: ids[label] for label in reversed(range(len(ids))) for output in class_map.targets[label]}
    found = counted(
        (ids[label], ids[label] if right else named.get(int(answer), OTHER))
        for label, answer, right, readable in zip(
            images.labels.tolist(), answers.prediction, answers.correct, answers.readable, strict=True
        )
        if readable
    )
    return (found, None) if found else (None, "none of its validation images can be read")
