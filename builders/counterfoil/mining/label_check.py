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
    """m rows that may belong to another class than their label says. Arrays are (m,)."""

    rows: Ints
    others: Ints
    """The label of the other class."""
    captions: Floats
    neighbours: Floats
    """The cosine to the other class minus the cosine to the class of the label."""
    depth: Floats
    """The share of the other class's right rows that are less typical of that class than the row
    is."""

    @classmethod
    def none(cls) -> CheckedRows:
        rows = np.zeros(0, dtype=np.int64)
        values = np.zeros(0)
        return cls(rows, rows, values, values, values)

    @property
    def mislabelled(self) -> Bools:
        nearer = (self.captions > 0) & (self.neighbours > 0)
        return nearer & (self.depth >= _LISTED_DEPTH)

    @property
    def share(self) -> float:
        """The estimated share of wrong labels, or 0 if there are no rows."""
        if not len(self.depth):
            return 0.0
        deep = self.depth > 1 / 2
        deeper = float(deep.mean())
        return min(1.0, 2 * deeper)


@dataclass(frozen=True)
class SeenLabels:
    """n labelled rows as CLIP sees them. Arrays without a shape are (n,)."""

    features: Floats32
    """(n, width)."""
    labels: Ints
    units: Ints
    right: Bools
    """Whether the label is answered."""
    captions: Floats32
    """(classes, width), by label."""
    known: Bools
    """(classes,), whether CLIP knows a class."""

    def check(self, rows: Ints, taken_for: Ints) -> tuple[LabelCheck, CheckedRows]:
        """Check the labels of failing rows (m,). taken_for: (m,) the classes that they are taken
        for, -1 for none."""
        failing = len(rows)
        of_class = taken_for >= 0
        # -1 reads the last class here, and `of_class` leaves such rows out.
        known = self.known[self.labels[rows]] & self.known[taken_for]
        usable = of_class & known
        rows = rows[usable]
        count = len(rows)
        if count < FEWEST:
            reason = "CLIP may not know its class, or the classes that its images are mistaken for"
            if failing < FEWEST:
                reason = f"fewer than {FEWEST} of its images are answered wrong"
            elif of_class.sum() < FEWEST:
                reason = "its images are mistaken for something that is not a class of the recipe"
            check = LabelCheck(0, 0, None, None, reason=reason)
            return check, CheckedRows.none()
        others = taken_for[usable]
        labels = self.labels[rows]
        pairs = zip(labels.tolist(), others.tolist(), strict=True)
        by_pair = []
        # Of right rows of the same classes, how many would look mislabelled.
        of_right_rows = 0.0
        for label, other in sorted(set(pairs)):
            of_pair = rows[(labels == label) & (others == other)]
            by_pair.append(self._between(of_pair, label, other))
            right_rows = self._some_right(label)
            of_right = self._between(right_rows, label, other)
            of_right_rows += len(of_pair) * of_right.share
        right = of_right_rows / count
        columns = []
        for field in fields(CheckedRows):
            parts = [getattr(checked, field.name) for checked in by_pair]
            columns.append(np.concatenate(parts))
        every = CheckedRows(*columns)
        share = every.share
        suspected = share - right >= SUSPECTED
        mislabelled = int(every.mislabelled.sum())
        check = LabelCheck(count, mislabelled, share, right, suspected)
        return check, every

    def _between(
        self,
        rows: Ints,
        label: int,
        other: int,
    ) -> CheckedRows:
        """Measure whether rows lie nearer to the class `label` or to the class `other`, whatever
        their own label is."""
        count = len(rows)
        right_rows = self._some_right(other)
        every = np.concatenate([rows, right_rows])
        towards = self.captions[other].astype(np.float64)
        towards -= self.captions[label]
        captions = self.features[every] @ towards
        neighbours = self._nearness(every, other)
        neighbours -= self._nearness(every, label)
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
        return CheckedRows(
            rows,
            others,
            captions[:count],
            neighbours[:count],
            depth,
        )

    def _some_right(self, label: int) -> Ints:
        """Return at most `_MOST_RIGHT` right rows of a class, evenly spaced."""
        right_rows = self._right_rows(label)
        count = len(right_rows)
        most = min(count, _MOST_RIGHT)
        chosen = np.linspace(0, count - 1, most).round()
        return right_rows[chosen.astype(np.int64)]

    def _right_rows(self, label: int) -> Ints:
        return np.flatnonzero((self.labels == label) & self.right)

    def _nearness(self, rows: Ints, label: int) -> Floats:
        """Return the mean cosine of each row to the nearest right rows of a class, (m,). Rows of
        the same unit are left out. A row without such neighbours has -1.
        """
        right_rows = self._right_rows(label)
        nearness = np.full(len(rows), -1.0)
        most = min(NEIGHBOURS, len(right_rows))
        if not most:
            return nearness
        right_features = self.features[right_rows].T
        right_units = self.units[right_rows]
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            at = slice(start, start + _ROWS_AT_ONCE)
            batch = rows[at]
            cosines = self.features[batch] @ right_features
            cosines = cosines.astype(np.float64)
            same_unit = self.units[batch][:, None] == right_units
            # Sorted by the negative cosine, the nearest come first and NaN last.
            cosines[same_unit] = np.nan
            partitioned = np.partition(-cosines, most - 1, axis=1)
            nearest = -np.sort(partitioned[:, :most], axis=1)
            finite = np.isfinite(nearest)
            counted = np.where(finite, nearest, 0)
            sums = counted.sum(axis=1)
            counts = finite.sum(axis=1)
            means = sums / np.maximum(counts, 1)
            nearness[at] = np.where(counts > 0, means, -1.0)
        return nearness


def check_labels(
    tests: HypothesisTests,
    clip: ClipModel,
    doubts: ScreenDoubts | None,
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
    # `texts` has the order of the classes. NaN for a class without words for a caption.
    shape = (len(classes), encoded.shape[1])
    captions = np.full(shape, np.nan, dtype=np.float32)
    with_caption = [cls.label for cls in classes if cls.id in texts]
    captions[with_caption] = encoded
    known = np.ones(len(classes), dtype=bool)
    if doubts is not None:
        for cls in classes:
            known[cls.label] = not doubts.of_any([cls.id])
    seen = []
    for audited in tests.audits:
        right = np.asarray(audited.taken_for == audited.labels)
        of_rows = (audited.features, audited.labels, audited.units, right)
        seen.append(SeenLabels(*of_rows, captions, known))
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
        first_place = fits.argmax(axis=1)  # the first that is true
        first = answers[np.arange(len(rows)), first_place]
        is_taken = fits.any(axis=1)
        taken_for = np.where(is_taken, first, -1)
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
            listing = key, label.id
            if listing not in listed:
                suggested = classes[int(checked.others[position])]
                listed[listing] = {
                    "key": key,
                    "path": audited.paths.get(key),
                    "label_id": label.id,
                    "label": label.name,
                    "suggested_id": suggested.id,
                    "suggested": suggested.name,
                    "caption_margin": round(float(checked.captions[position]), 4),
                    "neighbour_margin": round(float(checked.neighbours[position]), 4),
                    "depth": round(float(checked.depth[position]), 4),
                    "findings": [],
                }
            listed[listing]["findings"].append(name)
    for line in listed.values():
        line["findings"] = " ".join(line["findings"])
    return checks, csv_text(listed.values()) or None
