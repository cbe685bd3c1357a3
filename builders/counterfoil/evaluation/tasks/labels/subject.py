"""A built dataset whose images have several labels, opened for scoring. Each label becomes a
class."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from counterfoil.arrays import Bools, Floats
from counterfoil.data.labelled_images import evenly_chosen
from counterfoil.evaluation.compared_images import ComparedImages, rows_in_every_group
from counterfoil.evaluation.dataset import OpenDataset, limit_subject, pair_texts
from counterfoil.evaluation.messages import failure, refusal
from counterfoil.multilabel_stats import LabelTruth
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.tasks.labels import CONDITIONS, UNKNOWN
from counterfoil.report.results import LeftOut
from counterfoil.store.rows import TableForm

# A threshold is chosen on one half of the images with a label and without it, and used on the other
# half.
FEWEST = 2


def open_conditions(dataset: OpenDataset) -> tuple[OpenDataset, LabelTruth]:
    """Return the dataset with its conditions as classes, and which of them each image has.

    Raise RunFailure if no build can have written the table.
    """
    form = TableForm.of(dataset.recipe)
    shape = len(dataset.keys), len(form.names)
    present = np.zeros(shape, dtype=bool)
    known = np.ones(shape, dtype=bool)
    row_of = {key: row for row, key in enumerate(dataset.keys)}
    columns = [CONDITIONS]
    if UNKNOWN in form.added:
        columns.append(UNKNOWN)
    allowed = set(range(len(form.names)))
    for row in dataset.stored(*columns):
        key = row["key"]
        numbers = row[CONDITIONS]
        unknown = row.get(UNKNOWN, [])
        sound = numbers is not None and unknown is not None
        sound = sound and {*numbers, *unknown} <= allowed
        if not sound or {*numbers} & {*unknown}:
            raise failure("altered-dataset.cell", dataset.directory, key[:80], what="conditions")
        if key in row_of:  # a preview has only some images
            present[row_of[key], numbers] = True
            known[row_of[key], unknown] = False
    classes = []
    for label, name in enumerate(form.names):
        classes.append(RecipeClass(name, name, label, label, ()))
    with_classes = replace(dataset, classes=tuple(classes))
    return with_classes, LabelTruth(present, known)


def measured_labels(
    dataset: OpenDataset,
    truth: LabelTruth,
    minimum: int,
) -> Bools:
    """Return which labels, (k,), so many images have and so many lack, for the images to compare.

    Raise UserError if there is none.
    """
    measured = truth.least >= minimum
    if not measured.any():
        raise refusal("nothing-to-measure.labels", dataset.source, minimum)
    return np.asarray(measured)


def preview_labels(
    dataset: OpenDataset,
    truth: LabelTruth,
    minimum: int,
    most: int,
) -> tuple[OpenDataset, Bools]:
    """Return a preview of at most `most` images a group, and which labels it measures: those of the
    whole dataset.

    Raise UserError if so few images cannot have and lack each label twice.
    """
    every = np.arange(len(dataset.keys))
    rows, *_ = rows_in_every_group(dataset, every)
    all_pairs = pair_texts(dataset)
    pairs = [all_pairs[row] for row in rows]
    least = max(FEWEST, minimum)
    measured = measured_labels(dataset, truth.of(rows), least)
    one_class = np.zeros(len(rows), np.int64)
    evenly = evenly_chosen(pairs, one_class, most)
    others = np.setdiff1d(np.arange(len(rows)), evenly)
    in_turn = np.concatenate([evenly, others]).tolist()
    of_label = truth.of(rows, measured)
    needed: list[int] = []
    # Labels that few images have or lack come first, because their images also serve the others.
    rarest_first = np.argsort(of_label.least, kind="stable")
    for label in rarest_first.tolist():
        for side in (of_label.having, of_label.lacking):
            missing = FEWEST - int(side[needed, label].sum())
            fitting = [row for row in in_turn if side[row, label] and row not in needed]
            needed += fitting[: max(0, missing)]
    if len(needed) > most:
        raise refusal("invalid-option.labels", "limit", most, len(needed), fewest=FEWEST)
    preferred = frozenset(pairs[row] for row in needed)
    return limit_subject(dataset, most, preferred), measured


@dataclass(frozen=True)
class MultilabelSubject(ComparedImages):
    """The images to compare. Each source row that they are made from has a readable image in every
    group."""

    labels: tuple[RecipeClass, ...]
    """The k labels that are measured."""
    truth: LabelTruth
    """Which of these labels each image has, (n, k)."""
    few: tuple[LeftOut, ...]
    """The labels that cannot be measured, because too few images have them or too few lack them."""

    @classmethod
    def of(
        cls,
        dataset: OpenDataset,
        truth: LabelTruth,
        readable: Bools,
        minimum: int,
        of_whole: Bools | None = None,
    ) -> MultilabelSubject:
        """Choose images and labels.

        truth: of all images and conditions. readable: (images,). minimum: so many images must have
        a label, and so many must lack it. of_whole: which labels the whole dataset measures, (k,),
        if this is a preview of it. Raise UserError if no image or no label is left, and RunFailure
        if a shift changes conditions.
        """
        rows = rows_in_every_group(dataset, np.flatnonzero(readable))
        of_base = truth.of(rows[0])
        having = of_base.having
        other = truth.having[rows] != having
        other |= truth.known[rows] != of_base.known
        if other.any():
            raise failure(
                "altered-dataset.differs", dataset.directory, "an image", what="conditions"
            )
        if of_whole is None:
            enough = measured_labels(dataset, of_base, max(FEWEST, minimum))
        else:
            enough = measured_labels(dataset, of_base, FEWEST) & of_whole
        labels = []
        few = []
        for label, condition in enumerate(dataset.classes):
            if enough[label]:
                labels.append(condition)
            else:
                images = int(having[:, label].sum())
                few.append(LeftOut(condition.id, condition.name, images, images))
        return cls(
            dataset,
            rows,
            len(dataset.keys) - rows.size,
            dataset.preview,
            labels=tuple(labels),
            truth=truth.of(rows[0], enough),
            few=tuple(few),
        )

    @property
    def shares(self) -> Floats:
        """The share of images with each label among those that know it, (k,): its average precision
        by chance."""
        having = self.truth.having.sum(axis=0)
        known = self.truth.known.sum(axis=0)
        return np.asarray(having / known)
