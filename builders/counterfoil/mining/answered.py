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
        rows = audited.rows
        predictions = audited.target.predictions
        in_label = []
        for answers in (predictions, *others):
            in_label.append(answers.true_confidence[rows].astype(np.float64))
        copies = []
        for part in audited.parts:
            copies.append(part.copies & (part.groups > 0))
        return cls(
            audited.keys,
            audited.labels,
            audited.failed,
            audited.units,
            audited.taken_for,
            predictions.confidence[rows].astype(np.float64),
            np.stack(in_label),
            audited.paths,
            np.concatenate(copies)[rows],
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Say that labels of base images alone are checked, if other rows are copies of them."""
        if not np.any(self.copies):
            return ()
        listed = "no label to check is listed among"
        if len(self.to_look_at()):
            listed = "labels to check are those of"
        return (f"{listed} base images: a changed copy has the label of its base image",)

    def by_label_doubt(self) -> Ints:
        """Return the rows, except copies, that are taken for another class. Rows are sorted by the
        mean rank over classifiers of the confidence in their label, the lowest first.
        """
        of_class = self.taken_for >= 0
        of_other = of_class & (self.taken_for != self.labels)
        original = np.logical_not(self.copies)
        wrong = np.flatnonzero(self.failed & of_other & original)
        sure = self.confidence
        if not len(wrong) or np.isnan(sure).any():
            return wrong[:0]
        if np.ptp(sure) == 0:
            return wrong[:0]
        known = ~np.isnan(self.label_confidence).any(axis=1)
        ranked = rankdata(self.label_confidence[known], axis=1)
        ranks = ranked.mean(axis=0)
        order = np.lexsort((-sure[wrong], ranks[wrong]))
        return wrong[order]

    def to_look_at(self) -> Ints:
        labelled = len(self.labels) - np.sum(self.copies)
        most = math.ceil(LISTED_SHARE * labelled)
        return self.by_label_doubt()[:most]


def answers_shown(
    rows: AnsweredRows,
    recipe: Recipe,
    without_words: str | None = None,
) -> AnswersTold:
    """Summarise the answers. All intervals treat rows of one unit as dependent."""
    classes = recipe.classes
    failures = int(rows.failed.sum())
    total = len(rows.labels)
    by_class: list[ClassAnswered] = []
    pairs: list[TakenFor] = []
    for label in np.unique(rows.labels).tolist():
        cls = classes[label]
        class_rows = np.flatnonzero(rows.labels == label)
        size = len(class_rows)
        failed = rows.failed[class_rows]
        units = rows.units[class_rows]
        count = int(failed.sum())
        rate, interval = _share(failed, units)
        others = None
        if size < total:
            others = (failures - count) / (total - size)
        answered = ClassAnswered(cls.id, cls.name, size, count, rate, interval, others)
        by_class.append(answered)
        taken = np.where(failed, rows.taken_for[class_rows], -1)
        of_others = (taken >= 0) & (taken != label)
        for answer in np.unique(taken[of_others]).tolist():
            is_pair = taken == answer
            count = int(is_pair.sum())
            if count >= FEWEST_TAKEN:
                share, interval = _share(is_pair, units)
                other = classes[answer]
                names = (cls.id, cls.name, other.id, other.name)
                pairs.append(TakenFor(*names, count, size, share, interval))
    by_class.sort(key=lambda answered: (-answered.rate, answered.id))
    pairs.sort(key=lambda pair: (-pair.share, pair.id, pair.other_id))
    look = rows.to_look_at()
    labels = []
    for row in look[:MOST_LABELS].tolist():
        key = rows.keys[row]
        path = rows.paths.get(key)
        label = classes[rows.labels[row]].name
        answered = classes[rows.taken_for[row]].name
        confidence = min(1.0, float(rows.confidence[row]))
        labels.append(LabelToLookAt(key, path, label, answered, confidence))
    return AnswersTold(
        rows=total,
        failures=failures,
        classes=tuple(by_class),
        taken_for=tuple(pairs[:MOST_PAIRS]),
        labels=tuple(labels),
        labels_in_all=len(look),
        without_words=without_words,
    )


def failing_rows_csv(
    rows: AnsweredRows,
    recipe: Recipe,
    findings: Mapping[str, Bools],
) -> str:
    """Return a table of all failing rows. findings: by name of a confirmed finding, the rows of its
    set, (n,) bool."""
    by_doubt = rows.by_label_doubt().tolist()
    ranks = {row: rank for rank, row in enumerate(by_doubt, 1)}
    listed = len(rows.to_look_at())
    lines = []
    for row in np.flatnonzero(rows.failed).tolist():
        key = rows.keys[row]
        label = recipe.classes[rows.labels[row]]
        line = {
            "key": key,
            "path": rows.paths.get(key),
            "label_id": label.id,
            "label": label.name,
        }
        answer = int(rows.taken_for[row])
        if answer >= 0:
            answered = recipe.classes[answer]
            line["answered_id"] = answered.id
            line["answered"] = answered.name
        sure = float(rows.confidence[row])
        if not math.isnan(sure):
            line["confidence"] = round(sure, 4)
        rank = ranks.get(row)
        is_listed = rank is not None and rank <= listed
        line["look_at_label"] = str(is_listed).lower()
        line["label_rank"] = rank
        of_row = [name for name, members in findings.items() if members[row]]
        line["findings"] = " ".join(of_row)
        lines.append(line)
    return csv_text(lines, COLUMNS)


def _share(hit: Bools, units: Ints) -> tuple[float, Interval]:
    """Return the share of rows with a hit, and its interval. The interval is Wilson's if each row
    is its own unit."""
    _, unit_of_row = np.unique(units, return_inverse=True)
    hits = np.bincount(unit_of_row, hit)
    rows = np.bincount(unit_of_row)
    return float(hit.mean()), clustered_interval(hits, rows)
