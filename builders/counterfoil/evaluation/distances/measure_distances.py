"""Measure how far a dataset is from its source: open, embed (or recall), and compare, the whole and group by group.

Features are kept by content, of the dataset beside it and of the source in the user's cache, so a killed run goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterfoil.embedding import embed
from counterfoil.errors import CounterfoilError, UserError
from counterfoil.evaluation.distances.feature_models import FeatureModel, load_features, named_features
from counterfoil.evaluation.distances.frechet import (
    FeatureStatistics,
    feature_statistics,
    frechet_distance,
    is_biased,
)
from counterfoil.evaluation.distances.kernel import FEWEST_IMAGES, SUBSETS, kernel_distance
from counterfoil.evaluation.distances.source_images import OpenSource, open_source
from counterfoil.evaluation.subject import Subject
from counterfoil.prediction.passes import Spread
from counterfoil.progress import renamed, report
from counterfoil.report.distances import FID, KID, Distances, ImageSet, SetOfImages
from counterfoil.report.results import ResultRow, row
from counterfoil.sources import LabelledImages
from counterfoil.sources.halves import deal_halves
from counterfoil.stats import Estimate
from counterfoil.user_cache import user_cache

_FOLDER = "embeddings"


@dataclass(frozen=True)
class _Side:
    """Features [n, d] of readable images, and what images share: (n,)."""

    features: NDArray[np.floating]
    units: NDArray[np.int64]


@dataclass(frozen=True)
class PreparedDistances:
    """What is to be measured: the names of models of features, and the source, or why it is not at hand."""

    names: tuple[str, ...] = ()
    opened: OpenSource | str = ""


def prepared_distances(
    subject: Subject, names: str | Sequence[str] | None, against: str | Path | None
) -> PreparedDistances:
    """Look at the names and open the source, before anything takes long.

    UserError for names that can give no features, and for what is wrong with `against`; a recipe's source that is not
    at hand is noted. RunFailure where `against` cannot be reached.
    """
    wanted = named_features(names, subject)
    if not wanted:
        if against is not None:
            raise UserError(
                "--against says what distances are measured to, and none are wanted", "Add --distances clip"
            )
        return PreparedDistances()
    try:
        opened = open_source(subject, against)
    except CounterfoilError as error:
        if against is not None:
            raise
        return PreparedDistances(wanted, _told(error))
    if opened.source.images.content == subject.parts[0].images.content:
        return PreparedDistances(wanted, f"the images are those of {opened.source.name} themselves")
    return PreparedDistances(wanted, opened)


def measure_distances(
    subject: Subject,
    prepared: PreparedDistances,
    *,
    device: str,
    batch_size: int,
    seed: int,
    spread: Spread | None = None,
) -> tuple[tuple[Distances, ...], list[ResultRow]]:
    """Distances in the features of each model that was named, and their rows.

    A source that is not at hand and a model that gives no features are skipped, with the reason. RunFailure where a
    model cannot be fetched or computed.
    """
    found: list[Distances] = []
    rows: list[ResultRow] = []
    for name in prepared.names:
        if isinstance(prepared.opened, str):
            found.append(Distances(name, skipped=prepared.opened))
            continue
        try:
            model = load_features(name, subject, device)
            distances, own = _measured(subject, prepared.opened, model, batch_size, seed, spread)
            found.append(distances)
            rows += own
        except UserError as error:
            found.append(Distances(name, skipped=_told(error)))
        model = None  # its memory is for the next
    return tuple(found), rows


def _told(error: CounterfoilError) -> str:
    return "; ".join([*error.problems, *([error.hint] if error.hint else [])]).rstrip(".")


def _measured(
    subject: Subject, opened: OpenSource, model: FeatureModel, batch_size: int, seed: int, spread: Spread | None
) -> tuple[Distances, list[ResultRow]]:
    cache = user_cache() / _FOLDER
    source = _features(opened.source.images, model, cache, batch_size, spread)
    found = _readable(source)
    sides = [_Side(source[found], _units(opened.source.images)[found])]
    if opened.other is not None:
        other = _features(opened.other.images, model, cache, batch_size, spread)
        has = _readable(other)
        sides.append(_Side(other[has], _units(opened.other.images)[has]))
    parts = []
    for part in subject.parts:
        parts.append(_features(part.images, model, subject.workplace / _FOLDER, batch_size, spread))
    features = np.concatenate(parts) if len(parts) > 1 else parts[0]
    readable = _readable(features)
    shared = _subject_units(subject)
    statistics: dict[tuple[int, ...], FeatureStatistics | None] = {}
    measured: list[_Measured] = []
    groups = _groups(subject)
    for done, (what, name, labels, chosen) in enumerate(groups, 1):
        chosen = chosen & readable
        fitting = opened.source.of_classes(subject.classes, labels)[found]
        against = _Side(sides[0].features[fitting], sides[0].units[fitting])
        if labels not in statistics:
            statistics[labels] = _statistics(against)
        side = _Side(features[chosen], shared[chosen])
        measured.append(_distance(what, name, len(labels), side, against, statistics[labels], seed))
        report(f"distances, {model.name}", done, len(groups) + 1)
    measured.append(_near(subject, opened, sides, opened.source.images.labels[found], seed))
    report(f"distances, {model.name}", len(groups) + 1, len(groups) + 1)
    distances = Distances(
        features=model.name,
        pin=model.pin,
        width=features.shape[1],
        scaled=model.scaled,
        source=opened.source.name,
        source_content=opened.source.images.content,
        source_rows=opened.source.rows,
        subsets=SUBSETS,
        seed=seed,
        unreadable=int((~readable).sum() + (~found).sum()),
        sets=tuple(one.images for one in measured),
    )
    rows = []
    for one in measured:
        key = distances.key(one.images)
        rows.append(row(KID, one.kid, n=one.images.images, note=one.note, **key))
        if one.fid is not None:
            rows.append(row(FID, one.fid, n=one.images.images, **key))
    return distances, rows


def _features(
    images: LabelledImages, model: FeatureModel, folder: Path, batch_size: int, spread: Spread | None
) -> NDArray[np.floating]:
    """Features [n, d] of n images, lengthened to √d where they are unit vectors; NaN for what is no image."""
    # Not in half precision: KID of near sets is a small difference of large means.
    engine, device = (None, "cpu") if spread is None else (spread.engine, spread.device)
    with renamed(f"features, {model.name}: {images.name}"):
        found = embed(
            images, model.embedder, folder, batch_size=batch_size, precision="float32", engine=engine, device=device
        )
    # The kernel divides by the width: of unit vectors it would see next to nothing beside its constant.
    return found * np.float32(np.sqrt(found.shape[1])) if model.scaled else found


def _readable(features: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Which rows [n, d] are those of an image that could be decoded."""
    return np.asarray(np.isfinite(features).all(axis=1))


def _groups(subject: Subject) -> list[tuple[SetOfImages, str, tuple[int, ...], NDArray[np.bool_]]]:
    """What is compared, its classes and its rows, bool (n,): all of the dataset first, where that is several groups."""
    found: list[tuple[SetOfImages, str, tuple[int, ...], NDArray[np.bool_]]] = []
    own = np.arange(len(subject.keys)) < len(subject.parts[0].images)
    places = np.unique(subject.shifts[own]).tolist()
    if len(places) > 1:
        labels = sorted({label for place in places for label in subject.groups[place].class_labels})
        found.append(("dataset", subject.name, tuple(labels), own))
    for place, group in enumerate(subject.groups):
        found.append(("group", group.name, group.class_labels, subject.shifts == place))
    return found


def _units(images: LabelledImages) -> NDArray[np.int64]:
    """What images share, as numbers: their own units, or nothing."""
    return np.unique(images.units if images.units is not None else images.keys, return_inverse=True)[1].reshape(-1)


def _subject_units(subject: Subject) -> NDArray[np.int64]:
    """What the images of a subject share: where noise is paired, those of one class and index begin with the same."""
    found, start = [], 0
    for part in subject.parts:
        rows = slice(start, start + len(part.images))
        if subject.groups[part.first].paired:
            cells = np.stack([subject.labels[rows], subject.indices[rows]], axis=1)
            units = np.unique(cells, axis=0, return_inverse=True)[1].reshape(-1)
        else:
            units = _units(part.images)
        found.append(units + sum(len(one) for one in found))
        start = rows.stop
    return np.concatenate(found)


def _statistics(side: _Side) -> FeatureStatistics | None:
    return feature_statistics(side.features) if len(side.features) >= FEWEST_IMAGES else None


@dataclass(frozen=True)
class _Measured:
    images: ImageSet
    kid: Estimate | None = None
    fid: float | None = None
    note: str = ""


def _distance(
    what: SetOfImages,
    name: str,
    classes: int,
    side: _Side,
    against: _Side,
    statistics: FeatureStatistics | None,
    seed: int,
) -> _Measured:
    images = ImageSet(what, name, classes, len(side.features), len(against.features))
    counts = [len(np.unique(one.units)) for one in (side, against)]
    if statistics is None or min(counts) < FEWEST_IMAGES:
        independent = " and ".join(f"{count:,}" for count in counts)
        note = f"{independent} independent images, and subsets need {FEWEST_IMAGES} on either side"
        return _Measured(images, note=note)
    kid = kernel_distance(side.features, against.features, side.units, against.units, seed=seed)
    biased = is_biased(images.images, images.source_images, side.features.shape[1])
    return _Measured(
        replace(images, kid_subset=kid.subset, kid_source_subset=kid.other_subset, fid_biased=biased),
        Estimate(kid.value, kid.low, kid.high),
        frechet_distance(feature_statistics(side.features), statistics),
    )


def _near(
    subject: Subject, opened: OpenSource, sides: Sequence[_Side], labels: NDArray[np.int64], seed: int
) -> _Measured:
    """The source against itself: its other split against the one that all is measured against, or its two halves."""
    if opened.other is not None:
        one, other = sides[1], sides[0]
        name = f"{opened.other.name} against {opened.source.name}"
    else:
        whole = sides[0]
        # Equal images have equal features, and go to one half.
        contents = [hashlib.sha256(np.ascontiguousarray(row).tobytes()).hexdigest() for row in whole.features]
        halves = deal_halves(labels, 0, [str(unit) for unit in whole.units.tolist()], contents)
        one, other = (_Side(whole.features[half], whole.units[half]) for half in (halves.discover, halves.confirm))
        name = f"two halves of {opened.source.name}"
    return _distance("source", name, len(subject.classes), one, other, _statistics(other), seed)
