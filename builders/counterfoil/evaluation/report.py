"""The report: one HTML file with every table and figure of an evaluation, and no outside resource."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from counterfoil import __version__
from counterfoil.evaluation.failures import ClassExamples, failures_link, image_link
from counterfoil.evaluation.figures import (
    KINDS,
    LINES,
    MOST_BARS,
    MOST_PANELS,
    impact_figure,
    kind_of_shift,
    line_figure,
    published_figure,
    severity_figure,
    slope_figure,
    transfer_figure,
)
from counterfoil.evaluation.film_strips import FilmStrips
from counterfoil.evaluation.measures import MEASURES, Measure
from counterfoil.evaluation.measures.severity import MOST_COMPARED
from counterfoil.evaluation.statistics import FEWEST_MODELS_FOR_A_SLOPE, REPLICATES
from counterfoil.report.comparison import comparison_table, verdict
from counterfoil.report.distances import WORTH, about_bias, distances_table, how_measured
from counterfoil.report.findings import MOST_FINDINGS, MOST_SENTENCES, by_difference, counted_words, finding_sentences
from counterfoil.report.labels import ALSO_SCORED, LEAST_IMAGES, labels_table, share_words
from counterfoil.report.published import lines_table, models_table, worth
from counterfoil.report.reference import (
    averaged,
    everyone,
    gaps_table,
    matching_sentences,
    near_chance_sentences,
    order_warnings,
    outputs_sentences,
    reference_note,
    reference_warnings,
    size_sentences,
    tie_sentences,
)
from counterfoil.report.results import ClassNumbers, GroupFacts, ModelFacts, Results, classes_of
from counterfoil.report.severity import earliest, level_words, severity_section
from counterfoil.report.templates import template_environment
from counterfoil.report.transfer import MOST_JUDGES, found_words, kept_words, transfer_tables
from counterfoil.report.words import between, counted, in_words, listed, measure_tables, percent, points
from counterfoil.stats import CONFIDENCE, Estimate

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
# Models whose single classes are shown, and classes of each, the least found first; measures.csv holds all.
_MOST_MODELS, _MOST_CLASSES = 8, 30


def report_html(
    results: Results,
    examples: Sequence[tuple[str, Sequence[ClassExamples]]],
    unreadable: Sequence[str] = (),
    strips: Sequence[FilmStrips] = (),
) -> str:
    """The page as text; equal results give equal bytes. unreadable: keys of images that could not be decoded."""
    filters = {
        "points": points,
        "percent": percent,
        "between": between,
        "in_words": in_words,
        "kind": kind_of_shift,
        "breakable": breakable,
        "upright": upright,
        "heat": heat,
        "tint": tint,
        "whole": whole,
        "share_words": share_words,
        "labels_table": labels_table,
        "distances_table": distances_table,
        "how_measured": how_measured,
        "about_bias": about_bias,
        "comparison_table": comparison_table,
        "verdict": verdict,
        "counted_words": counted_words,
        "finding_sentences": finding_sentences,
        "kept_words": kept_words,
        "found_words": found_words,
        "counted": counted,
        "listed": listed,
    }
    environment = template_environment(TEMPLATE, filters)
    number = results.rows.estimate
    models = _best_first(results)
    sound = [model for model in models if not model.near_chance]
    shifts = results.by_impact
    heat_rows, n_classes = class_rows(results, [shift.name for shift in shifts])
    choose_model = 1 < len(models) <= MOST_MODELS_TO_CHOOSE
    figures = {
        name: measure.figure(results)
        for name, measure in MEASURES.items()
        if isinstance(measure, Measure) and measure.figure is not None
    }
    return environment.get_template(TEMPLATE).render(
        evaluation=results,
        number=number,
        value=results.rows.value,
        row=results.rows.one,
        average=results.averaged,
        contents=Contents(),
        models=models,
        near_chance_models=frozenset(model.name for model in models if model.near_chance),
        # The places of the models that averages are over.
        sound=" ".join(str(place) for place, model in enumerate(results.models) if not model.near_chance)
        if choose_model
        else "0",
        shifts=shifts,
        groups=[*([results.base_group] if results.base_group else []), *shifts],
        numbers=len(shifts) * len(models) <= _MOST_NUMBERS,
        warnings=reference_warnings(results),
        order_warnings=order_warnings(results),
        without_reference=without_reference(results),
        gaps=gaps_table(results),
        headlines=headlines(results, models, shifts),
        checked=checked_shifts(results),
        built=any(group.candidates is not None for group in results.groups),
        everyone=everyone(results),
        averaged=averaged(results),
        near_chance_sentences=(
            *matching_sentences(results),
            *size_sentences(results),
            *near_chance_sentences(results),
            *outputs_sentences(results),
            *tie_sentences(results),
        ),
        relative_of={model.name: _relative_of_model(results, model) for model in models},
        failures_link=failures_link,
        image_link=image_link,
        heat_rows=heat_rows,
        heat_classes=n_classes,
        heat_shifts=[{"id": shift.name, "name": in_words(shift.name)} for shift in shifts],
        choose_model=choose_model,
        by_kind=_by_kind(results),
        mistaken=_mistaken(results, models),
        measure_tables=measure_tables(results, "report"),
        measure_figures=figures,
        findings=by_difference(results)[:MOST_FINDINGS],
        most_findings=MOST_FINDINGS,
        most_sentences=MOST_SENTENCES,
        transfer=[
            (judge, transfer_tables(judge, results), transfer_figure(judge, results, place))
            for place, judge in enumerate(results.transfer[:MOST_JUDGES])
        ],
        severity=severity_section(results, models),
        severity_curves=severity_figure(results, sound),
        severity_lines=list(zip(sound, LINES, strict=False)),
        strips=strips,
        most_compared=MOST_COMPARED,
        short_names={model.name: model.short_name for model in models},
        hottest=_HOTTEST,
        open_examples=_OPEN_EXAMPLES,
        impact=impact_figure(results),
        lines=line_figure(results),
        slopes=slope_figure(results),
        published=published_figure(results),
        published_lines=lines_table(results.published) if results.published else None,
        published_models=models_table(results),
        published_worth=worth(results),
        sloped=bool(results.rows.where("slope")),
        most_bars=MOST_BARS,
        most_panels=MOST_PANELS,
        examples=examples,
        unreadable=unreadable,
        distances_worth=WORTH,
        also_scored=ALSO_SCORED,
        least_checked=LEAST_IMAGES,
        most_listed=_MOST_LISTED,
        kinds=[kind for kind in KINDS if any(kind_of_shift(shift) == kind for shift in shifts)],
        images=sum(group.accepted for group in results.groups)
        + sum(level.accepted for one in results.severity for level in one.levels[:-1]),
        classes=max(group.classes + len(group.left_out) for group in results.groups),
        scored=sum(group.readable for group in results.groups[: 1 if results.base is not None else None]),
        top_ks=sorted({model.top_k for model in models}),
        confidence=f"{CONFIDENCE:.0%}".replace("%", " %"),
        replicates=f"{REPLICATES:,}",
        fewest=FEWEST_MODELS_FOR_A_SLOPE,
        version=__version__,
    )


def _best_first(results: Results) -> list[ModelFacts]:
    def value(model: ModelFacts) -> float:
        own = results.base_number(model.name)
        found = own.value if own else results.rows.value("top1", model=model.name, group=results.base or "")
        return found or 0.0

    return sorted(results.models, key=lambda one: (-value(one), one.name))


@dataclass
class Contents:
    """The sections in the order in which their headings were drawn: the id of each and its short title."""

    entries: dict[str, str] = field(default_factory=dict)

    def heading(self, title: str, short: str | None = None) -> Markup:
        """A section's heading; the same title twice is one entry, at its first place."""
        from markupsafe import Markup

        name = re.sub(r"[^a-z]+", "-", title.lower()).strip("-")
        if name in self.entries:
            return Markup("<h2>{}</h2>").format(title)
        self.entries[name] = short or title
        return Markup('<h2 id="{}">{}</h2>').format(name, title)


def checked_shifts(results: Results) -> frozenset[str]:
    """The groups whose labels somebody, or something but the screen, has checked, or that are the source's own."""
    checks = results.label_checks
    if checks is None:
        return frozenset()
    return frozenset(group.name for group in results.groups if checks.own or checks.of(group.name).checked)


def without_reference(results: Results) -> str | None:
    """Why nothing is said of validation images; None where something is."""
    if results.reference is not None and results.rows.where("validation_gap"):
        return None
    if results.reference is None and results.label_checks is not None and results.label_checks.own:
        return "The base is unchanged images of the input dataset, so there is no gap to measure."
    why = reference_note(results) or "Validation → base was not measured."
    return f"{why.rstrip('.')}. So the report cannot say whether the base is like the input dataset."


def headlines(
    results: Results, models: Sequence[ModelFacts], shifts: Sequence[GroupFacts]
) -> list[tuple[str, str, str]]:
    """Label, value and note of each tile. Models near chance are in none, nor are shifts with unchecked labels."""
    found: list[tuple[str, str, str]] = []
    own = [(model, results.base_number(model.name)) for model in models if not model.near_chance]
    values = [found.value for _, found in own if found is not None]
    if values:
        low, high = points(min(values)), points(max(values))
        note = f"{counted(len(values), 'model')}, class average"
        near_chance = [model.short_name for model in models if model.near_chance]
        if near_chance:
            note += f"; without {listed(near_chance, 3)}, near chance"
        found.append(("accuracy on the base", f"{low} %" if low == high else f"{low}–{high} %", note))
    impacts = {shift.name: results.rows.estimate("impact", group=shift.name) for shift in shifts}
    measured = {name: found for name, found in impacts.items() if found is not None}
    checked = checked_shifts(results)
    shown = [name for name in measured if name in checked]
    if measured and not shown:
        name, found_impact = next(iter(measured.items()))
        note = (
            f"{in_words(name)} has the largest, {points(found_impact.value)} points ({between(found_impact)}), but its"
            " labels are unchecked"
        )
        found.append(("impact of the shifts", "unchecked", note))
    for label, chosen in (("largest impact", shown[:1]), ("smallest impact", shown[1:][-1:])):
        for name in chosen:
            note = f"{in_words(name)} ({between(measured[name])})"
            if len(shown) < len(measured):
                note += f"; of {len(shown)} checked shifts, {len(measured) - len(shown)} unchecked"
            found.append((label, f"{points(measured[name].value)} points", note))
    if first := earliest(results, [one for one in results.severity if one.levels[-1].group in checked]):
        severity, model, level = first
        value, interval = level_words(level, severity)
        note = f"{in_words(severity.shift)}, {severity.axis}{f' ({interval})' if interval else ''}"
        found.append(("first to lose ten points", f"{model.short_name} at {value}" if len(models) > 1 else value, note))
    return found


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


def _mistaken(results: Results, models: Sequence[ModelFacts]) -> list[tuple[ModelFacts, list[dict[str, Any]]]]:
    """For the best models, the classes of the first group that they find least, and what these are taken for."""
    rows, names = results.rows, {one.id: one.name for one in results.classes}
    group = results.groups[0].name
    mixed: dict[tuple[str, str], list[tuple[str, float, int]]] = {}
    for one in rows.where("confusion", group=group):
        if one.against != one.class_id:
            mistake = (names.get(one.against, one.against), one.value or 0.0, one.n or 0)
            mixed.setdefault((one.model, one.class_id), []).append(mistake)
    found = []
    for model in models[:_MOST_MODELS]:
        own = sorted(rows.where("recall", model=model.name, group=group), key=lambda one: one.value or 0.0)
        classes = [
            {
                "class_id": one.class_id,
                "name": names[one.class_id],
                "images": one.n or 0,
                "recall": one.estimate,
                "precision": rows.estimate("precision", model=model.name, group=group, class_id=one.class_id),
                "taken_for": sorted(mixed.get((model.name, one.class_id), ()), key=lambda each: -each[2])[:3],
            }
            for one in own[:_MOST_CLASSES]
            if one.estimate is not None
        ]
        if classes:
            found.append((model, classes))
    return found


def _relative_of_model(results: Results, model: ModelFacts) -> float | None:
    found = [one.value for one in results.rows.where("relative_drop", model=model.name) if one.value is not None]
    return sum(found) / len(found) if found else None


def _by_kind(results: Results) -> list[dict[str, Any]]:
    """For each kind of shift: how many are measured, and the plain means and ranges of their impacts and slopes."""

    def of(kind: str, measure: str) -> list[float]:
        own = [results.rows.value(measure, group=one.name) for one in results.by_impact if kind_of_shift(one) == kind]
        return [value for value in own if value is not None]

    found = [{"kind": kind, "impacts": of(kind, "impact"), "slopes": of(kind, "slope")} for kind in KINDS]
    return [one for one in found if one["impacts"]]


MOST_ROWS = 40
# Every cell carries every model's drop for the page's choice of model, which more models would bloat.
MOST_MODELS_TO_CHOOSE = 40


@dataclass(frozen=True)
class ClassCell:
    """A class under a shift: its drop averaged over the sound models, None where it has too few images; in words."""

    numbers: ClassNumbers
    drop: float | None
    words: str


@dataclass(frozen=True)
class ClassRow:
    """A class: its name made unique, its drop averaged over shifts and models, and a cell a shown shift.

    `average` is over the shifts that measure the class, None where none does; `cells` hold None where the
    shift does not ask for the class. `drops` are the averages over shifts for each model, `base` each model's accuracy
    on its base images, with their average. `marks` has a letter a model, 1 where that accuracy is near its chance.
    """

    class_id: str
    name: str
    average: float | None
    drops: tuple[float, ...]
    base: tuple[float, ...]
    average_base: float | None
    marks: str
    near_chance: bool
    cells: tuple[ClassCell | None, ...]


def class_rows(results: Results, shifts: Sequence[str]) -> tuple[list[ClassRow], int]:
    """Return the classes that drop most, worst first and `MOST_ROWS` at most, over `shifts`; and how many there are."""
    by_class: dict[str, dict[str, ClassNumbers]] = {}
    for shift in results.shifts if results.base is not None else ():
        for one in classes_of(results, shift.name):
            by_class.setdefault(one.class_id, {})[one.shift] = one
    rows = []
    for class_id, found in by_class.items():
        measured = [one for one in found.values() if one.impact is not None]
        models = len(measured[0].drops) if measured else 0
        drops = tuple(sum(one.drops[place] for one in measured) / len(measured) for place in range(models))
        first = next(iter(found.values()))
        known = next((one for one in found.values() if one.accuracy), first)
        rows.append(
            ClassRow(
                class_id=class_id,
                name=first.name,
                average=results.mean_of_sound(drops) if models else None,
                drops=drops,
                base=known.base_accuracy,
                average_base=results.mean_of_sound(known.base_accuracy) if known.base_accuracy else None,
                marks="".join("1" if near else "0" for near in known.near_chance),
                near_chance=known.class_near_chance,
                cells=tuple(_cell(results, found[shift]) if shift in found else None for shift in shifts),
            )
        )
    # Classes that no shift measures come last, the others by their drop, equals in the recipe's order.
    rows.sort(key=lambda row: (row.average is None, -(row.average or 0.0)))
    repeated = {name for name, count in Counter(row.name for row in rows).items() if count > 1}
    named = [
        replace(row, name=f"{row.name} ({row.class_id})") if row.name in repeated else row for row in rows[:MOST_ROWS]
    ]
    return named, len(rows)


def _cell(results: Results, one: ClassNumbers) -> ClassCell:
    counts = f"{one.shift_images} shifted and {one.base_images} base images"
    where = f"{one.name}, {in_words(one.shift)}"
    if not one.accuracy:
        return ClassCell(one, None, f"{where}: too few images, {counts}")
    base, shifted, drop = (results.mean_of_sound(side) for side in (one.base_accuracy, one.accuracy, one.drops))
    if drop is None:
        return ClassCell(one, None, f"{where}: every model is near chance; {counts}")
    interval = f" ({between(one.impact)})" if one.impact else ""
    words = averaged(results)
    near = ", near chance on the base" if one.class_near_chance else ""
    return ClassCell(
        one,
        drop,
        f"{where}: base {percent(base)}, shifted {percent(shifted)}, drop {points(drop)} points{interval}"
        f"{f', {words}' if words else ''}{near}; {counts}",
    )
