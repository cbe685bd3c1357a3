"""How far the base is from the source's validation images, and which models and classes are near
chance on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from counterfoil.documents import Count, Strict
from counterfoil.errors import some_of
from counterfoil.report.sections import CardSection, MeasureFacts, ReportSection, Shown
from counterfoil.report.words import (
    Table,
    TableColumn,
    TableRow,
    format_count,
    format_interval,
    format_percent,
    format_points,
    interval_sign,
    points_cell,
    text_cell,
)
from counterfoil.stats import Estimate, wilson_interval

if TYPE_CHECKING:
    from counterfoil.report.results import ModelFacts, Results

VALIDATION = "validation"
VALIDATION_BASE = "validation_base"
VALIDATION_GAP = "validation_gap"
MEASURE_FACTS = (
    MeasureFacts(
        VALIDATION,
        "Validation accuracy",
        "percent",
        "Accuracy on validation images, averaged over classes.",
    ),
    MeasureFacts(
        VALIDATION_BASE,
        "Base accuracy of the gap",
        "percent",
        "The same on the base, of the same classes.",
    ),
    MeasureFacts(
        VALIDATION_GAP,
        "Gap from validation to base",
        "points",
        "Validation accuracy less the base's.",
    ),
)
OVER_ALL = "accuracy_all_outputs"
OVER_CLASSES = "accuracy_class_outputs"
NEAR_CHANCE = "near chance"  # beside such an accuracy
# With a larger gap to validation images, the base does not represent the input dataset.
LARGE_GAP = 0.1
_MOST_NAMES = 12
# A model is called worse than guessing at this confidence.
_SURE = 0.9999
# A model trained at the images' own size has never seen them enlarged this many times.
_FAR = 3


@dataclass(frozen=True, slots=True)
class ReferenceResult(Strict):
    """The source's validation split, as DATASET:SPLIT, and what was scored there.

    images, classes: the gaps are over these; the base measures the same classes. skipped: why
    nothing was scored.
    left_out: model → why it has no gap. unseen: accuracy on the validation images of the classes
    near chance on the base, averaged over classes and models. unseen_known: it is not near chance,
    so the models know these classes and the base does not show them.
    """

    split: str
    images: Count = 0
    classes: Count = 0
    skipped: str | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Model → why it has no gap."""
    unseen: float | None = None
    unseen_known: bool = False


def gaps_table(results: Results) -> Table | None:
    """Return accuracy on validation and base images, one row for each model with a gap; None if no
    model has a gap."""
    reference = results.reference
    rows = results.rows
    models = [model for model in results.models if rows.estimate(VALIDATION_GAP, model=model.name)]
    if reference is None or not models:
        return None
    table_rows = []
    for model in models:
        gap = rows.estimate(VALIDATION_GAP, model=model.name)
        cells = (
            text_cell(model.short_name),
            points_cell(rows.estimate(VALIDATION, model=model.name)),
            points_cell(rows.estimate(VALIDATION_BASE, model=model.name)),
            points_cell(gap),
            text_cell(_gap_words(gap)),
        )
        table_rows.append(TableRow(cells, "quiet" if model.near_chance else ""))
    return Table.of(
        f"Accuracy on {reference.images:,} images of {reference.split} and on the base, averaged"
        f" over the same {format_count(reference.classes, 'class', 'classes')}. Percent; the gap is"
        " in points, validation minus base, with its 95 % confidence interval.",
        (
            TableColumn("model", "name"),
            "validation (%)",
            "base (%)",
            "gap (points)",
            TableColumn("says", "text"),
        ),
        table_rows,
    )


def reference_warnings(results: Results, *, short: bool = True) -> tuple[str, ...]:
    """Return gaps over 10 points, smaller ones whose interval excludes 0, and classes that only the
    base lacks."""
    rows = results.rows
    reference = results.reference
    sentences: list[str] = []
    gaps = []
    for model in results.models:
        gap = rows.estimate(VALIDATION_GAP, model=model.name)
        if gap is not None:
            gaps.append((model, gap))
    over = [(model, gap) for model, gap in gaps if _is_large(gap)]
    if over:
        model, gap = max(over, key=lambda of_model: abs(of_model[1].value))
        validation = rows.value(VALIDATION, model=model.name)
        base = rows.value(VALIDATION_BASE, model=model.name)
        subject = "the model"
        if len(gaps) > 1:
            subject = f"{len(over):,} of {len(gaps):,} models"
        by = f"{format_points(abs(gap.value))} points"
        if len(over) > 1:
            by = f"at most {by}"
        sentences.append(
            "The base differs from the input dataset: from the source's validation images to the"
            f" base, the accuracy of {subject} changes by more than {100 * LARGE_GAP:.0f} points"
            f" ({by}, for {model.called(short)}: {format_percent(validation)} →"
            f" {format_percent(base)})."
        )
    named = []
    for model, gap in gaps:
        if interval_sign(gap) and not _is_large(gap):
            named.append(f"{model.called(short)} by {format_points(abs(gap.value))}")
    if named:
        sentences.append(
            "Accuracy on the base differs significantly from accuracy on validation images (the"
            f" interval of the gap excludes 0): {some_of(named, _MOST_NAMES)} points."
        )
    classes = [cls.name for cls in results.near_chance_classes]
    if (
        classes
        and reference is not None
        and reference.unseen is not None
        and reference.unseen_known
    ):
        subject = "class near chance"
        have = "has"
        if len(classes) > 1:
            subject = f"{len(classes):,} classes near chance"
            have = "have"
        sentences.append(
            f"The {subject} on the base ({some_of(classes, _MOST_NAMES)}) {have} an accuracy of"
            f" {format_percent(reference.unseen)} on validation images."
        )
    return tuple(sentences)


def reference_note(results: Results) -> str | None:
    """Return what was scored as the reference, or why nothing was; None without a reference."""
    reference = results.reference
    if reference is None:
        return None
    if reference.skipped is not None:
        return f"Accuracy on the source's validation images was not measured: {reference.skipped}"
    classes = format_count(reference.classes, "class", "classes")
    if reference.classes < len(results.classes):
        classes = (
            f"{reference.classes:,} of {format_count(len(results.classes), 'class', 'classes')}"
        )
    note = (
        f"validation → base: {reference.images:,} images of {reference.split} and the base, over"
        f" the same {classes}"
    )
    short = results.short_names
    for name, why in reference.left_out.items():
        note += f"; not for {short.get(name, name)}, {why}"
    return note


def near_chance_sentences(results: Results, *, short: bool = True) -> tuple[str, ...]:
    """Return which classes and models are near chance on the base, and whether models know such
    classes."""
    base = results.base_group
    if base is None:
        return tuple(
            f"{model.called(short)} is near chance on these images: it cannot be told from"
            f" guessing, which is right on {format_percent(model.chance)}."
            for model in results.models
            if model.near_chance and _accuracy_below_chance(results, model) is None
        )
    classes = [cls.name for cls in results.near_chance_classes]
    models = [model.called(short) for model in results.models if model.near_chance]
    of_classes = _near_chance(
        classes,
        len(results.classes),
        ("class", "classes"),
        "no drop can be measured",
        "accuracies count {}, drops do not",
    )
    of_models = _near_chance(
        models,
        len(results.models),
        ("model", "models"),
        "no average over models",
        "averages over models leave {} out",
    )
    sentences = [*of_classes, *of_models]
    reference = results.reference
    if (
        classes
        and reference is not None
        and reference.unseen is not None
        and not reference.unseen_known
    ):
        what = "this class" if len(classes) == 1 else f"these {len(classes):,} classes"
        where = f"on validation images either ({format_percent(reference.unseen)} right there)"
        sentences.append(f"The models do not know {what} {where}.")  # so the base is not at fault
    return tuple(sentences)


def _near_chance(
    names: Sequence[str],
    every: int,
    nouns: tuple[str, str],
    of_all: str,
    of_some: str,
) -> Iterator[str]:
    """Yield that so many of all are near chance, and what follows if all or only some are."""
    if not names:
        return
    one, several = nouns
    verb, them = ("is", "it") if len(names) == 1 else ("are", "them")
    subject = f"{len(names):,} of {every:,} {several}"
    follows = of_some.format(them)
    if len(names) == every:
        subject = f"The only {one}" if every == 1 else f"All {every:,} {several}"
        follows = of_all
    yield f"{subject} ({some_of(names, _MOST_NAMES)}) {verb} near chance on the base: {follows}."


def answer_warnings(results: Results, *, short: bool = True) -> tuple[str, ...]:
    """Return a warning for each model whose answer to an image is not always the same, and for each
    near chance whose outputs fit the classes far better in another order, or that is right less
    often than by guessing."""
    warnings = []
    for model in results.models:
        name = model.called(short)
        accuracy = _accuracy_below_chance(results, model)
        if model.unsteady:
            warnings.append(f"{name} {model.unsteady}")
        if model.likely_order:
            warnings.append(f"The outputs of {name} look {model.likely_order}")
        elif accuracy is not None:
            warnings.append(
                f"{name} is right less often than by guessing: on {format_percent(accuracy.value)}"
                f" ({format_interval(accuracy)}), and guessing on {format_percent(model.chance)}. Its"
                " answers may be matched to the wrong classes, or its lowest score may be its answer."
            )
    return tuple(warnings)


def _accuracy_below_chance(results: Results, model: ModelFacts) -> Estimate | None:
    """Return a model's accuracy on the base (or in the first group), with Wilson's interval, if
    guessing would be as low less than once in ten thousand times; else None."""
    if not results.groups:
        return None
    group = results.base or results.groups[0].name
    row = results.rows.one(results.lead, model=model.name, group=group)
    if row is None or row.value is None or not row.n:
        return None
    images = row.units or row.n
    right = row.value * images
    _, highest = wilson_interval(right, images, _SURE)
    if highest >= model.chance:
        return None
    return Estimate(row.value, *wilson_interval(right, images))


def outputs_sentences(results: Results) -> tuple[str, ...]:
    """Return over which outputs models answer, and where the other accuracy is; empty if no model
    has others."""
    if not results.rows.where(OVER_CLASSES):
        return ()
    if results.outputs == "classes":
        return (
            "Models answer over the outputs of this dataset's classes alone (outputs: classes)."
            f" measures.csv has the accuracy over all outputs too ({OVER_ALL}).",
        )
    return (
        "Models answer over all their outputs (outputs: all): an answer that is no class of this"
        " dataset is wrong."
        f" measures.csv has the accuracy over the dataset's classes alone too ({OVER_CLASSES}).",
    )


def model_sentences(results: Results) -> Iterator[str]:
    """Yield which images are scored, and how to read the models' answers: their matching, scores,
    sizes and ties."""
    yield from results.scored
    alike: dict[str, list[str]] = {}
    for model in results.models:
        if model.matched:
            alike.setdefault(model.matched, []).append(model.short_name)
    for matched, names in alike.items():
        of_models = f" of {some_of(names, _MOST_NAMES)}" if len(names) < len(results.models) else ""
        yield f"Outputs{of_models} matched {matched}."
    for model in results.models:
        if model.read:
            yield f"{model.short_name}: {model.read}."
    side = results.image_side
    for model in results.models:
        if (
            side
            and model.img_size
            and model.img_size >= _FAR * side
            and model.name.startswith("local-dir:")
        ):
            yield (
                f"{model.short_name} sees these images enlarged {model.img_size / side:.0f} times:"
                f" they have {side} pixels a side, and its folder says {model.img_size}. If it was"
                f" trained on {side} pixels, its answers here are worth little: set input_size to"
                f" [3, {side}, {side}] in the pretrained_cfg of the folder's config.json."
            )
    yield from near_chance_sentences(results)
    yield from outputs_sentences(results)
    for model in results.models:
        if model.tied:
            yield (
                f"{model.short_name} gives two classes the same best score on"
                f" {format_count(model.tied, 'image')}; the first"
                " of the two classes counts as its answer."
            )


def everyone(results: Results) -> str:
    if len(results.sound_models) < len(results.models):
        return "models not near chance"
    return "all models"


def averaged(results: Results) -> str:
    """Return words that say over which models an average is; empty if there is one model."""
    if len(results.models) <= 1:
        return ""
    return f"averaged over {everyone(results).removeprefix('all ')}"


def _is_large(gap: Estimate) -> bool:
    return abs(gap.value) > LARGE_GAP


def _gap_words(gap: Estimate | None) -> str:
    if gap is None or not (_is_large(gap) or interval_sign(gap)):
        return "no large gap"
    lower = "lower" if gap.value > 0 else "higher"
    if _is_large(gap):
        return f"base {lower} by more than {100 * LARGE_GAP:.0f} points"
    return f"base {lower}, the interval excludes 0"


def without_reference(results: Results) -> str | None:
    """Return why the report has no validation images; None if it has some."""
    if results.reference is not None and results.rows.where(VALIDATION_GAP):
        return None
    if results.reference is None and results.label_checks is not None and results.label_checks.own:
        return "The base is unchanged images of the input dataset, so there is no gap to measure."
    why = reference_note(results) or "Validation → base was not measured."
    return (
        f"{why.rstrip('.')}. So the report cannot say whether the base is like the input dataset."
    )


def _section(results: Results, drawn: Sequence[Any]) -> ReportSection | None:
    if results.base is None:
        return None
    warnings = reference_warnings(results)
    table = gaps_table(results)
    return ReportSection(
        title="Validation → base",
        sentences=warnings,
        tables=[table] if table is not None else [],
        alert="The base differs from the input dataset’s validation images" if warnings else "",
        template="report-reference.html.j2",
        more={"without": without_reference(results)},
    )


def _card(results: Results) -> CardSection | None:
    if results.reference is None:
        return None
    warnings = reference_warnings(results, short=False)
    return CardSection(
        place="accuracies", template="dataset-card-reference.md.j2", warnings=warnings
    )


SHOWN = Shown(
    "severity",
    _section,
    lambda results, most_models: [note] if (note := reference_note(results)) else [],
    _card,
    reference_warnings,
    measures=MEASURE_FACTS,
    # The reason may name a path of this machine.
    public=lambda facts, called: replace(
        facts, skipped=facts.skipped and "it was not available", left_out={}
    ),
)
