"""The report: one HTML file with every table and figure of an evaluation, and no outside resource."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil import __version__
from counterfoil.errors import RunFailure
from counterfoil.evaluation.distances.spoken_distances import WORTH, about_bias, how_measured, spoken_rows
from counterfoil.evaluation.examples import THUMBNAIL, ShiftExamples
from counterfoil.evaluation.figure_style import KINDS, spoken
from counterfoil.evaluation.figures import (
    MOST_BARS,
    MOST_PANELS,
    by_impact,
    impact_figure,
    kind_of_shift,
    line_figure,
    slope_figure,
)
from counterfoil.evaluation.heatmap import MOST_MODELS_TO_CHOOSE, class_rows
from counterfoil.evaluation.results import ClassScore, Evaluation, ModelResult, Score, ShiftResult
from counterfoil.evaluation.spoken_comparison import spoken_group, spoken_p, verdict
from counterfoil.evaluation.spoken_findings import MOST_FINDINGS, spoken_findings
from counterfoil.evaluation.spoken_numbers import between, percent, points
from counterfoil.evaluation.spoken_transfer import RELATION_WORDS, spoken_transfer
from counterfoil.evaluation.statistics import CONFIDENCE, FEWEST_MODELS_FOR_A_SLOPE, REPLICATES, Estimate
from counterfoil.evaluation.transfer_figure import transfer_figure

if TYPE_CHECKING:
    from markupsafe import Markup

TEMPLATE = "report.html.j2"
# A drop of this many points has the full heat colour.
_HOTTEST = 50.0
_MOST_LISTED = 12
# Shifts whose pictures are shown at once; the others unfold.
_OPEN_EXAMPLES = 6


def report_html(evaluation: Evaluation, examples: Sequence[ShiftExamples]) -> str:
    """The page as text; equal evaluations give equal bytes."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_cards_folder()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "points": points,
        "percent": percent,
        "between": between,
        "spoken": spoken,
        "kind": kind_of_shift,
        "breakable": breakable,
        "heat": heat,
        "tint": tint,
        "told": _told,
        "whole": whole,
        "distance_rows": spoken_rows,
        "how_measured": how_measured,
        "about_bias": about_bias,
        "spoken_group": spoken_group,
        "spoken_p": spoken_p,
        "verdict": verdict,
    }
    models = sorted(evaluation.models, key=lambda one: (-one.top1.value, one.name))
    shifts = by_impact(evaluation.shifts)
    transfer = spoken_transfer(evaluation)
    heat_rows, n_classes = class_rows(evaluation, [shift.name for shift in shifts])
    return environment.get_template(TEMPLATE).render(
        evaluation=evaluation,
        models=models,
        shifts=shifts,
        groups=[*([evaluation.base] if evaluation.base else []), *shifts],
        rows=[
            (shift, [_cell(evaluation.score(model.name, shift.name), model) for model in models])
            for shift in (shifts if evaluation.base else ())
        ],
        headlines=_headlines(models, shifts),
        heat_rows=heat_rows,
        heat_classes=n_classes,
        choose_model=1 < len(models) <= MOST_MODELS_TO_CHOOSE,
        by_kind=_by_kind(shifts),
        findings=spoken_findings(evaluation),
        most_findings=MOST_FINDINGS,
        transfer=transfer,
        transfer_figures=[(judge, transfer_figure(judge, number)) for number, judge in enumerate(transfer)],
        relation_words=RELATION_WORDS,
        short_names={model.name: model.short_name for model in models},
        hottest=_HOTTEST,
        open_examples=_OPEN_EXAMPLES,
        pairs_impact=_pairs_impact(evaluation),
        impact=impact_figure(evaluation),
        lines=line_figure(evaluation),
        slopes=slope_figure(evaluation),
        most_bars=MOST_BARS,
        most_panels=MOST_PANELS,
        examples=examples,
        worth=WORTH,
        thumbnail=THUMBNAIL,
        most_listed=_MOST_LISTED,
        kinds=[kind for kind in KINDS if any(kind_of_shift(shift) == kind for shift in shifts)],
        images=sum(group.accepted for group in evaluation.groups),
        classes=max(group.classes + len(group.left_out) for group in evaluation.groups),
        scored=evaluation.base.readable if evaluation.base else sum(group.readable for group in evaluation.groups),
        top_ks=sorted({model.top_k for model in models}),
        confidence=f"{CONFIDENCE:.0%}".replace("%", " %"),
        replicates=f"{REPLICATES:,}",
        fewest=FEWEST_MODELS_FOR_A_SLOPE,
        version=__version__,
    )


def whole(value: float) -> str:
    """A fraction as whole percentage points, for narrow cells."""
    return str(int(100 * value + (0.5 if value >= 0 else -0.5))).replace("-", "−")


def breakable(name: str) -> Markup:
    """A name that a narrow column may break after an underscore, a dot or a slash."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([_./])", r"\1<wbr>", str(escape(name))))


def heat(estimate: Estimate | None) -> str:
    """CSS for a cell: how strongly it is tinted, and which way (a drop, or a gain)."""
    if estimate is None:
        return ""
    return tint(estimate.value)


def tint(value: float) -> str:
    """CSS for a drop (or a gain, below 0): full at `_HOTTEST` points."""
    strength = min(1.0, abs(100 * value) / _HOTTEST)
    return f"--heat:{62 * strength:.0f}%;--tint:var(--{'drop' if value >= 0 else 'gain'})"


def _told(score: ClassScore) -> str:
    """A class under a shift as the sentence shown when the pointer rests on it."""
    counts = f"{score.shift_images} shifted and {score.base_images} base images"
    if score.impact is None:
        return f"{score.name}, {spoken(score.shift)}: left out, {counts}"
    base, shifted = (sum(side) / len(side) for side in (score.base_accuracy, score.accuracy))
    return (
        f"{score.name}, {spoken(score.shift)}: base {percent(base)}, shifted {percent(shifted)}, drop "
        f"{points(score.impact.value)} points ({between(score.impact)}), averaged over models; {counts}"
    )


def _cell(score: Score, model: ModelResult) -> tuple[Score, str]:
    """A score with the sentence shown when the pointer rests on it."""
    if score.drop is None:
        return score, f"{model.name}, {spoken(score.shift)}: no class has enough images"
    sentence = (
        f"{model.name}, {spoken(score.shift)}: base {percent(score.base_accuracy)}, shifted "
        f"{percent(score.accuracy)}, drop {points(score.drop.value)} points ({between(score.drop)}) over "
        f"{score.classes} classes, {score.images} shifted and {score.base_images} base images."
    )
    if score.pairs_drop is not None:
        value, interval = points(score.pairs_drop.value), between(score.pairs_drop)
        sentence += f" Pairs only: {value} points ({interval}), {score.pairs} pairs."
    return score, sentence


def _by_kind(shifts: Sequence[ShiftResult]) -> list[dict[str, Any]]:
    """For each kind of shift: how many are measured, and the plain means and ranges of their impacts and slopes."""
    rows = []
    for kind in KINDS:
        impacts = [one.impact.value for one in shifts if kind_of_shift(one) == kind and one.impact]
        slopes = [one.slope.slope for one in shifts if kind_of_shift(one) == kind and one.slope]
        if impacts:
            rows.append({"kind": kind, "impacts": impacts, "slopes": slopes})
    return rows


def _pairs_impact(evaluation: Evaluation) -> dict[str, float]:
    """The pairs-only drop averaged over models, of the shifts that have one."""
    drops: dict[str, list[float]] = {}
    for score in evaluation.scores:
        if score.pairs_drop is not None:
            drops.setdefault(score.shift, []).append(score.pairs_drop.value)
    return {shift: sum(values) / len(values) for shift, values in drops.items()}


def _headlines(models: Sequence[ModelResult], shifts: Sequence[ShiftResult]) -> list[dict[str, str]]:
    """The few numbers that open the page."""
    accuracies = [model.base_accuracy for model in models if model.base_accuracy is not None]
    found: list[dict[str, Any]] = []
    if accuracies:
        low, high = points(min(accuracies)), points(max(accuracies))
        count = "1 model" if len(models) == 1 else f"{len(models)} models"
        value = f"{high} %" if low == high else f"{low}–{high} %"
        found.append({"label": "accuracy on the base", "value": value, "note": f"{count}, class average"})
    measured = [shift for shift in shifts if shift.impact is not None]
    for label, chosen in (("largest impact", measured[:1]), ("smallest impact", measured[1:][-1:])):
        for shift in chosen:
            assert shift.impact is not None
            value = f"{points(shift.impact.value)} points"
            found.append({"label": label, "value": value, "note": f"{spoken(shift.name)} ({between(shift.impact)})"})
    ranked = sorted(
        (model for model in models if model.average_drop is not None), key=lambda one: one.average_drop or 0.0
    )
    if len(ranked) > 1:
        first, last = ranked[0], ranked[-1]
        note = f"{first.short_name}, against {points(last.average_drop)} for {last.short_name}"
        found.append(
            {
                "label": "smallest average drop",
                "value": f"{points(ranked[0].average_drop)} points",
                "note": note,
            }
        )
    return found


def _cards_folder() -> Path:
    """The folder of templates: in the installed package, or at the root of a checkout."""
    package = Path(str(files("counterfoil")))
    for folder in (package / "_cards", package.parent.parent / "cards"):
        if (folder / TEMPLATE).is_file():
            return folder
    raise RunFailure(f"the template {TEMPLATE} is missing from this installation", "Install counterfoil again.")
