"""Mined shifts: each model's failure rates, before a classifier's rule selects images: facts,
table, words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from counterfoil.documents import Count, Strict, csv_text
from counterfoil.errors import some_of
from counterfoil.report.sections import MeasureFacts, ReportSection, Shown
from counterfoil.report.words import (
    NOTHING,
    Table,
    TableCell,
    TableColumn,
    csv_interval,
    csv_percent,
    cut_text,
    format_percent,
    format_points,
    in_words,
    with_interval,
)

if TYPE_CHECKING:
    from counterfoil.report.results import ResultRow, Results
    from counterfoil.stats import Estimate

RATE = "failure_rate"
BASE_RATE = "base_failure_rate"
DIFFERENCE = "failure_difference"
MEASURE_FACTS = (
    MeasureFacts(
        RATE,
        "Failure rate",
        "percent",
        "Wrong answers to screened candidates, averaged over classes.",
    ),
    MeasureFacts(
        BASE_RATE,
        "Failure rate on the base",
        "percent",
        "Wrong answers to base images of the same classes.",
    ),
    MeasureFacts(
        DIFFERENCE,
        "Difference of failure rates",
        "points",
        "The failure rate less that on the base.",
    ),
)
# What mining writes beside each failure.
BESIDE = ("easy", "reference", "decoded", "class_name", "random_context")
MOST_FINDINGS = 40
MOST_SENTENCES = 8
_MOST_IN_A_TABLE = 20
_MOST_NAMES = 5
_LONGEST_NAME = 80
_FILE = "findings.csv"


@dataclass(frozen=True, slots=True)
class FindingModel(Strict):
    """A model under a mined shift, or a judge of the build that is not scored here.

    target: whether the finding is this model's. measured_on: images, or the judge's answers
    "recorded" in the build; None if it cannot be measured. The counts are sums over the measured
    classes; base_failures is None for a judge that is not scored here.
    """

    name: str
    target: bool
    measured_on: Literal["images", "recorded"] | None = None
    classes: Count = 0
    failures: Count = 0
    base_failures: Count | None = None


@dataclass(frozen=True, slots=True)
class MinedShiftResult(Strict):
    """A mined shift, measured over every candidate that a classifier's rule could choose from.

    words, role and target are from its recipe.
    """

    shift: str
    words: str | None
    role: str | None
    target: str | None
    class_ids: tuple[str, ...]
    class_names: tuple[str, ...]
    candidates: Count
    screened: Count
    """The candidates that passed the screen."""
    accepted: Count
    judges: tuple[str, ...]
    """The classifiers whose rule then selected."""
    quota: Count | None
    """How many kept images end the drawing of a cell. The last one is then a failure, so rates are
    too high by about one part in `quota`."""
    models: tuple[FindingModel, ...]
    near_chance: tuple[str, ...] = ()
    """Names of its classes near chance on the base, in no rate."""

    @property
    def name(self) -> str:
        """Its words, or else the shift's name, and its role if it was built for comparison."""
        name = self.words or in_words(self.shift)
        if self.role and not name.endswith(in_words(self.role)):
            name += f" ({self.role})"
        return name


def by_difference(results: Results, *, failing: bool = False) -> list[MinedShiftResult]:
    """Return the largest difference first, averaged over models; failing: without shifts built for
    comparison, if there are others."""
    findings: Sequence[MinedShiftResult] = results.findings
    if failing:
        failures = [finding for finding in findings if finding.role not in BESIDE]
        findings = failures or findings
    near = results.near_chance_models

    def rank(finding: MinedShiftResult) -> float:
        every = []
        sound = []
        for row in results.rows.where(DIFFERENCE, group=finding.shift):
            if row.value is not None:
                every.append(row.value)
                if row.model not in near:
                    sound.append(row.value)
        values = sound or every
        return -sum(values) / len(values) if values else math.inf

    return sorted(findings, key=rank)


def failure_rates_table(results: Results, most_models: int) -> Table:
    """Return one row for each finding and one column for each model: both rates, and their
    difference with interval."""
    shown = by_difference(results, failing=True)[:_MOST_IN_A_TABLE]
    columns = {}
    for model in results.models:
        columns[model.name] = TableColumn(model.short_name, note=model.note, named=True)
    # A judge that is not scored here has a column for its recorded answers.
    for finding in shown:
        for model in finding.models:
            columns.setdefault(model.name, TableColumn(model.name, named=True))
    names = list(columns)[:most_models]
    rows = []
    for finding in shown:
        cells = [_cell(results, finding.shift, name) for name in names]
        rows.append((finding.name, *cells))
    table = Table.of(
        "mined shifts: failure rate over all candidates that passed the screen, and on the base (%)",
        (TableColumn("finding", "text"), *(columns[name] for name in names)),
        rows,
    )
    rest = len(results.findings) - len(shown)
    if rest > 0:
        table = replace(table, more=f"and {rest:,} more mined shifts, in {_FILE}")
    return table


def counted_words(finding: MinedShiftResult) -> str:
    """Return words for the numbers of candidates: rendered, screened, and kept by a classifier's
    rule."""
    text = (
        f"{_names(finding.class_names)}: {finding.screened:,} of {finding.candidates:,}"
        " candidates passed the screen"
    )
    if finding.judges:
        judges = " and ".join(cut_text(judge, _LONGEST_NAME) for judge in finding.judges)
        if finding.quota:
            text += f", drawn until {finding.quota:,} per class were kept"
        text += (
            f"; of these, a keep rule kept only failures of {judges}, {finding.accepted:,} images"
        )
    if not finding.near_chance:
        return f"{text}."
    verb = "is" if len(finding.near_chance) == 1 else "are"
    return (
        f"{text}. Left out of every rate: {_names(finding.near_chance)}, which {verb} near"
        " chance on the base."
    )


def finding_sentences(results: Results, finding: MinedShiftResult) -> list[str]:
    """Return a sentence a model, the target first, of `MOST_SENTENCES`; one reason for several
    models once."""
    models = sorted(finding.models, key=lambda model: not model.target)[:MOST_SENTENCES]
    facts = {model.name: model for model in results.models}
    sentences: list[str] = []
    reasons: dict[str, list[str]] = {}
    for model in models:
        known = facts.get(model.name)
        marks = []
        if model.target:
            marks.append("the target")
        if known is not None and known.near_chance:
            marks.append("near chance")
        who = cut_text(known.short_name if known else model.name, _LONGEST_NAME)
        if marks:
            who += f" ({', '.join(marks)})"
        rate, base, difference = _rates(results, finding.shift, model.name)
        note = rate.note if rate else ""
        if rate is None or rate.value is None:
            reasons.setdefault(note, []).append(who)
            continue
        text = f"{who}: {format_percent(rate.value)} wrong ({model.failures:,} of {rate.n:,})"
        if difference is not None and base is not None:
            text += f", {format_percent(base.value)} of the base ({model.base_failures:,} of {base.n:,})"
            text += f"; difference {with_interval(difference)}"
        if note:
            text += f"; {note}"
        sentences.append(f"{text}.")
    for note, names in reasons.items():
        sentences.append(f"{', '.join(names)}: {note}.")
    return sentences


def failure_rates_csv(results: Results) -> str | None:
    """Write one line for each mined shift and model: failure rates averaged over classes, in
    percent; image counts."""
    pairs = [(finding, model) for finding in results.findings for model in finding.models]
    lines = []
    for finding, model in pairs:
        rate, base, difference = _rates(results, finding.shift, model.name)
        measured = model.measured_on is not None
        line = {
            "shift": finding.shift,
            "words": finding.words or "",
            "role": finding.role or "",
            "class_ids": " ".join(finding.class_ids),
            "model": model.name,
            "target": int(model.target),
            "measured_on": model.measured_on or "",
            "candidates": finding.candidates,
            "screened": finding.screened,
            "accepted": finding.accepted,
            "n_classes": model.classes if measured else "",
            "n_images": rate.n if rate and measured else "",
            "failures": model.failures if measured else "",
            "n_base_images": base.n if base and measured else "",
            "base_failures": "" if model.base_failures is None else model.base_failures,
            "rate": csv_percent(rate.value if rate else None),
            "base_rate": csv_percent(base.value if base else None),
            **csv_interval("difference", difference),
            "near_chance": int(model.name in results.near_chance_models),
            "classes_near_chance": ", ".join(finding.near_chance),
            "note": rate.note if rate else "",
        }
        lines.append(line)
    return csv_text(lines) if results.findings else None


def _cell(results: Results, shift: str, model: str) -> TableCell:
    rate, base, difference = _rates(results, shift, model)
    if rate is None or rate.value is None:
        return TableCell(NOTHING)
    if difference is None:
        return TableCell(format_points(rate.value), sort=rate.value)
    of_base = format_points(base.value if base else None)
    return TableCell(
        f"{format_points(rate.value)}, base {of_base}", with_interval(difference), rate.value
    )


def _rates(
    results: Results,
    shift: str,
    model: str,
) -> tuple[ResultRow | None, ResultRow | None, Estimate | None]:
    rows = results.rows
    key = {"model": model, "group": shift}
    rate = rows.one(RATE, **key)
    base = rows.one(BASE_RATE, **key)
    return rate, base, rows.estimate(DIFFERENCE, **key)


def _names(names: Sequence[str]) -> str:
    return some_of([cut_text(name, _LONGEST_NAME) for name in names], _MOST_NAMES)


def _section(results: Results, drawn: Sequence[Any]) -> ReportSection | None:
    if not results.findings:
        return None
    parts = []
    for finding in by_difference(results)[:MOST_FINDINGS]:
        sentences = finding_sentences(results, finding)
        parts.append((finding, counted_words(finding), sentences))
    more = {"findings": parts, "most_sentences": MOST_SENTENCES}
    return ReportSection(title="Findings", template="report-findings.html.j2", more=more)


def _terminal(results: Results, most_models: int) -> list[str | Table]:
    if not results.findings:
        return []
    chosen = (
        "These images were chosen because a classifier failed on them. They do not estimate its"
        " accuracy elsewhere."
    )
    return [failure_rates_table(results, most_models), chosen]


def _public(
    facts: Sequence[MinedShiftResult], called: Callable[[str], str]
) -> tuple[MinedShiftResult, ...]:
    public = []
    for fact in facts:
        models = tuple(replace(model, name=called(model.name)) for model in fact.models)
        public.append(replace(fact, models=models))
    return tuple(public)


SHOWN = Shown(
    "label_checks",
    _section,
    _terminal,
    file=_FILE,
    csv=failure_rates_csv,
    measures=MEASURE_FACTS,
    public=_public,
)
