"""The report: one HTML file with every table and figure of an evaluation, and no outside resource."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from counterfoil import __version__
from counterfoil.evaluation.distances.spoken_distances import WORTH, about_bias, how_measured, spoken_rows
from counterfoil.evaluation.examples import ShiftExamples
from counterfoil.evaluation.failures.failures_page import failures_link, image_link
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
from counterfoil.evaluation.input_sizes import spoken_sizes
from counterfoil.evaluation.judged_labels import ALSO_SCORED
from counterfoil.evaluation.report_contents import Contents
from counterfoil.evaluation.report_opening import checked_shifts, gap_words, headlines, without_reference
from counterfoil.evaluation.results import Evaluation, ModelResult, Score, ShiftResult
from counterfoil.evaluation.spoken_comparison import spoken_group, spoken_p, verdict
from counterfoil.evaluation.spoken_findings import MOST_FINDINGS, spoken_findings
from counterfoil.evaluation.spoken_floor import averaged, everyone, spoken_floor, spoken_ties
from counterfoil.evaluation.spoken_numbers import between, percent, points
from counterfoil.evaluation.spoken_reference import reference_warnings
from counterfoil.evaluation.spoken_transfer import RELATION_WORDS, spoken_transfer
from counterfoil.evaluation.statistics import FEWEST_MODELS_FOR_A_SLOPE
from counterfoil.evaluation.transfer_figure import transfer_figure
from counterfoil.label_checks import LEAST_IMAGES, CheckedShare
from counterfoil.report.templates import template_environment
from counterfoil.stats import CONFIDENCE, REPLICATES, Estimate

if TYPE_CHECKING:
    from markupsafe import Markup

TEMPLATE = "report.html.j2"
# A drop of this many points has the full heat colour.
_HOTTEST = 50.0
_MOST_LISTED = 12
# Shifts whose pictures are shown at once; the others unfold.
_OPEN_EXAMPLES = 6
# Rows of the unfolding table behind the drops; robustness.csv holds more.
_MOST_NUMBERS = 400


def report_html(evaluation: Evaluation, examples: Sequence[ShiftExamples]) -> str:
    """The page as text; equal evaluations give equal bytes."""
    filters = {
        "points": points,
        "percent": percent,
        "between": between,
        "spoken": spoken,
        "kind": kind_of_shift,
        "breakable": breakable,
        "upright": upright,
        "heat": heat,
        "tint": tint,
        "whole": whole,
        "share": _share,
        "kappa": _kappa,
        "gap_words": gap_words,
        "distance_rows": spoken_rows,
        "how_measured": how_measured,
        "about_bias": about_bias,
        "spoken_group": spoken_group,
        "spoken_p": spoken_p,
        "verdict": verdict,
    }
    environment = template_environment(TEMPLATE, filters)
    models = sorted(evaluation.models, key=lambda one: (-(one.base or one.top1).value, one.name))
    shifts = by_impact(evaluation.shifts)
    transfer = spoken_transfer(evaluation)
    heat_rows, n_classes = class_rows(evaluation, [shift.name for shift in shifts])
    rows = [(shift, [_cell(evaluation, model, shift) for model in models]) for shift in shifts if evaluation.base]
    choose_model = 1 < len(models) <= MOST_MODELS_TO_CHOOSE
    return environment.get_template(TEMPLATE).render(
        evaluation=evaluation,
        contents=Contents(),
        models=models,
        near_chance_models=frozenset(model.name for model in models if model.near_chance),
        sound=_sound(evaluation) if choose_model else "0",
        shifts=shifts,
        groups=[*([evaluation.base] if evaluation.base else []), *shifts],
        rows=rows,
        numbers=len(shifts) * len(models) <= _MOST_NUMBERS,
        warnings=reference_warnings(evaluation),
        without_reference=without_reference(evaluation),
        headlines=headlines(evaluation, models, shifts),
        checked=checked_shifts(evaluation),
        everyone=everyone(evaluation),
        averaged=averaged(evaluation),
        floor_sentences=(*spoken_sizes(evaluation), *spoken_floor(evaluation), *spoken_ties(evaluation)),
        relative={shift.name: _relative_of_shift(evaluation, shift) for shift in shifts},
        relative_of={model.name: _relative_of_model(evaluation, model) for model in models},
        failures_link=failures_link,
        image_link=image_link,
        heat_rows=heat_rows,
        heat_classes=n_classes,
        heat_shifts=[{"id": shift.name, "name": spoken(shift.name)} for shift in shifts],
        choose_model=choose_model,
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
        sloped=any(shift.slope for shift in shifts),
        most_bars=MOST_BARS,
        most_panels=MOST_PANELS,
        examples=examples,
        worth=WORTH,
        also_scored=ALSO_SCORED,
        least_checked=LEAST_IMAGES,
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


def upright(name: str, kind: str | None = None) -> Markup:
    """A heading that is read from below, with the dot of its kind."""
    from markupsafe import Markup

    dot = Markup('<span class="dot" style="--kind:var(--kind-{})"></span>').format(kind) if kind else ""
    return Markup('<span class="upright">{}{}</span>').format(dot, name)


@dataclass(frozen=True)
class DropCell:
    """A model under a shift: its score, the address of its failures, and what a screen reader says."""

    score: Score
    near_chance: bool
    link: str
    words: str


def _cell(evaluation: Evaluation, model: ModelResult, shift: ShiftResult) -> DropCell:
    score = evaluation.score(model.name, shift.name)
    words = f"{model.short_name}, {spoken(shift.name)}: "
    words += f"drop {points(score.drop.value)} points; its failures" if score.drop else "not measured"
    return DropCell(score, model.near_chance, failures_link(model.name, shift.name), words)


def _relative_of_shift(evaluation: Evaluation, shift: ShiftResult) -> float | None:
    """The relative drop averaged over the models that are not near chance; None where none has any."""
    scores = [evaluation.score(model.name, shift.name) for model in evaluation.sound_models]
    return _mean([one.relative_drop.value for one in scores if one.relative_drop])


def _relative_of_model(evaluation: Evaluation, model: ModelResult) -> float | None:
    scores = [evaluation.score(model.name, shift.name) for shift in evaluation.shifts]
    return _mean([one.relative_drop.value for one in scores if one.relative_drop])


def _sound(evaluation: Evaluation) -> str:
    """The places of the models that averages are over."""
    return " ".join(str(place) for place, model in enumerate(evaluation.models) if not model.near_chance)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _share(share: CheckedShare) -> str:
    """A share of images in percent with its interval."""
    return f"{points(share.value)} ({points(share.low)} to {points(share.high)})"


def _kappa(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".replace("-", "−")


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
    sound = {model.name for model in evaluation.sound_models}
    for score in evaluation.scores:
        if score.pairs_drop is not None and score.model in sound:
            drops.setdefault(score.shift, []).append(score.pairs_drop.value)
    return {shift: sum(values) / len(values) for shift, values in drops.items()}
