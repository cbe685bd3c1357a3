"""The audited images with the target's answers, CLIP's features, and the discover and confirm
halves.

A recipe with K conditions has K questions, and each question has two classes. Label 2k means a row
with condition k, and label 2k + 1 means a row without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from counterfoil.arrays import AnyFloats, Bools, Floats, Floats32, Ints
from counterfoil.data.labelled_images import (
    Halves,
    LabelledImages,
    deal_halves,
    evenly_chosen,
    evenly_thinned,
    rows_of,
)
from counterfoil.data.labelled_sources import labelled_conditions, labelled_rows, labelled_split
from counterfoil.data.labels import ConditionLabels
from counterfoil.data.open_source import OpenSource, trained_names
from counterfoil.errors import CounterfoilError, RunFailure, UserError, raise_together, some_of
from counterfoil.evaluation.dataset import is_built, open_dataset
from counterfoil.generate.screen.doubts import ScreenDoubts, doubts_of
from counterfoil.generate.screen.known_classes import KnownClasses
from counterfoil.generate.screen.scores import ValidationScores
from counterfoil.mining.hypotheses import LabelledRows, MiningRun
from counterfoil.models.classifiers import Classifier, describe_classifier, load_classifier
from counterfoil.models.classifiers.of_predictions import RecordedClassifier
from counterfoil.models.clip import ClipModel, load_clip, pin_clip
from counterfoil.prediction.class_map import ClassMap, map_classes
from counterfoil.prediction.embedding import Embedder, clip_embedder, digests_of, embed
from counterfoil.prediction.failures import (
    best_thresholds,
    binary_answers,
    condition_scores,
    failed_answers,
    map_conditions,
)
from counterfoil.prediction.inference import Predictions
from counterfoil.prediction.passes import Placement, join_scored, score_models
from counterfoil.progress import rename_stages, track
from counterfoil.recipe import Recipe, RecipeClass
from counterfoil.recipe.schema_mine import Mine
from counterfoil.regular_files import on_a_line
from counterfoil.report.words import format_count
from counterfoil.store.decoding import UNREAD
from counterfoil.store.layout import writable_cache


def opened_images(
    recipe: Recipe,
    mine: Mine,
    source: OpenSource,
) -> tuple[tuple[LabelledImages, ...], ConditionLabels | None]:
    """Return the images that `mine.on` names, and the conditions of their rows if the recipe has
    conditions."""
    conditions = recipe.source.conditions
    parts = []
    values = []
    if conditions is None:
        parts += opened_parts(recipe, mine.on, source)
    else:
        names = list(dict.fromkeys(mine.on))
        others = [name for name in names if not _may_be_a_split(name)]
        if others:
            raise UserError(
                f"mine.on: '{others[0]}' is not a split of the source, and a recipe with conditions"
                " can only audit splits",
                "Name splits of the source.",
            )
        if conditions.may_be_unknown:
            raise UserError(
                "source.conditions: unknown labels are left out, but mining asks for a value of"
                " every label of a row",
                "Set source.conditions.unknown=absent, or leave out the rows whose labels nobody"
                " knows.",
            )
        _refuse_train_split(recipe, names, source, "mine.on")
        for name in names:
            images, labels = labelled_conditions(recipe.source, name, source.pin)
            parts.append(images)
            values.append(labels.values)
    if mine.limit is not None:
        chosen = [evenly_chosen(part.keys, part.labels, mine.limit) for part in parts]
        most = max(map(len, chosen))
        for index, rows in enumerate(chosen):
            kept = rows_of(parts[index], rows)
            parts[index] = replace(kept, preview=most)
            if conditions is not None:
                values[index] = values[index][rows]
    if conditions is None:
        return tuple(parts), None
    labels = ConditionLabels(conditions.names, np.concatenate(values))
    return tuple(parts), labels


def opened_parts(
    recipe: Recipe,
    on: Sequence[str],
    source: OpenSource,
    key: str = "mine.on",
) -> tuple[LabelledImages, ...]:
    """Return the images that `key` names: splits of the recipe's source, or one built dataset with
    the same classes."""
    names = list(dict.fromkeys(on))
    if all(map(_may_be_a_split, names)):
        for name in names:
            # A table that was saved without splits has no names, and takes any.
            if Path(name).is_dir() and source.splits and name not in source.splits:
                raise UserError(
                    f"{key}: the source has no split '{name}', but a folder of this name is here",
                    f"Write ./{name} for the folder, or one of the splits:"
                    f" {', '.join(source.splits)}.",
                )
        _refuse_train_split(recipe, names, source, key)
        parts = []
        for name in names:
            part = labelled_split(recipe.source, name, recipe.classes, source.pin)
            parts.append(part)
        return tuple(parts)
    name = names[0]
    if len(names) > 1:
        raise UserError(
            f"{key}: found {', '.join(names)}, expected splits of the source, or one built dataset"
        )
    if not is_built(name):
        raise UserError(
            f"{key}: '{name}' is neither a split of the source nor a built dataset",
            "Name a split, such as validation, or the folder of a dataset that `counterfoil build`"
            " made.",
        )
    opened = open_dataset(name)
    built = [(cls.id, cls.name) for cls in opened.recipe.classes]
    expected = [(cls.id, cls.name) for cls in recipe.classes]
    if built != expected:
        raise UserError(
            f"{key}: {name} has {len(built)} classes, and they are not the {len(expected)} of the"
            " recipe",
            f"Mine it by its own recipe: counterfoil mine {name} --on {name}",
        )
    units = None
    if opened.units is not None:
        # Images of one video or patient, under whatever shift.
        of_images = []
        for number in opened.units.of_image.tolist():
            unit = str(number)
            of_images.append(unit)
        units = tuple(of_images)
    elif opened.recipe.samples.noise == "paired":
        # Images of one class and index start from the same noise in every shift, so they are not
        # independent.
        labels = opened.labels.tolist()
        numbers = zip(labels, opened.indices.tolist(), strict=True)
        units = tuple(f"{label}_{index}" for label, index in numbers)
    copies = opened.recipe.kind.corrupts
    images = replace(opened.labelled(), copies=copies, units=units)
    return (images,)


def _may_be_a_split(name: str) -> bool:
    return name.replace("-", "_").isidentifier()


def _refuse_train_split(
    recipe: Recipe,
    splits: Sequence[str],
    source: OpenSource,
    key: str,
) -> None:
    train = recipe.source.train_split
    # If a source has only one split, that split is audited although its rows are train rows.
    if train in splits and recipe.source.validation_split != train:
        others = [split for split in source.splits if split != train]
        raise UserError(
            f"{key}: '{train}' is the split that classifiers learn from, where memorised images"
            " hide failures",
            f"Name another: {', '.join(others) or 'a held-out split'}.",
        )


def audited_train_rows(
    recipe: Recipe,
    source: OpenSource,
) -> tuple[LabelledImages, ConditionLabels | None]:
    """Return the train split of the source without units, and the conditions of its rows if the
    recipe has any."""
    stated = recipe.source
    return labelled_rows(stated, stated.train_split, recipe.classes, source.pin, units=False)


# The content hash of a row that has no image.
NO_CONTENT = hashlib.sha256(b"").hexdigest()


class ContentsSeen:
    """Hashes the images that are read through `images`, and keeps the hashes of all rows in
    `folder` for later runs."""

    def __init__(self, images: LabelledImages, folder: Path | None = None):
        self._plain = images
        self._folder = folder
        self._seen: dict[str, bytes] = {}
        self.images = replace(images, read=self._read)

    def _read(self, keys: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
        for key, image in self._plain.read(keys):
            digest = hashlib.sha256(image or b"")
            self._seen[key] = digest.digest()
            yield key, image

    def known(self) -> list[str]:
        """Return the hash of each row's image, in order. Images that were not read yet are read
        now."""
        read = self._digests()
        digests = digests_of(self._plain, "contents-seen", read, self._folder)
        return [digest.tobytes().hex() for digest in digests]

    def _digests(self) -> Iterator[bytes]:
        missing = frozenset(self._plain.keys) - self._seen.keys()
        if missing:
            stage = f"{self._plain.name}: hashing images"
            read = self.images.images(missing)
            for _ in track(read, stage, len(missing), 1000):
                pass
        for key in self._plain.keys:
            yield self._seen[key]


def keys_sha256(keys: Sequence[str]) -> str:
    lines = "\n".join(keys)
    return hashlib.sha256(lines.encode()).hexdigest()


def condition_labels(present: Bools) -> Ints:
    """Return labels (n, K): 2k if condition k is present, 2k + 1 if it is absent. present: (n,
    K)."""
    return 2 * np.arange(present.shape[1]) + ~present


def row_labels(present: Bools) -> tuple[Ints, Ints]:
    """Return row numbers and labels, int64 [n * K]. Each row occurs K times, once with each of its
    labels."""
    images, conditions = present.shape
    every_image = np.arange(images, dtype=np.int64)
    rows = np.repeat(every_image, conditions)
    labels = condition_labels(present)
    return rows, labels.reshape(-1)


_BATCH = 64


@dataclass(frozen=True)
class AuditedTarget:
    """A classifier's description and its answers, without its weights."""

    classifier: Classifier
    class_map: ClassMap
    predictions: Predictions
    about: Mapping[str, Any]
    """Further facts for the findings."""

    @property
    def taken_for(self) -> Ints:
        """The class that it answers for each image, or -1 if the answer is no class."""
        return class_of_output(self.class_map)[self.predictions.prediction]


@dataclass(frozen=True, slots=True)
class Question:
    """A question about all n images, with a classifier's answers."""

    classes: tuple[int, ...]
    """The classes to distinguish."""
    labels: Ints
    failed: Bools
    """(n,)."""
    target: AuditedTarget


@dataclass(frozen=True, slots=True)
class Answers:
    """A classifier's answers to n images."""

    readable: Bools
    """(n,), whether an image has an answer."""
    dealt_evenly: Ints
    """(n,), the labels that the two halves hold in equal shares."""
    questions: Callable[[Ints], list[Question]]
    """Returns the questions, with thresholds chosen on the rows that it is given."""


def condition_questions(
    classifier: Classifier,
    class_map: ClassMap,
    values: Floats,
    conditions: ConditionLabels,
    rows: Ints,
) -> list[Question]:
    """Return a question for each of K conditions. The thresholds have the best F1 on `rows`.
    values: (n, K), the scores of the conditions, or NaN without an answer.
    """
    present = conditions.present
    readable = np.asarray(~np.isnan(values).any(axis=1))
    limits = best_thresholds(values[rows], present[rows], conditions.names)
    failed = np.zeros(present.shape, dtype=bool)
    failed[readable] = binary_answers(values[readable], present[readable], limits)
    thresholds = zip(conditions.names, limits.tolist(), strict=True)
    about = {"outputs": class_map.outputs, "thresholds": dict(thresholds)}
    # A condition's question treats the classifier as one whose outputs are the labels of the
    # conditions.
    count = 2 * len(conditions.names)
    targets = tuple((label,) for label in range(count))
    plain = replace(class_map, num_classes=count, targets=targets, label_names=None)
    empty = Predictions.empty(len(present), 2)
    empty = replace(empty, readable=readable, correct_top_k=readable)
    every_label = condition_labels(present).T.copy()
    every_failed = failed.T.copy()
    questions = []
    for k, labels in enumerate(every_label):
        wrong = every_failed[k]
        # If the answer is wrong, it is the other label of the condition.
        answered = (labels ^ wrong).astype(np.int32)
        answers = np.stack([answered, answered ^ 1], axis=1)
        predictions = replace(empty, answers=answers, correct=readable & ~wrong)
        target = AuditedTarget(classifier, plain, predictions, about)
        classes = (2 * k, 2 * k + 1)
        questions.append(Question(classes, labels, wrong, target))
    return questions


def collect_answers(
    parts: Sequence[LabelledImages],
    maps: Mapping[str, ClassMap],
    recipe: Recipe,
    device: str,
    placement: Placement | None = None,
    load: Callable[[str], Classifier] | None = None,
) -> dict[str, AuditedTarget]:
    """Return each classifier's answers to all images, from the cache if possible. load: loads a
    classifier by name; by default, a new one.
    """
    load = load or partial(load_classifier, classes=recipe.classes)
    cache = writable_cache() / "predictions"
    names = list(maps)
    answered = []
    for part in parts:
        scores = score_models(
            part,
            names,
            maps,
            cache,
            device,
            _BATCH,
            load,
            placement=placement,
        )
        answered.append(scores)
    targets = {}
    for name, class_map in maps.items():
        scored = join_scored([part[name] for part in answered])
        refuse_unknown_rows(scored.classifier, parts)
        about = {"outputs": class_map.outputs}
        targets[name] = AuditedTarget(scored.classifier, class_map, scored.predictions, about)
    return targets


def class_question(
    recipe: Recipe,
    mine: Mine,
    parts: Sequence[LabelledImages],
    target: AuditedTarget,
) -> Question:
    """Return what a classifier answers to the question which class an image has, and where that is
    a failure."""
    labels = np.concatenate([part.labels for part in parts])
    classes = recipe.classes
    failed = failed_answers(mine.failure, target.predictions, labels, classes, target.class_map)
    every_class = tuple(range(len(classes)))
    return Question(every_class, labels, failed, target)


def ask_about(run: MiningRun, parts: Sequence[LabelledImages]) -> Question:
    """Return what the run's target answers to the question which class an image has."""
    name = run.target
    maps = {name: class_map_of(run.recipe, name)}
    answers = collect_answers(parts, maps, run.recipe, run.device)
    return class_question(run.recipe, run.mine, parts, answers[name])


def conditions_scored(
    parts: Sequence[LabelledImages],
    name: str,
    class_map: ClassMap,
    classes: Sequence[RecipeClass],
    device: str,
) -> tuple[Classifier, Floats]:
    """Return a classifier and its scores (n, K) for the K conditions of `class_map`. An image
    without an answer has NaN.
    """
    load = partial(load_classifier, classes=classes)
    cache = writable_cache() / "predictions"
    scored = []
    for part in parts:
        scores = condition_scores(
            part,
            name,
            class_map,
            cache,
            device,
            _BATCH,
            load,
        )
        scored.append(scores)
    classifier = scored[-1].classifier
    refuse_unknown_rows(classifier, parts)
    return classifier, np.concatenate([part.values for part in scored])


def _answers_by(
    recipe: Recipe,
    mine: Mine,
    parts: Sequence[LabelledImages],
    conditions: ConditionLabels | None,
    maps: Mapping[str, ClassMap],
    device: str,
    placement: Placement | None = None,
    load: Callable[[str], Classifier] | None = None,
) -> dict[str, Answers]:
    """Return each classifier's answers. Raise UserError if conditions do not support the failure
    rule."""
    answers: dict[str, Answers] = {}
    if conditions is None:
        targets = collect_answers(parts, maps, recipe, device, placement, load)
        for name, target in targets.items():
            question = class_question(recipe, mine, parts, target)
            readable = target.predictions.readable
            whole = [question]
            answers[name] = Answers(readable, question.labels, lambda rows, whole=whole: whole)
        return answers
    if mine.failure != "top1":
        raise UserError(
            f"mine.failure: the rule '{mine.failure}' needs several classes, but a condition is"
            " only yes or no",
            "Set mine.failure=top1.",
        )
    sets, _ = conditions.sets()
    for name, class_map in maps.items():
        classifier, values = conditions_scored(parts, name, class_map, recipe.classes, device)
        questions = partial(condition_questions, classifier, class_map, values, conditions)
        readable = np.asarray(~np.isnan(values).any(axis=1))
        answers[name] = Answers(readable, sets, questions)
    return answers


_MOST_NAMED = 5


@dataclass(frozen=True)
class Audited:
    """The n images that can be decoded and have an answer, and one question about them."""

    parts: tuple[LabelledImages, ...]
    keys: tuple[str, ...]
    classes: tuple[int, ...]
    labels: Ints
    failed: Bools
    """(n,)."""
    features: Floats32
    """(n, width), CLIP's unit vectors."""
    units: Ints
    """(n,), equal for rows of one unit."""
    halves: Halves
    target: AuditedTarget
    centre: Floats
    deviation: Floats
    """(width,), the mean and deviation over the rows that `whitened_by` describes."""
    whitened_by: str
    dealt_by: Literal["unit", "content"]
    unreadable: tuple[str, ...]
    """Keys of the images that were left out."""
    rows: Ints
    """(n,), the index of each image among all images."""

    @cached_property
    def taken_for(self) -> Ints:
        """The class that the target answers for each image, (n,), or -1 if the answer is no
        class."""
        return self.target.taken_for[self.rows]

    @cached_property
    def labelled(self) -> LabelledRows:
        return LabelledRows(
            self.features,
            self.labels,
            self.failed,
            self.units,
            self.taken_for,
        )

    @cached_property
    def paths(self) -> Mapping[str, str]:
        """Paths of images by key, relative to the folder of the dataset. Empty if the dataset is no
        folder of files."""
        paths: dict[str, str] = {}
        for part in self.parts:
            paths.update(zip(part.keys, part.paths or (), strict=False))
        return paths


def parts_with(
    keys: Iterable[str],
    images: Iterable[tuple[str, LabelledImages]],
) -> Iterator[tuple[str, LabelledImages, list[str]]]:
    """Yield the prefix and the images of each part that has some of these keys, with the keys
    without the prefix."""
    for start, part in images:
        of_part = [key.removeprefix(start) for key in keys if key.startswith(start)]
        if of_part:
            yield start, part, of_part


def unreadable_note(unreadable: Sequence[str], paths: Mapping[str, str]) -> tuple[str, ...]:
    """Return a note that names the images that cannot be read. The result is empty if there are
    none."""
    count = len(unreadable)
    if not count:
        return ()
    named = []
    for key in unreadable[:_MOST_NAMED]:
        named.append(on_a_line(paths.get(key, key)))
    verb = "is" if count == 1 else "are"
    words = f"{format_count(count, 'image')} cannot be read ({UNREAD}) and {verb} left out"
    return (f"{words}: {some_of(named, _MOST_NAMED, count=count)}",)


@dataclass(frozen=True, slots=True)
class RecipeClip:
    """The CLIP model of a recipe's screen."""

    model: ClipModel
    embedder: Embedder


def recipe_clip(recipe: Recipe, device: str) -> RecipeClip:
    """Load the CLIP model of a recipe's screen. Raise RunFailure if none is available, and
    UserError for a wrong name."""
    screen = recipe.screen
    try:
        pin = pin_clip(screen.clip, screen.weights)
        model = load_clip(screen.clip, screen.weights, device, revision=pin.revision)
        return RecipeClip(model, clip_embedder(model, pin, screen.weights))
    except CounterfoilError as error:
        # A wrong name is the user's mistake; a missing model or network is not.
        if isinstance(error, UserError) and screen.model is not None:
            raise
        raise RunFailure(error.problems, error.hint) from error


@dataclass(frozen=True)
class AskedTarget:
    """The images of `mine.on` with the target's answers, before CLIP embeds them."""

    recipe: Recipe
    mine: Mine
    source: OpenSource
    parts: tuple[LabelledImages, ...]
    seen: Sequence[ContentsSeen]
    has: ConditionLabels | None
    answers: Answers
    elsewhere: Placement | None
    """Workers that embed."""

    def audits(self, clip: RecipeClip | None) -> tuple[Audited, ...]:
        """Return an audit for each question. Without a CLIP, features have width 0."""
        parts = self.parts
        names = ", ".join(part.name for part in parts)
        every_key = [key for part in parts for key in part.keys]
        keys = np.asarray(every_key, dtype=object)
        raw = np.zeros((len(keys), 0), dtype=np.float32)
        if clip is not None:
            by_part = []
            for seen in self.seen:
                vectors = features_of(seen.images, clip.embedder, self.elsewhere)
                by_part.append(np.asarray(vectors, dtype=np.float32))
            raw = np.concatenate(by_part)
        embedded = np.isfinite(raw).all(axis=1)
        usable = self.answers.readable & embedded
        if not usable.any():
            raise RunFailure(f"{names}: no image can be decoded")
        rows = np.flatnonzero(usable)
        features = raw[rows]
        # Rows without a unit have their content as their unit. Rows are dealt to the halves by the
        # names of units, so that adding or dropping a row moves no other row to the other half.
        dealt_by = "unit"
        contents: list[str] = []
        units: list[str] = []
        for seen, part in zip(self.seen, parts, strict=True):
            of_part = seen.known()
            contents += of_part
            if part.units is None:
                dealt_by = "content"
                units += of_part
                continue
            for unit, content in zip(part.units, of_part, strict=True):
                units.append(content if unit is None else unit)
        shared = np.asarray(units)[rows]
        row_contents = np.asarray(contents)[rows].tolist()
        dealt_evenly = self.answers.dealt_evenly[rows]
        halves = deal_halves(dealt_evenly, self.mine.seed, shared.tolist(), row_contents)
        discover = halves.discover
        train = np.zeros((2, 0))
        whitened_by = ""
        if clip is not None:
            of_train = self._train_features(clip.embedder)
            if of_train is None:
                of_train = features[discover], f"{len(discover):,} rows of the discover half"
            train, whitened_by = of_train
        if len(train) < 2:
            raise UserError(
                f"{names}: {len(rows):,} images have a class and can be decoded, but the discover"
                f" half has only {len(discover):,} of them, expected at least 2",
                "Name more images, or check their labels.",
            )
        _, unit_numbers = np.unique(shared, return_inverse=True)
        centre = train.mean(axis=0, dtype=np.float64)
        deviation = train.std(axis=0, dtype=np.float64, ddof=1)
        audits = []
        for question in self.answers.questions(rows[discover]):
            audited = Audited(
                parts=parts,
                keys=tuple(keys[rows].tolist()),
                classes=question.classes,
                labels=question.labels[rows],
                failed=question.failed[rows],
                features=features,
                units=unit_numbers,
                halves=halves,
                target=question.target,
                centre=centre,
                deviation=deviation,
                whitened_by=whitened_by,
                dealt_by=dealt_by,
                unreadable=tuple(keys[~usable].tolist()),
                rows=rows,
            )
            audits.append(audited)
        return tuple(audits)

    def _train_features(self, embedder: Embedder) -> tuple[AnyFloats, str] | None:
        """Return the features of at most `mine.train_rows` train rows, and words for these rows.
        Return None if the train split itself is audited.
        """
        split = self.recipe.source.train_split
        if split in self.mine.on or split not in self.source.splits:
            return None
        train_images, _ = audited_train_rows(self.recipe, self.source)
        images = evenly_thinned(train_images, self.mine.train_rows)
        embedded = features_of(images, embedder)
        rows = np.asarray(embedded, dtype=np.float64)
        rows = rows[np.isfinite(rows).all(axis=1)]
        if len(rows) < 2:
            return None
        return rows, f"{len(rows):,} rows of {images.name}"


def ask_target(
    recipe: Recipe,
    mine: Mine,
    source: OpenSource,
    device: str,
    elsewhere: Placement | None = None,
    load: Callable[[str], Classifier] | None = None,
) -> AskedTarget:
    """Open the images of `mine` and collect the target's answers. load: loads a classifier by name;
    by default, a new one. Raise UserError for classes, splits, labels or a predictions file that do
    not fit.
    """
    name = mine.target
    if name is None:
        raise UserError(
            "no classifier to audit: mine.target is not set", "Name one: --target lab:resnet10t"
        )
    maps = {name: class_map_of(recipe, name)}
    parts, has = opened_images(recipe, mine, source)
    seen = [ContentsSeen(part) for part in parts]
    if elsewhere is not None:
        elsewhere = elsewhere.worth_for(sum(map(len, parts)))
    images = [part.images for part in seen]
    answers = _answers_by(recipe, mine, images, has, maps, device, elsewhere, load)
    return AskedTarget(
        recipe,
        mine,
        source,
        parts,
        seen,
        has,
        answers[name],
        elsewhere,
    )


def audit_target(
    recipe: Recipe,
    mine: Mine,
    source: OpenSource,
    device: str,
    load: Callable[[str], Classifier] | None = None,
) -> tuple[tuple[Audited, ...], RecipeClip]:
    """Return an audit for each question, and CLIP. Raise the errors of `ask_target`, and RunFailure
    if there is no CLIP.
    """
    answered = ask_target(recipe, mine, source, device, load=load)
    clip = recipe_clip(recipe, device)
    return answered.audits(clip), clip


def clip_doubts(
    recipe: Recipe,
    clip: ClipModel,
    audits: Sequence[Audited],
    decides: Literal["words", "contexts"],
) -> ScreenDoubts | None:
    """Return the doubts about CLIP that `build` would have on the audited images, or None if it
    would have none."""
    known: KnownClasses | None = None
    for audited in audits:
        scores = ValidationScores(recipe, clip, audited.labels, audited.features)
        of_audit = scores.known_classes(audited.classes)
        if known is None:
            known = of_audit
        elif of_audit is not None:
            classes = {**known.classes, **of_audit.classes}
            known = replace(of_audit, classes=classes)
    return doubts_of(recipe, known, decides=decides)


def features_of(
    images: LabelledImages,
    embedder: Embedder,
    placement: Placement | None = None,
) -> AnyFloats:
    """Return CLIP's features [n, width], from the cache if possible. An image that cannot be
    decoded has NaN."""
    with rename_stages(f"CLIP: {images.name}"):
        return embed(images, embedder, placement=placement)


def class_map_of(recipe: Recipe, name: str) -> ClassMap:
    """Return which outputs of a classifier stand for each class or condition."""
    facts = describe_classifier(name, recipe.classes)
    conditions = recipe.source.conditions
    if conditions is None:
        trained = trained_names(recipe.source, recipe.classes)
        return map_classes(recipe.classes, facts, trained=trained)
    return map_conditions(conditions.names, recipe.classes, facts)


def class_of_output(class_map: ClassMap) -> Ints:
    """Return the class of each output, (outputs + 1,). An output without a class has -1, and so has
    the last place."""
    labels = np.full(class_map.num_classes + 1, -1, dtype=np.int64)
    for label, outputs in enumerate(class_map.targets):
        labels[list(outputs)] = label
    return labels


def refuse_unknown_rows(classifier: Classifier, parts: Sequence[LabelledImages]) -> None:
    """Raise UserError if a predictions file has rows that the audited splits lack. For a preview,
    nothing is checked, because a preview has only few rows of its split.
    """
    if not isinstance(classifier, RecordedClassifier):
        return
    if any(part.preview is not None for part in parts):
        return
    if classifier.columns.is_row:
        if len(parts) > 1:
            raise UserError(
                f"model {classifier.name!r} identifies images by row, but {len(parts)} splits are"
                " audited",
                "Identify images by key, which includes the split.",
            )
        return
    known = {key for part in parts for key in part.keys}
    for part in parts:
        known.update(part.paths or ())
        known.update(part.other_paths)
        if part.left_out:
            stem = part.keys[0].rpartition("_")[0]
            rows = len(part) + sum(part.left_out.values())
            known |= {f"{stem}_{row:08d}" for row in range(rows)}
    count, first = classifier.unknown_keys(known)
    if count:
        names = ", ".join(part.name for part in parts)
        raise UserError(
            f"model {classifier.name!r} answers {count:,} images that are not of {names}:"
            f" {some_of(first, len(first), count=count)}",
            "Check that the file belongs to this dataset and split, or remove these rows.",
        )


_MEASURED = "Findings are also measured on other classifiers; without them: --set 'mine.others=[]'"


def other_models(
    recipe: Recipe,
    mine: Mine,
    names: Sequence[str] | None,
    hint: str = _MEASURED,
) -> dict[str, ClassMap]:
    """Return the class maps of these classifiers except the target. names: None for those that the
    recipe evaluates."""
    maps: dict[str, ClassMap] = {}
    errors: list[CounterfoilError] = []
    if names is None:
        names = recipe.evaluate.models
    for name in dict.fromkeys(names):
        if name == mine.target:
            continue
        try:
            maps[name] = class_map_of(recipe, name)
        except CounterfoilError as error:
            errors.append(error)
    raise_together(errors, hint)
    return maps


def other_answers(
    target: AskedTarget,
    audits: Sequence[Audited],
    maps: Mapping[str, ClassMap],
    device: str,
) -> list[dict[str, Question]]:
    """Return what other classifiers answer to the question of each audit, with labels and failures
    of its rows. Thresholds come from the discover half of the audit.
    """
    by_audit: list[dict[str, Question]] = [{} for _ in audits]
    if not maps:
        return by_audit
    rows = audits[0].rows
    discover_rows = rows[audits[0].halves.discover]
    answers = _answers_by(
        target.recipe,
        target.mine,
        target.parts,
        target.has,
        maps,
        device,
    )
    for name, of_model in answers.items():
        every_question = of_model.questions(discover_rows)
        for questions, question in zip(by_audit, every_question, strict=True):
            labels = question.labels[rows]
            failed = question.failed[rows]
            questions[name] = replace(question, labels=labels, failed=failed)
    return by_audit
