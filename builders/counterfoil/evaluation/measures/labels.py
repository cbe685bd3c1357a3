"""Whether a dataset's labels are true: its checks, and which of the scored models is its second judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from counterfoil.evaluation.scores import AllAnswers, NestedMeasure
from counterfoil.recipe.layering import without_folders
from counterfoil.report.labels import LabelChecks, label_rows
from counterfoil.report.results import ResultRow


def with_scored_judge(
    checks: LabelChecks | None, inputs: Mapping[str, Any], models: Sequence[tuple[str, str | None]]
) -> LabelChecks | None:
    """The checks with those of the models (name, sha256 of the weights) that are the second judge itself.

    `inputs` are those of the lock. Weights tell; the name does where they are not known of both.
    """
    if checks is None or checks.judge is None:
        return checks
    pins = inputs.get("judges")
    pin = pins.get(checks.judge) if isinstance(pins, Mapping) else None
    pinned = pin.get("sha256") if isinstance(pin, Mapping) else None
    same = tuple(
        name
        for name, sha256 in models
        if (sha256 == pinned if sha256 and pinned else without_folders(name) == checks.judge)
    )
    return replace(checks, also_scored=same)


def _checks(answered: AllAnswers) -> tuple[LabelChecks | None, list[ResultRow]]:
    weights = [(one.classifier.name, one.classifier.sha256) for one in answered.scored]
    checks = with_scored_judge(answered.subject.label_checks, answered.subject.pins, weights)
    return checks, [] if checks is None else label_rows(checks)


LABEL_CHECKS = NestedMeasure(_checks)
