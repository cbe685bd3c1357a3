"""What is audited: images with labels, the target's answers to them, CLIP's features, and the two halves.

Everything heavy is found again in the user's cache by its content, so an interrupted run resumes where it stood.
Images that may have several conditions are audited once for each of them, on the same halves: condition k of K is a
question of two classes, label 2k for rows that have it and 2k + 1 for rows that do not, over one array of features.

A method sees the discover half alone, cut-offs included; halves go by unit where the source names one, and by
content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from counterfoil.data import LabelledImages, thinned
from counterfoil.data.labelled_images import Halves, deal_halves, on_a_line
from counterfoil.data.labelled_sources import labelled_conditions, labelled_split
from counterfoil.data.labels import ConditionLabels
from counterfoil.data.open_source import open_source
from counterfoil.errors import CounterfoilError, RunFailure, UserError, raise_together
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.subject import is_built
from counterfoil.generate.screen.doubts import ScreenDoubts, doubts_of
from counterfoil.generate.screen.known_classes import KnownClasses
from counterfoil.generate.screen.scores import ValidationScores
from counterfoil.models.classifiers import Classifier, describe_classifier, load_classifier
from counterfoil.models.classifiers.of_predictions import ROW, RecordedClassifier
from counterfoil.models.clip import ClipModel, load_clip, pin_clip
from counterfoil.prediction.class_map import ClassMap, map_classes
from counterfoil.prediction.embedding import Embedder, clip_embedder, embed
from counterfoil.prediction.failures import best_thresholds, binary_answers, condition_scores, failures, map_conditions
from counterfoil.prediction.passes import Placement, score_models
from counterfoil.prediction.predictions import Predictions, joined
from counterfoil.progress import renamed, track
from counterfoil.recipe import Recipe, RecipeClass
from counterfoil.recipe.schema_mine import Mine
from counterfoil.store.atomic import make_folder, write_atomically
from counterfoil.store.layout import user_cache


def opened_parts(recipe: Recipe, on: Sequence[str], key: str = "mine.on") -> tuple[LabelledImages, ...]:
    """The images that `key` names: splits of the recipe's source, or one built dataset of the same classes."""
    places = list(dict.fromkeys(on))
    if all(map(_may_be_a_split, places)):
        _refuse_train_split(recipe, places, key)
        pin = open_source(recipe.source).pin
        return tuple(labelled_split(recipe.source, split, recipe.classes, pin) for split in places)
    if len(places) > 1:
        raise UserError(f"{key}: found {', '.join(places)}, expected splits of the source, or one built dataset")
    if not is_built(places[0]):
        raise UserError(
            f"{key}: '{places[0]}' is neither a split of the source nor a built dataset",
            "Name a split, such as validation, or the folder of a dataset that `counterfoil build` made.",
        )
    opened = open_dataset(places[0])
    theirs, ours = ([(cls.id, cls.name) for cls in one.classes] for one in (opened.recipe, recipe))
    if theirs != ours:
        raise UserError(
            f"{key}: {places[0]} has {len(theirs)} classes, and they are not the {len(ours)} of the recipe",
            f"Mine it by its own recipe: counterfoil mine {places[0]} --on {places[0]}",
        )
    images = opened.labelled()
    # Images of one class and index begin with the same noise in every shift: they are no two observations.
    paired = opened.recipe.samples.noise == "paired"
    numbers = zip(opened.labels.tolist(), opened.indices.tolist(), strict=True)
    return (replace(images, units=tuple(f"{label}_{index}" for label, index in numbers) if paired else None),)


def opened_conditions(recipe: Recipe, on: Sequence[str]) -> tuple[tuple[LabelledImages, ...], ConditionLabels]:
    """The splits that `mine.on` names of a source of conditions, and what each row has, part after part."""
    places = list(dict.fromkeys(on))
    others = [place for place in places if not _may_be_a_split(place)]
    if others:
        raise UserError(
            f"mine.on: '{others[0]}' is not a split of the source, and a recipe with conditions can only audit splits",
            "Name splits of the source.",
        )
    _refuse_train_split(recipe, places, "mine.on")
    pin = open_source(recipe.source).pin
    read = [labelled_conditions(recipe.source, split, pin) for split in places]
    present = np.concatenate([found.present for _, found in read])
    return tuple(images for images, _ in read), ConditionLabels(read[0][1].names, present)


def labelled_images(recipe: Recipe, on: Sequence[str]) -> tuple[LabelledImages, ...]:
    """The images alone, whether they have one class each or conditions."""
    return opened_parts(recipe, on) if recipe.source.conditions is None else opened_conditions(recipe, on)[0]


def _may_be_a_split(place: str) -> bool:
    return place.replace("-", "_").isidentifier()


def _refuse_train_split(recipe: Recipe, splits: Sequence[str], key: str) -> None:
    train = recipe.source.train_split
    # Where a source has one split, that is all there is: what was learned from it only its person knows.
    if train in splits and recipe.source.validation_split != train:
        known = open_source(recipe.source).splits
        others = ", ".join(one for one in known if one != train) or "a held-out split"
        raise UserError(
            f"{key}: '{train}' is the split that classifiers learn from, where memorised images hide failures",
            f"Name another: {others}.",
        )


def train_rows(recipe: Recipe) -> tuple[LabelledImages, ConditionLabels | None]:
    """The train split of a recipe's source, without units, and the conditions of its rows where they have several."""
    source = recipe.source
    if source.conditions is not None:
        return labelled_conditions(source, source.train_split, units=False)
    return labelled_split(source, source.train_split, recipe.classes, units=False), None


_DIGEST = hashlib.sha256().digest_size
# The content of rows without an image.
NO_CONTENT = hashlib.sha256(b"").hexdigest()


def contents_seen(parts: Sequence[LabelledImages]) -> list[ContentsSeen]:
    """Of each of these, kept in the user's cache."""
    return [ContentsSeen(part, user_cache() / "contents") for part in parts]


class ContentsSeen:
    """The content of each of some images; who reads `images` to look at them leaves it here.

    What a whole pass found is kept in `folder`, named after the content of all, so that a run which finds predictions
    and features in their caches reads no image for this either.
    """

    def __init__(self, images: LabelledImages, folder: Path):
        self._plain, self._file, self._seen = images, folder / f"{images.content[:64]}.contents", dict[str, bytes]()
        self.images = replace(images, read=self._read)

    def _read(self, wanted: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
        for key, image in self._plain.read(wanted):
            self._seen[key] = hashlib.sha256(image or b"").digest()
            yield key, image

    def known(self) -> list[str]:
        """The content of each row, in order, as text; what nobody has read yet is read now. RunFailure as the disk."""
        plain = self._plain
        known = kept_digests(self._file, len(plain))
        if known is not None:
            return known
        missing = frozenset(plain.keys) - self._seen.keys()
        read = self.images.images(missing) if missing else ()
        for _ in track(read, f"{plain.name}: hashing images", len(missing), 1000):
            pass
        make_folder(self._file.parent)
        write_atomically(self._file, b"".join(self._seen[key] for key in plain.keys))
        return [self._seen[key].hex() for key in plain.keys]


def kept_digests(file: Path, rows: int) -> list[str] | None:
    """The hashes, as text, that a file holds for exactly so many rows; None for anything else."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    if len(content) != _DIGEST * rows:
        return None
    return [content[start : start + _DIGEST].hex() for start in range(0, len(content), _DIGEST)]


def keys_sha256(keys: Sequence[str]) -> str:
    """sha256 over keys in their order."""
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()


def condition_labels(present: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(n, K) the label that each row has of each condition, as problems of two classes: 2k where it is present (n, K),
    2k + 1 where not."""
    return (2 * np.arange(present.shape[1]) + ~present).astype(np.int64)


def row_labels(present: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Every row with each of its K labels: rows and labels, int64 [n * K], a row's labels one after the other."""
    n, k = present.shape
    rows = np.repeat(np.arange(n, dtype=np.int64), k)
    return rows, condition_labels(present).reshape(-1)


_BATCH = 64


@dataclass(frozen=True, slots=True)
class ScoredConditions:
    """What a classifier scores n images for K conditions: values (n, K), NaN where an image has no answer."""

    classifier: Classifier
    class_map: ClassMap
    values: NDArray[np.float64]

    @property
    def readable(self) -> NDArray[np.bool_]:
        """(n,) which images have an answer."""
        return np.asarray(~np.isnan(self.values).any(axis=1))


@dataclass(frozen=True, slots=True)
class QuestionAnswers:
    """A classifier's answers to one question about all n images, those without an answer too.

    classes: labels that the question tells apart: all, or those of one condition, to have it and not to have it.
    labels, failed: (n,), False where an image has no answer. predictions: of a condition, answers are labels, the one
    given first.
    """

    classes: tuple[int, ...]
    labels: NDArray[np.int64]
    failed: NDArray[np.bool_]
    predictions: Predictions


def refuse_ranking_rule(rule: str) -> None:
    """UserError for a failure rule that conditions have no answers for."""
    if rule != "top1":
        raise UserError(
            f"mine.failure: the rule '{rule}' needs several classes, but a condition is only yes or no",
            "Set mine.failure=top1.",
        )


def conditions_scored(
    parts: Sequence[LabelledImages], name: str, class_map: ClassMap, classes: Sequence[RecipeClass], device: str
) -> ScoredConditions:
    """A classifier's scores of all images, part after part; `class_map` as of `map_conditions`. Raises as
    `condition_scores`."""
    values: list[NDArray[np.float64]] = []
    classifier: Classifier | None = None
    for part in parts:
        scored = condition_scores(
            part,
            name,
            class_map,
            user_cache() / "predictions",
            device,
            _BATCH,
            lambda one: load_classifier(one, classes=classes),
        )
        classifier = scored.classifier
        values.append(scored.values)
    assert classifier is not None  # there is a part
    return ScoredConditions(classifier, class_map, np.concatenate(values))


def chosen_thresholds(
    scored: ScoredConditions, present: NDArray[np.bool_], rows: NDArray[np.int64], names: Sequence[str]
) -> dict[str, float]:
    """Condition → threshold of the best F1 on these rows: the discover half's, so that the other half chose none.

    present: (n, K). UserError for a condition that all of the rows have, or none.
    """
    found = best_thresholds(scored.values[rows], present[rows], names)
    return dict(zip(names, found.tolist(), strict=True))


def answered_conditions(
    scored: ScoredConditions, present: NDArray[np.bool_], thresholds: Mapping[str, float]
) -> list[QuestionAnswers]:
    """Each condition in order; a wrong yes and a wrong no are both failures. present: (n, K)."""
    readable = scored.readable
    failed = np.zeros(present.shape, dtype=bool)
    limits = np.asarray(list(thresholds.values()))
    failed[readable] = binary_answers(scored.values[readable], present[readable], limits)
    form = replace(Predictions.empty(len(present), 2), readable=readable, correct_top_k=readable)
    found = []
    for k, (labels, wrong) in enumerate(zip(condition_labels(present).T.copy(), failed.T.copy(), strict=True)):
        # Of two labels a wrong answer is the other one.
        answered = (labels ^ wrong).astype(np.int32)
        answers = np.stack([answered, answered ^ 1], axis=1)
        found.append(
            QuestionAnswers(
                (2 * k, 2 * k + 1), labels, wrong, replace(form, answers=answers, correct=readable & ~wrong)
            )
        )
    return found


def has_conditions(scored: ScoredConditions, thresholds: Mapping[str, float]) -> NDArray[np.bool_]:
    """(n, K) which conditions are answered yes; False where an image has no answer."""
    return scored.values >= np.asarray(list(thresholds.values()))  # NaN is at least nothing


_MOST_NAMED = 5


@dataclass(frozen=True)
class AuditedTarget:
    """The audited classifier as it was, without its weights. `about` is what the findings say of it."""

    classifier: Classifier
    class_map: ClassMap
    predictions: Predictions
    about: Mapping[str, Any]


@dataclass(frozen=True)
class Audited:
    """The n images that can be decoded and have an answer, part after part, and one question: of which class each is.

    classes: labels that the question tells apart: all, or those of one condition. labels, failed: (n,). features: (n,
    width), CLIP's unit vectors. units: (n,), equal where rows share one. halves: rows of each. centre, deviation:
    (width,) of the train split, or of the discover half where there is none: whitened_by says which. unreadable: keys
    that were left out. dealt_by: whether units are the dataset's own, or each image's content.
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
    deviation: NDArray[np.float64]
    whitened_by: str
    dealt_by: Literal["unit", "content"]
    unreadable: tuple[str, ...]
    rows: NDArray[np.int64]

    @cached_property
    def taken_for(self) -> NDArray[np.int64]:
        """(n,) the class that the target answers, -1 for none of these."""
        return class_of_output(self.target.class_map)[self.target.predictions.prediction[self.rows]]

    @cached_property
    def paths(self) -> Mapping[str, str]:
        """Key → where an image lies below its folder; of images that lie in none there is no entry."""
        return {key: path for part in self.parts for key, path in zip(part.keys, part.paths or (), strict=False)}

    @property
    def by_start(self) -> list[tuple[str, LabelledImages]]:
        """The parts, each with what its keys begin with: nothing."""
        return [("", part) for part in self.parts]


class WithoutClip(RunFailure):
    """CLIP cannot be had on this machine; the target has answered all the same."""

    def __init__(self, error: CounterfoilError, audits: tuple[Audited, ...]) -> None:
        super().__init__(error.problems, error.hint)
        self.audits = audits  # their features have no width


def unreadable_note(unreadable: Sequence[str], paths: Mapping[str, str]) -> tuple[str, ...]:
    """What is said of images that cannot be decoded, by their keys; nothing where there is none."""
    count = len(unreadable)
    named = [on_a_line(paths.get(key, key)) for key in unreadable[:_MOST_NAMED]]
    more = f" and {count - len(named):,} more" if count > len(named) else ""
    words = "1 image cannot be decoded and is" if count == 1 else f"{count:,} images cannot be decoded and are"
    return (f"{words} left out: {', '.join(named)}{more}",) if count else ()


def audit_target(
    recipe: Recipe, mine: Mine, device: str, elsewhere: Placement | None = None
) -> tuple[tuple[Audited, ...], ClipModel, Embedder]:
    """Open what a recipe's `mine` names, and let the target and CLIP look at it. `device` is a resolved one;
    with `elsewhere`, an engine's workers look.

    One audit; where images have conditions one of each, with the same rows, features and halves. With CLIP, and what
    embeds by it. UserError for a target whose classes do not fit, a split that is not there, labels of no class, a
    predictions file with missing, double or unknown rows; RunFailure where a network or a disk refuses; WithoutClip
    where CLIP alone is missing.
    """
    audits, loaded, embedder = _audit(recipe, mine, device, elsewhere, with_clip=True)
    if embedder is None or not isinstance(loaded, ClipModel):
        assert isinstance(loaded, CounterfoilError)
        raise WithoutClip(loaded, audits) from loaded
    return audits, loaded, embedder


def audit_without_clip(
    recipe: Recipe, mine: Mine, device: str, elsewhere: Placement | None = None
) -> tuple[Audited, ...]:
    """The same without CLIP: the features have no width."""
    return _audit(recipe, mine, device, elsewhere, with_clip=False)[0]


def _audit(
    recipe: Recipe, mine: Mine, device: str, elsewhere: Placement | None, *, with_clip: bool
) -> tuple[tuple[Audited, ...], ClipModel | CounterfoilError | None, Embedder | None]:
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
    loaded: ClipModel | CounterfoilError | None = None
    embedder = None
    try:
        if with_clip:
            pin = pin_clip(recipe.screen.clip, recipe.screen.weights)
            loaded = load_clip(recipe.screen.clip, recipe.screen.weights, device, revision=pin.revision)
            embedder = clip_embedder(loaded, pin, recipe.screen.weights)
    except CounterfoilError as error:
        # A wrong name is a mistake; that there is none, or none here, is not.
        if isinstance(error, UserError) and recipe.screen.model is not None:
            raise
        loaded = error
    features: list[NDArray[np.floating]] = []
    for one in seen:
        nothing = np.zeros((len(one.images), 0))
        features.append(nothing if embedder is None else features_of(one.images, embedder, elsewhere))
    raw = np.concatenate([np.asarray(one, dtype=np.float32) for one in features])
    keys = tuple(key for part in parts for key in part.keys)
    labels = np.concatenate([part.labels for part in parts]) if has is None else has.sets()[0]
    whole = answered & np.isfinite(raw).all(axis=1)
    if not whole.any():
        raise RunFailure(f"{', '.join(part.name for part in parts)}: no image can be decoded")
    contents: list[str] = []
    for one in seen:
        contents += one.known()
    rows = np.flatnonzero(whole)
    # Halves go by the names of units, so that another row, or one that cannot be decoded, deals no other anew.
    names = np.asarray(unit_names(parts, contents), dtype=object)[rows].astype(str)
    units = np.unique(names, return_inverse=True)[1].astype(np.int64)
    whitening = (np.zeros((2, 0)), "") if embedder is None else _whitening(recipe, mine, embedder)
    halves = deal_halves(labels[rows], mine.seed, names.tolist(), [contents[row] for row in rows.tolist()])
    if whitening is None:
        if len(halves.discover) < 2:
            raise UserError(
                f"{', '.join(part.name for part in parts)}: {len(rows):,} images have a class and can be"
                f" decoded, but the discover half has only {len(halves.discover):,} of them, expected at least 2",
                "Name more images, or check their labels.",
            )
        whitening = (raw[rows][halves.discover], f"{len(halves.discover):,} rows of the discover half")
    train, whitened_by = whitening
    if answers is not None:
        failed = failures(mine.failure, answers.predictions, labels, recipe.classes, answers.class_map)
        looked_at, judged = (
            answers,
            [QuestionAnswers(tuple(range(len(recipe.classes))), labels, failed, answers.predictions)],
        )
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
        judged = answered_conditions(scored, has.present, thresholds)
        looked_at = AuditedTarget(scored.classifier, plain, judged[0].predictions, about)
    chosen, centre = raw[rows], train.mean(axis=0, dtype=np.float64)
    deviation = train.std(axis=0, dtype=np.float64, ddof=1)
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
            target=replace(looked_at, predictions=one.predictions),
            centre=centre,
            deviation=deviation,
            whitened_by=whitened_by,
            dealt_by="content" if any(part.units is None for part in parts) else "unit",
            unreadable=tuple(keys[row] for row in np.flatnonzero(~whole).tolist()),
            rows=rows,
        )
        for one in judged
    )
    return audits, loaded, embedder


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


def features_of(images: LabelledImages, embedder: Embedder, placement: Placement | None = None) -> NDArray[np.floating]:
    """CLIP's features [n, width] of n images, from the user's cache where they are known; NaN for what is no image."""
    engine, device = (None, "cpu") if placement is None else (placement.engine, placement.device)
    with renamed(f"CLIP: {images.name}"):
        return embed(images, embedder, user_cache() / "embeddings", engine=engine, device=device)


def class_map_of(recipe: Recipe, name: str) -> ClassMap:
    """Which outputs of a classifier are which classes; of one of conditions, which are which conditions."""
    facts, conditions = describe_classifier(name, recipe.classes), recipe.source.conditions
    if conditions is None:
        return map_classes(recipe.classes, facts)
    return map_conditions(conditions.names, recipe.classes, facts)


def class_of_output(class_map: ClassMap) -> NDArray[np.int64]:
    """(outputs + 1,) the class of each output of a classifier, -1 where it has none, and for no answer."""
    found = np.full(class_map.num_classes + 1, -1, dtype=np.int64)
    for label, outputs in enumerate(class_map.targets):
        found[list(outputs)] = label
    return found


def answers_of(
    parts: Sequence[LabelledImages],
    maps: Mapping[str, ClassMap],
    recipe: Recipe,
    device: str,
    placement: Placement | None = None,
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
            placement=placement,
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

    Rows of the same split that are of no class of the recipe are not unknown.
    """
    if not isinstance(classifier, RecordedClassifier):
        return
    if classifier.columns.image == ROW:
        if len(parts) > 1:
            raise UserError(
                f"model {classifier.name!r} identifies images by row, but {len(parts)} splits are audited",
                "Identify images by key, which includes the split.",
            )
        return
    known = {key for part in parts for key in part.keys}
    for part in parts:
        known |= {*(part.paths or ()), *part.other_paths}
        if part.left_out:
            stem = part.keys[0].rpartition("_")[0]
            known |= {f"{stem}_{row:08d}" for row in range(len(part) + sum(part.left_out.values()))}
    count, first = classifier.unknown_keys(known)
    if count:
        more = f" and {count - len(first):,} more" if count > len(first) else ""
        raise UserError(
            f"model {classifier.name!r} answers {count:,} images that are not of "
            f"{', '.join(part.name for part in parts)}: {', '.join(first)}{more}",
            "Check that the file belongs to this dataset and split, or remove these rows.",
        )


def unit_names(parts: Sequence[LabelledImages], contents: Sequence[str]) -> list[str]:
    """Return what each row is named to share: the dataset's unit, or the content of its image where there is none."""
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


_MEASURED = "Findings are also measured on other classifiers; without them: --set 'mine.others=[]'"


def other_models(recipe: Recipe, mine: Mine, hint: str = _MEASURED) -> dict[str, ClassMap]:
    """The classifiers beside the target that findings are measured on, with their class maps.

    UserError, before anything heavy, for those that are not there or do not fit.
    """
    names = recipe.evaluate.models if mine.others is None else mine.others
    maps: dict[str, ClassMap] = {}
    errors: list[CounterfoilError] = []
    for name in dict.fromkeys(names):
        if name != mine.target:
            try:
                maps[name] = class_map_of(recipe, name)
            except CounterfoilError as error:
                errors.append(error)
    raise_together(errors, hint)
    return maps


def other_failures(
    recipe: Recipe, mine: Mine, audits: Sequence[Audited], maps: Mapping[str, ClassMap], device: str
) -> list[dict[str, NDArray[np.bool_]]]:
    """By audit, (n,) failures of other classifiers on the same images, by the same rule.

    Each has its own thresholds of conditions, from the same discover half as the target's.
    """
    found: list[dict[str, NDArray[np.bool_]]] = [{} for _ in audits]
    audited, conditions = audits[0], recipe.source.conditions
    if conditions is not None:
        present = np.stack([one.labels == one.classes[0] for one in audits], axis=1)
        for name, class_map in maps.items():
            scored = conditions_scored(audited.parts, name, class_map, recipe.classes, device)
            own = replace(scored, values=scored.values[audited.rows])
            thresholds = chosen_thresholds(own, present, audited.halves.discover, conditions.names)
            for place, one in enumerate(answered_conditions(own, present, thresholds)):
                found[place][name] = one.failed
    elif maps:
        answers = answers_of(audited.parts, maps, recipe, device)
        labels = np.concatenate([part.labels for part in audited.parts])
        for name, own in answers.items():
            failed = failures(mine.failure, own.predictions, labels, recipe.classes, own.class_map)
            found[0][name] = failed[audited.rows]
    return found
