"""Summarise a classifier's failures by class, by pair of classes, and by label, without words or
CLIP.

Labels to check are sorted by the classifier's confidence in the label, the lowest first
(self-confidence, Kuan and Mueller 2022).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import rankdata

from counterfoil.arrays import Bools, Floats, Ints
from counterfoil.documents import csv_text
from counterfoil.mining.audited import Audited
from counterfoil.mining.findings import (
    AnswersTold,
    ClassAnswered,
    Interval,
    LabelToLookAt,
    TakenFor,
)
from counterfoil.prediction.inference import Predictions
from counterfoil.recipe import Recipe
from counterfoil.stats import clustered_interval

MOST_PAIRS = 50
MOST_LABELS = 200
# The list of labels to check has at most this share of the rows. On photographs whose labels people
# checked, a list twice as long has no more errors (`scripts/prove_photographs.py`, the choosing
# half).
LISTED_SHARE = 0.01
# A pair of classes with fewer mistaken rows than this is left out.
FEWEST_TAKEN = 3
COLUMNS = (
    "key", "path", "label_id", "label", "answered_id", "answered", "confidence", "look_at_label", "label_rank",
    "findings",
)  # fmt: skip


@dataclass(frozen=True)
class AnsweredRows:
    """The n audited images that have an answer."""

    keys: Sequence[str]
    labels: Ints
    failed: Bools
    units: Ints
    taken_for: Ints
    """(n,), the class of the answer, or -1 if it is no class."""
    confidence: Floats
    """(n,), the target's confidence in its answer."""
    label_confidence: Floats
    """(classifiers, n), the confidence of each classifier in the label."""
    paths: Mapping[str, str] = field(default_factory=dict)
    copies: Bools | bool = False
    """(n,), whether the row is a changed copy of another, whose label is checked instead."""

    @classmethod
    def of(cls, audited: Audited, others: Iterable[Predictions] = ()) -> AnsweredRows:
        """Return the rows of an audit. others: other classifiers' answers to all images."""
        predictions = audited.target.predictions
        confidence = predictions.confidence[audited.rows].astype(np.float64)
        every = (predictions, *others)
        in_label = np.stack(
            [answers.true_confidence[audited.rows].astype(np.float64) for answers in every]
        )
        rows = (audited.keys, audited.labels, audited.failed, audited.units, audited.taken_for)
        copies = np.concatenate([part.copies & (part.groups > 0) for part in audited.parts])[
            audited.rows
        ]
        return cls(*rows, confidence, in_label, audited.paths, copies)

    @property
    def notes(self) -> tuple[str, ...]:
        """Say that labels of base images alone are checked, if other rows are copies of them."""
        if not np.any(self.copies):
            return ()
        listed = (
            "labels to check are those of"
            if len(self.to_look_at())
            else "no label to check is listed among"
        )
        return (f"{listed} base images: a changed copy has the label of its base image",)

    def by_label_doubt(self) -> Ints:
        """Return the rows, except copies, that are taken for another class. Rows are sorted by the
        mean rank over classifiers of the confidence in their label, the lowest first.
        """
        taken = (self.taken_for >= 0) & (self.taken_for != self.labels)
        wrong = np.flatnonzero(self.failed & taken & np.logical_not(self.copies))
        if not len(wrong) or np.isnan(self.confidence).all() or np.ptp(self.confidence) == 0:
            return wrong[:0]
        known = ~np.isnan(self.label_confidence).any(axis=1)
        ranks = rankdata(self.label_confidence[known], axis=1).mean(axis=0)
        return wrong[np.lexsort((-self.confidence[wrong], ranks[wrong]))]

    def to_look_at(self) -> Ints:
        return self.by_label_doubt()[
            : math.ceil(LISTED_SHARE * (len(self.labels) - np.sum(self.copies)))
        ]


def answers_shown(
    rows: AnsweredRows, recipe: Recipe, without_words: str | None = None
) -> AnswersTold:
    """Summarise the answers. All intervals treat rows of one unit as dependent."""
    classes = recipe.classes
    look = rows.to_look_at()
    failures = int(rows.failed.sum())
    total = len(rows.labels)
    by_class: list[ClassAnswered] = []
    pairs: list[TakenFor] = []
    for label in np.unique(rows.labels).tolist():
        class_rows = np.flatnonzero(rows.labels == label)
        count = int(rows.failed[class_rows].sum())
        left = total - len(class_rows)
        rate, interval = _share(rows.failed[class_rows], rows.units[class_rows])
        others = (failures - count) / left if left else None
        cls = classes[label]
        by_class.append(
            ClassAnswered(cls.id, cls.name, len(class_rows), count, rate, interval, others)
        )
        taken = np.where(rows.failed[class_rows], rows.taken_for[class_rows], -1)
        for other in np.unique(taken[(taken >= 0) & (taken != label)]).tolist():
            is_pair = taken == other
            if int(is_pair.sum()) >= FEWEST_TAKEN:
                share, interval = _share(is_pair, rows.units[class_rows])
                names = (cls.id, cls.name, classes[other].id, classes[other].name)
                pairs.append(TakenFor(*names, int(is_pair.sum()), len(class_rows), share, interval))
    return AnswersTold(
        rows=total,
        failures=failures,
        classes=tuple(sorted(by_class, key=lambda answered: (-answered.rate, answered.id))),
        taken_for=tuple(sorted(pairs, key=lambda pair: (-pair.share, pair.id, pair.other_id))[:MOST_PAIRS]),
        labels=tuple(
            LabelToLookAt(
                rows.keys[row], rows.paths.get(rows.keys[row]), classes[rows.labels[row]].name,
                classes[rows.taken_for[row]].name, min(1.0, float(rows.confidence[row])),
            )
            for row in look[:MOST_LABELS].tolist()
        ),
        labels_in_all=len(look),
        without_words=without_words,
    )  # fmt: skip


def failing_rows_csv(rows: AnsweredRows, recipe: Recipe, findings: Mapping[str, Bools]) -> str:
    """Return a table of all failing rows. findings: by name of a confirmed finding, the rows of its
    set, (n,) bool."""
    rank = {row: index for index, row in enumerate(rows.by_label_doubt().tolist(), 1)}
    listed = len(rows.to_look_at())
    lines = []
    for row in np.flatnonzero(rows.failed).tolist():
        key = rows.keys[row]
        label = recipe.classes[rows.labels[row]]
        answer = int(rows.taken_for[row])
        taken_for = recipe.classes[answer] if answer >= 0 else None
        inside = [name for name, members in findings.items() if members[row]]
        sure = float(rows.confidence[row])
        look = str(rank.get(row, math.inf) <= listed).lower()
        values = (
            key, rows.paths.get(key), label.id, label.name, taken_for and taken_for.id, taken_for and taken_for.name,
            None if math.isnan(sure) else round(sure, 4), look, rank.get(row), " ".join(inside),
        )  # fmt: skip
        lines.append(dict(zip(COLUMNS, values, strict=True)))
    return csv_text(lines, COLUMNS)


def _share(hit: Bools, units: Ints) -> tuple[float, Interval]:
    """Return the share of rows with a hit, and its interval. The interval is Wilson's if each row
    is its own unit."""
    unit_of_row = np.unique(units, return_inverse=True)[1].ravel()
    return float(hit.mean()), clustered_interval(
        np.bincount(unit_of_row, hit), np.bincount(unit_of_row)
    )
