"""The page on which thresholds are chosen by looking: one HTML file, with no outside resource."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from counterfoil import __version__
from counterfoil.calibration.pictures import CANDIDATE_PERCENTILES, Picture
from counterfoil.calibration.scores import (
    DECIMALS,
    ObjectGroup,
    ObjectScores,
    ShiftScores,
    shown_groups,
    steps_of,
    thresholds_over,
)
from counterfoil.keep import KEEP_RULES
from counterfoil.recipe.loader import layer_head
from counterfoil.recipe.prompts import BASE
from counterfoil.recipe.strict_yaml import dump_yaml
from counterfoil.report.templates import template_environment

if TYPE_CHECKING:
    from counterfoil.keep import KeepRule
    from counterfoil.recipe import Recipe

TEMPLATE = "calibrate.html.j2"
# Of so many candidates the page holds every score, in some 3 MB; of more it holds counts at the steps of shifts.
MOST_CANDIDATES = 200_000
# Keep rules that the page's counts are by.
_KNOWN = ("thresholds", "visible", "same_image")


def calibration_page(
    recipe: Recipe,
    directory: str,
    scores: Sequence[ShiftScores],
    shown: Sequence[int],
    groups: Sequence[ObjectGroup],
    pictures: Sequence[Picture],
    *,
    exact: bool,
    candidates: int,
    n_shifts: int,
    doubts: Sequence[str] = (),
) -> str:
    """The page as text; equal datasets give equal bytes.

    `shown` are the positions of the shifts with a slider. With `exact` the page holds the scores of all candidates, and
    has sliders of objects too. `candidates` and `n_shifts` tell of what is not shown,
    `doubts` why CLIP may not know the classes, a line each.
    """
    filters = {"spoken": lambda name: name.replace("_", " "), "number": lambda count: f"{count:,}"}
    environment = template_environment(TEMPLATE, filters)
    objects = shown_groups(groups)
    stores: dict[str, list[tuple[int, Picture]]] = {}
    for at, picture in enumerate(pictures):
        stores.setdefault(picture.shift, []).append((at, picture))
    everywhere = len(groups) == 1 and all(_own_threshold(recipe, each.shift.name) is None for each in scores)
    data = {
        "exact": exact,
        "units": [_unit(each) for each in scores],
        "rows": _rows(scores) if exact else None,
        "shifts": [{"unit": unit, **_shift(scores[unit], exact)} for unit in shown],
        "contrasts": [
            {"unit": unit, **_contrast(recipe, scores[unit])}
            for unit in shown
            if exact and scores[unit].contrast is not None
        ],
        "groups": [
            {
                "units": list(group.units),
                "screen": everywhere,
                "values": _values(recipe, group),
                "objects": [_object(one) for one in own.objects],
            }
            for group, own in zip(groups, objects, strict=True)
        ],
        "pictures": [_picture_data(picture, scores) for picture in pictures],
        "head": layer_head(recipe),
    }
    return environment.get_template(TEMPLATE).render(
        name=recipe.name,
        directory=directory,
        shifts=[scores[unit] for unit in shown],
        shown=shown,
        groups=objects,
        names_of={at: [scores[unit].shift.name for unit in group.units] for at, group in enumerate(groups)},
        data=data,
        stores=stores,
        exact=exact,
        kept=recipe.screen.keep_rejected,
        candidates=candidates,
        most_candidates=MOST_CANDIDATES,
        n_shifts=n_shifts,
        n_objects=sum(len(group.objects) for group in groups),
        n_shown_objects=sum(len(group.objects) for group in objects),
        other_rules=sorted({name for shift in recipe.all_shifts() for name in _other_rules(shift.keep)}),
        quotas=sorted({shift.accepted for shift in recipe.all_shifts() if shift.accepted is not None}),
        doubts=doubts,
        version=__version__,
    )


def _unit(each: ShiftScores) -> dict[str, Any]:
    """What the page's script knows of every shift, and of the base: how many candidates, and what they must reach."""
    return {
        "name": each.shift.name,
        "key": _key(each.shift.name),
        "base": each.shift.name == BASE,
        "candidates": each.candidates,
        "scored": int(each.scores.size),
        "threshold": _start_value(each) if each.is_screened else None,
        "contrast": each.least_contrast if each.contrast is not None else None,
    }


def _rows(scores: Sequence[ShiftScores]) -> dict[str, str]:
    """The scores of all candidates, shift after shift, as little-endian arrays in base64."""
    visible = np.concatenate([each.visible for each in scores])
    kept = np.concatenate([each.has_image for each in scores])
    contrast = [np.full(each.scores.size, np.inf) if each.contrast is None else each.contrast for each in scores]
    return {
        "shift": _packed(np.concatenate([each.scores for each in scores]), "<f4"),
        "object": _packed(np.concatenate([each.object_scores for each in scores]), "<f4"),
        "label": _packed(np.concatenate([each.labels for each in scores]), "<u2"),
        "flags": _packed(kept + 2 * visible, "u1"),
        "contrast": _packed(np.concatenate(contrast), "<f4") if any(one.contrast is not None for one in scores) else "",
    }


def _packed(values: np.ndarray, form: str) -> str:
    return base64.b64encode(values.astype(form).tobytes()).decode()


def _shift(shift: ShiftScores, exact: bool) -> dict[str, Any]:
    """A slider of a shift: its steps, and where it starts. Without all scores also what each step accepts."""
    value = shift.threshold
    starts: list[dict[str, Any]] = [] if value is None else [{"text": _start(shift), "value": value}]
    for percentile in CANDIDATE_PERCENTILES:
        at = shift.at_percentile(percentile)
        if at is not None:
            # With the decimals of the slider: what a person would write.
            starts.append({"text": f"percentile {percentile:g}", "value": round(at, DECIMALS)})
    slider: dict[str, Any] = {"starts": starts, "thresholds": thresholds_over(shift.scores)}
    if not exact:
        steps = steps_of(shift.scores, shift.others_pass, shift.has_image)
        slider |= {"atOrAbove": steps.at_or_above, "accepted": steps.accepted, "missing": steps.missing}
        for start in starts:
            start["accepted"] = shift.accepted_at(start["value"])
    return slider


def _object(one: ObjectScores) -> dict[str, Any]:
    return {
        "id": one.cls.id,
        "key": _key(one.cls.id),
        "label": one.cls.label,
        "starts": [{"text": "as it is cut now", "value": one.threshold}],
        "thresholds": thresholds_over(one.scores),
    }


def _values(recipe: Recipe, group: ObjectGroup) -> list[float]:
    """What the object must reach, by label, also of classes without a slider."""
    values = [-1.0] * len(recipe.classes)
    for one in group.objects:
        values[one.cls.label] = one.threshold
    return values


def _contrast(recipe: Recipe, shift: ShiftScores) -> dict[str, Any]:
    """A slider of the least contrast, which becomes a keep rule of the shift; its steps are levels of 255."""
    spec = recipe.prompts.shifts[shift.shift.name]
    steps = recipe.screen.keep if spec.keep is None else spec.keep
    value = shift.least_contrast or 0
    return {
        "starts": [{"text": "as it is cut now", "value": value}],
        "thresholds": list(range(256)),
        "keep": [step.model_dump(mode="json") for step in steps],
    }


def _picture_data(picture: Picture, scores: Sequence[ShiftScores]) -> dict[str, Any]:
    own = scores[picture.unit]
    row = sum(each.scores.size for each in scores[: picture.unit]) + picture.rank
    return {
        "unit": picture.unit,
        "row": row,
        "label": int(own.labels[picture.rank]),
        "shift": picture.score,
        "object": picture.object_score,
        "contrast": picture.contrast,
        "passes": bool(own.others_pass[picture.rank]),
    }


def _start(shift: ShiftScores) -> str:
    spec = shift.shift.threshold
    if spec is not None and spec.percentile is not None:
        return f"the recipe’s percentile {spec.percentile:g}"
    return "as it is cut now"


def _start_value(shift: ShiftScores) -> float:
    """Where the shift stands, also where the page has no slider for it; what has no score is reached by nothing."""
    return 2.0 if shift.threshold is None else shift.threshold


def _own_threshold(recipe: Recipe, shift: str) -> object:
    spec = recipe.prompts.base if shift == BASE else recipe.prompts.shifts[shift]
    return spec.object_threshold


def _other_rules(rules: Sequence[KeepRule]) -> list[str]:
    """Keep rules of a shift whose decisions the page does not know."""
    return [name for name, kind in KEEP_RULES.items() for rule in rules if type(rule) is kind and name not in _KNOWN]


def _key(name: str) -> str:
    """A name as a key of YAML: quoted where it must be."""
    return dump_yaml({name: 0}).partition(": 0")[0]
