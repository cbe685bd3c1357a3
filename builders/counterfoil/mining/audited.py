"""What is audited: images with labels, the target's answers to them, CLIP's features, and the two halves.

Everything heavy is found again in the user's cache by its content, so a run that was killed goes on where it stood.
Images that may have several conditions are audited once for each of them, on the same halves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.csv_text import as_cell
from counterfoil.embedding import Embedder, clip_embedder, embed
from counterfoil.errors import CounterfoilError, RunFailure, UserError
from counterfoil.mining.condition_judgements import (
    chosen_thresholds,
    conditions_scored,
    judged_conditions,
    refuse_ranking_rule,
)
from counterfoil.mining.contents import contents_seen
from counterfoil.mining.opened_images import opened_conditions, opened_parts, train_rows
from counterfoil.models.classifiers import Classifier, describe_classifier, load_classifier
from counterfoil.models.classifiers.of_predictions import ROW, RecordedClassifier
from counterfoil.models.clip import ClipModel, load_clip, pin_clip
from counterfoil.prediction.class_map import ClassMap, map_classes
from counterfoil.prediction.failures import failures, map_conditions
from counterfoil.prediction.passes import Spread, score_models
from counterfoil.prediction.predictions import Predictions, joined
from counterfoil.progress import renamed
from counterfoil.recipe import Recipe
from counterfoil.recipe.schema_mine import Mine
from counterfoil.screen.doubts import ScreenDoubts, doubts_of
from counterfoil.screen.known_classes import KnownClasses
from counterfoil.screen.scores import ValidationScores
from counterfoil.sources import LabelledImages, thinned
from counterfoil.sources.labelled_images import Halves, deal_halves, on_a_line
from counterfoil.sources.open_source import open_source
from counterfoil.user_cache import user_cache

_BATCH = 64
_MOST_NAMED = 5


@dataclass(frozen=True)
class AuditedTarget:
    """The audited classifier as it was, without its weights. `about` is what the findings tell of it."""

    classifier: Classifier
    class_map: ClassMap
    predictions: Predictions
    about: Mapping[str, Any]


@dataclass(frozen=True)
class Audited:
    """The n images that can be decoded and have an answer, part after part, and one question: of which class each is.

    classes: labels that the question tells apart: all, or those of one condition. labels, failed: (n,). features: (n,
    width), CLIP's unit vectors. units: (n,), equal where rows share one. halves: rows of each. centre, spread: (width,)
    of the train split, or of the discover half where there is none: whitened_by says which. unreadable: keys that were
    left out. dealt_by: whether units are the dataset's own, or each image's content.
    """

    parts: tuple[LabelledImages, ...]
    keys: tuple[str, ...]
    classes: tuple[int, ...]
    labels: NDArray[np.int64]
    failed: NDArray[np.bool_]
    features: NDArray[np.float32]
    units: NDArray[np.int64]
    halves: Halves
    target: AuditedTarget
    centre: NDArray[np.float64]
    spread: NDArray[np.float64]
    whitened_by: str
    dealt_by: Literal["unit", "content"]
    unreadable: tuple[str, ...]
    rows: NDArray[np.int64]

    @cached_property
    def paths(self) -> Mapping[str, str]:
        """Key → where an image lies below its folder; of images that lie in none there is no entry."""
        return {key: path for part in self.parts for key, path in zip(part.keys, part.paths or (), strict=False)}

    def images_of(self, keys: frozenset[str]) -> dict[str, bytes]:
        """The encoded images of some keys."""
        found: dict[str, bytes] = {}
        for part in self.parts:
            own = keys & frozenset(part.keys)
            found |= {key: image for key, image in part.images(own) if image is not None} if own else {}
        return found


class WithoutClip(RunFailure):
    """CLIP cannot be had on this machine; the target has answered all the same, to images of one class each."""

    def __init__(self, error: CounterfoilError, parts: tuple[LabelledImages, ...], answers: AuditedTarget) -> None:
        super().__init__(error.problems, error.hint)
        self.parts, self.answers = parts, answers


def unreadable_note(unreadable: Sequence[str], paths: Mapping[str, str]) -> tuple[str, ...]:
    """What is said of images that cannot be decoded, by their keys; nothing where there is none."""
    count = len(unreadable)
    named = [on_a_line(paths.get(key, key)) for key in unreadable[:_MOST_NAMED]]
    more = f" and {count - len(named):,} more" if count > len(named) else ""
    told = "1 image cannot be decoded and is" if count == 1 else f"{count:,} images cannot be decoded and are"
    return (f"{told} left out: {', '.join(named)}{more}",) if count else ()


@dataclass(frozen=True, slots=True)
class _Judged:
    """The target's answers to one question about all images, those without an answer too."""

    classes: tuple[int, ...]
    labels: NDArray[np.int64]
    failed: NDArray[np.bool_]
    target: AuditedTarget


def audit_target(
    recipe: Recipe, mine: Mine, device: str, elsewhere: Spread | None = None
) -> tuple[tuple[Audited, ...], ClipModel, Embedder]:
    """Open what a recipe's `mine` names, and let the target and CLIP look at it. `device` is a resolved one;
    with `elsewhere`, an engine's workers look.

    One audit; where images have conditions one of each, with the same rows, features and halves. With CLIP, and what
    embeds by it. UserError for a target whose classes do not fit, a split that is not there, labels of no class, a
    predictions file with missing, double or unknown rows; RunFailure where a network or a disk refuses.
    """
    if mine.target is None:
        raise UserError("no classifier to audit: mine.target is not set", "Name one: --target lab:resnet10t")
    target, conditions = mine.target, recipe.source.conditions
    class_map = class_map_of(recipe, target)
    has = answers = scored = None
    if conditions is None:
        parts = opened_parts(recipe, mine.on)
        seen = contents_seen(parts)
        elsewhere = None if elsewhere is None else elsewhere.worth_for(sum(len(one.images.keys) for one in seen))
        answers = answers_of([one.images for one in seen], {target: class_map}, recipe, device, elsewhere)[target]
        answered = answers.predictions.readable
    else:
        refuse_ranking_rule(mine.failure)
        parts, has = opened_conditions(recipe, mine.on)
        seen = contents_seen(parts)
        scored = conditions_scored([one.images for one in seen], target, class_map, recipe.classes, device)
        refuse_unknown_rows(scored.classifier, parts)
        answered = scored.readable
    try:
        pin = pin_clip(recipe.screen.clip, recipe.screen.weights)
        clip = load_clip(recipe.screen.clip, recipe.screen.weights, device, revision=pin.revision)
    except CounterfoilError as error:
        # A wrong name is a mistake; that there is none, or none here, is not.
        if answers is None or (isinstance(error, UserError) and recipe.screen.model is not None):
            raise
        raise WithoutClip(error, parts, answers) from error
    embedder = clip_embedder(clip, pin, recipe.screen.weights)
    features: list[NDArray[np.floating]] = []
    for one in seen:
        features.append(features_of(one.images, embedder, elsewhere))
    raw = np.concatenate([np.asarray(one, dtype=np.float32) for one in features])
    keys = tuple(key for part in parts for key in part.keys)
    labels = np.concatenate([part.labels for part in parts]) if has is None else has.sets()[0]
    whole = answered & np.isfinite(raw).all(axis=1)
    if not whole.any():
        raise RunFailure(f"{', '.join(part.name for part in parts)}: not one image can be decoded")
    contents: list[str] = []
    for one in seen:
        contents += one.known()
    rows = np.flatnonzero(whole)
    # Halves go by the names of units, so that another row, or one that cannot be decoded, deals no other anew.
    names = np.asarray(unit_names(parts, contents), dtype=object)[rows].astype(str)
    units = np.unique(names, return_inverse=True)[1].astype(np.int64)
    whitening = _whitening(recipe, mine, embedder)
    halves = deal_halves(labels[rows], mine.seed, names.tolist(), [contents[row] for row in rows.tolist()])
    if whitening is None:
        if len(halves.discover) < 2:
            raise UserError(
                f"{', '.join(part.name for part in parts)}: {len(rows):,} images are of a class and can be decoded, and"
                f" {len(halves.discover):,} of them came to the discover half: nothing can be found there",
                "Name more images, or check their labels.",
            )
        whitening = (raw[rows][halves.discover], f"{len(halves.discover):,} rows of the discover half")
    train, whitened_by = whitening
    if answers is not None:
        failed = failures(mine.failure, answers.predictions, labels, recipe.classes, answers.class_map)
        judged = [_Judged(tuple(range(len(recipe.classes))), labels, failed, answers)]
    else:
        assert has is not None and scored is not None
        thresholds = chosen_thresholds(scored, has.present, rows[halves.discover], has.names)
        about = {"outputs": scored.class_map.outputs, "thresholds": thresholds}
        # Of a condition's answers output and label are one number.
        plain = replace(
            scored.class_map,
            num_classes=len(recipe.classes),
            targets=tuple((label,) for label in range(len(recipe.classes))),
            label_names=None,
        )
        judged = [
            _Judged(
                one.classes, one.labels, one.failed, AuditedTarget(scored.classifier, plain, one.predictions, about)
            )
            for one in judged_conditions(scored, has.present, thresholds)
        ]
    chosen, centre = raw[rows], train.mean(axis=0, dtype=np.float64)
    spread = train.std(axis=0, dtype=np.float64, ddof=1)
    audits = tuple(
        Audited(
            parts=parts,
            keys=tuple(keys[row] for row in rows.tolist()),
            classes=one.classes,
            labels=one.labels[rows],
            failed=one.failed[rows],
            features=chosen,
            units=units,
            halves=halves,
            target=one.target,
            centre=centre,
            spread=spread,
            whitened_by=whitened_by,
            dealt_by="content" if any(part.units is None for part in parts) else "unit",
            unreadable=tuple(keys[row] for row in np.flatnonzero(~whole).tolist()),
            rows=rows,
        )
        for one in judged
    )
    return audits, clip, embedder


def clip_doubts(
    recipe: Recipe, clip: ClipModel, audits: Sequence[Audited], decides: Literal["words", "contexts"]
) -> ScreenDoubts | None:
    """What speaks against what CLIP says of the audited images: `build`'s check, on them; None where nothing does.

    Of several audits each asks a question of two classes, and CLIP is asked the same.
    """
    known: KnownClasses | None = None
    for one in audits:
        scores = ValidationScores(recipe, clip, one.labels, one.features)
        more = scores.known_classes(one.classes)
        if more is not None:
            known = more if known is None else replace(more, classes={**known.classes, **more.classes})
    return doubts_of(recipe, known, decides=decides)


def features_of(images: LabelledImages, embedder: Embedder, spread: Spread | None = None) -> NDArray[np.floating]:
    """CLIP's features [n, width] of n images, from the user's cache where they are known; NaN for what is no image."""
    engine, device = (None, "cpu") if spread is None else (spread.engine, spread.device)
    with renamed(f"CLIP: {images.name}"):
        return embed(images, embedder, user_cache() / "embeddings", engine=engine, device=device)


def class_map_of(recipe: Recipe, name: str) -> ClassMap:
    """Which outputs of a classifier are which classes; of one of conditions, which are which conditions."""
    facts, conditions = describe_classifier(name, recipe.classes), recipe.source.conditions
    if conditions is None:
        return map_classes(recipe.classes, facts)
    return map_conditions(conditions.names, recipe.classes, facts)


def answers_of(
    parts: Sequence[LabelledImages],
    maps: Mapping[str, ClassMap],
    recipe: Recipe,
    device: str,
    spread: Spread | None = None,
) -> dict[str, AuditedTarget]:
    """The answers of several classifiers to all images, part after part, from their cache where they are known."""
    names = list(maps)
    found: dict[str, list[Predictions]] = {name: [] for name in names}
    classifiers: dict[str, Classifier] = {}
    for part in parts:
        folder = user_cache() / "predictions"
        scored = score_models(
            part,
            names,
            maps,
            folder,
            device,
            _BATCH,
            lambda name: load_classifier(name, classes=recipe.classes),
            spread=spread,
        )
        for name in names:
            found[name].append(scored[name].predictions)
            classifiers[name] = scored[name].classifier
    for classifier in classifiers.values():
        refuse_unknown_rows(classifier, parts)
    return {
        name: AuditedTarget(classifiers[name], maps[name], joined(several), {"outputs": maps[name].outputs})
        for name, several in found.items()
    }


def refuse_unknown_rows(classifier: Classifier, parts: Sequence[LabelledImages]) -> None:
    """UserError where a file of predictions answers images that are not audited: it is likely of another dataset.

    Rows of the same split that are of no class of the recipe are no strangers.
    """
    if not isinstance(classifier, RecordedClassifier):
        return
    if classifier.columns.image == ROW:
        if len(parts) > 1:
            raise UserError(
                f"model {classifier.name!r} tells images by row, and {len(parts)} splits are audited",
                "Name images by key: a key tells its split.",
            )
        return
    known = {key for part in parts for key in part.keys}
    for part in parts:
        known |= {shown for path in (*(part.paths or ()), *part.other_paths) for shown in (path, as_cell(path))}
        if part.left_out:
            stem = part.keys[0].rpartition("_")[0]
            known |= {f"{stem}_{row:08d}" for row in range(len(part) + sum(part.left_out.values()))}
    count, first = classifier.unknown_keys(known)
    if count:
        more = f" and {count - len(first):,} more" if count > len(first) else ""
        raise UserError(
            f"model {classifier.name!r} answers {count:,} images that are not of "
            f"{', '.join(part.name for part in parts)}: {', '.join(first)}{more}",
            "Is it a file of another dataset or split? Leave these rows out where it is not.",
        )


def unit_names(parts: Sequence[LabelledImages], contents: Sequence[str]) -> list[str]:
    """What each row is named to share: the dataset's unit, or the content of its image where there is none."""
    known = [unit for part in parts for unit in part.units or (None,) * len(part)]
    return [content if unit is None else unit for unit, content in zip(known, contents, strict=True)]


def _whitening(recipe: Recipe, mine: Mine, embedder: Embedder) -> tuple[NDArray[np.floating], str] | None:
    """Features of at most so many rows of the train split, evenly spaced; None where the source has no such split, or
    only that, which is audited."""
    if recipe.source.train_split in mine.on or recipe.source.train_split not in open_source(recipe.source).splits:
        return None
    images, _ = train_rows(recipe)
    images = thinned(images, mine.train_rows)
    features = features_of(images, embedder)
    rows = np.asarray(features, dtype=np.float64)
    rows = rows[np.isfinite(rows).all(axis=1)]
    return None if len(rows) < 2 else (rows, f"{len(rows):,} rows of {images.name}")
