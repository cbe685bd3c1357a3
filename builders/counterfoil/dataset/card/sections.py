"""Compute what the card's sections show: failures that chose images, mined shifts, labels,
robustness, hashes.

The statements are what must be said of synthetic, screened images, on the card and in Croissant:
origin, use, biases, limits, risks. They are in `cards/statements.txt.j2`, those of one kind of
generator in `cards/kind-NAME.txt.j2`. Each follows from the recipe and the pins of lock.json.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from counterfoil.corrupting.corruptions import MATCH
from counterfoil.dataset.card.contact_sheets import Tally
from counterfoil.dataset.card.markdown import code
from counterfoil.dataset.card.tables import InputRow
from counterfoil.dataset.label_checks import checks_of_dataset
from counterfoil.generate.screen.doubts import ScreenDoubts, screen_doubts
from counterfoil.generate.screen.thresholds import Thresholds
from counterfoil.recipe import Recipe
from counterfoil.recipe.keep.cells import ACCEPTED, before_judges
from counterfoil.recipe.keep.misclassified import TOP1, MisclassifiedRule
from counterfoil.recipe.layering import without_folders
from counterfoil.recipe.schema_mine import MinedFacts, mined_facts
from counterfoil.recipe.tasks.task import WholeImages
from counterfoil.report.headline import by_loss, headline_of
from counterfoil.report.labels import LabelChecks, labels_table, share_words, worst_classes
from counterfoil.report.reference import (
    VALIDATION,
    VALIDATION_GAP,
    answer_warnings,
    near_chance_sentences,
    outputs_sentences,
)
from counterfoil.report.results import DROP_BASE, GroupFacts, ModelFacts, Results
from counterfoil.report.templates import template_environment
from counterfoil.report.words import (
    NOTHING,
    Table,
    TableCell,
    TableColumn,
    format_count,
    format_interval,
    format_number,
    format_percent,
    format_points,
)
from counterfoil.stats import Estimate, wilson_interval
from counterfoil.store.layout import LOCK
from counterfoil.store.messages import failure
from counterfoil.store.receipts import Receipt, counts_of
from counterfoil.store.rows import unique_names

MINED = "mined"
# The roles of failures; others are built beside them: what is easy, and the class as such.
FAILING = ("hard", "far_from")
_STATEMENTS = "statements.txt.j2"
# What the three hashes of lock.json are over.
_OVER = {
    "plan": "what is rendered: classes, prompts, seed, samples, generator, format and layout",
    "screen": "what is kept: captions, CLIP model, thresholds, keep rule",
    "inputs": "the content of the inputs: commits and hashes of models, input dataset, tokens,"
    " thresholds",
}


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """A shift that keeps what judges get wrong, with its numbers of candidates."""

    name: str
    judges: tuple[str, ...]
    at_least: int
    """The number of judges that must be wrong."""
    drawn: int
    screened: int
    """The number that the rules before the judges let pass."""
    wrong: int
    """The number of these that judges get wrong."""
    kept: int


@dataclass(frozen=True, slots=True)
class AdversarialImages:
    """Images that were chosen because classifiers were wrong about them."""

    rows: Sequence[JudgedRow]
    """The first of `all_shifts` such shifts."""
    all_shifts: int
    others: int
    """The number of other shifts."""
    judges: Sequence[str]
    needed: Sequence[tuple[int, int]]
    """The number of a rule's judges, and how many must be wrong, each pair once."""
    failures: Sequence[str]
    """The failure rules; empty if only the first answer counts."""
    drawn: int
    """The sum over all rows."""
    kept: int
    """The sum over all rows."""


def adversarial_of(
    recipe: Recipe,
    receipts: Sequence[Receipt],
    most_rows: int,
) -> AdversarialImages | None:
    """Return how classifiers' failures chose images; None if no keep rule asks a classifier."""
    counts = counts_of(receipts)
    rows = []
    judges = {}
    needed: set[tuple[int, int]] = set()
    failures = set()
    for shift in recipe.all_shifts():
        for rule in shift.keep:
            if not isinstance(rule, MisclassifiedRule):
                continue
            reasons = counts.get(shift.name, {})
            screened = 0
            right = 0
            for reason, count in reasons.items():
                if before_judges(shift.keep, reason):
                    screened += count
                if reason in rule.reasons:
                    right += count
            row = JudgedRow(
                name=shift.name,
                judges=tuple(map(without_folders, rule.models)),
                at_least=rule.at_least,
                drawn=sum(reasons.values()),
                screened=screened,
                wrong=screened - right,
                kept=reasons.get(ACCEPTED, 0),
            )
            rows.append(row)
            judges |= dict.fromkeys(row.judges)
            needed.add((len(row.judges), row.at_least))
            failures.add(rule.failure)
    if not rows:
        return None
    if failures == {TOP1}:
        failures = set()
    return AdversarialImages(
        rows=rows[:most_rows],
        all_shifts=len(rows),
        others=len(recipe.all_shifts()) - 1 - len(rows),
        judges=list(judges),
        needed=sorted(needed),
        failures=sorted(failures),
        drawn=sum(row.drawn for row in rows),
        kept=sum(row.kept for row in rows),
    )


def asked_texts(recipe: Recipe) -> list[tuple[str, str]]:
    """Return each model that keep rules ask about images, and what they ask it, each pair once."""
    pairs: dict[tuple[str, str], None] = {}
    for rule in recipe.asking_rules:
        for key in rule.texts:
            text = getattr(rule, key)
            if text is not None:
                pairs[without_folders(rule.model), text] = None
    return list(pairs)


@dataclass(frozen=True, slots=True)
class MinedShifts:
    """Shifts that were chosen because a classifier failed there."""

    rows: Sequence[tuple[str, MinedFacts]]
    """The name and the `mined_from` of the first of `all_shifts`."""
    all_shifts: int
    others: int
    """The number of other shifts."""
    targets: Sequence[str]
    """The classifiers that failed."""
    judges: Sequence[str]
    """The classifiers that keep rules ask."""
    compared: bool
    """Some shifts have another role than that of failures."""
    pairs: bool
    """Some were tested in pairs of the same noise."""
    rows_tested: bool
    """Others were tested against the rest of their class."""


def mined_of(recipe: Recipe, most_rows: int) -> MinedShifts | None:
    shifts = [shift for shift in recipe.all_shifts() if shift.kind == MINED]
    if not shifts:
        return None
    rows = []
    targets = {}
    judges = {}
    compared = pairs = rows_tested = False
    for shift in shifts:
        facts = mined_facts(recipe.prompts.shifts[shift.of].mined_from)
        rows.append((shift.name, facts))
        if facts.target:
            targets[facts.target] = None
        for rule in shift.keep:
            judges |= dict.fromkeys(map(without_folders, rule.judges()))
        compared |= facts.role not in (None, *FAILING)
        if facts.tested_on == "pairs":
            pairs = True
        elif facts.rest_rate is not None:
            rows_tested = True
    return MinedShifts(
        rows=rows[:most_rows],
        all_shifts=len(shifts),
        others=len(recipe.all_shifts()) - 1 - len(shifts),
        targets=list(targets),
        judges=list(judges),
        compared=compared,
        pairs=pairs,
        rows_tested=rows_tested,
    )


def judged_labels(
    recipe: Recipe,
    inputs: Mapping[str, Any],
    tally: Tally,
    most_rows: int,
) -> tuple[LabelChecks, Table, bool]:
    """Return the second judge's checks, their table, and whether a keep rule chose by its failures.
    RunFailure for odd pins.
    """
    try:
        checks = checks_of_dataset(recipe, inputs, tally.judged)
    except ValueError as error:
        raise failure("not-as-pinned.answers", LOCK, error) from error
    class_names = {}
    for cls, unique in zip(recipe.classes, unique_names(recipe.classes), strict=True):
        class_names[cls.id] = unique
    checked = [shift.shift for shift in checks.shifts]
    table = labels_table(checks, checked, people=False)
    rows = []
    for row, shift in zip(table.rows, checks.shifts, strict=True):
        worst = []
        for name, judged in worst_classes(shift, 3):
            doubt = f"{judged.disagreed} of {judged.images} labels doubted"
            if judged.label_error is not None:
                doubt = f"{share_words(judged.label_error)}, of {judged.images}"
            worst.append(f"{class_names[name]} {doubt}")
        cell = TableCell("; ".join(worst) or NOTHING)
        rows.append(replace(row, cells=(*row.cells, cell)))
    columns = (*table.columns, TableColumn("classes doubted most", "text"))
    table = replace(table, columns=columns, rows=tuple(rows))
    rules = [rule for shift in recipe.all_shifts() for rule in shift.keep]
    picked = any(recipe.screen.judge in rule.judges() for rule in rules)
    return checks, table.first(most_rows, "shifts", "the columns of the rows"), picked


@dataclass(frozen=True, slots=True)
class ZeroShotAnswers:
    """CLIP's zero-shot answers to `n` validation images, among `captions` captions."""

    caption: str
    """The template of the captions."""
    captions: int
    n: int
    chance: float
    """The accuracy of a guess, as a fraction."""
    accuracy: float
    low: float
    high: float
    """The ends of the accuracy's 95 % confidence interval."""


def known_of(
    recipe: Recipe,
    stored: Thresholds,
) -> tuple[ZeroShotAnswers | None, ScreenDoubts | None]:
    """Return how well CLIP knows the classes, and the doubts about the screen."""
    thresholds = stored.with_known(stored.known, recipe)
    known = thresholds.known
    doubts = screen_doubts(recipe, thresholds)
    if known is None:
        return None, doubts
    answers = ZeroShotAnswers(
        known.caption,
        known.captions,
        known.n,
        known.chance,
        known.right / known.n,
        *wilson_interval(known.right, known.n),
    )
    return answers, doubts


# What a person reads; evaluation/ has all of it. The first table, the only one that is not folded,
# is the shortest.
MOST_SUMMARISED = 10
MOST_LARGEST = 2
MOST_MODELS = 20
MOST_COLUMNS = 6
MOST_SHIFTS = 40


@dataclass(frozen=True, slots=True)
class Robustness:
    summary: Table
    models: Table
    shifts: Table
    sentences: tuple[str, ...]


def robustness_of(results: Results) -> Robustness:
    """Make the section: the best models and the largest drops first; what was not measured comes
    last."""
    models = results.best_first
    columns = [
        TableColumn("model", "name"),
        "validation",
        "gap to base",
        "accuracy on base",
        "mean drop",
        TableColumn("weights (sha256)", "name"),
    ]
    rows = []
    for model in models:
        validation = results.rows.estimate(VALIDATION, model=model.name)
        gap = results.rows.estimate(VALIDATION_GAP, model=model.name)
        base = results.base_number(model.name)
        drop = results.rows.value("average_drop", model=model.name)
        mean_drop = NOTHING
        if drop is not None:
            mean_drop = f"{format_points(drop)} points"
        cells = (
            _model_cell(model),
            format_percent(validation.value if validation else None),
            _cell(gap, " points"),
            _cell(base, " %"),
            mean_drop,
            model.sha256[:12],
        )
        rows.append(cells)
    shown = models[:MOST_COLUMNS]
    heads = [TableColumn(model.name, note=model.note, named=True) for model in shown]
    shift_columns = [
        TableColumn("shift", "name"),
        "all models",
        "relative drop",
        "slope",
        "classes",
        *heads,
    ]
    shift_rows = [_shift_row(results, shift, shown) for shift in results.by_impact]
    by_shift = Table.of("Drops in accuracy from the base", shift_columns, shift_rows)
    by_shift = by_shift.without_empty().first(MOST_SHIFTS, "shifts", "robustness.csv")
    if len(models) > MOST_COLUMNS:
        more = f"and {len(models) - MOST_COLUMNS:,} more models, in robustness.csv"
        if by_shift.more:
            more = f"{by_shift.more}; {more}"
        by_shift = replace(by_shift, more=more)
    table = Table.of("Models", columns, rows).without_empty()
    table = table.first(MOST_MODELS, "models", "results.csv")
    headline = headline_of(results)
    sentences = [headline] if headline else []
    sentences += answer_warnings(results, short=False)
    sentences += near_chance_sentences(results, short=False)
    sentences += outputs_sentences(results)
    return Robustness(_summary(results, models), table, by_shift, tuple(sentences))


def _summary(results: Results, models: Sequence[ModelFacts]) -> Table:
    """Return a row per model: its accuracy on the base, its mean drop, and its largest drops, each
    with its shift."""
    columns = [
        TableColumn("model", "name"),
        "accuracy on base",
        "mean drop",
        "loses most under",
        "next most",
    ]
    rows = []
    for model in models:
        accuracy = _cell(results.base_number(model.name), " %")
        mean = results.rows.value("average_drop", model=model.name)
        drops = _largest_drops(results, model)
        rows.append((_model_cell(model), accuracy, format_points(mean), *drops))
    table = Table.of("Models", columns, rows).without_empty()
    return table.first(MOST_SUMMARISED, "models", "results.csv")


def _shift_row(
    results: Results,
    shift: GroupFacts,
    models: Sequence[ModelFacts],
) -> tuple[TableCell | str, ...]:
    line = results.rows.one("slope", group=shift.name)
    left_out = len(shift.left_out)
    slope: TableCell | str = NOTHING
    if line is not None and line.value is not None:
        ends = ""
        if line.low is not None:
            ends = f"{format_number(line.low)} to {format_number(line.high)}"
        slope = TableCell(format_number(line.value), ends)
    classes = f"{shift.classes:,}"
    if left_out:
        classes += f" of {shift.classes + left_out:,}"
    drops = []
    for model in models:
        key = {"model": model.name, "group": shift.name}
        drop = results.rows.estimate("drop", **key)
        base = results.rows.value(DROP_BASE, **key)
        if base is None:
            drop = None
        # A drop in points, beside the base accuracy that it is from.
        drops.append(_cell(drop, f" points of {format_percent(base)}"))
    impact = results.rows.estimate("impact", group=shift.name)
    relative_drop = results.averaged("relative_drop", group=shift.name)
    return (
        shift.name,
        _cell(impact, " points"),
        format_percent(relative_drop),
        slope,
        classes,
        *drops,
    )


def _cell(estimate: Estimate | None, unit: str) -> TableCell:
    if estimate is None:
        return TableCell(NOTHING)
    return TableCell(f"{format_points(estimate.value)}{unit}", format_interval(estimate))


@dataclass(frozen=True, slots=True)
class LeadDrops:
    """The lead measure of detectors or of classifiers of several labels, and its drops, for their
    section of the card."""

    summary: Table
    """A row for each model."""
    shifts: Table
    """A row for each shift."""
    warnings: tuple[str, ...]
    """Sentences on models near chance, and on those whose answers seem to be in another order."""
    reading: str
    """A sentence on what the measure is."""
    file: str
    """The file with all rows."""


def lead_drops_of(results: Results, task: WholeImages) -> LeadDrops:
    """Make the section: the best models and the largest drops first."""
    models = results.best_first
    lead = results.lead
    noun = task.noun
    heads = (f"base {lead}", *task.means.values(), "loses most under", "next most")
    rows = []
    for model in models:
        cells = [_cell(results.base_number(model.name), " %")]
        for mean in task.means:
            number = results.rows.estimate(mean, model=model.name, at=lead)
            cells.append(_cell(number, " %"))
        rows.append((_model_cell(model), *cells, *_largest_drops(results, model)))
    columns = (TableColumn(noun, "name"), *heads)
    summary = Table.of(f"{noun.capitalize()}s", columns, rows)
    shown = models[:MOST_COLUMNS]
    shifts = []
    for shift in results.shifts:
        cells = []
        first_drop = None
        for model in shown:
            drop = results.rows.one("drop", model=model.name, group=shift.name, at=lead)
            if model is shown[0] and drop is not None:
                first_drop = drop.value
            unit = " points"
            if drop is not None and drop.note:
                # Over some of the labels: beside the number that it is from, and how many these
                # are.
                base = results.rows.value(DROP_BASE, model=drop.model, group=drop.group, at=drop.at)
                unit = f" points of {format_percent(base)} {drop.note}"
            cells.append(_cell(None if drop is None else drop.estimate, unit))
        shifts.append((first_drop or 0.0, (shift.name, *cells)))
    shifts.sort(key=lambda entry: -entry[0])
    columns = [TableColumn("shift", "name")]
    columns += [TableColumn(model.name, named=True) for model in shown]
    rows = [row for _, row in shifts]
    by_shift = Table.of(f"Drops of {lead} from the base", columns, rows)
    by_shift = by_shift.first(MOST_SHIFTS, "shifts", task.table)
    warnings = []
    for model in models:
        if model.near_chance:
            warnings.append(f"{model.name} {task.guesses}")
        if model.likely_order:
            warnings.append(f"The answers of {model.name} look {model.likely_order}.")
    summary = summary.first(MOST_COLUMNS, f"{noun}s", task.table)
    reading = task.reading.replace("{names}", f"{len(results.classes):,}")
    return LeadDrops(
        summary=summary,
        shifts=by_shift,
        warnings=tuple(warnings),
        reading=reading,
        file=task.table,
    )


def _model_cell(model: ModelFacts) -> TableCell:
    return TableCell(model.name, model.note, model.name)


def _largest_drops(results: Results, model: ModelFacts) -> list[TableCell]:
    """Return the shifts that cost a model most, by the rule of every headline."""
    lead = "" if results.lead == "accuracy" else results.lead
    cells = []
    drops = results.rows.where("drop", model=model.name, class_id="", at=lead)
    for row in by_loss(results, drops)[:MOST_LARGEST]:
        notes = (format_interval(row.estimate), row.note)
        below = ", ".join(filter(None, notes))
        cells.append(TableCell(f"{row.group}: {format_points(row.value)}", below))
    return cells + [TableCell(NOTHING)] * (MOST_LARGEST - len(cells))


def hash_rows(lock: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    hashes = lock.get("hashes", {})
    return tuple((name, str(hashes[name]), over) for name, over in _OVER.items() if name in hashes)


def stack_lines(lock: Mapping[str, Any]) -> tuple[str, ...]:
    """Return `name value` of everything in lock.json's stack that is not null, versions last."""
    stack = dict(lock.get("stack", {}))
    versions = stack.pop("versions", None) or {}
    lines = []
    for name, value in sorted(stack.items()):
        if value is not None:
            lines.append(f"{name.replace('_', ' ')} {value}")
    lines += [f"{name} {version}" for name, version in sorted(versions.items())]
    return tuple(lines)


@dataclass(frozen=True, slots=True)
class Statements:
    """Sentences by subject, each subject in reading order."""

    summary: str
    collection: str
    source: str
    preprocessing: tuple[str, ...]
    annotation: str
    annotation_tools: tuple[str, ...]
    missing: str
    intended: tuple[str, ...]
    unintended: tuple[str, ...]
    biases: tuple[str, ...]
    limits: tuple[str, ...]
    personal: str
    social_impact: str
    maintenance: str


def screened_shifts(recipe: Recipe) -> dict[str, int]:
    """Count the `shifts`, and those that are `screened` by a threshold of the shift score too."""
    # the base is no shift, nor is a mild level
    shifts = [shift for shift in recipe.all_shifts()[1:] if shift.top]
    screened = sum(shift.threshold is not None for shift in shifts)
    return {"screened": screened, "shifts": len(shifts)}


def statements_of(
    recipe: Recipe,
    inputs: Sequence[InputRow],
    images: int,
    candidates: int,
    doubts: ScreenDoubts | None = None,
    *,
    looked_at: bool,
) -> tuple[Statements, Mapping[str, str]]:
    """Return what must be said of a dataset, and by name what only its kind of generator says.

    inputs: rows of `input_rows`. images: accepted, of so many `candidates`, by a screen with
    `doubts`. looked_at: people reviewed images, and the review is in the dataset.
    """
    percentiles = False
    judges = {}
    for shift in recipe.all_shifts():
        percentiles |= shift.object_threshold.percentile is not None
        for rule in shift.keep:
            judges |= dict.fromkeys(rule.judges())
    edited = recipe.generator.get("split")
    filters = {"counted": format_count, "without_folders": without_folders, "code": code}
    environment = template_environment(_STATEMENTS, filters, markdown=True)
    known = {
        "recipe": recipe,
        "name": without_folders(recipe.source.dataset),
        "inputs": {row.role: row for row in inputs},
        "images": images,
        "candidates": candidates,
        "screened": screened_shifts(recipe),
        "doubts": doubts,
        "looked_at": looked_at,
        "judges": list(map(without_folders, judges)),
        "asked": asked_texts(recipe),
        "borrowed": recipe.samples.pairs != "noise",
        "over_the_edited": percentiles and edited == recipe.source.validation_split,
        "match": MATCH,
    }
    its = {}
    of_kind = [f"kind-{recipe.kind.key}.txt.j2", "kind-of-a-plugin.txt.j2"]
    for names in (["kind-words.txt.j2"], of_kind):
        kind_texts = vars(environment.select_template(names).make_module(known))
        for name, text in kind_texts.items():
            if isinstance(text, str) and name[0] != "_":
                its[name] = text
    its |= recipe.kind.words
    rendered: Any = environment.get_template(_STATEMENTS).make_module(known | {"its": its})

    statements: dict[str, Any] = {}
    for subject in fields(Statements):
        text = getattr(rendered, subject.name)
        statements[subject.name] = " ".join(text.split())
        if subject.type.startswith("tuple"):
            _, *items = re.split(r"^- ", text, flags=re.MULTILINE)
            statements[subject.name] = tuple(" ".join(item.split()) for item in items)
    its = {name: " ".join(text.split()) for name, text in its.items()}
    return Statements(**statements), its
