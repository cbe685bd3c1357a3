"""What is audited: images with labels, the target's answers to them, CLIP's features, and the two halves.

Everything heavy is found again in the user's cache by its content, so a run that was killed goes on where it stood.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from counterfoil.embedding import clip_embedder
from counterfoil.embedding.features import embed_steps
from counterfoil.errors import CounterfoilError, RunFailure, UserError, raise_together
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.opening import is_built
from counterfoil.models.classifiers import Classifier, describe_classifier, load_classifier
from counterfoil.models.clip import ClipModel, load_clip, pin_clip
from counterfoil.prediction.class_map import ClassMap, map_classes
from counterfoil.prediction.failure_rules import failures
from counterfoil.prediction.passes import score_models
from counterfoil.prediction.predictions import Predictions
from counterfoil.recipe import Recipe, sha256_json
from counterfoil.recipe.schema_mine import Mine
from counterfoil.sources import LabelledImages
from counterfoil.sources.halves import Halves, deal_halves
from counterfoil.sources.input_datasets import source_splits
from counterfoil.sources.labelled_sources import labelled_split
from counterfoil.sources.pins import pin_source
from counterfoil.under_way import Stage, UnderWay
from counterfoil.user_cache import user_cache

_BATCH = 64
_MOST_SHOWN = 5


@dataclass(frozen=True)
class AuditedTarget:
    """The audited classifier as it was, without its weights."""

    classifier: Classifier
    class_map: ClassMap
    predictions: Predictions


@dataclass(frozen=True)
class Audited:
    """The n images that can be decoded and have an answer, part after part.

    labels, failed: (n,). features: (n, width), CLIP's unit vectors. units: (n,), equal where rows share one. halves:
    rows of each. centre, spread: (width,) of the train split. unreadable: keys that were left out. whitened_by: how
    many rows of what told centre and spread. by_unit: whether units are the dataset's own, or each image's content.
    """

    parts: tuple[LabelledImages, ...]
    keys: tuple[str, ...]
    content: str
    labels: NDArray[np.int64]
    failed: NDArray[np.bool_]
    features: NDArray[np.float32]
    units: NDArray[np.int64]
    halves: Halves
    target: AuditedTarget
    centre: NDArray[np.float64]
    spread: NDArray[np.float64]
    whitened_by: str
    by_unit: bool
    unreadable: tuple[str, ...]
    rows: NDArray[np.int64]

    def images_of(self, keys: frozenset[str]) -> dict[str, bytes]:
        """The encoded images of some keys."""
        found: dict[str, bytes] = {}
        for part in self.parts:
            own = keys & frozenset(part.keys)
            found |= {key: image for key, image in part.images(own) if image is not None} if own else {}
        return found


def audit_steps(recipe: Recipe, mine: Mine, device: str) -> UnderWay[Stage, tuple[Audited, ClipModel]]:
    """Open what a recipe's `mine` names, and let the target and CLIP look at it. `device` is a resolved one.

    UserError for a target whose classes do not fit, a split that is not there, labels of no class, a predictions file
    with missing, double or unknown rows; RunFailure where a network or a disk refuses.
    """
    if mine.target is None:
        raise UserError("no classifier to audit: mine.target is not set", "Name one: --target lab:resnet10t")
    class_map = map_classes(recipe.classes, describe_classifier(mine.target, recipe.classes))
    parts = opened_parts(recipe, mine.on)
    target, answered = yield from _answers(parts, mine.target, class_map, recipe, device)
    pin = pin_clip(recipe.screen.model, recipe.screen.weights)
    clip = load_clip(recipe.screen.model, recipe.screen.weights, device, revision=pin.revision)
    embedder, folder = clip_embedder(clip, pin), user_cache() / "embeddings"
    features: list[NDArray[np.floating]] = []
    for part in parts:
        features.append((yield from _named(f"CLIP: {part.name}", embed_steps(part, embedder, folder))))
    raw = np.concatenate([np.asarray(one, dtype=np.float32) for one in features])
    keys = tuple(key for part in parts for key in part.keys)
    labels = np.concatenate([part.labels for part in parts])
    whole = answered.readable & ~np.isnan(raw).any(axis=1)
    if not whole.any():
        raise RunFailure(f"{', '.join(part.name for part in parts)}: not one image can be decoded")
    failed = failures(mine.failure, answered, labels, recipe.classes, class_map)
    units, by_unit = yield from _units(parts)
    rows = np.flatnonzero(whole)
    units = np.unique(np.asarray(units, dtype=object)[rows].astype(str), return_inverse=True)[1].astype(np.int64)
    whitening = yield from _whitening(recipe, mine, embedder, folder)
    halves = deal_halves(labels[rows], mine.seed, [str(unit) for unit in units.tolist()])
    if whitening is None:
        whitening = (raw[rows][halves.discover], f"{len(halves.discover):,} rows of the discover half")
    train, whitened_by = whitening
    audited = Audited(
        parts=parts,
        keys=tuple(keys[row] for row in rows.tolist()),
        content=parts[0].content if len(parts) == 1 else sha256_json([part.content for part in parts]),
        labels=labels[rows],
        failed=failed[rows],
        features=raw[rows],
        units=units,
        halves=halves,
        target=target,
        centre=train.mean(axis=0, dtype=np.float64),
        spread=train.std(axis=0, dtype=np.float64, ddof=1),
        whitened_by=whitened_by,
        by_unit=by_unit,
        unreadable=tuple(keys[row] for row in np.flatnonzero(~whole).tolist()),
        rows=rows,
    )
    return audited, clip


def opened_parts(recipe: Recipe, on: Sequence[str]) -> tuple[LabelledImages, ...]:
    """The images that `mine.on` names: splits of the recipe's source, or one built dataset of the same classes."""
    places = list(dict.fromkeys(on))
    splits = [place for place in places if place.isidentifier() or place.replace("-", "_").isidentifier()]
    if len(splits) == len(places):
        pin = pin_source(recipe.source)
        known = source_splits(recipe.source, pin)
        if recipe.source.train_split in places:
            others = ", ".join(one for one in known if one != recipe.source.train_split) or "a held-out split"
            raise UserError(
                f"mine.on: '{recipe.source.train_split}' is the split that classifiers learn from; what one has "
                "learned by heart shows no failure",
                f"Name another: {others}.",
            )
        return tuple(labelled_split(recipe.source, split, recipe.classes, pin) for split in places)
    if len(places) > 1:
        raise UserError(f"mine.on: found {', '.join(places)}, expected splits of the source, or one built dataset")
    if not is_built(places[0]):
        raise UserError(
            f"mine.on: '{places[0]}' is no split of the source and no built dataset",
            "Name a split, such as validation, or the folder of a dataset that `counterfoil build` made.",
        )
    opened = open_dataset(places[0])
    theirs, ours = ([(cls.id, cls.name) for cls in one.classes] for one in (opened.recipe, recipe))
    if theirs != ours:
        raise UserError(
            f"mine.on: {places[0]} has {len(theirs)} classes, and they are not the {len(ours)} of the recipe",
            f"Mine it by its own recipe: counterfoil mine {places[0]} --on {places[0]}",
        )
    images = opened.labelled()
    # Images of one class and index begin with the same noise in every shift: they are no two observations.
    paired = opened.recipe.samples.noise == "paired"
    numbers = zip(opened.labels.tolist(), opened.indices.tolist(), strict=True)
    return (replace(images, units=tuple(f"{label}_{index}" for label, index in numbers) if paired else None),)


def other_models(recipe: Recipe, mine: Mine) -> dict[str, ClassMap]:
    """The classifiers beside the target that findings are measured on, with their class maps.

    UserError, before anything heavy, for those that are not there or do not fit.
    """
    names = recipe.evaluate.models if mine.others is None else mine.others
    maps: dict[str, ClassMap] = {}
    errors: list[CounterfoilError] = []
    for name in dict.fromkeys(names):
        if name != mine.target:
            try:
                maps[name] = map_classes(recipe.classes, describe_classifier(name, recipe.classes))
            except CounterfoilError as error:
                errors.append(error)
    raise_together(errors, "Findings are also measured on other classifiers; without them: --set 'mine.others=[]'")
    return maps


def answers_of(
    parts: Sequence[LabelledImages], maps: Mapping[str, ClassMap], recipe: Recipe, device: str
) -> UnderWay[Stage, dict[str, Predictions]]:
    """The answers of several classifiers to all images, part after part, from their cache where they are known."""
    names = list(maps)
    found: dict[str, list[Predictions]] = {name: [] for name in names}
    for part in parts:
        folder = user_cache() / "predictions"
        scored = yield from score_models(
            part, names, maps, folder, device, _BATCH, lambda name: load_classifier(name, classes=recipe.classes)
        )
        for name in names:
            found[name].append(scored[name].predictions)
    return {name: _joined(several) for name, several in found.items()}


def _answers(
    parts: Sequence[LabelledImages], name: str, class_map: ClassMap, recipe: Recipe, device: str
) -> UnderWay[Stage, tuple[AuditedTarget, Predictions]]:
    several: list[Predictions] = []
    classifier: Classifier | None = None
    for part in parts:
        scored = yield from score_models(
            part,
            [name],
            {name: class_map},
            user_cache() / "predictions",
            device,
            _BATCH,
            lambda one: load_classifier(one, classes=recipe.classes),
        )
        classifier = scored[name].classifier
        several.append(scored[name].predictions)
    assert classifier is not None  # there is a part
    answered = _joined(several)
    return AuditedTarget(classifier, class_map, answered), answered


def _joined(parts: Sequence[Predictions]) -> Predictions:
    from counterfoil.prediction.predictions import joined

    return parts[0] if len(parts) == 1 else joined(parts)


def _named(name: str, steps: UnderWay[Stage, NDArray[np.floating]]) -> UnderWay[Stage, NDArray[np.floating]]:
    from counterfoil.under_way import told_as

    return (yield from told_as(steps, lambda stage: replace(stage, name=name)))


def _units(parts: Sequence[LabelledImages]) -> UnderWay[Stage, tuple[list[str], bool]]:
    """What each row shares with others: the dataset's units, or the content of its image where it has none."""
    units: list[str] = []
    by_unit = True
    for part in parts:
        if part.units is not None:
            units += part.units
            continue
        by_unit = False
        for done, (_, image) in enumerate(part.images(), 1):
            units.append(hashlib.sha256(image or b"").hexdigest())
            if done % 1000 == 0 or done == len(part):
                yield Stage(f"{part.name}: contents", done, len(part))
    return units, by_unit


def _whitening(
    recipe: Recipe, mine: Mine, embedder: object, folder: Path
) -> UnderWay[Stage, tuple[NDArray[np.floating], str] | None]:
    """Features of at most so many rows of the train split, evenly spaced; None where the source has no such split."""
    source = recipe.source
    pin = pin_source(source)
    if source.train_split not in source_splits(source, pin):
        return None
    images = labelled_split(source, source.train_split, recipe.classes, pin, units=False)
    images = thinned(images, mine.train_rows)
    features = yield from _named(f"CLIP: {images.name}", embed_steps(images, embedder, folder))  # type: ignore[arg-type]
    rows = np.asarray(features, dtype=np.float64)
    rows = rows[~np.isnan(rows).any(axis=1)]
    return None if len(rows) < 2 else (rows, f"{len(rows):,} rows of {images.name}")


def thinned(images: LabelledImages, most: int) -> LabelledImages:
    """At most `most` of some images, evenly spaced."""
    if len(images) <= most:
        return images
    chosen = np.unique(np.linspace(0, len(images) - 1, most).round().astype(np.int64))
    keys = tuple(images.keys[row] for row in chosen.tolist())
    own = frozenset(keys)
    return replace(
        images,
        content=sha256_json([images.content, "rows", chosen.tolist()]),
        keys=keys,
        labels=images.labels[chosen],
        groups=images.groups[chosen],
        units=None if images.units is None else tuple(images.units[row] for row in chosen.tolist()),
        read=lambda wanted: images.read(own if wanted is None else own & wanted),
    )
