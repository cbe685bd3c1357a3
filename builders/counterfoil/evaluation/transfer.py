"""Transfer: how often each model fails on the images that are there because a judge was wrong (Wiles 2022, Figure 4).

No file is read or written here. A caption is a shift of one class: its images were drawn from one text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.evaluation.families import family_of, is_told, plain_architecture
from counterfoil.evaluation.findings import Answerer, judges_among
from counterfoil.evaluation.floor import BaseFloor
from counterfoil.evaluation.subject import Subject
from counterfoil.keep.failure_names import PARENT, TOP1, TOP3
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.failures import failures, ranks_enough
from counterfoil.prediction.passes import Scored
from counterfoil.prediction.predictions import Predictions
from counterfoil.report.results import ResultRow, row
from counterfoil.report.transfer import (
    BESIDE,
    BY_CONSTRUCTION,
    JUDGE,
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
class _Model:
    """A scored model with (n,) whether each image fails, by rule, without a rule that it ranks too few answers for."""

    answerer: Answerer
    param_count: int | None
    outputs: int
    failed: Mapping[str, NDArray[np.bool_]]


@dataclass(frozen=True)
class _Judge:
    """A judge by its name without folders, with what the lock pins of it; param_count is known where it is scored."""

    name: str
    architecture: str
    sha256: str | None
    places: frozenset[int]
    param_count: int | None
    outputs: int | None


def measure_transfer(
    subject: Subject,
    readable: NDArray[np.bool_],
    scored: Sequence[Scored],
    models: Sequence[Answerer],
    floor: BaseFloor | None = None,
) -> tuple[tuple[Transfer, ...], list[ResultRow]]:
    """One `Transfer` a judge, in the recipe's order, and its rows; none where no rule keeps what one gets wrong.

    readable: (n,) of the subject's images. `models` are those of `scored`, in their order. Images of classes that are
    near chance by the `floor` are in no rate: models fail on nearly all of them anyway.
    """
    if not subject.judged.shifts:
        return (), []
    described = [
        _Model(
            model,
            one.classifier.param_count,
            one.classifier.num_classes,
            _failed(one.predictions, one.class_map, subject),
        )
        for one, model in zip(scored, models, strict=True)
    ]
    near = np.array([floor is not None and one.id in floor.classes for one in subject.classes], dtype=bool)
    found: list[Transfer] = []
    numbers: list[ResultRow] = []
    for name, wrong in subject.judged.wrong.items():
        rows = np.flatnonzero(wrong)  # of the dataset's own images, which are the first
        rows = rows[readable[rows]]
        left_out = tuple(subject.classes[label].name for label in np.unique(subject.labels[rows]) if near[label])
        rows = rows[~near[subject.labels[rows]]]
        judge = _judge(name, described, subject.mined.pins)
        asked = [one for one in subject.judged.shifts if name in one.judges]
        own = {one.place: rows[subject.shifts[rows] == one.place] for one in asked}
        family = family_of(judge.architecture, name)
        told = [
            TransferModel(
                model.answerer.name,
                family_of(model.answerer.architecture, model.answerer.name),
                JUDGE if at in judge.places else _relation(model, judge),
            )
            for at, model in enumerate(described)
        ]
        numbers += _rates(subject, readable, judge, described, None, rows)
        for one in asked:
            # A single shift is all there is.
            if len(asked) > 1:
                numbers += _rates(subject, readable, judge, described, one.place, own[one.place])
        if not judge.places:
            told.insert(0, TransferModel(_recorded_name(judge, described), family, JUDGE))
        found.append(
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
                        at_least=one.at_least,
                        candidates=subject.groups[one.place].candidates or 0,
                        accepted=int((subject.shifts == one.place).sum()),
                        images=len(own[one.place]),
                        failure=one.failure,
                    )
                    for one in asked
                ),
                models=tuple(told) if len(rows) else (),
                classes_near_chance=left_out,
            )
        )
    return tuple(found), numbers


def relation_of(
    architecture: str,
    sha256: str | None,
    sizes: tuple[int | None, int | None],
    judge_architecture: str,
    judge_sha256: str | None,
    judge_sizes: tuple[int | None, int | None],
) -> Relation:
    """What a model that is not the judge has to do with it, as far as names and configurations tell.

    sizes: (parameters, outputs), None where not known. Another initialisation is of the same architecture and has
    other weights; where both have as many outputs and other numbers of parameters, only the name is the same.
    """
    if not (is_told(architecture) and is_told(judge_architecture)):
        return OTHER
    if plain_architecture(architecture) == plain_architecture(judge_architecture) and sha256 != judge_sha256:
        (parameters, outputs), (of_judge, outputs_of_judge) = sizes, judge_sizes
        if None in (parameters, of_judge) or outputs != outputs_of_judge or parameters == of_judge:
            return SAME_ARCHITECTURE
    return SAME_FAMILY if family_of(architecture) == family_of(judge_architecture) else OTHER


def _failed(predictions: Predictions, class_map: ClassMap, subject: Subject) -> dict[str, NDArray[np.bool_]]:
    rules = RULES if ranks_enough(predictions, class_map) else (TOP1,)
    return {rule: failures(rule, predictions, subject.labels, subject.classes, class_map) for rule in rules}


def _judge(name: str, models: Sequence[_Model], pins: Mapping[str, Any]) -> _Judge:
    """The lock may be a stranger's, and what it pins of another form: then nothing is known."""
    pin = pins.get(name)
    told = {key: pin.get(key) for key in ("architecture", "sha256")} if isinstance(pin, Mapping) else {}
    architecture, sha256 = (
        value if isinstance(value, str) else None for value in map(told.get, ("architecture", "sha256"))
    )
    places = frozenset(judges_among([one.answerer for one in models], [name], pins))
    itself = models[min(places)] if places else None
    return _Judge(
        name,
        architecture or "",
        sha256,
        places,
        itself.param_count if itself else None,
        itself.outputs if itself else None,
    )


def _captions(subject: Subject, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The captions of some rows, as shift times classes plus class, and (rows,) which each row is of."""
    return np.unique(subject.shifts[rows] * len(subject.classes) + subject.labels[rows], return_inverse=True)


def _rates(
    subject: Subject,
    readable: NDArray[np.bool_],
    judge: _Judge,
    models: Sequence[_Model],
    place: int | None,
    rows: NDArray[np.int64],
) -> list[ResultRow]:
    """Every model on some images that the judge is wrong about: of one shift, or of all (place None)."""
    if not len(rows):
        return []
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
    constructed = _constructed(subject, judge, place)
    found: list[ResultRow] = []
    if not judge.places:
        # A judge that is not scored here is told by what was recorded of it: wrong about each of these.
        for rule in constructed:
            key = {"model": _recorded_name(judge, models), "group": group, "against": judge.name, "at": rule}
            found.append(row(TRANSFER, 1.0, n=len(rows), units=len(captions), note=BY_CONSTRUCTION, **key))
            found.append(row(ON_BASE, None, n=len(base), **key))
    for rule in RULES:
        able = [at for at, model in enumerate(models) if rule in model.failed]
        if not able:
            continue
        failed = np.stack([models[at].failed[rule] for at in able], axis=1)
        counts = np.zeros((len(captions), len(able)), dtype=np.int64)
        np.add.at(counts, caption, failed[rows].astype(np.int64))
        estimates = clustered_rates(counts, images)
        on_base = _matched(subject, base, failed, mixture)
        others = {name: _matched(subject, own, failed, mixture) for name, own in beside.items()}
        for column, at in enumerate(able):
            key = {"model": models[at].answerer.name, "group": group, "against": judge.name, "at": rule}
            itself = rule in constructed and at in judge.places
            # By construction nothing was estimated.
            rate: Estimate | float = estimates[column].value if itself else estimates[column]
            note = BY_CONSTRUCTION if itself else ""
            found.append(row(TRANSFER, rate, n=len(rows), units=len(captions), note=note, **key))
            found.append(row(ON_BASE, None if on_base is None else float(on_base[column]), n=len(base), **key))
            for name, elsewhere in others.items():
                if elsewhere is not None:
                    found.append(row(BESIDE, float(elsewhere[column]), **key | {"at": f"{rule} {name}"}))
    return found


def _recorded_name(judge: _Judge, models: Sequence[_Model]) -> str:
    """A judge's name where no scored model, with other weights, has it."""
    return f"{judge.name} (of the build)" if judge.name in {one.answerer.name for one in models} else judge.name


def _constructed(subject: Subject, judge: _Judge, place: int | None) -> tuple[str, ...]:
    """The rules by which a judge is wrong about every image of one shift, or of all, because they were chosen so.

    Whatever the rule was, the first answer is not the label; and none of the first three is, where these were asked.
    """
    asked = [one for one in subject.judged.shifts if judge.name in one.judges and place in (None, one.place)]
    return RULES if all(one.failure in (TOP3, PARENT) for one in asked) else (TOP1,)


def _relation(model: _Model, judge: _Judge) -> Relation:
    return relation_of(
        model.answerer.architecture,
        model.answerer.sha256,
        (model.param_count, model.outputs),
        judge.architecture,
        judge.sha256,
        (judge.param_count, judge.outputs),
    )


def _rows_of(
    subject: Subject, readable: NDArray[np.bool_], place: int, mixture: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The images of a group that are of the classes in a mixture."""
    return np.flatnonzero((subject.shifts == place) & readable & (mixture[subject.labels] > 0))


def _matched(
    subject: Subject, rows: NDArray[np.int64], failed: NDArray[np.bool_], mixture: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    counts = np.zeros((len(mixture), failed.shape[1]), dtype=np.int64)
    np.add.at(counts, subject.labels[rows], failed[rows].astype(np.int64))
    return matched_rates(counts, np.bincount(subject.labels[rows], minlength=len(mixture)), mixture)
