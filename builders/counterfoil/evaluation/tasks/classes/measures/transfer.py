"""Transfer: how often each model fails on images that were chosen because a judge was wrong (Wiles
2022, Figure 4).

A caption is a shift of one class: its images were drawn from one text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, NestedMeasure
from counterfoil.evaluation.tasks.classes.measures.findings import judges_among
from counterfoil.prediction.failures import failed_answers, ranks_enough
from counterfoil.prediction.passes import Scored
from counterfoil.recipe.keep.misclassified import PARENTS, TOP1, TOP3
from counterfoil.report import transfer as names
from counterfoil.report.results import ResultRow, estimate_row
from counterfoil.stats import Estimate, clustered_rates, matched_rates


@dataclass(frozen=True)
class _Judge:
    """A judge by its name without folders, with its pins from the lock.

    places: indices of the scored models that are this judge.
    """

    name: str
    architecture: str
    sha256: str | None
    places: frozenset[int]
    recorded_name: str


def measure_transfer(
    answered: AllAnswers,
) -> tuple[tuple[names.Transfer, ...], list[ResultRow]]:
    """Return a `Transfer` per judge, in the recipe's order, and their rows; empty if no rule keeps
    a judge's failures.

    Rates leave out images of classes that are near chance: models fail on nearly all of them
    anyway.
    """
    subject = answered.subject
    readable = answered.answers.readable
    if not subject.judged.shifts:
        return (), []
    failures_of = [_failures_by_rule(subject, scores) for scores in answered.scored]
    guessed = answered.near_chance.classes
    near = np.array([cls.id in guessed for cls in subject.classes])
    transfers: list[names.Transfer] = []
    numbers: list[ResultRow] = []
    for name, wrong in subject.judged.wrong.items():
        rows = np.flatnonzero(wrong)  # `wrong` covers the images of the dataset, which come first
        rows = rows[readable[rows]]
        labels = subject.labels[rows]
        left_out = np.unique(labels[near[labels]])
        rows = rows[~near[labels]]
        judge = _judge(name, answered)
        numbers += _rates(answered, judge, failures_of, None, rows)
        judged_shifts = [shift for shift in subject.judged.shifts if name in shift.judges]
        shifts = []
        for shift in judged_shifts:
            accepted = subject.shifts == shift.index
            of_shift = rows[accepted[rows]]
            if len(judged_shifts) > 1:  # with a single shift, the total is its row
                numbers += _rates(answered, judge, failures_of, shift.index, of_shift)
            group = subject.groups[shift.index]
            facts = names.TransferShift(
                name=group.name,
                judges=shift.judges,
                at_least=shift.rule.at_least,
                candidates=group.candidates or 0,
                accepted=int(accepted.sum()),
                images=len(of_shift),
                failure=shift.rule.failure,
            )
            shifts.append(facts)
        captions, _ = _captions(subject, rows)
        left_out_names = [subject.classes[label].name for label in left_out]
        transfer = names.Transfer(
            judge=name,
            architecture=judge.architecture,
            family=architecture_family(judge.architecture, name),
            scored=bool(judge.places),
            captions=len(captions),
            images=len(rows),
            shifts=tuple(shifts),
            models=_related_models(answered, judge) if len(rows) else (),
            classes_near_chance=tuple(left_out_names),
        )
        transfers.append(transfer)
    return tuple(transfers), numbers


def _failures_by_rule(subject: Subject, scores: Scored) -> dict[str, Bools]:
    """Return rule → the images on which a model fails, (n,). A model with few ranked answers has
    fewer rules."""
    class_map = scores.class_map
    predictions = scores.predictions
    known_rules = names.RULES if ranks_enough(predictions, class_map) else (TOP1,)
    failed = {}
    for rule in known_rules:
        failed[rule] = failed_answers(
            rule,
            predictions,
            subject.labels,
            subject.classes,
            class_map,
        )
    return failed


def _judge(name: str, answered: AllAnswers) -> _Judge:
    """Return a judge with its pins from the lock; without pins if these are malformed, because
    locks are untrusted."""
    pins = answered.subject.mined.pins
    pin = pins.get(name)
    known = {}
    if isinstance(pin, Mapping):
        known = {key: value for key, value in pin.items() if isinstance(value, str)}
    places = frozenset(judges_among(answered.scored, [name], pins))
    # Rename the judge if a scored model with other weights has its name.
    recorded = name
    if name in answered.models:
        recorded = f"{name} (of the build)"
    architecture = known.get("architecture", "")
    return _Judge(
        name,
        architecture,
        known.get("sha256"),
        places,
        recorded,
    )


def _related_models(answered: AllAnswers, judge: _Judge) -> tuple[names.TransferModel, ...]:
    """Return the scored models and their relations to a judge, which comes first if it is not
    scored."""
    models = []
    sizes: tuple[int | None, int | None] = None, None
    if judge.places:
        itself = answered.scored[min(judge.places)].classifier
        sizes = itself.param_count, itself.num_classes
    else:
        family = architecture_family(judge.architecture, judge.name)
        models.append(names.TransferModel(judge.recorded_name, family, names.JUDGE))
    for index, scores in enumerate(answered.scored):
        classifier = scores.classifier
        family = architecture_family(classifier.architecture, classifier.name)
        relation: names.Relation = names.JUDGE
        if index not in judge.places:
            relation = relation_of(
                classifier.architecture,
                classifier.sha256,
                (classifier.param_count, classifier.num_classes),
                judge.architecture,
                judge.sha256,
                sizes,
            )
        models.append(names.TransferModel(classifier.name, family, relation))
    return tuple(models)


def relation_of(
    architecture: str,
    sha256: str | None,
    sizes: tuple[int | None, int | None],
    judge_architecture: str,
    judge_sha256: str | None,
    judge_sizes: tuple[int | None, int | None],
) -> names.Relation:
    """Return how another model is related to the judge, as far as names and configurations show.

    sizes: (parameters, outputs), None if unknown. The same architecture means the same name with
    other weights. Two models with equal numbers of outputs but different numbers of parameters are
    at most of the same family.
    """
    if not (is_known(architecture) and is_known(judge_architecture)):
        return names.OTHER
    same_name = plain_architecture(architecture) == plain_architecture(judge_architecture)
    if same_name and sha256 != judge_sha256:
        parameters, outputs = sizes
        of_judge, outputs_of_judge = judge_sizes
        if None in (parameters, of_judge) or outputs != outputs_of_judge or parameters == of_judge:
            return names.SAME_ARCHITECTURE
    if architecture_family(architecture) == architecture_family(judge_architecture):
        return names.SAME_FAMILY
    return names.OTHER


def _captions(subject: Subject, rows: Ints) -> tuple[Ints, Ints]:
    """Return the captions of some rows, as shift · classes + class, and each row's index among
    them, (rows,)."""
    shifts = subject.shifts[rows]
    captions = shifts * len(subject.classes) + subject.labels[rows]
    return np.unique(captions, return_inverse=True)


def _rates(
    answered: AllAnswers,
    judge: _Judge,
    failures_of: Sequence[Mapping[str, Bools]],
    shift_index: int | None,
    rows: Ints,
) -> list[ResultRow]:
    """Return every model's failure rates on images that the judge gets wrong, in one shift or, for
    None, in all."""
    if not len(rows):
        return []
    subject = answered.subject
    group = ""
    if shift_index is not None:
        group = answered.group(shift_index).name
    captions, caption = _captions(subject, rows)
    images = np.bincount(caption)
    classes = len(subject.classes)
    mixture = np.bincount(subject.labels[rows], minlength=classes)
    base = np.empty(0, np.int64)
    if subject.base:
        base = answered.rows_of_labels(0, np.flatnonzero(mixture))
    constructed = _constructed_rules(subject, judge, shift_index)
    key = {"group": group, "against": judge.name}
    result_rows: list[ResultRow] = []

    def add(
        model: str,
        rule: str,
        rate: Estimate | float,
        base_rate: float | None,
        note: str = "",
    ) -> None:
        of_model = {"model": model, "at": rule, **key}
        of_rate = estimate_row(
            names.TRANSFER,
            rate,
            n=len(rows),
            units=len(captions),
            note=note,
            **of_model,
        )
        on_base = estimate_row(names.ON_BASE, base_rate, n=len(base), **of_model)
        result_rows.extend((of_rate, on_base))

    if not judge.places:
        # A judge that is not scored here is shown as recorded: wrong about each of these images.
        for rule in constructed:
            add(judge.recorded_name, rule, 1.0, None, names.BY_CONSTRUCTION)
    for rule in names.RULES:
        able = []
        of_models = []
        for index, by_rule in enumerate(failures_of):
            if rule in by_rule:
                able.append(index)
                of_models.append(by_rule[rule])
        if not able:
            continue
        failed = np.stack(of_models, axis=1)
        counts = _counted(failed[rows], caption, len(captions))
        estimates = clustered_rates(counts, images)
        base_rates = _matched(subject, base, failed, mixture)
        others = _rates_beside(answered, failed, mixture)
        for column, index in enumerate(able):
            model = answered.models[index]
            base_rate = None if base_rates is None else float(base_rates[column])
            if rule in constructed and index in judge.places:
                # The judge's own rate is fixed by construction: it is not an estimate.
                add(model, rule, estimates[column].value, base_rate, names.BY_CONSTRUCTION)
            else:
                add(model, rule, estimates[column], base_rate)
            for name, rates in others.items():
                rate = float(rates[column])
                at = f"{rule} {name}"
                result_rows.append(estimate_row(names.BESIDE, rate, model=model, at=at, **key))
    return result_rows


def _rates_beside(answered: AllAnswers, failed: Bools, mixture: Ints) -> dict[str, Floats]:
    """Return what `_matched` returns, by the groups of the other images beside the dataset's."""
    subject = answered.subject
    rates_of = {}
    for part in subject.stored_parts[1:]:
        for group in range(part.first, part.first + len(part.images.group_names)):
            rows = answered.rows_of_labels(group, np.flatnonzero(mixture))
            rates = _matched(subject, rows, failed, mixture)
            if rates is not None:
                rates_of[subject.groups[group].name] = rates
    return rates_of


def _constructed_rules(subject: Subject, judge: _Judge, shift_index: int | None) -> tuple[str, ...]:
    """Return the rules by which the judge is wrong about every image by construction. Under every
    rule its first answer is not the label; under top-3 rules none of its first three is."""
    for shift in subject.judged.shifts:
        in_question = judge.name in shift.judges and shift_index in (None, shift.index)
        if in_question and shift.rule.failure not in (TOP3, *PARENTS):
            return (TOP1,)
    return names.RULES


def _counted(failed: Bools, category: Ints, categories: int) -> Ints:
    """Return how many images of each category each model fails on, (categories, models)."""
    _, models = failed.shape
    counts = np.zeros((categories, models), np.int64)
    np.add.at(counts, category, failed)
    return counts


def _matched(
    subject: Subject,
    rows: Ints,
    failed: Bools,
    mixture: Ints,
) -> Floats | None:
    """Return the failure rates on some images, (models,), weighted as the classes of a mixture."""
    labels = subject.labels[rows]
    counts = _counted(failed[rows], labels, len(mixture))
    images = np.bincount(labels, minlength=len(mixture))
    return matched_rates(counts, images, mixture)


# Prefixes of names for a trainer, a training method or a small test model.
_BEFORE = re.compile(r"^(?:tf|legacy|gluon|ssl|swsl|ig|dm|test|wide)_")
# The end of a class name of the library transformers, such as `ViTForImageClassification`.
_CLASS_OF_TRANSFORMERS = re.compile(r"for[a-z]*classification.*$")
# The first word without a version: convnext for `convnextv2_atto`, deit for `deit3_small`.
_FIRST_WORD = re.compile(r"[a-z]+?(?=v?\d|[^a-z]|$)")
# Families by first word. A DeiT is a ViT trained differently; timm builds an LCNet with its code
# of MobileNetV3; RN50 is open_clip's, BiT is a ResNet v2.
_BEGINNINGS = {
    "resnet": (
        "resnet",
        "resnext",
        "resnest",
        "seresnet",
        "seresnext",
        "ecaresnet",
        "skresnet",
        "skresnext",
    ),
    "regnet": ("regnet",),
    "mobilenet": ("mobilenet",),
    "convnext": ("convnext",),
    "vit": ("flexivit",),
}
_WHOLE_WORDS = {
    "deit": "vit",
    "lcnet": "mobilenet",
    "rn": "resnet",
    "bit": "resnet",
}
# Names of unknown architectures: each such model is a family of its own.
_UNKNOWN = frozenset(
    {"", "predictions", "open_clip", "sequential", "module", "function", "<lambda>"}
)


def architecture_family(architecture: str, name: str = "") -> str:
    """Return the family of an architecture: `resnet50` → resnet. An unlisted family is the first
    word of the name.

    name: the name of the model. It stands for the architecture if that is unknown.
    """
    plain = plain_architecture(architecture)
    if plain in _UNKNOWN:
        return name or architecture
    before = None
    while before != plain:
        before = plain
        plain = _BEFORE.sub("", plain)
    first_word = _FIRST_WORD.match(_CLASS_OF_TRANSFORMERS.sub("", plain))
    if first_word is None:
        return plain
    word = first_word[0]
    for family, beginnings in _BEGINNINGS.items():
        if word.startswith(beginnings):
            return family
    return _WHOLE_WORDS.get(word, word)


def plain_architecture(architecture: str) -> str:
    """Return timm's name of the architecture in lower case, without the tag of the weights."""
    return architecture.strip().lower().partition(".")[0]


def is_known(architecture: str) -> bool:
    return plain_architecture(architecture) not in _UNKNOWN


MEASURE = NestedMeasure(measure_transfer)
