"""A pool: images that nothing was named or tested on, each scored by the direction of its class.

What shares an image or a unit with the audited images is left out and counted: filtered rows are trained on, and
whoever then looks at the findings again would look at what was learned.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.embedding import Embedder
from counterfoil.errors import UserError
from counterfoil.mining.audited import Audited, answers_of, class_map_of, features_of
from counterfoil.mining.binary import row_labels
from counterfoil.mining.condition_judgements import conditions_scored, has_conditions
from counterfoil.mining.interventions import (
    PREDICTED,
    Hardest,
    PoolOrigin,
    answered_labels,
    hardest_rows,
    pool_labels,
)
from counterfoil.mining.method import Found
from counterfoil.models.classifiers.of_predictions import PREFIX
from counterfoil.progress import track
from counterfoil.recipe import Recipe
from counterfoil.recipe.schema_mine import Mine
from counterfoil.sources import LabelledImages, Reference
from counterfoil.sources.labelled_sources import every_row
from counterfoil.sources.labels import conditions_of, labels_of
from counterfoil.sources.open_source import open_source

_MOST_NAMED = 8
# A class, where nobody says how many.
_ROWS = 50


@dataclass(frozen=True)
class OpenedPool:
    """m images and where they are from. `rows`, `labels`: each row with each label that it has, -1 for none; None where
    the target tells them."""

    images: LabelledImages
    origin: PoolOrigin
    rows: NDArray[np.int64] | None
    labels: NDArray[np.int64] | None


@dataclass(frozen=True, slots=True)
class FilteredPool:
    """What was taken of a pool: the hardest rows of each class that has a direction.

    without: names of the classes that have none, and so give no row. shared: rows that were left out since they share
    an image or a unit with the audited ones.
    """

    origin: PoolOrigin
    hardest: Hardest
    without: tuple[str, ...]
    shared: int

    @property
    def count(self) -> int:
        """How many rows were chosen."""
        return sum(map(len, self.hardest.rows.values()))

    def to_json(self) -> dict[str, Any]:
        """What it tells, as JSON values."""
        return {
            "pool": self.origin.reference.dataset,
            "split": self.origin.reference.split,
            "labels": self.origin.labels,
            "rows": self.count,
            "without_direction": list(self.without),
            "shared": self.shared,
            "unreadable": self.hardest.unreadable,
            "unlabelled": self.hardest.unlabelled,
        }

    def sentence(self) -> str:
        """What it tells, for people."""
        left = {
            "in no class with a direction": self.hardest.unlabelled,
            "among the audited images": self.shared,
            "no image": self.hardest.unreadable,
        }
        told = "".join(f"; {count:,} left out: {why}" for why, count in left.items() if count)
        more = f" and {len(self.without) - _MOST_NAMED} more" if len(self.without) > _MOST_NAMED else ""
        none = f"; without a direction: {', '.join(self.without[:_MOST_NAMED])}{more}" if self.without else ""
        classes = sum(len(rows) > 0 for rows in self.hardest.rows.values())
        return f"Of the pool {self.count:,} rows of {classes} classes were chosen{told}{none}."


def asked_pool(
    pool: str | None, rows: int | None, stated: str | None, recipe: Recipe, mine: Mine
) -> tuple[OpenedPool, int] | None:
    """The pool that a person names, and how many rows a class are wanted of it; None where none is named.

    Raises as `open_pool`, and UserError for what is said of a pool that is not named.
    """
    if pool is None:
        said = [name for name, value in (("--pool-rows", rows), ("--pool-labels", stated)) if value is not None]
        if said:
            raise UserError(f"{' and '.join(said)}: no pool is named", "Name one: --pool ./photos")
        return None
    if rows is not None and rows < 1:
        raise UserError(f"--pool-rows: found {rows}, expected at least 1")
    return open_pool(pool, stated, recipe, mine), _ROWS if rows is None else rows


def open_pool(pool: str, stated: str | None, recipe: Recipe, mine: Mine) -> OpenedPool:
    """A split of the recipe's source by its name, or a folder or Hub dataset, as `labelled_source` takes it.

    stated: the column of its labels, or `predicted`. UserError for the audited split itself, for labels that nobody
    states or that fit no class, and for predicted ones where the target is a file of answers.
    """
    if recipe.generator.takes_rows:
        raise UserError(f"recipe {recipe.name}: it is a set of rows itself", "Mine by the recipe that it extends.")
    source = recipe.source
    splits = open_source(source).splits
    own = pool in splits
    place = _split_of(recipe, pool) if own else Reference.parse(pool)
    images, rows = every_row(place)
    place = replace(place, split=rows.split)
    if (place.dataset, place.config) == (source.dataset, source.config) and place.split in mine.on:
        raise UserError(
            f"the pool {pool} is what the target is audited on: rows that named a failure, or tested it, are no pool",
            f"Name another: {', '.join(name for name in splits if name not in mine.on) or 'a folder of images'}.",
        )
    by_condition = own and source.conditions is not None and stated in (None, source.label_column)
    column = place.label_column if by_condition else pool_labels(stated, pool, rows.columns, place.label_column)
    origin = PoolOrigin(place, column)
    if column == PREDICTED:
        if (mine.target or "").startswith(PREFIX):
            raise UserError(
                f"the labels of the pool {pool} are to be predicted, and the target {mine.target} is a file of answers:"
                " it cannot answer images that it has not seen",
                "Name the column of the pool's labels.",
            )
        return OpenedPool(images, origin, None, None)
    if by_condition and source.conditions is not None:
        return OpenedPool(images, origin, *row_labels(conditions_of(rows, column, source.conditions).present))
    # The source's own labels are numbers, as the recipe's classes say; any other column's are names where it has any.
    by_number = own and column == source.label_column
    labels = labels_of(rows, column).places(recipe.classes, rows.place, numbers=by_number)
    return OpenedPool(images, origin, np.arange(len(images)), labels)


def _split_of(recipe: Recipe, split: str) -> Reference:
    source = recipe.source
    columns = (source.image_column, source.label_column, source.unit_column)
    return Reference(source.dataset, split, source.revision, source.config, *columns)


def filter_pool(
    pool: OpenedPool,
    most: int,
    recipe: Recipe,
    mine: Mine,
    audits: Sequence[Audited],
    found: Found,
    embedder: Embedder,
    device: str,
) -> FilteredPool:
    """The rows of least decision value, at most `most` of each class that has a direction."""
    rows, labels = pool.rows, pool.labels
    if rows is None or labels is None:
        rows, labels = _predicted(pool.images, recipe, mine, audits, device)
    shared = _shared(pool, recipe, audits[0])
    features = features_of(pool.images, embedder)
    directed = np.isin(labels, list(found.decide))
    somehow = np.zeros(len(shared), dtype=bool)
    somehow[rows[directed]] = True
    # A row of several labels is left out where none of them has a direction.
    wanted = ~shared[rows] & (directed | ~somehow[rows])
    rows, labels = rows[wanted], np.where(directed, labels, -1)[wanted]
    decisions = decided(features, rows, labels, found)
    without = tuple(cls.name for cls in recipe.classes if cls.label not in found.decide)
    return FilteredPool(pool.origin, hardest_rows(decisions, labels, most, rows), without, int(shared.sum()))


def decided(
    features: NDArray[np.floating], rows: NDArray[np.int64], labels: NDArray[np.int64], found: Found
) -> NDArray[np.float64]:
    """(m,) decision values of rows of features (n, width), each by the direction of its label (m,).

    NaN where a row could not be decoded, 0 where its label has no direction.
    """
    readable = np.asarray(np.isfinite(features).all(axis=1))
    values = np.where(readable[rows], 0.0, np.nan)
    for label, decide in found.decide.items():
        own = np.flatnonzero((labels == label) & readable[rows])
        if len(own):
            values[own] = decide(np.asarray(features[rows[own]], dtype=np.float32))
    return values


def _predicted(
    images: LabelledImages, recipe: Recipe, mine: Mine, audits: Sequence[Audited], device: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    target = audits[0].target
    name, class_map = target.classifier.name, class_map_of(recipe, target.classifier.name)
    if recipe.source.conditions is None:
        answers = answers_of([images], {name: class_map}, recipe, device)
        given = answers[name].predictions.prediction
        return np.arange(len(images)), answered_labels(given, class_map.targets)
    scored = conditions_scored([images], name, class_map, recipe.classes, device)
    return row_labels(has_conditions(scored, target.about["thresholds"]))


def _shared(pool: OpenedPool, recipe: Recipe, audited: Audited) -> NDArray[np.bool_]:
    """(m,) which images of the pool are audited too, by their content; or by their unit, within one dataset."""
    contents: set[bytes] = set()
    for part in audited.parts:
        contents.update(_contents(part))
    own = _contents(pool.images)
    shared = np.asarray([content in contents for content in own], dtype=bool)
    units = [unit for part in audited.parts for unit in part.units or ()]
    if pool.images.units is not None and pool.origin.reference.dataset == recipe.source.dataset:
        shared |= np.isin(np.asarray(pool.images.units, dtype=str), np.asarray(units, dtype=str))
    return shared


def _contents(images: LabelledImages) -> list[bytes]:
    found: list[bytes] = []
    for _, image in track(images.images(), f"{images.name}: contents", len(images), 1000):
        # Rows without an image have nothing to share.
        found.append(
            f"none {images.content} {len(found)}".encode() if image is None else hashlib.sha256(image).digest()
        )
    return found
