"""The page of mending: one HTML file that says what a new head gains beside its controls; no outside resource."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterfoil import __version__
from counterfoil.evaluation.figure_style import spoken
from counterfoil.evaluation.spoken_numbers import points
from counterfoil.mending.arms import BALANCED_ROLES
from counterfoil.mending.document import (
    CLASS,
    CONFIRM,
    CONTEXT,
    FEWEST_LISTED,
    HELDOUT,
    IN_CONTEXTS,
    SEED,
    SET_NOTES,
    TEST,
    TEST_FAILED,
    ArmResult,
    GainDifference,
    Mended,
    ModelMended,
    SetMeasured,
)
from counterfoil.mending.figures import effect_figure, gains_figure, head_name, lambda_figure, overlap_figure
from counterfoil.mending.verdicts import control_words
from counterfoil.report.templates import template_environment
from counterfoil.report.words import named

TEMPLATE = "mend-report.html.j2"
MOST_LISTED = 60
TITLES = {
    TEST: "test",
    TEST_FAILED: "test failures",
    SEED: "debug seed",
    HELDOUT: "debug heldout",
    IN_CONTEXTS: "in contexts",
    CONFIRM: "confirm half",
}
_ROLES = {
    "retrained": "no drawn image: what any refit gains",
    "mended": "with drawn images",
    "control": "control",
    "upweighted": "training rows weighed",
    "rival": "balanced groups, by CLIP",
    "bound": "balanced groups, by truth: a bound",
}


@dataclass(frozen=True, slots=True)
class RowShown:
    """A set of rows under every head: `cells` in the order of the heads."""

    name: str
    detail: str
    rows: int
    before: float | None
    cells: tuple[SetMeasured | None, ...]


@dataclass(frozen=True, slots=True)
class ModelShown:
    """A model with its drawings and tables. shown: the head that the page speaks of."""

    model: ModelMended
    shown: ArmResult
    gains: Any
    curves: tuple[tuple[ArmResult, Any], ...]
    effects: tuple[tuple[str, Any], ...]
    contexts: tuple[RowShown, ...]
    classes: tuple[RowShown, ...]
    compared: tuple[tuple[str, tuple[GainDifference | None, ...]], ...]


def mend_report(mended: Mended) -> str:
    """The page as text; equal documents give equal bytes."""
    from markupsafe import Markup

    filters = {
        "named": named,
        "share": lambda value: "–" if value is None else f"{100 * value:.1f}",
        "points": lambda value: points(value, signed=True),
        "number": lambda count: f"{count:,}",
        "percent": lambda value: "–" if value is None else f"{100 * value:.0f}\N{NO-BREAK SPACE}%",
        "head": lambda arm: named(head_name(arm)),
        "role": lambda arm: _ROLES[arm.role],
    }
    environment = template_environment(TEMPLATE, filters)
    collective = mended.collective
    sets = set_titles(mended.models)
    return environment.get_template(TEMPLATE).render(
        mended=mended,
        models=[_shown(mended, model, place, sets) for place, model in enumerate(mended.models)],
        overlap=None if collective is None else Markup(overlap_figure(collective)),
        titles=sets,
        set_notes=SET_NOTES,
        compared_titles=_compared(sets),
        fewest_listed=FEWEST_LISTED,
        balanced=BALANCED_ROLES,
        has_balanced=any(arm.role in BALANCED_ROLES for model in mended.models for arm in model.arms),
        most_listed=MOST_LISTED,
        version=__version__,
    )


def set_titles(models: Sequence[ModelMended]) -> dict[str, str]:
    """The sets of rows that tables have; failures of the test only where they judge."""
    by_test = any(arm.judged_by == TEST for model in models for arm in model.arms)
    return {name: title for name, title in TITLES.items() if by_test or name != TEST_FAILED}


def _compared(sets: Mapping[str, str]) -> dict[str, str]:
    return {name: sets[name] for name in (HELDOUT, IN_CONTEXTS, CONFIRM, TEST, TEST_FAILED) if name in sets}


def _shown(mended: Mended, model: ModelMended, place: int, titles: Mapping[str, str]) -> ModelShown:
    from markupsafe import Markup

    shown = model.spoken
    swept = [arm for arm in model.arms if arm.curve and arm.role in ("mended", "upweighted")]
    effects = []
    for number, arm in enumerate(model.arms):
        if len(arm.by_k) > 1:
            figure = effect_figure(arm, arm.by_k, "contexts a class", f"{place}-{number}-k")
            effects.append((f"{arm.name}: contexts a class", Markup(figure)))
        if len(arm.by_images) > 1:
            figure = effect_figure(arm, arm.by_images, "images a context", f"{place}-{number}-n")
            effects.append((f"{arm.name}: images a context", Markup(figure)))
    told = {context.name: f"{context.class_name}; {context.caption}" for context in mended.contexts}
    compared = []
    for arm in (arm for arm in model.arms if arm.comparisons):
        for against in dict.fromkeys(one.against for one in arm.comparisons):
            by_set = {one.set: one for one in arm.comparisons if one.against == against}
            words = f"{arm.name} against {control_words(against, next(iter(by_set.values())).lam)}"
            compared.append((words, tuple(by_set.get(name) for name in _compared(titles))))
    return ModelShown(
        model=model,
        shown=shown,
        gains=Markup(gains_figure(model, place)),
        curves=tuple((arm, Markup(lambda_figure(arm, f"{place}-{number}"))) for number, arm in enumerate(swept)),
        effects=tuple(effects),
        contexts=_rows(model, shown, CONTEXT, {one.name: spoken(one.name) for one in mended.contexts}, told),
        classes=_rows(model, shown, CLASS, mended.classes, {}),
        compared=tuple(compared),
    )


def _rows(
    model: ModelMended, shown: ArmResult, kind: str, names: Mapping[str, str], details: Mapping[str, str]
) -> tuple[RowShown, ...]:
    """Every set of a kind that has rows enough, those that change most first."""
    found: list[RowShown] = []
    sets: Sequence[SetMeasured] = [one for one in shown.measured if one.set.startswith(kind) and one.listed]
    for one in sorted(sets, key=lambda one: -abs(one.gain or 0.0)):
        name = one.set.removeprefix(kind)
        cells = tuple(arm.of_set(one.set) for arm in model.arms)
        found.append(RowShown(names.get(name, name), details.get(name, ""), one.rows, one.before, cells))
    return tuple(found)
