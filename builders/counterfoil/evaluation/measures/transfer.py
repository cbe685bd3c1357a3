"""Transfer: how often each model fails on the images that are there because a judge was wrong (Wiles 2022, Figure 4).

A caption is a shift of one class: its images were drawn from one text. The family of
an architecture is known by its name alone: resnet, vit, convnext, mobilenet and so on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.figures import transfer_figure
from counterfoil.evaluation.measures.findings import judges_among
from counterfoil.evaluation.scores import AllAnswers, NestedMeasure
from counterfoil.prediction.failures import failures, ranks_enough
from counterfoil.prediction.passes import Scored
from counterfoil.recipe.keep.misclassified import PARENT, TOP1, TOP3
from counterfoil.report.results import ResultRow, Results, row
from counterfoil.report.transfer import (
    BESIDE,
    BY_CONSTRUCTION,
    JUDGE,
    MOST_JUDGES,
    ON_BASE,
    OTHER,
    RULES,
    SAME_ARCHITECTURE,
    SAME_FAMILY,
    TRANSFER,
    Relation,
    Transfer,
    TransferModel,
    TransferShift,
)
from counterfoil.stats import Estimate, clustered_rates, matched_rates


@dataclass(frozen=True)
class _Judge:
    """A judge by its name without folders, with what the lock pins of it. places: of the models that are it."""

    name: str
    architecture: str
    sha256: str | None
    places: frozenset[int]
    recorded_name: str


def measure_transfer(answered: AllAnswers) -> tuple[tuple[Transfer, ...], list[ResultRow]]:
    """Return one `Transfer` a judge, in the recipe's order, and its rows; none where no rule keeps what one gets wrong.

    Images of classes that are near chance are in no rate: models fail on nearly all of them anyway.
    """
    subject, readable = answered.subject, answered.answers.readable
    if not subject.judged.shifts:
        return (), []
    # By model and rule (n,), whether each image fails; without a rule that the model ranks too few answers for.
    failed = [
        {
            rule: failures(rule, one.predictions, subject.labels, subject.classes, one.class_map)
            for rule in (RULES if ranks_enough(one.predictions, one.class_map) else (TOP1,))
        }
        for one in answered.scored
    ]
    near = np.array([cls.id in answered.near_chance.classes for cls in subject.classes], dtype=bool)
    transfers: list[Transfer] = []
    numbers: list[ResultRow] = []
    for name, wrong in subject.judged.wrong.items():
        rows = np.flatnonzero(wrong)  # of the dataset's own images, which are the first
        rows = rows[readable[rows]]
        left_out = tuple(subject.classes[label].name for label in np.unique(subject.labels[rows]) if near[label])
        rows = rows[~near[subject.labels[rows]]]
        judge = _judge(name, answered)
        asked = [shift for shift in subject.judged.shifts if name in shift.judges]
        own = {one.place: rows[subject.shifts[rows] == one.place] for one in asked}
        family = architecture_family(judge.architecture, name)
        models = [
            TransferModel(
                one.classifier.name,
                architecture_family(one.classifier.architecture, one.classifier.name),
                JUDGE if at in judge.places else _relation(one, judge, answered),
            )
            for at, one in enumerate(answered.scored)
        ]
        numbers += _rates(answered, judge, failed, None, rows)
        if len(asked) > 1:  # a single shift is all there is
            for one in asked:
                numbers += _rates(answered, judge, failed, one.place, own[one.place])
        if not judge.places:
            models.insert(0, TransferModel(judge.recorded_name, family, JUDGE))
        transfers.append(
            Transfer(
                judge=name,
                architecture=judge.architecture,
                family=family,
                scored=bool(judge.places),
                captions=len(_captions(subject, rows)[0]),
                images=len(rows),
                shifts=tuple(
                    TransferShift(
                        name=subject.groups[one.place].name,
                        judges=one.judges,
                        at_least=one.rule.at_least,
                        candidates=subject.groups[one.place].candidates or 0,
                        accepted=int((subject.shifts == one.place).sum()),
                        images=len(own[one.place]),
                        failure=one.rule.failure,
                    )
                    for one in asked
                ),
                models=tuple(models) if len(rows) else (),
                classes_near_chance=left_out,
            )
        )
    return tuple(transfers), numbers


def _judge(name: str, answered: AllAnswers) -> _Judge:
    """Return what the lock pins of a judge; of another form, it may be a stranger's, and nothing is known."""
    pins = answered.subject.mined.pins
    pin = pins.get(name)
    known = pin if isinstance(pin, Mapping) else {}
    architecture, sha256 = (
        value if isinstance(value, str) else None for value in map(known.get, ("architecture", "sha256"))
    )
    places = frozenset(judges_among(answered.scored, [name], pins))
    # Where a scored model, with other weights, has its name, it gets another name.
    recorded = f"{name} (of the build)" if name in answered.models else name
    return _Judge(name, architecture or "", sha256, places, recorded)


def _relation(scored: Scored, judge: _Judge, answered: AllAnswers) -> Relation:
    itself = answered.scored[min(judge.places)].classifier if judge.places else None
    sizes = (itself.param_count, itself.num_classes) if itself else (None, None)
    own, model = (scored.classifier.param_count, scored.classifier.num_classes), scored.classifier
    return relation_of(model.architecture, model.sha256, own, judge.architecture, judge.sha256, sizes)


def relation_of(
    architecture: str,
    sha256: str | None,
    sizes: tuple[int | None, int | None],
    judge_architecture: str,
    judge_sha256: str | None,
    judge_sizes: tuple[int | None, int | None],
) -> Relation:
    """Return what a model that is not the judge has to do with it, as far as names and configurations say.

    sizes: (parameters, outputs), None if not known. Another initialisation is of the same architecture and has
    other weights; where both have as many outputs and other numbers of parameters, only the name is the same.
    """
    if not (is_known(architecture) and is_known(judge_architecture)):
        return OTHER
    if plain_architecture(architecture) == plain_architecture(judge_architecture) and sha256 != judge_sha256:
        (parameters, outputs), (of_judge, outputs_of_judge) = sizes, judge_sizes
        if None in (parameters, of_judge) or outputs != outputs_of_judge or parameters == of_judge:
            return SAME_ARCHITECTURE
    return SAME_FAMILY if architecture_family(architecture) == architecture_family(judge_architecture) else OTHER


def _captions(subject: Subject, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the captions of some rows, as shift times classes plus class, and (rows,) which each row is of."""
    return np.unique(subject.shifts[rows] * len(subject.classes) + subject.labels[rows], return_inverse=True)


def _rates(
    answered: AllAnswers,
    judge: _Judge,
    failures_of: Sequence[Mapping[str, NDArray[np.bool_]]],
    place: int | None,
    rows: NDArray[np.int64],
) -> list[ResultRow]:
    """Return every model on some images that the judge is wrong about: of one shift, or of all (place None)."""
    if not len(rows):
        return []
    subject, readable = answered.subject, answered.answers.readable
    group = "" if place is None else subject.groups[place].name
    captions, caption = _captions(subject, rows)
    images = np.bincount(caption, minlength=len(captions))
    mixture = np.bincount(subject.labels[rows], minlength=len(subject.classes))
    base = _rows_of(subject, readable, 0, mixture) if subject.base else np.empty(0, np.int64)
    beside = {
        subject.groups[at].name: _rows_of(subject, readable, at, mixture)
        for part in subject.parts[1:]
        for at in range(part.first, part.first + len(part.images.group_names))
    }
    # The rules by which the judge is wrong about every image, because they were chosen so: whatever the rule was, the
    # first answer is not the label; and none of the first three is, where these were asked.
    asked = [shift for shift in subject.judged.shifts if judge.name in shift.judges and place in (None, shift.place)]
    constructed = RULES if all(one.rule.failure in (TOP3, PARENT) for one in asked) else (TOP1,)
    result_rows: list[ResultRow] = []
    if not judge.places:
        # A judge that is not scored here is shown by what was recorded of it: wrong about each of these.
        for rule in constructed:
            key = {"model": judge.recorded_name, "group": group, "against": judge.name, "at": rule}
            result_rows.append(row(TRANSFER, 1.0, n=len(rows), units=len(captions), note=BY_CONSTRUCTION, **key))
            result_rows.append(row(ON_BASE, None, n=len(base), **key))
    for rule in RULES:
        able = [at for at, own in enumerate(failures_of) if rule in own]
        if not able:
            continue
        failed = np.stack([failures_of[at][rule] for at in able], axis=1)
        counts = np.zeros((len(captions), len(able)), dtype=np.int64)
        np.add.at(counts, caption, failed[rows].astype(np.int64))
        estimates = clustered_rates(counts, images)
        on_base = _matched(subject, base, failed, mixture)
        others = {name: _matched(subject, own, failed, mixture) for name, own in beside.items()}
        for column, at in enumerate(able):
            key = {"model": answered.models[at], "group": group, "against": judge.name, "at": rule}
            itself = rule in constructed and at in judge.places
            # By construction nothing was estimated.
            rate: Estimate | float = estimates[column].value if itself else estimates[column]
            note = BY_CONSTRUCTION if itself else ""
            result_rows.append(row(TRANSFER, rate, n=len(rows), units=len(captions), note=note, **key))
            result_rows.append(row(ON_BASE, None if on_base is None else float(on_base[column]), n=len(base), **key))
            for name, elsewhere in others.items():
                if elsewhere is not None:
                    result_rows.append(row(BESIDE, float(elsewhere[column]), **key | {"at": f"{rule} {name}"}))
    return result_rows


def _rows_of(
    subject: Subject, readable: NDArray[np.bool_], place: int, mixture: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the images of a group that are of the classes in a mixture."""
    return np.flatnonzero((subject.shifts == place) & readable & (mixture[subject.labels] > 0))


def _matched(
    subject: Subject, rows: NDArray[np.int64], failed: NDArray[np.bool_], mixture: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    counts = np.zeros((len(mixture), failed.shape[1]), dtype=np.int64)
    np.add.at(counts, subject.labels[rows], failed[rows].astype(np.int64))
    return matched_rates(counts, np.bincount(subject.labels[rows], minlength=len(mixture)), mixture)


# What builders of a name put before it: who trained it, how, or that it is small enough for a test.
_BEFORE = re.compile(r"^(?:tf|legacy|gluon|ssl|swsl|ig|dm|test|wide)_")
# `ViTForImageClassification`, as transformers names classes.
_CLASS_OF_TRANSFORMERS = re.compile(r"for[a-z]*classification.*$")
# The first word, without the number of a version: `convnextv2_atto` is of convnext, `deit3_small` of deit.
_FIRST_WORD = re.compile(r"[a-z]+?(?=v?\d|[^a-z]|$)")
# What is of a family by how it begins. A DeiT is a ViT that is trained otherwise, and timm builds an LCNet by its code
# of MobileNetV3; RN50 is open_clip's, BiT is a ResNet v2.
_BEGINNINGS = {
    "resnet": ("resnet", "resnext", "resnest", "seresnet", "seresnext", "ecaresnet", "skresnet", "skresnext"),
    "regnet": ("regnet",),
    "mobilenet": ("mobilenet",),
    "convnext": ("convnext",),
    "vit": ("flexivit",),
}
_WHOLE_WORDS = {"deit": "vit", "lcnet": "mobilenet", "rn": "resnet", "bit": "resnet"}
# What stands where no architecture is known: such models are each of a family of their own.
_UNKNOWN = frozenset({"", "predictions", "open_clip", "sequential", "module", "function", "<lambda>"})


def architecture_family(architecture: str, name: str = "") -> str:
    """Return the family of an architecture (`resnet50` → resnet); one that is not known is its own, by its first word.

    `name` is the model's, which stands for its family where no architecture is known.
    """
    plain = plain_architecture(architecture)
    if plain in _UNKNOWN:
        return name or architecture
    before = None
    while before != plain:
        before, plain = plain, _BEFORE.sub("", plain)
    found = _FIRST_WORD.match(_CLASS_OF_TRANSFORMERS.sub("", plain))
    if found is None:
        return plain
    word = found[0]
    if word in _WHOLE_WORDS:
        return _WHOLE_WORDS[word]
    return next((family for family, beginnings in _BEGINNINGS.items() if word.startswith(beginnings)), word)


def plain_architecture(architecture: str) -> str:
    """Return the architecture alone, in small letters: timm's name without the tag that says how it was trained."""
    return architecture.strip().lower().partition(".")[0]


def is_known(architecture: str) -> bool:
    """Return whether something is known of it, so that two of this name are alike."""
    return plain_architecture(architecture) not in _UNKNOWN


def _draw(results: Results) -> list[str | None]:
    judges = results.transfer[:MOST_JUDGES]
    return [transfer_figure(judge, results, index) for index, judge in enumerate(judges)]


MEASURE = NestedMeasure(measure_transfer, _draw)
