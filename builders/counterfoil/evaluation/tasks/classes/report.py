"""The report: one HTML file with every table and figure of an evaluation, and no outside resource."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from counterfoil import __version__
from counterfoil.accuracy_stats import FEWEST_MODELS_FOR_A_SLOPE
from counterfoil.evaluation import figures
from counterfoil.evaluation.failures import failures_link, image_link
from counterfoil.evaluation.shift_report import PageSection
from counterfoil.evaluation.tasks.classes.failures import ClassExamples
from counterfoil.evaluation.tasks.classes.measures import MEASURES, NESTED_MEASURES
from counterfoil.report.headline import headline_of
from counterfoil.report.labels import checked_shifts
from counterfoil.report.reference import averaged, everyone, model_sentences, order_warnings
from counterfoil.report.results import NESTED, ClassNumbers, ModelFacts, Results, classes_of, section_order
from counterfoil.report.sections import ReportSection
from counterfoil.report.templates import template_environment
from counterfoil.report.words import between, counted, in_words, listed, measure_tables, percent, points
from counterfoil.stats import CONFIDENCE, REPLICATES, Estimate

if TYPE_CHECKING:
    from markupsafe import Markup

TEMPLATE = "report.html.j2"
# A drop of this many points has the full heat colour.
_HOTTEST = 50.0
# The classes with the lowest recall are shown, of the best models only; measures.csv has all.
_MOST_MODELS, _MOST_CLASSES = 8, 30
# Values that are the same on every page.
_CONSTANTS = {
    "failures_link": failures_link,
    "image_link": image_link,
    "hottest": _HOTTEST,
    "most_listed": 12,
    "open_examples": 2,  # shifts whose pictures are shown at once; the others unfold
    "most_bars": figures.MOST_BARS,
    "most_panels": figures.MOST_PANELS,
    "confidence": percent(CONFIDENCE, 0),
    "replicates": f"{REPLICATES:,}",
    "fewest": FEWEST_MODELS_FOR_A_SLOPE,
    "version": __version__,
    # What nine of ten readers do not need, under a summary.
    "folded": {
        "figures": "Do better models lose less? Kinds of shifts",
        "shifts": "The shifts: prompts, yield, images, classes",
        "measures": "Confused classes, calibration and other measures",
        "models": "The models: weights, input, how outputs are matched",
        "method": "How each number is computed",
        "published": "Beside published models",
        "distances": "Distances",
    },
}
# Rows of the unfolding table behind the drops; robustness.csv holds more.
_MOST_NUMBERS = 400


def evaluation_html(
    results: Results,
    examples: Sequence[tuple[str, Sequence[ClassExamples]]],
    unreadable: Sequence[str] = (),
    pictures: Mapping[str, Sequence[Any]] | None = None,
    gate: Sequence[PageSection] = (),
) -> str:
    """Return the page as text; equal results give equal bytes.

    examples: for each shown shift, the classes that drop most, with flipped pairs. unreadable: keys of images that
    could not be decoded. pictures: name of a nested measure → what it draws from images. gate: its section, if any.
    """
    models, shifts, base = results.best_first, results.by_impact, results.base_group
    sections: dict[str, ReportSection] = {}
    for name in section_order():
        if name in NESTED:
            drawn = [*NESTED_MEASURES[name].draw(results), *(pictures or {}).get(name, ())]
            if (section := NESTED[name].section(results, drawn)) is not None:
                sections[name] = section
    heat_rows, heat_classes = class_rows(results, [shift.name for shift in shifts])
    relative_of: dict[str, float | None] = {}
    for model in models:
        drops = [row.value for row in results.rows.where("relative_drop", model=model.name) if row.value is not None]
        relative_of[model.name] = sum(drops) / len(drops) if drops else None
    # Of a shift with levels, only the highest is a group.
    milder = [level for severity in results.severity for level in severity.levels[:-1]]
    choose_model = 1 < len(models) <= MOST_MODELS_TO_CHOOSE
    sound = [str(index) for index, model in enumerate(results.models) if not model.near_chance]
    environment = template_environment(TEMPLATE, _FILTERS)
    return environment.get_template(TEMPLATE).render(
        _CONSTANTS,
        evaluation=results,
        models=models,
        shifts=shifts,
        groups=[*([base] if base else []), *shifts],
        order=[name for name in section_order() if name in sections or name not in NESTED],
        sections=sections,
        tables=[shown.file for shown in NESTED.values() if shown.csv(results) is not None],
        headlines=[
            *headlines(results, models),
            *(section.tile for section in sections.values() if section.tile),
        ],
        checked=checked_shifts(results),
        headline=headline_of(results),
        order_warnings=order_warnings(results),
        model_sentences=list(model_sentences(results)),
        near_chance_models=results.near_chance_models,
        unreadable=unreadable,
        everyone=everyone(results),
        averaged=averaged(results),
        short_names=results.short_names,
        relative_of=relative_of,
        built=any(group.candidates is not None for group in results.groups),
        images=sum(group.accepted for group in (*results.groups, *milder)),
        classes=max(group.classes + len(group.left_out) for group in results.groups),
        scored=sum(group.readable for group in ([base] if base else results.groups)),
        top_ks=sorted({model.top_k for model in models}),
        kinds=[kind for kind in figures.KINDS if any(figures.kind_of_shift(shift) == kind for shift in shifts)],
        numbers=len(shifts) * len(models) <= _MOST_NUMBERS,
        choose_model=choose_model,
        sound=" ".join(sound) if choose_model else "0",
        heat_rows=heat_rows,
        heat_classes=heat_classes,
        heat_shifts=[{"id": shift.name, "name": in_words(shift.name)} for shift in shifts],
        by_kind=_by_kind(results),
        mistaken=_mistaken(results, models),
        measure_tables=measure_tables(results, "report"),
        measure_figures={name: measure.figure(results) for name, measure in MEASURES.items() if measure.figure},
        impact=figures.impact_figure(results),
        lines=figures.line_figure(results),
        slopes=figures.slope_figure(results),
        sloped=bool(results.rows.where("slope")),
        examples=examples,
        gate=gate,
        contents=Contents(),
        number=results.rows.estimate,
        value=results.rows.value,
        row=results.rows.one,
        sides=results.drop_sides,
        average=results.averaged,
    )


def slug(title: str) -> str:
    return re.sub(r"[^a-z]+", "-", title.lower()).strip("-")


@dataclass
class Contents:
    """The sections in the order in which their headings were drawn: the id of each and its short title."""

    entries: dict[str, str] = field(default_factory=dict)

    def heading(self, title: str, short: str | None = None) -> Markup:
        """Return a section's heading; the same title twice is one entry, at its first place."""
        from markupsafe import Markup

        name = slug(title)
        if name in self.entries:
            return Markup("<h2>{}</h2>").format(title)
        self.entries[name] = short or title
        return Markup('<h2 id="{}">{}</h2>').format(name, title)


def headlines(results: Results, models: Sequence[ModelFacts]) -> list[tuple[str, str, str]]:
    """Return label, value and note of the tile of all models' accuracies on the base; none without a base."""
    tiles: list[tuple[str, str, str]] = []
    bases = [base for model in models if (base := results.base_number(model.name)) is not None]
    if bases and (group := results.base_group) is not None:
        values = [base.value for base in bases]
        low, high = points(min(values)), points(max(values))
        who = counted(len(values), "model") if len(values) > 1 else between(bases[0])
        note = f"{who}, average over {counted(group.classes, 'class', 'classes')}"
        near_chance = [model.short_name for model in models if model.near_chance]
        if near_chance:
            note += f"; {listed(near_chance, 3)}, near chance"
        tiles.append(("accuracy on the base", f"{low} %" if low == high else f"{low}–{high} %", note))
    return tiles


def whole(value: float) -> str:
    """Return a fraction as whole percentage points, for narrow cells."""
    return str(int(100 * value + (0.5 if value >= 0 else -0.5))).replace("-", "−")


def breakable(name: str) -> Markup:
    """Return a name that a narrow column may break after an underscore, a dot or a slash."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([_./])", r"\1<wbr>", str(escape(name))))


def heat(estimate: Estimate | None) -> str:
    return "" if estimate is None else tint(estimate.value)


def tint(value: float) -> str:
    """Return the CSS tint of a drop, or of a gain if it is below 0. The colour is full at `_HOTTEST` points."""
    strength = min(1.0, abs(100 * value) / _HOTTEST)
    return f"--heat:{62 * strength:.0f}%;--tint:var(--{'drop' if value >= 0 else 'gain'})"


def upright_heading(name: str, kind: str | None = None) -> Markup:
    """Return a heading that is read from below, with the dot of its kind."""
    from markupsafe import Markup

    dot = Markup('<span class="dot" style="--kind:var(--kind-{})"></span>').format(kind) if kind else ""
    return Markup('<span class="upright">{}{}</span>').format(dot, name)


def _mistaken(results: Results, models: Sequence[ModelFacts]) -> list[tuple[ModelFacts, list[dict[str, Any]]]]:
    """Return, for the best models, the classes of the first group that they find least.

    taken_for: the other classes with which the models confuse a class most often: name, share and images.
    """
    rows, names = results.rows, {cls.id: cls.name for cls in results.classes}
    group = results.groups[0].name
    mixed: dict[tuple[str, str], list[tuple[str, float, int]]] = {}
    for confusion in rows.where("confusion", group=group):
        if confusion.against != confusion.class_id:
            mistake = (names.get(confusion.against, confusion.against), confusion.value or 0.0, confusion.n or 0)
            mixed.setdefault((confusion.model, confusion.class_id), []).append(mistake)
    mistaken = []
    for model in models[:_MOST_MODELS]:
        recalls = sorted(rows.where("recall", model=model.name, group=group), key=lambda recall: recall.value or 0.0)
        classes = []
        for recall in recalls[:_MOST_CLASSES]:
            key = {"model": model.name, "group": group, "class_id": recall.class_id}
            mistakes = mixed.get((model.name, recall.class_id), [])
            classes.append(
                {
                    "class_id": recall.class_id,
                    "name": names[recall.class_id],
                    "images": recall.n or 0,
                    "recall": recall.estimate,
                    "precision": rows.estimate("precision", **key),
                    "taken_for": sorted(mistakes, key=lambda mistake: -mistake[2])[:3],
                }
            )
        if classes:
            mistaken.append((model, classes))
    return mistaken


def _by_kind(results: Results) -> list[dict[str, Any]]:
    """Return, for each kind of shift, the impacts and slopes of its shifts."""
    kinds = []
    for kind in figures.KINDS:
        names = [shift.name for shift in results.by_impact if figures.kind_of_shift(shift) == kind]
        impacts, slopes = (
            [value for name in names if (value := results.rows.value(measure, group=name)) is not None]
            for measure in ("impact", "slope")
        )
        if impacts:
            kinds.append({"kind": kind, "impacts": impacts, "slopes": slopes})
    return kinds


MOST_ROWS = 40
# The page lets a reader choose a model, so every cell carries every model's drop.
MOST_MODELS_TO_CHOOSE = 40


@dataclass(frozen=True)
class ClassCell:
    """A class under a shift: its drop averaged over the sound models, None if it has too few images; in words."""

    numbers: ClassNumbers
    drop: float | None
    words: str


@dataclass(frozen=True)
class ClassRow:
    """A class: its unique name, its drop averaged over shifts and models, and one cell for each shown shift.

    average: the drop over the shifts that measure the class. cells: a cell is None if the shift does not ask for the
    class. drops: each model's average over shifts. base: each model's accuracy on the base images of the class, with
    the average over models. marks: one character for each model, 1 if its accuracy is near its chance.
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
        for numbers in classes_of(results, shift.name):
            by_class.setdefault(numbers.class_id, {})[numbers.shift] = numbers
    rows = []
    for class_id, by_shift in by_class.items():
        measured = [numbers for numbers in by_shift.values() if numbers.impact is not None]
        models = len(measured[0].drops) if measured else 0
        drops = tuple(sum(numbers.drops[index] for numbers in measured) / len(measured) for index in range(models))
        first = next(iter(by_shift.values()))
        known = next((numbers for numbers in by_shift.values() if numbers.accuracy), first)
        rows.append(
            ClassRow(
                class_id=class_id,
                name=first.name,
                average=results.mean_of_sound(drops) if models else None,
                drops=drops,
                base=known.base_accuracy,
                average_base=results.mean_accuracy(known.base_accuracy) if known.base_accuracy else None,
                marks="".join("1" if near else "0" for near in known.near_chance),
                near_chance=known.class_near_chance,
                cells=tuple(_cell(results, by_shift[shift]) if shift in by_shift else None for shift in shifts),
            )
        )
    # Sort by drop, ties in the recipe's order; classes that no shift measures come last.
    rows.sort(key=lambda row: (row.average is None, -(row.average or 0.0)))
    repeated = {name for name, count in Counter(row.name for row in rows).items() if count > 1}
    named = [
        replace(row, name=f"{row.name} ({row.class_id})") if row.name in repeated else row for row in rows[:MOST_ROWS]
    ]
    return named, len(rows)


def _cell(results: Results, class_numbers: ClassNumbers) -> ClassCell:
    counts = f"{class_numbers.shift_images} shifted and {class_numbers.base_images} base images"
    where = f"{class_numbers.name}, {in_words(class_numbers.shift)}"
    if not class_numbers.accuracy:
        return ClassCell(class_numbers, None, f"{where}: too few images, {counts}")
    base, shifted = map(results.mean_accuracy, (class_numbers.base_accuracy, class_numbers.accuracy))
    drop = results.mean_of_sound(class_numbers.drops)
    if drop is None:
        accuracies = f"base {percent(base)}, shifted {percent(shifted)}"
        return ClassCell(class_numbers, None, f"{where}: every model is near chance; {accuracies}; {counts}")
    interval = f" ({between(class_numbers.impact)})" if class_numbers.impact else ""
    words = averaged(results)
    near = ", near chance on the base" if class_numbers.class_near_chance else ""
    return ClassCell(
        class_numbers,
        drop,
        f"{where}: base {percent(base)}, shifted {percent(shifted)}, drop {points(drop)} points{interval}"
        f"{f', {words}' if words else ''}{near}; {counts}",
    )


_FILTERS = {
    "points": points,
    "percent": percent,
    "between": between,
    "in_words": in_words,
    "kind": figures.kind_of_shift,
    "breakable": breakable,
    "upright": upright_heading,
    "heat": heat,
    "tint": tint,
    "whole": whole,
    "counted": counted,
    "listed": listed,
    "slug": slug,
}
