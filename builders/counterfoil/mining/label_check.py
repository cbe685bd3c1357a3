"""Check with CLIP whether rows that a classifier gets wrong have wrong labels and belong to the
class it answers.

Half of the rows that truly belong to a class lie deeper in the class than its median right row.
Rows that are only mistaken for the class lie at its edge. Twice the share of deeper rows therefore
estimates the share of wrong labels. In the same way, p-values above one half estimate the share of
true nulls (Storey 2002, J. R. Stat. Soc. B).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from counterfoil.arrays import Bools, Floats, Floats32, Ints
from counterfoil.documents import csv_text
from counterfoil.generate.screen.doubts import ScreenDoubts
from counterfoil.generate.screen.scores import own_captions
from counterfoil.mining.audited import class_of_output
from counterfoil.mining.collected import HypothesisTests
from counterfoil.mining.findings import LabelCheck
from counterfoil.models.clip import ClipModel

# Chosen on planted worlds of seeds 0 to 3, and on half of the lab's classifiers
# (`scripts/prove_directions.py`).
NEIGHBOURS = 10
SUSPECTED = 0.5
_LISTED_DEPTH = 0.1
FEWEST = 5
_MOST_RIGHT = 1000  # of a class, that others are compared with
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """m rows that may belong to another class than their label says. others: (m,), the label of the
    other class. captions, neighbours: the cosine to the other class minus the cosine to the class
    of the label. depth: the share of the other class's right rows that are less typical of that
    class than the row is.
    """

    rows: Ints
    others: Ints
    captions: Floats
    neighbours: Floats
    depth: Floats

    @classmethod
    def none(cls) -> CheckedRows:
        rows = np.zeros(0, dtype=np.int64)
        values = np.zeros(0)
        return cls(rows, rows, values, values, values)

    @property
    def mislabelled(self) -> Bools:
        return (self.captions > 0) & (self.neighbours > 0) & (self.depth >= _LISTED_DEPTH)

    @property
    def share(self) -> float:
        """The estimated share of wrong labels, or 0 if there are no rows."""
        if not len(self.depth):
            return 0.0
        deeper = float((self.depth > 1 / 2).mean())
        return min(1.0, 2 * deeper)


@dataclass(frozen=True)
class SeenLabels:
    """n labelled rows with CLIP's features (n, width). right: (n,), whether the label is answered.
    captions: (classes, width), by label. known: (classes,), whether CLIP knows a class.
    """

    features: Floats32
    labels: Ints
    units: Ints
    right: Bools
    captions: Floats32
    known: Bools

    def check(self, rows: Ints, taken_for: Ints) -> tuple[LabelCheck, CheckedRows]:
        """Check the labels of failing rows (m,). taken_for: (m,) the classes that they are taken
        for, -1 for none."""
        labels = self.labels[rows]
        usable = (taken_for >= 0) & self.known[labels] & self.known[taken_for]
        rows = rows[usable]
        others = taken_for[usable]
        labels = labels[usable]
        pairs = set(zip(labels.tolist(), others.tolist(), strict=True))
        between = [CheckedRows.none()]
        right = 0.0
        for label, other in sorted(pairs):
            of_pair = (labels == label) & (others == other)
            pair_rows = self._between(rows[of_pair], label, other)
            between.append(pair_rows)
            of_right = self._between(self._some_right(label), label, other)
            right += len(pair_rows.rows) * of_right.share
        columns = []
        for field in fields(CheckedRows):
            parts = [getattr(checks, field.name) for checks in between]
            columns.append(np.concatenate(parts))
        checked = CheckedRows(*columns)
        if len(rows) < FEWEST:
            reason = "CLIP may not know its class, or the classes that its images are mistaken for"
            if len(usable) < FEWEST:
                reason = f"fewer than {FEWEST} of its images are answered wrong"
            elif (taken_for >= 0).sum() < FEWEST:
                reason = "its images are mistaken for something that is not a class of the recipe"
            return LabelCheck(0, 0, None, None, reason=reason), checked
        right /= len(rows)
        suspected = checked.share - right >= SUSPECTED
        mislabelled = int(checked.mislabelled.sum())
        return LabelCheck(len(rows), mislabelled, checked.share, right, suspected), checked

    def _between(self, rows: Ints, label: int, other: int) -> CheckedRows:
        """Measure whether rows lie nearer to the class `label` or to the class `other`, whatever
        their own label is."""
        right_rows = self._some_right(other)
        every = np.concatenate([rows, right_rows])
        towards = self.captions[other].astype(np.float64) - self.captions[label]
        captions = self.features[every] @ towards
        neighbours = self._nearness(every, other) - self._nearness(every, label)
        count = len(rows)
        # Both differences of cosines are scaled by their deviation among right rows of the other
        # class.
        both = np.zeros(len(every))
        for margins in (captions, neighbours):
            scale = 1.0
            if len(right_rows):
                scale = float(np.std(margins[count:])) or 1.0
            both += margins / scale
        of_right = np.sort(both[count:])
        shallower = np.searchsorted(of_right, both[:count], side="right")
        depth = shallower / max(1, len(right_rows))
        others = np.full(count, other)
        return CheckedRows(rows, others, captions[:count], neighbours[:count], depth)

    def _some_right(self, label: int) -> Ints:
        """Return at most `_MOST_RIGHT` right rows of a class, evenly spaced."""
        right_rows = np.flatnonzero((self.labels == label) & self.right)
        count = len(right_rows)
        chosen = np.linspace(0, count - 1, min(count, _MOST_RIGHT))
        return right_rows[chosen.round().astype(np.int64)]

    def _nearness(self, rows: Ints, label: int) -> Floats:
        """Return the mean cosine of each row to the nearest right rows of a class, (m,). Rows of
        the same unit are left out. A row without such neighbours has -1.
        """
        right_rows = np.flatnonzero((self.labels == label) & self.right)
        nearness = np.full(len(rows), -1.0)
        count = min(NEIGHBOURS, len(right_rows))
        if not count:
            return nearness
        right_features = self.features[right_rows].T
        right_units = self.units[right_rows]
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            batch = rows[start : start + _ROWS_AT_ONCE]
            cosines = (self.features[batch] @ right_features).astype(np.float64)
            same_unit = self.units[batch][:, None] == right_units
            cosines[same_unit] = np.nan
            # Cosines to rows of the same unit are NaN and come last.
            partitioned = np.partition(-cosines, count - 1, axis=1)
            nearest = -np.sort(partitioned[:, :count], axis=1)
            finite = np.isfinite(nearest)
            sums = np.where(finite, nearest, 0).sum(axis=1)
            counts = finite.sum(axis=1)
            means = np.where(counts > 0, sums / np.maximum(counts, 1), -1.0)
            nearness[start : start + len(batch)] = means
        return nearness


def check_labels(
    tests: HypothesisTests, clip: ClipModel, doubts: ScreenDoubts | None
) -> tuple[dict[str, LabelCheck], str | None]:
    """Return a check by hypothesis, and the CSV table to relabel if wrong labels may explain a
    confirmed finding."""
    checks: dict[str, LabelCheck] = {}
    on_rows = [carried for carried in tests.by_weight if carried.rows is not None]
    if not on_rows:
        return checks, None
    recipe = tests.run.recipe
    classes = recipe.classes
    texts = own_captions(recipe)
    embedded = clip.embed_texts(list(texts.values()))
    encoded = np.asarray(embedded, dtype=np.float32)
    # NaN for a class without words for a caption.
    shape = (len(classes), encoded.shape[1])
    captions = np.full(shape, np.nan, dtype=np.float32)
    with_caption = [cls.label for cls in classes if cls.id in texts]
    captions[with_caption] = encoded
    known = np.ones(len(classes), dtype=bool)
    if doubts is not None:
        known = np.asarray([not doubts.of_any([cls.id]) for cls in classes])
    seen = []
    for audited in tests.audits:
        labels = audited.labels
        right = np.asarray(audited.taken_for == labels)
        seen.append(SeenLabels(audited.features, labels, audited.units, right, captions, known))
    listed: dict[tuple[str, str], dict[str, Any]] = {}
    for carried in on_rows:
        name = carried.hypothesis.name
        audited = tests.audits[carried.audit]
        labels = audited.labels
        members = carried.hypothesis.tested_members(audited.features, labels)
        rows = np.flatnonzero(members & audited.failed)
        # The first answer that is another class of the question.
        outputs = audited.target.predictions.answers[audited.rows[rows]]
        answers = class_of_output(audited.target.class_map)[outputs]
        of_question = np.isin(answers, audited.classes)
        fits = of_question & (answers != labels[rows][:, None])
        first_place = fits.argmax(axis=1)
        first = answers[np.arange(len(rows)), first_place]
        taken_for = np.where(fits.any(axis=1), first, -1)
        check, checked = seen[carried.audit].check(rows, taken_for)
        checks[name] = check
        if not (carried.result.confirmed and check.suspected):
            continue
        mislabelled = np.flatnonzero(checked.mislabelled)
        surest_first = np.argsort(-checked.depth[mislabelled], kind="stable")
        for position in mislabelled[surest_first]:
            row = int(checked.rows[position])
            key = audited.keys[row]
            label = classes[int(labels[row])]
            suggested = classes[int(checked.others[position])]
            caption_margin = float(checked.captions[position])
            neighbour_margin = float(checked.neighbours[position])
            depth = float(checked.depth[position])
            line = {
                "key": key,
                "path": audited.paths.get(key),
                "label_id": label.id,
                "label": label.name,
                "suggested_id": suggested.id,
                "suggested": suggested.name,
                "caption_margin": round(caption_margin, 4),
                "neighbour_margin": round(neighbour_margin, 4),
                "depth": round(depth, 4),
                "findings": [],
            }
            line = listed.setdefault((key, label.id), line)
            line["findings"].append(name)
    for line in listed.values():
        line["findings"] = " ".join(line["findings"])
    return checks, csv_text(listed.values()) or None
