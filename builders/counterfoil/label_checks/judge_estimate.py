"""From counts of what the second judge answered to the checks of a dataset's labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from counterfoil.label_checks.rogan_gladen import JudgedClass, label_error_of_class, label_error_of_shift, share_of
from counterfoil.label_checks.validation_answers import ValidationAnswers, validation_of
from counterfoil.recipe.names import without_folders
from counterfoil.report.labels import JudgedLabels, LabelChecks, ShiftChecks

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe

# (shift, class id) → accepted images that the judge answered to, and those of them whose label it did not answer.
JudgedCounts = Mapping[tuple[str, str], tuple[int, int]]


def checks_of_dataset(recipe: Recipe, inputs: Mapping[str, Any], counts: JudgedCounts) -> LabelChecks:
    """The checks of every shift of a built dataset, the base first; empty ones where its recipe names no second judge.

    `inputs` are those of its lock. ValueError where these do not pin the judge as a build does.
    """
    shifts = recipe.all_shifts()
    names, judge = [shift.name for shift in shifts], recipe.screen.judge
    own = recipe.generator.kind == "corrupt"
    if judge is None:
        return LabelChecks(None, None, tuple(map(ShiftChecks, names)), own=own)
    pins = inputs.get("judges")
    pin = pins.get(without_folders(judge)) if isinstance(pins, Mapping) else None
    validation = validation_of(pin, [cls.id for cls in recipe.classes])
    picked = {shift.name for shift in shifts for rule in shift.keep if judge in rule.judges()}
    return replace(judged_checks(without_folders(judge), counts, validation, names, picked), own=own)


def judged_checks(
    judge: str,
    counts: JudgedCounts,
    validation: ValidationAnswers | None,
    shifts: Sequence[str],
    picked: Collection[str] = (),
) -> LabelChecks:
    """The checks of `shifts`, in this order, by what the judge said; a shift of no image has none.

    Without `validation` its disagreement is told plainly, and no label error is estimated. So it is under the shifts
    that are `picked`: their images are there because this judge disagrees.
    """
    total = None if validation is None else sum(sum(own.values()) for own in validation.values())
    judged: dict[str, dict[str, tuple[int, int]]] = {}
    for (shift, class_id), pair in counts.items():
        if pair[0]:
            judged.setdefault(shift, {})[class_id] = pair
    errors = {} if validation is None else _errors(validation)
    found = (_of_shift(name, judged.get(name, {}), errors, name in picked) for name in shifts)
    return LabelChecks(judge, total, tuple(found))


def _errors(validation: ValidationAnswers) -> dict[str, tuple[int, int, int, int]]:
    """By class id: its validation images, those not answered as it, all others, and those not answered as it."""
    total = sum(sum(own.values()) for own in validation.values())
    answered: dict[str, int] = {}
    for own in validation.values():
        for class_id, n in own.items():
            answered[class_id] = answered.get(class_id, 0) + n
    found = {}
    for class_id, own in validation.items():
        images, right = sum(own.values()), own.get(class_id, 0)
        others = total - images
        found[class_id] = (images, images - right, others, others - (answered.get(class_id, 0) - right))
    return found


def _of_shift(
    shift: str, classes: Mapping[str, tuple[int, int]], errors: Mapping[str, tuple[int, int, int, int]], picked: bool
) -> ShiftChecks:
    if not classes:
        return ShiftChecks(shift, picked=picked)
    errors = {} if picked else errors
    of = {name: JudgedClass(*pair, *errors.get(name, (0, 0, 0, 0))) for name, pair in classes.items()}
    images, disagreed = (sum(getattr(one, part) for one in of.values()) for part in ("images", "disagreed"))
    return ShiftChecks(
        shift,
        JudgedLabels(images, disagreed, share_of(disagreed, images), label_error_of_shift(list(of.values()))),
        classes={
            name: JudgedLabels(
                one.images, one.disagreed, share_of(one.disagreed, one.images), label_error_of_class(one)
            )
            for name, one in of.items()
        },
        picked=picked,
    )
