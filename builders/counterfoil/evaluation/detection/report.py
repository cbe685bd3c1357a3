"""The report of an evaluation of detectors: what it shows, and the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from counterfoil import __version__
from counterfoil.detection_stats import MEASURES
from counterfoil.evaluation.detection.measures import BY_CATEGORY, DROP, F1, MPC, RPC
from counterfoil.report.results import GroupFacts, ModelFacts, Results
from counterfoil.report.templates import template_environment
from counterfoil.report.words import between, counted, in_words, percent, points
from counterfoil.stats import Estimate

TEMPLATE = "detection-report.html.j2"
SIZES = ("AP_small", "AP_medium", "AP_large")
_MOST_CATEGORIES = 40
_FEW_IMAGES = 50


@dataclass(frozen=True)
class Bar:
    """A shift's drop as a bar: shares of the chart's width from its left end."""

    name: str
    drop: Estimate
    start: float
    width: float
    low: float | None
    high: float | None


def first_sentences(results: Results) -> list[str]:
    """Return a sentence for each model: under which shift it loses most average precision, and how much."""
    sentences = []
    for model in results.models:
        who = "Your detector" if len(results.models) == 1 else model.short_name
        drops = _drops(results, model)
        if model.near_chance:
            base = results.rows.value("AP", model=model.name, group=results.base or "")
            sentences.append(
                f"{who} finds next to nothing on the base (AP {percent(base or 0.0)}), so drops say nothing."
            )
        elif not drops:
            sentences.append(f"{who} has no drop: the dataset has no shift.")
        else:
            group, drop = drops[0]
            interval = f" ({between(drop)})" if drop.low is not None else ""
            if drop.value <= 0:
                sentences.append(f"{who} loses no AP under any shift.")
            elif drop.low is not None and drop.low <= 0:
                sentences.append(
                    f"{who} may lose most under {in_words(group.name)}: {points(drop.value)} points of AP{interval}."
                    " The interval includes 0."
                )
            else:
                sentences.append(
                    f"{who} loses most under {in_words(group.name)}: {points(drop.value)} points of AP{interval}."
                )
    return sentences


def _drops(results: Results, model: ModelFacts) -> list[tuple[GroupFacts, Estimate]]:
    """Return each shift with its drop of AP, the largest first."""
    drops = [
        (group, drop)
        for group in results.shifts
        if (drop := results.rows.estimate(DROP, model=model.name, group=group.name, at="AP")) is not None
    ]
    return sorted(drops, key=lambda entry: -entry[1].value)


def _bars(drops: Sequence[tuple[GroupFacts, Estimate]]) -> list[Bar]:
    ends = [0.0]
    for _, drop in drops:
        ends += [drop.value, *(end for end in (drop.low, drop.high) if end is not None)]
    least, most = min(ends), max(ends)
    scale = 100 / (most - least) if most > least else 0.0

    def at(value: float) -> float:
        return (value - least) * scale

    return [
        Bar(
            in_words(group.name),
            drop,
            min(at(0.0), at(drop.value)),
            abs(at(drop.value) - at(0.0)),
            None if drop.low is None else at(drop.low),
            None if drop.high is None else at(drop.high),
        )
        for group, drop in drops
    ]


def _categories(results: Results, model: ModelFacts) -> list[dict[str, Any]]:
    """Return the categories that lose most under some shift, the largest loss first."""
    rows = []
    for cls in results.classes:
        base = results.rows.estimate(BY_CATEGORY, model=model.name, group=results.base or "", class_id=cls.id)
        if base is None:
            continue
        drops = [
            (group.name, drop)
            for group in results.shifts
            if (
                drop := results.rows.estimate(DROP, model=model.name, group=group.name, class_id=cls.id, at=BY_CATEGORY)
            )
            is not None
        ]
        worst = max(drops, key=lambda each: each[1].value, default=None)
        rows.append({"name": cls.name, "base": base, "worst": worst})
    return sorted(rows, key=lambda row: -(row["worst"][1].value if row["worst"] else -1.0))


def detection_notes(results: Results) -> Iterator[str]:
    """Yield what must be known of the numbers."""
    for model in results.models:
        if model.matched:
            yield f"{model.short_name}: {model.matched}."
    images = results.groups[0].images
    if images < _FEW_IMAGES:
        yield f"The dataset has only {counted(images, 'image')} in each group: intervals of so few say little."


def detection_report(results: Results, notes: Sequence[str]) -> str:
    """Return the page as text; equal results give equal bytes."""
    filters = {"points": points, "percent": percent, "between": between, "in_words": in_words, "counted": counted}
    environment = template_environment(TEMPLATE, filters)
    drops = {model.name: _drops(results, model) for model in results.models}
    return environment.get_template(TEMPLATE).render(
        results=results,
        sentences=first_sentences(results),
        notes=[*notes, *detection_notes(results)],
        drops=drops,
        bars={name: _bars(shift_drops) for name, shift_drops in drops.items()},
        categories={model.name: _categories(results, model) for model in results.models},
        most_categories=_MOST_CATEGORIES,
        measures=[name for name in (*MEASURES, F1) if name not in SIZES],
        sizes=SIZES,
        titles={measure.name: measure.title for measure in results.measures},
        readings=[(measure.title, measure.reading) for measure in results.measures],
        number=results.rows.estimate,
        mpc=MPC,
        rpc=RPC,
        drop=DROP,
        version=__version__,
    )
