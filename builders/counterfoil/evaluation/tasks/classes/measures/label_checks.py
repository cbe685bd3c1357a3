"""The checks of a dataset's labels, and which of the scored models is its second judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from counterfoil.evaluation.tasks.classes.answers import AllAnswers, NestedMeasure
from counterfoil.recipe.layering import without_folders
from counterfoil.report.labels import (
    DISAGREEMENT,
    LABEL_ERROR,
    SELECTED_AS_CLASS,
    SELECTED_AS_SHIFT,
    LabelChecks,
)
from counterfoil.report.results import ResultRow, estimate_row


def with_scored_judge(
    checks: LabelChecks | None,
    inputs: Mapping[str, Any],
    models: Sequence[tuple[str, str | None]],
) -> LabelChecks | None:
    """Return the checks with the scored models that are the judge itself, found by sha256 or else
    by name."""
    if checks is None or checks.judge is None:
        return checks
    pins = inputs.get("judges")
    pin = pins.get(checks.judge) if isinstance(pins, Mapping) else None
    pinned = pin.get("sha256") if isinstance(pin, Mapping) else None
    same = []
    for name, sha256 in models:
        is_judge = without_folders(name) == checks.judge
        if sha256 and pinned:
            is_judge = sha256 == pinned
        if is_judge:
            same.append(name)
    return replace(checks, also_scored=tuple(same))


def label_rows(checks: LabelChecks) -> list[ResultRow]:
    """Return the numbers of each group as rows; for the judge there are also rows by class."""
    rows = []
    for shift in checks.shifts:
        group = shift.shift
        if shift.judge is not None:
            for class_id, judged in {"": shift.judge, **shift.classes}.items():
                if judged is None:
                    continue
                key = {
                    "group": group,
                    "class_id": class_id,
                    "against": checks.judge or "",
                    "n": judged.images,
                }
                disagreement = judged.disagreement.estimate
                rows.append(estimate_row(DISAGREEMENT, disagreement, **key))
                if judged.label_error is not None:
                    label_error = judged.label_error.estimate
                    rows.append(estimate_row(LABEL_ERROR, label_error, **key))
        people = shift.people
        if people is None:
            continue
        for measure, selected, images in (
            (SELECTED_AS_CLASS, people.class_selected, people.class_images),
            (SELECTED_AS_SHIFT, people.shift_selected, people.shift_images),
        ):
            if selected is not None:
                rows.append(estimate_row(measure, selected.estimate, group=group, n=images))
    return rows


def measure_labels(answered: AllAnswers) -> tuple[LabelChecks | None, list[ResultRow]]:
    subject = answered.subject
    classifiers = [scores.classifier for scores in answered.scored]
    weights = [(classifier.name, classifier.sha256) for classifier in classifiers]
    checks = with_scored_judge(subject.label_checks, subject.pins, weights)
    if checks is None:
        return None, []
    return checks, label_rows(checks)


MEASURE = NestedMeasure(measure_labels)
