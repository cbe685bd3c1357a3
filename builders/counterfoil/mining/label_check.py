"""Whether rows that a classifier gets wrong look mislabelled: as CLIP sees them, are they of the class that it answers?

A row looks mislabelled where both agree: CLIP finds the caption of the answer nearer than the label's, and the row's
neighbours of that class are nearer than those of its own. Neighbours are of other units and were answered right, so
that a wrong label speaks for none. Where classifier and CLIP err alike both agree too. So a finding is judged by how
deep its rows lie in the class that was answered: those that are truly of it lie as its right rows do, half of them
beyond the median; those that are only taken for it lie at its edge. So twice the share beyond the median estimates the
share of wrong labels, as p-values above one half estimate the share of true nulls (Storey 2002, J. R. Stat. Soc. B).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.documents import csv_text
from counterfoil.generate.screen import ScreenDoubts
from counterfoil.generate.screen.scores import own_captions
from counterfoil.mining.audited import Audited, class_of_output
from counterfoil.mining.collected import Carried
from counterfoil.mining.findings import LabelCheck
from counterfoil.models.clip import ClipModel
from counterfoil.recipe import Recipe

# Chosen on planted worlds of seeds 0 to 3, and on half of the lab's classifiers (`scripts/prove_directions.py`).
NEIGHBOURS = 10
SUSPECTED = 0.5
_LISTED_DEPTH = 0.1
FEWEST = 5
_MOST_RIGHT = 1000  # of a class, that others are compared with
_ROWS_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """m rows between the class of their label and another one; all (m,).

    rows: places. others: the other class. captions: the cosine to its caption minus that to the label's. neighbours:
    the mean cosine to its nearest right rows minus that to the label's. depth: the share of its right rows that are
    less of it than the row, by both together: 1 is the deepest.
    """

    rows: NDArray[np.int64]
    others: NDArray[np.int64]
    captions: NDArray[np.float64]
    neighbours: NDArray[np.float64]
    depth: NDArray[np.float64]

    @classmethod
    def none(cls) -> CheckedRows:
        places, values = np.zeros(0, dtype=np.int64), np.zeros(0)
        return cls(places, places, values, values, values)

    @property
    def mislabelled(self) -> NDArray[np.bool_]:
        """(m,) whether a row looks it."""
        return (self.captions > 0) & (self.neighbours > 0) & (self.depth >= _LISTED_DEPTH)

    @property
    def share(self) -> float:
        """The estimated share of wrong labels; 0 without rows."""
        return min(1.0, 2 * float((self.depth > 1 / 2).mean())) if len(self.depth) else 0.0


@dataclass(frozen=True)
class SeenLabels:
    """n labelled rows as CLIP sees them.

    features: (n, width), unit vectors. labels: (n,), units: (n,), right: (n,) bool, whether the classifier answers the
    label. captions: (classes, width), unit vectors by label. known: (classes,) bool, whether CLIP knows a class.
    """

    features: NDArray[np.float32]
    labels: NDArray[np.int64]
    units: NDArray[np.int64]
    right: NDArray[np.bool_]
    captions: NDArray[np.float32]
    known: NDArray[np.bool_]

    def check(self, rows: NDArray[np.int64], taken_for: NDArray[np.int64]) -> tuple[LabelCheck, CheckedRows]:
        """Check the labels of failing rows (m,), and the classes (m,) that they are taken for, -1 for none of these."""
        labels = self.labels[rows]
        usable = (taken_for >= 0) & self.known[labels] & self.known[taken_for]
        rows, others, labels = rows[usable], taken_for[usable], labels[usable]
        pairs = sorted(set(zip(labels.tolist(), others.tolist(), strict=True)))
        looked, right = [CheckedRows.none()], 0.0
        for label, other in pairs:
            own = self._between(rows[(labels == label) & (others == other)], label, other)
            looked.append(own)
            right += len(own.rows) * self._between(self._some_right(label), label, other).share
        found = CheckedRows(
            *(np.concatenate([getattr(one, part.name) for one in looked]) for part in fields(CheckedRows))
        )
        if len(rows) < FEWEST:
            return LabelCheck.unchecked(_why_not(len(usable), int((taken_for >= 0).sum()))), found
        right /= len(rows)
        check = LabelCheck(
            len(rows), int(found.mislabelled.sum()), found.share, right, found.share - right >= SUSPECTED
        )
        return check, found

    def _between(self, rows: NDArray[np.int64], label: int, other: int) -> CheckedRows:
        """Some rows, whatever their label, between two classes."""
        theirs = self._some_right(other)
        every = np.concatenate([rows, theirs])
        towards = self.captions[other].astype(np.float64) - self.captions[label]
        captions = self.features[every] @ towards
        neighbours = self._nearness(every, other) - self._nearness(every, label)
        # Both as they vary among the right rows of the other class.
        scales = [float(np.std(one[len(rows) :])) or 1.0 if len(theirs) else 1.0 for one in (captions, neighbours)]
        both = captions / scales[0] + neighbours / scales[1]
        depth = np.searchsorted(np.sort(both[len(rows) :]), both[: len(rows)], side="right") / max(1, len(theirs))
        first = slice(len(rows))
        return CheckedRows(rows, np.full(len(rows), other), captions[first], neighbours[first], depth)

    def _some_right(self, label: int) -> NDArray[np.int64]:
        """Right rows of a class, at most so many, evenly spaced."""
        there = np.flatnonzero((self.labels == label) & self.right)
        if len(there) <= _MOST_RIGHT:
            return there
        return there[np.linspace(0, len(there) - 1, _MOST_RIGHT).round().astype(np.int64)]

    def _nearness(self, rows: NDArray[np.int64], label: int) -> NDArray[np.float64]:
        """(m,) the mean cosine to the nearest right rows of a class that share no unit with a row; -1 for none."""
        there = np.flatnonzero((self.labels == label) & self.right)
        found = np.full(len(rows), -1.0)
        count = min(NEIGHBOURS, len(there))
        for start in range(0, len(rows) if count else 0, _ROWS_AT_ONCE):
            some = rows[start : start + _ROWS_AT_ONCE]
            cosines = (self.features[some] @ self.features[there].T).astype(np.float64)
            cosines[self.units[some][:, None] == self.units[there][None]] = np.nan
            # What shares a unit comes last.
            nearest = -np.sort(np.partition(-cosines, count - 1, axis=1)[:, :count], axis=1)
            kept = np.isfinite(nearest)
            sums, counts = np.where(kept, nearest, 0).sum(axis=1), kept.sum(axis=1)
            found[start : start + len(some)] = np.where(counts > 0, sums / np.maximum(counts, 1), -1.0)
        return found


def _why_not(failing: int, taken_for_classes: int) -> str:
    """Why too few of `failing` rows can be checked."""
    if failing < FEWEST:
        return f"fewer than {FEWEST} of its images are answered wrong"
    if taken_for_classes < FEWEST:
        return "its images are mistaken for something that is not a class of the recipe"
    return "CLIP may not know its class, or the classes that its images are mistaken for"


COLUMNS = (
    "key", "path", "label_id", "label", "suggested_id", "suggested", "caption_margin", "neighbour_margin", "depth",
    "findings",
)  # fmt: skip


def check_labels(
    recipe: Recipe,
    clip: ClipModel,
    audits: Sequence[Audited],
    tested: Sequence[Carried],
    doubts: ScreenDoubts | None,
) -> tuple[dict[str, LabelCheck], str | None]:
    """Return what CLIP says of the labels behind hypotheses that rows tested, by their names, and the table to relabel.

    doubts: what speaks against CLIP on these images (`clip_doubts`); the table is None where no confirmed finding is
    perhaps one of wrong labels.
    """
    checks: dict[str, LabelCheck] = {}
    asked = [one for one in sorted(tested, key=Carried.order) if one.counts.rows is not None]
    if not asked:
        return checks, None
    captions = _captions(recipe, clip)
    known = np.asarray([doubts is None or not doubts.of_any([cls.id]) for cls in recipe.classes])
    seen = []
    for one in audits:
        answers = one.target.predictions.prediction[one.rows]
        right = np.asarray(class_of_output(one.target.class_map)[answers] == one.labels)
        seen.append(SeenLabels(one.features, one.labels, one.units, right, captions, known))
    listed: dict[tuple[str, str], dict[str, Any]] = {}
    for one in asked:
        hypothesis, own = one.hypothesis, audits[one.place]
        inside = hypothesis.members(own.features, own.labels) & hypothesis.tested_on(own.features, own.labels)
        rows = np.flatnonzero(inside & own.failed)
        checks[hypothesis.name], looked = seen[one.place].check(rows, _taken_for(own, rows))
        if one.result.confirmed and checks[hypothesis.name].suspected:
            for row in _suspected_rows(recipe, own, looked):
                named = listed.setdefault((row["key"], row["label_id"]), row | {"findings": []})
                named["findings"].append(hypothesis.name)
    table = ({**row, "findings": " ".join(row["findings"])} for row in listed.values())
    return checks, csv_text(table, COLUMNS) if listed else None


def _captions(recipe: Recipe, clip: ClipModel) -> NDArray[np.float32]:
    """(classes, width) what the base calls each class, as CLIP has it; NaN for a class without the words."""
    texts = own_captions(recipe)
    encoded = np.asarray(clip.embed_texts(list(texts.values())), dtype=np.float32)
    captions = np.full((len(recipe.classes), encoded.shape[1]), np.nan, dtype=np.float32)
    captions[[cls.label for cls in recipe.classes if cls.id in texts]] = encoded
    return captions


def _taken_for(audited: Audited, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """(m,) of failing rows the first answer that is of another class of the question; -1 where none is."""
    answers = class_of_output(audited.target.class_map)[audited.target.predictions.answers[audited.rows[rows]]]
    fits = np.isin(answers, audited.classes) & (answers != audited.labels[rows][:, None])
    return np.where(fits.any(axis=1), answers[np.arange(len(rows)), fits.argmax(axis=1)], -1)


def _suspected_rows(recipe: Recipe, audited: Audited, looked: CheckedRows) -> Iterator[dict[str, Any]]:
    """The rows that look mislabelled, the surest first."""
    for place in np.flatnonzero(looked.mislabelled)[np.argsort(-looked.depth[looked.mislabelled], kind="stable")]:
        row = int(looked.rows[place])
        label, other = recipe.classes[int(audited.labels[row])], recipe.classes[int(looked.others[place])]
        yield {
            "key": audited.keys[row],
            "path": audited.paths.get(audited.keys[row]),
            "label_id": label.id,
            "label": label.name,
            "suggested_id": other.id,
            "suggested": other.name,
            "caption_margin": round(float(looked.captions[place]), 4),
            "neighbour_margin": round(float(looked.neighbours[place]), 4),
            "depth": round(float(looked.depth[place]), 4),
        }
