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
                }
                n = judged.images
                rows.append(estimate_row(DISAGREEMENT, judged.disagreement.estimate, n=n, **key))
                if judged.label_error is not None:
                    rows.append(estimate_row(LABEL_ERROR, judged.label_error.estimate, n=n, **key))
        people = shift.people
        if people is None:
            continue
        selected = people.class_selected
        if selected is not None:
            n = people.class_images
            rows.append(estimate_row(SELECTED_AS_CLASS, selected.estimate, group=group, n=n))
        selected = people.shift_selected
        if selected is not None:
            n = people.shift_images
            rows.append(estimate_row(SELECTED_AS_SHIFT, selected.estimate, group=group, n=n))
    return rows


def measure_labels(answered: AllAnswers) -> tuple[LabelChecks | None, list[ResultRow]]:
    weights = [(scores.classifier.name, scores.classifier.sha256) for scores in answered.scored]
    checks = with_scored_judge(answered.subject.label_checks, answered.subject.pins, weights)
    if checks is None:
        return None, []
    return checks, label_rows(checks)


MEASURE = NestedMeasure(measure_labels)
