"""The page on which thresholds are chosen by looking: one HTML file, with no outside resource."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from counterfoil import __version__
from counterfoil.calibration.pictures import CANDIDATE_PERCENTILES, STRIP, Picture
from counterfoil.calibration.scores import ShiftScores
from counterfoil.calibration.steps import DECIMALS, steps_of
from counterfoil.card.templates import templates_folder
from counterfoil.recipe.layer import layer_head
from counterfoil.recipe.strict_yaml import dump_yaml

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe

TEMPLATE = "calibrate.html.j2"


def calibration_page(
    recipe: Recipe,
    directory: str,
    shifts: Sequence[ShiftScores],
    pictures: Mapping[str, Sequence[Picture]],
    n_shifts: int,
) -> str:
    """The page as text; equal datasets give equal bytes. `n_shifts` tells of shifts that are not shown."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(templates_folder(TEMPLATE)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"spoken": lambda name: name.replace("_", " "), "number": lambda count: f"{count:,}"}
    return environment.get_template(TEMPLATE).render(
        name=recipe.name,
        directory=directory,
        shifts=shifts,
        data=[shift_data(shift, pictures[shift.shift.name]) for shift in shifts],
        pictures=pictures,
        head=layer_head(recipe),
        n_shifts=n_shifts,
        quotas=sorted({shift.accepted for shift in recipe.all_shifts() if shift.accepted is not None}),
        version=__version__,
    )


def shift_data(shift: ShiftScores, pictures: Sequence[Picture]) -> dict[str, Any]:
    """What the page's script knows of a shift: the steps of its slider, where it starts, and its pictures."""
    steps = steps_of(shift.scores, shift.object_passes, shift.has_image)
    starts = [] if shift.threshold is None else [{"text": _start(shift), "value": shift.threshold}]
    for percentile in CANDIDATE_PERCENTILES:
        value = shift.at_percentile(percentile)
        if value is not None:
            # With the decimals of the slider: what a person would write.
            starts.append({"text": f"percentile {percentile:g}", "value": round(value, DECIMALS)})
    starts = [{**start, "accepted": shift.accepted_at(start["value"])} for start in starts]
    return {
        "name": shift.shift.name,
        "key": dump_yaml({shift.shift.name: 0}).partition(": 0")[0],  # quoted where YAML needs it
        "open": shift.is_open,
        "candidates": shift.candidates,
        "thresholds": steps.thresholds,
        "atOrAbove": steps.at_or_above,
        "accepted": steps.accepted,
        "missing": steps.missing,
        "starts": starts,
        "strip": _strip(pictures),
        "pictures": [{"score": p.score, "passes": p.object_passes} for p in pictures],
    }


def _start(shift: ShiftScores) -> str:
    spec = shift.shift.threshold
    if spec is not None and spec.percentile is not None:
        return f"the recipe’s percentile {spec.percentile:g}"
    return "as it is cut now"


def _strip(pictures: Sequence[Picture]) -> list[int]:
    """Positions of the pictures nearest to fixed percentiles, each once."""
    if not pictures:
        return []
    near = [min(range(len(pictures)), key=lambda at: abs(pictures[at].percentile - p)) for p in STRIP]
    return sorted(set(near))
