"""The Hub's evaluation-result entry of a classifier: plain accuracy, every accepted image counting
once.

Its notes give intervals, the class average, the drop and validation → base.
"""

from __future__ import annotations

from counterfoil.evaluation.entries import NEAR_CHANCE, drop_words, interval_words
from counterfoil.report.reference import OVER_CLASSES, VALIDATION, VALIDATION_GAP
from counterfoil.report.results import DROP_BASE, GroupFacts, ModelFacts, Results
from counterfoil.report.words import format_count, over_classes


def class_entry(
    results: Results,
    model: ModelFacts,
    group: GroupFacts,
) -> tuple[float, str] | None:
    number = results.rows
    top1 = number.estimate("top1", model=model.name, group=group.name)
    if top1 is None:
        return None
    notes = f"top-1 accuracy in percent; {interval_words(top1)}, {group.accepted} images"
    if results.outputs == "classes" and number.where(OVER_CLASSES, model=model.name):
        notes += "; answers over the dataset's classes alone"
    drop = number.estimate("drop", model=model.name, group=group.name)
    if group is results.base_group:
        average = results.base_number(model.name)
        if average is not None:
            classes = format_count(group.classes, "class", "classes")
            notes += (
                f"; averaged over {classes} {100 * average.value:.1f}, {interval_words(average)}"
            )
        if model.near_chance:
            notes += NEAR_CHANCE
        gap = number.estimate(VALIDATION_GAP, model=model.name)
        validation = number.value(VALIDATION, model=model.name)
        if gap is not None and validation is not None:
            accuracy = f"{100 * validation:.1f} on validation images of the source"
            notes += (
                f"; {accuracy}: gap to the base {100 * gap.value:.1f} points, {interval_words(gap)}"
            )
    elif drop is not None:
        over = over_classes(group.classes, group.classes + len(group.left_out))
        over = over or f"over {group.classes} classes"
        base = number.value(DROP_BASE, model=model.name, group=group.name)
        notes += drop_words(drop, base, f" {over}")
    return top1.value, notes
