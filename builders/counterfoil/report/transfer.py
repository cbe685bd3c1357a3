"""Transfer: how often each model is wrong about what a judge got wrong (Wiles 2022, Figure 4):
facts, tables, words.

A row without a group is over all shifts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from counterfoil.documents import Count, Strict, csv_text
from counterfoil.recipe.keep.misclassified import TOP1, TOP3
from counterfoil.report.sections import CardSection, MeasureFacts, ReportSection, Shown
from counterfoil.report.words import (
    Table,
    TableCell,
    TableColumn,
    count_cell,
    csv_interval,
    csv_percent,
    format_count,
    format_list,
    points_cell,
)

if TYPE_CHECKING:
    from counterfoil.report.results import ResultRows, Results

TRANSFER = "transfer"
ON_BASE = "transfer_base"
BESIDE = "transfer_beside"
_FAILS = "How often the model fails, by the failure rule `at`, on"
MEASURE_FACTS = (
    MeasureFacts(
        TRANSFER, "Transfer", "percent", f"{_FAILS} images that the judge `against` got wrong."
    ),
    MeasureFacts(
        ON_BASE,
        "Transfer, base",
        "percent",
        f"{_FAILS} base images of these classes, in the same mixture.",
    ),
    MeasureFacts(
        BESIDE,
        "Transfer, beside",
        "percent",
        f"{_FAILS} images beside the dataset, which `at` names too.",
    ),
)
# The default rule of judges, and the rule of the paper's figure.
RULES = (TOP1, TOP3)

Relation = Literal["judge", "same architecture", "same family", "other"]
JUDGE = "judge"
SAME_ARCHITECTURE = "same architecture"
SAME_FAMILY = "same family"
OTHER = "other"
RELATIONS: tuple[Relation, ...] = (JUDGE, SAME_ARCHITECTURE, SAME_FAMILY, OTHER)
RELATION_WORDS = {
    JUDGE: "the judge itself",
    SAME_ARCHITECTURE: "same architecture, other weights",
    SAME_FAMILY: "same family",
    OTHER: "other family",
}
BY_CONSTRUCTION = "by construction"
MOST_JUDGES = 6
_MOST_SHIFTS = 40
_MOST_BESIDE = 8
_MOST_CARD_MODELS = 20
_FILE = "transfer.csv"


@dataclass(frozen=True, slots=True)
class TransferModel(Strict):
    """A model and its relation to the judge, as far as names and configurations show."""

    name: str
    family: str
    relation: Relation


@dataclass(frozen=True, slots=True)
class TransferShift(Strict):
    """A shift that keeps images that at least `at_least` of its judges get wrong; `images` this
    judge gets wrong.

    failure: the rule that decides what is wrong.
    """

    name: str
    judges: tuple[str, ...]
    at_least: Count
    candidates: Count
    accepted: Count
    images: Count
    failure: str = TOP1


@dataclass(frozen=True, slots=True)
class Transfer(Strict):
    """A judge of the build, and the images that are there because it was wrong."""

    judge: str
    architecture: str
    family: str
    scored: bool
    """Whether it is among the models of this evaluation; else its row is as the build recorded it.
    """
    captions: Count
    """Shifts times classes."""
    images: Count
    shifts: tuple[TransferShift, ...]
    models: tuple[TransferModel, ...]
    """Those that have a row."""
    classes_near_chance: tuple[str, ...] = ()
    """Names of classes near chance on the base, whose images no rate counts."""

    @property
    def by_kinship(self) -> list[TransferModel]:
        """The judge first, then its architecture, its family, and others by family; ties in the
        order of scoring."""
        return sorted(
            self.models, key=lambda model: (RELATIONS.index(model.relation), model.family)
        )


def transfer_tables(transfer: Transfer, results: Results, *, short: bool = True) -> list[Table]:
    """Return wrong answers by model, in percent; then by shift, if several. short: by models' short
    names."""
    if not transfer.images:
        return []
    models = transfer.by_kinship
    rows = results.rows
    names = {model.name: called(model.name, results, short=short) for model in models}
    beside = _beside(transfer, rows)[:_MOST_BESIDE]
    columns = [
        TableColumn("model", "name"),
        TableColumn("family", "name"),
        TableColumn("to the judge", "text"),
        *(f"wrong, {_RULE_WORDS[rule]}" for rule in RULES),
        *(f"base, {_RULE_WORDS[rule]}" for rule in RULES),
        *(TableColumn(f"{name}, top-1", named=True) for name in beside),
    ]
    shown = []
    for model in models:
        key = {"model": model.name, "against": transfer.judge}
        relation = model.relation
        rates = [rows.value(ON_BASE, at=rule, **key) for rule in RULES]
        rates += [rows.value(BESIDE, at=f"{TOP1} {name}", **key) for name in beside]
        cells = (
            TableCell(*names[model.name], sort=model.name),
            model.family,
            TableCell(RELATION_WORDS[relation], sort=RELATIONS.index(relation)),
            *(_rate(transfer, model, rows, rule) for rule in RULES),
            *map(points_cell, rates),
        )
        shown.append(cells)
    caption = f"Wrong answers of each model on what {transfer.judge} got wrong (%)"
    by_model = Table.of(caption, columns, shown)
    tables = [by_model.without_empty()]
    if len(transfer.shifts) > 1:
        head = [
            TableColumn("shift", "shift"),
            "images",
            "captions",
        ]
        rows_of_shifts = []
        for shift in transfer.shifts:
            key = {
                "group": shift.name,
                "against": transfer.judge,
                "at": TOP1,
            }
            numbers = [rows.one(TRANSFER, model=model.name, **key) for model in models]
            known = next(filter(None, numbers), None)
            counts = (0, 0)
            if known is not None:
                counts = (known.n or 0, known.units or 0)
            estimates = [rows.estimate(TRANSFER, model=model.name, **key) for model in models]
            cells = [*map(count_cell, counts), *map(points_cell, estimates)]
            rows_of_shifts.append((shift.name, *cells))
        by_shift = Table.of(
            "Wrong answers under each shift, top-1 (%)",
            (*head, *(TableColumn(label, note=note, named=True) for label, note in names.values())),
            rows_of_shifts,
        )
        tables.append(by_shift.first(_MOST_SHIFTS, "shifts", _FILE))
    return tables


def called(name: str, results: Results, *, short: bool = True) -> tuple[str, str]:
    """Return a model's name in tables and figures, short or not, and a note if it is near
    chance."""
    model = next((facts for facts in results.models if facts.name == name), None)
    if model is None:
        return name, ""  # a judge that is not scored here
    return model.short_name if short else name, model.note


def kept_words(transfer: Transfer) -> str:
    """Return how the images were chosen: by which judges, and how many of them had to be wrong."""
    rules = sorted({(len(shift.judges), shift.at_least) for shift in transfer.shifts})
    failures = sorted({shift.failure for shift in transfer.shifts} - {TOP1})
    by_rule = ""
    if failures:
        by_rule = f", by the failure rule {format_list(failures, last='or')}"
    captions = format_count(transfer.captions, "caption")
    images = f"{format_count(transfer.images, 'image')} of {captions} were kept"
    if rules == [(1, 1)]:
        text = f"{images} because {transfer.judge} gets them wrong{by_rule}."
    else:
        needed = format_list([f"{least} of {judges}" for judges, least in rules], last="or")
        text = (
            f"{images} that {transfer.judge} gets wrong, where {needed} judges had to be"
            f" wrong{by_rule}."
        )
    near = transfer.classes_near_chance
    if near:
        text += f" Not counted: {format_list(near)}, near chance on the base."
    return text


def found_words(transfer: Transfer, results: Results) -> str:
    """Return the range of the other models' top-1 rates, by kinship, without those near chance."""
    near = results.near_chance_models
    parts = []
    for relation in RELATIONS[1:]:
        values = []
        for model in transfer.models:
            if model.relation != relation or model.name in near:
                continue
            key = {"model": model.name, "against": transfer.judge}
            rate = results.rows.value(TRANSFER, at=TOP1, **key)
            if rate is not None:
                values.append(round(100 * rate))
        if values:
            least = min(values)
            most = max(values)
            rates = f"{most} %"
            if least < most:
                rates = f"{least} to {rates}"
            of = "other families"
            if relation == SAME_ARCHITECTURE:
                of = "its architecture"
            elif relation == SAME_FAMILY:
                of = "its family"
            parts.append(f"{rates} ({format_count(len(values), 'model')} of {of})")
    if not parts:
        return ""
    return f"Other models get these wrong: {', '.join(parts)}."


def transfer_csv(results: Results) -> str | None:
    """Write one line for each judge, shift and model. An empty shift means all shifts. Rates are in
    percent."""
    names: dict[str, None] = {}
    for transfer in results.transfer:
        names |= dict.fromkeys(_beside(transfer, results.rows))
    lines: list[dict[str, Any]] = []
    for transfer in results.transfer:
        shifts = [""]
        if len(transfer.shifts) > 1:
            shifts += [shift.name for shift in transfer.shifts]
        for shift in shifts:
            for model in transfer.models:
                key = {"model": model.name, "group": shift, "against": transfer.judge}
                first = results.rows.one(TRANSFER, at=TOP1, **key)
                if first is None:
                    continue
                base = results.rows.one(ON_BASE, at=TOP1, **key)
                line = {
                    "judge": transfer.judge,
                    "shift": shift,
                    "model": model.name,
                    "family": model.family,
                    "relation": model.relation,
                    "by_construction": int(model.relation == JUDGE),
                    "n_captions": first.units,
                    "n_images": first.n,
                    "n_base_images": base.n if base else 0,
                }
                for rule in RULES:
                    result = results.rows.one(TRANSFER, at=rule, **key)
                    value, low, high = csv_interval(
                        "", result.estimate if result else None
                    ).values()
                    line |= {
                        f"failures.{rule}": result.count if result else "",
                        f"rate.{rule}": value,
                        f"rate_low.{rule}": low,
                        f"rate_high.{rule}": high,
                        f"base_rate.{rule}": csv_percent(
                            results.rows.value(ON_BASE, at=rule, **key)
                        ),
                    }
                    for name in names:
                        value = csv_percent(results.rows.value(BESIDE, at=f"{rule} {name}", **key))
                        line[f"beside.{name}.{rule}"] = value
                lines.append(line)
    return csv_text(lines) if results.transfer else None


_RULE_WORDS = {TOP1: "top-1", TOP3: "top-3"}


def _rate(transfer: Transfer, model: TransferModel, rows: ResultRows, rule: str) -> TableCell:
    result = rows.one(TRANSFER, model=model.name, against=transfer.judge, at=rule)
    if result is None:
        return points_cell(None)
    if result.note:
        shown = points_cell(result.value)
        return TableCell(shown.text, result.note, result.value or 0.0)
    return points_cell(result.estimate)


def _beside(transfer: Transfer, rows: ResultRows) -> list[str]:
    beside = rows.where(BESIDE, against=transfer.judge)
    return list(dict.fromkeys(row.at.partition(" ")[2] for row in beside))


def _section(results: Results, drawn: Sequence[Any]) -> ReportSection | None:
    if not results.transfer:
        return None
    parts = []
    for judge in results.transfer[:MOST_JUDGES]:
        words = f"{kept_words(judge)} {found_words(judge, results)}"
        parts.append((judge, words, transfer_tables(judge, results)))
    return ReportSection(
        title="Transfer",
        template="report-transfer.html.j2",
        more={"judges": parts, "relations": RELATION_WORDS},
    )


def _card(results: Results) -> CardSection | None:
    parts = []
    for judge in results.transfer[:MOST_JUDGES]:
        sentences = f"{kept_words(judge)} {found_words(judge, results)}".strip()
        for table in transfer_tables(judge, results, short=False)[:1]:
            first = table.first(_MOST_CARD_MODELS, "models", f"evaluation/{_FILE}")
            parts.append((sentences, first, ""))
    if not parts:
        return None
    return CardSection(place="chosen", template="dataset-card-transfer.md.j2", tables=parts)


def _terminal(results: Results, most_models: int) -> list[str | Table]:
    lines: list[str | Table] = []
    for judge in results.transfer[:MOST_JUDGES]:
        lines += [f"transfer: {kept_words(judge)}", *transfer_tables(judge, results)[:1]]
    means = (
        "These images were chosen because a judge gets them wrong, so its accuracy on them"
        " means nothing."
    )
    return [*lines, means] if lines else []


def _public(facts: Sequence[Transfer], called: Callable[[str], str]) -> tuple[Transfer, ...]:
    def renamed(model: TransferModel) -> TransferModel:
        # A model of unknown architecture is a family named after itself.
        return replace(model, name=called(model.name), family=called(model.family))

    return tuple(replace(fact, models=tuple(map(renamed, fact.models))) for fact in facts)


SHOWN = Shown(
    "findings",
    _section,
    _terminal,
    _card,
    file=_FILE,
    csv=transfer_csv,
    measures=MEASURE_FACTS,
    public=_public,
)
