"""How a dataset compares with its source: distances of features (KID, FID), and accuracy on
validation images.

Features are those of the recipe's CLIP model, or of a classifier before its last layer. For the
reference, the models are scored on at most 50 validation images of each class. A source that is not
available is skipped with the reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from counterfoil import accuracy_stats, feature_stats
from counterfoil.accuracy_stats import ClassUnits, near_chance
from counterfoil.arrays import AnyFloats, Bools, Ints
from counterfoil.data.folders import placed_source
from counterfoil.data.labelled_images import (
    LabelledImages,
    deal_halves,
    evenly_thinned,
    first_of_classes,
    rows_of,
)
from counterfoil.data.labelled_sources import labelled_rows, labelled_source, labelled_split
from counterfoil.data.labels import ConditionLabels
from counterfoil.data.open_source import open_source
from counterfoil.data.pins import SourcePin, prepared_folders
from counterfoil.errors import CounterfoilError, UserError, raise_together
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.tasks.classes.answers import AllAnswers, Asking, NestedMeasure, Request
from counterfoil.models.classifiers import describe_classifier, load_classifier
from counterfoil.models.clip import load_clip, pin_clip
from counterfoil.models.loading_errors import reading_errors, skipped_reason
from counterfoil.models.names import LAB, Pin, local_folder
from counterfoil.prediction.embedding import Embedder, classifier_embedder, clip_embedder, embed
from counterfoil.prediction.passes import Scored
from counterfoil.progress import rename_stages, track
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.layering import without_folders
from counterfoil.recipe.names import CHAT, OPEN_CLIP, PREDICTIONS, PYTHON, chat_parts, is_local
from counterfoil.report.distances import FID, KID, Distances, ImageSet, SetOfImages
from counterfoil.report.reference import (
    VALIDATION,
    VALIDATION_BASE,
    VALIDATION_GAP,
    ReferenceResult,
)
from counterfoil.report.results import ResultRow, estimate_row
from counterfoil.stats import Estimate
from counterfoil.store.layout import writable_cache


@dataclass(frozen=True)
class _Side:
    """Features [n, d] of decodable images, and the unit of each image (n,)."""

    features: AnyFloats
    units: Ints

    @cached_property
    def statistics(self) -> feature_stats.FeatureStatistics:
        return feature_stats.feature_statistics(self.features)

    def only(self, which: Bools | Ints) -> _Side:
        return _Side(self.features[which], self.units[which])


@dataclass(frozen=True)
class PreparedDistances(Request):
    """The names of the feature models, and the opened source or the reason that it is not
    available."""

    names: tuple[str, ...] = ()
    opened: MeasuredAgainst | str = ""


def prepared_distances(
    subject: Subject,
    names: str | Sequence[str] | None,
    against: str | Path | None,
) -> PreparedDistances:
    """Check the names of feature models and open the source, before any long step.

    Raise UserError if a named model can give no features or `against` is wrong, and RunFailure if
    `against` cannot be reached. If the recipe's source is not available, the result has the reason.
    """
    if isinstance(names, str):
        names = [names]
    wanted = tuple(dict.fromkeys(names or ()))
    errors: list[CounterfoilError] = []
    for name in wanted:
        try:
            _refuse_unfit(name, subject)
        except CounterfoilError as error:
            errors.append(error.at("distances"))
    raise_together(errors)
    if not wanted:
        if against is not None:
            raise UserError(
                "--against needs --distances: it says what distances are measured to",
                "Add --distances clip",
            )
        return PreparedDistances()
    try:
        opened = open_against(subject, against)
    except CounterfoilError as error:
        if against is not None:
            raise
        return PreparedDistances(wanted, skipped_because(error))
    if opened.source.images.content == subject.parts[0].images.content:
        return PreparedDistances(wanted, f"the images are those of {opened.source.name} themselves")
    return PreparedDistances(wanted, opened)


def measure_distances(answered: AllAnswers) -> tuple[tuple[Distances, ...], list[ResultRow]]:
    """Return distances in the features of each model that was named, and their rows.

    A source that is not available and a model without features are skipped, with the reason. Raise
    RunFailure if a model cannot be fetched or computed.
    """
    prepared = answered.request(PreparedDistances) or PreparedDistances()
    measured: list[Distances] = []
    rows: list[ResultRow] = []
    for name in prepared.names:
        if isinstance(prepared.opened, str):
            measured.append(Distances(name, skipped=prepared.opened))
            continue
        try:
            model = load_features(name, answered.subject, answered.asking.device)
            distances, model_rows = _distances(answered, prepared.opened, model)
            measured.append(distances)
            rows += model_rows
        except UserError as error:
            measured.append(Distances(name, skipped=skipped_because(error)))
        model = None  # frees its memory for the next
    return tuple(measured), rows


def skipped_because(error: CounterfoilError) -> str:
    """Return all problems of an error in one text: the reason that something was skipped."""
    texts = filter(None, (*error.problems, error.hint))
    return "; ".join(texts).rstrip(".")


def _distances(
    answered: AllAnswers,
    opened: MeasuredAgainst,
    model: FeatureModel,
) -> tuple[Distances, list[ResultRow]]:
    subject = answered.subject.without_computed()
    asking = answered.asking
    source, decodable = _side_of(opened.source.images, model, asking)
    folder = subject.workplace / "embeddings"
    parts = [_features(part.images, model, folder, asking) for part in subject.parts]
    features = np.concatenate(parts) if len(parts) > 1 else parts[0]
    readable = np.isfinite(features).all(axis=1)
    units = _subject_units(subject)
    unreadable = np.concatenate([~readable, ~decodable])
    distances = Distances(
        features=model.name,
        pin=model.pin,
        width=features.shape[1],
        scaled=model.scaled,
        source=opened.source.name,
        source_content=opened.source.images.content,
        source_rows=opened.source.rows,
        subsets=feature_stats.SUBSETS,
        seed=answered.seed,
        unreadable=int(unreadable.sum()),
    )
    # What is compared: its kind, name and number of classes, its images of a side, and the other.
    pairs: list[tuple[SetOfImages, str, int, _Side, Bools, _Side]] = []
    of_classes: dict[tuple[int, ...], _Side] = {}
    of_subject = _Side(features, units)
    for what, name, labels, chosen in _groups(subject):
        if labels not in of_classes:
            of_labels = opened.source.of_classes(subject.classes, labels)
            of_classes[labels] = source.only(of_labels[decodable])
        against = of_classes[labels]
        pairs.append((what, name, len(labels), of_subject, chosen & readable, against))
    # For scale, also measure the source against itself: its two splits, or two halves of its only
    # split.
    if opened.other is not None:
        name = f"{opened.other.name} against {opened.source.name}"
        first, _ = _side_of(opened.other.images, model, asking)
        another = source
    else:
        name = f"two halves of {opened.source.name}"
        # Images with equal features go to the same half.
        contents = []
        for of_image in source.features:
            content = np.ascontiguousarray(of_image).tobytes()
            contents.append(hashlib.sha256(content).hexdigest())
        labels_of_source = opened.source.images.labels[decodable]
        halves = deal_halves(labels_of_source, 0, list(map(str, source.units)), contents)
        first = source.only(halves.discover)
        another = source.only(halves.confirm)
    every = np.ones(len(first.units), bool)
    pairs.append(("source", name, len(subject.classes), first, every, another))
    sets: list[ImageSet] = []
    rows: list[ResultRow] = []
    stage = f"distances in the features of {model.name}"
    for what, name, classes, images_of, chosen, against in track(pairs, stage):
        side = images_of.only(chosen)
        images = ImageSet(what, name, classes, len(side.features), len(against.features))
        images, set_rows = _compared(distances, images, side, against)
        sets.append(images)
        rows += set_rows
    return replace(distances, sets=tuple(sets)), rows


def _side_of(
    images: LabelledImages,
    model: FeatureModel,
    asking: Asking,
) -> tuple[_Side, Bools]:
    """Return the features of a source's decodable images, and which images can be decoded, bool
    [n]."""
    features = _features(images, model, None, asking)
    decodable = np.isfinite(features).all(axis=1)
    return _Side(features[decodable], _units(images)[decodable]), np.asarray(decodable)


def _features(
    images: LabelledImages,
    model: FeatureModel,
    folder: Path | None,
    asking: Asking,
) -> AnyFloats:
    """Return features [n, d] of n images, NaN if an image cannot be decoded. Unit vectors get
    length √d."""
    # KID of similar sets is a small difference of large means, so half precision is too coarse.
    with rename_stages(f"features, {model.name}: {images.name}"):
        features = embed(
            images,
            model.embedder,
            folder,
            batch_size=asking.batch_size,
            precision="float32",
            placement=asking.spread,
        )
    # KID's kernel is (x·y/d + 1)³. For unit vectors x·y/d is small, and the constant 1 would
    # dominate.
    if model.scaled:
        features = features * np.float32(np.sqrt(features.shape[1]))
    return features


def _groups(subject: Subject) -> list[tuple[SetOfImages, str, tuple[int, ...], Bools]]:
    """Return the image sets to compare, each with its classes and its rows, bool (n,).

    If there are several groups, the whole dataset is the first set.
    """
    sets: list[tuple[SetOfImages, str, tuple[int, ...], Bools]] = []
    tops = np.array([group.top for group in subject.groups])
    of_dataset = tops[subject.shifts]
    of_dataset[len(subject.parts[0].images) :] = False
    places = np.unique(subject.shifts[of_dataset]).tolist()
    if len(places) > 1:
        labels: set[int] = set()
        for index in places:
            labels |= set(subject.groups[index].class_labels)
        sets.append(("dataset", subject.name, tuple(sorted(labels)), of_dataset))
    for index in np.flatnonzero(tops).tolist():
        group = subject.groups[index]
        sets.append(("group", group.name, group.class_labels, subject.shifts == index))
    return sets


def _units(images: LabelledImages) -> Ints:
    """Return the unit of each image as a number. If the images have no units, each image is its own
    unit."""
    units = images.keys if images.units is None else images.units
    _, numbers = np.unique(units, return_inverse=True)
    return numbers.reshape(-1)


def _subject_units(subject: Subject) -> Ints:
    """Return the unit of each image. With paired noise, images of one class and index share a
    unit."""
    numbered = []
    start = 0
    for part in subject.parts:
        rows = slice(start, start + len(part.images))
        if subject.groups[part.first].paired:
            cells = np.stack([subject.labels[rows], subject.indices[rows]], axis=1)
            _, units = np.unique(cells, axis=0, return_inverse=True)
            units = units.reshape(-1)
        else:
            units = _units(part.images)
        numbered.append(units + start)
        start = rows.stop
    return np.concatenate(numbered)


def _compared(
    distances: Distances, images: ImageSet, side: _Side, against: _Side
) -> tuple[ImageSet, list[ResultRow]]:
    """Return a set with its rows, KID and FID, or a note if there are too few images."""
    key = distances.key(images)
    first = len(np.unique(side.units))
    second = len(np.unique(against.units))
    if min(first, second) < feature_stats.FEWEST_IMAGES:
        independent = f"{first:,} and {second:,}"
        note = (
            f"{independent} independent images, and subsets need {feature_stats.FEWEST_IMAGES}"
            " on either side"
        )
        return images, [estimate_row(KID, None, n=images.images, note=note, **key)]
    units = side.units, against.units
    kid = feature_stats.kernel_distance(
        side.features, against.features, *units, seed=distances.seed
    )
    fid = feature_stats.frechet_distance(side.statistics, against.statistics)
    biased = feature_stats.is_biased(images.images, images.source_images, distances.width)
    images = replace(
        images, kid_subset=kid.subset, kid_source_subset=kid.other_subset, fid_biased=biased
    )
    estimate = Estimate(kid.value, kid.low, kid.high)
    kid_row = estimate_row(KID, estimate, n=images.images, **key)
    return images, [kid_row, estimate_row(FID, fid, n=images.images, **key)]


# The CLIP model that the recipe screens with.
CLIP = "clip"


@dataclass(frozen=True)
class FeatureModel:
    """A model that computes features. pin: what identifies it. scaled: whether its features are
    unit vectors."""

    name: str
    pin: str
    embedder: Embedder
    scaled: bool


def _refuse_unfit(name: str, subject: Subject) -> None:
    if name == CLIP:
        if subject.recipe is None:
            raise UserError(
                f"'{CLIP}' stands for the CLIP model of a recipe's screen, but the images have no"
                " recipe",
                "Name a recipe (--recipe), or a model: --distances"
                " open_clip:ViT-B-32/laion2b_s34b_b79k",
            )
        if subject.recipe.screen.model is None:
            raise UserError(
                f"'{CLIP}' stands for the CLIP model of a recipe's screen, but this recipe has no"
                " screen",
                "Name a model: --distances open_clip:ViT-B-32/laion2b_s34b_b79k",
            )
        local_folder(subject.recipe.screen.model)
    elif name.startswith((PREDICTIONS, PYTHON, CHAT)):
        raise UserError(
            f"model {name!r}: has no features; expected a model that a folder, a file or the Hub"
            " holds"
        )
    else:
        describe_classifier(name, subject.classes)


def load_features(
    name: str,
    subject: Subject,
    device: str,
) -> FeatureModel:
    """Load a feature model on `device`. A CLIP model of the Hub has the commit that the dataset
    pins."""
    if name != CLIP:
        classifier = load_classifier(name, device, subject.classes)
        embedder = classifier_embedder(classifier, device)
        scaled = name.startswith(OPEN_CLIP)
        return FeatureModel(name, f"sha256 {classifier.sha256}", embedder, scaled)
    assert subject.recipe is not None  # `prepared_distances` checked it
    screen = subject.recipe.screen
    pinned = (subject.pins.get("models") or {}).get("screen") or {}
    if pinned.get("name") and pinned.get("revision"):
        others = pinned.get("sha256"), pinned.get("license")
        pin = Pin(pinned["name"], pinned["revision"], *others)
    else:
        pin = pin_clip(screen.clip, screen.weights)
    clip = load_clip(screen.clip, screen.weights, device, revision=pin.revision)
    pin_text = f"sha256 {pin.sha256}" if pin.sha256 else "not pinned"
    if pin.revision:
        pin_text = f"commit {pin.revision}"
    embedder = clip_embedder(clip, pin, screen.weights)
    return FeatureModel(pin.name, pin_text, embedder, scaled=True)


# A larger split is thinned to this many rows. FID of 2,048 features needs 10,000 images (Heusel
# 2017).
MOST_IMAGES = 10_000


@dataclass(frozen=True)
class SourceImages:
    """Images of a source. sets: the set of conditions behind each label, if an image may have
    several conditions."""

    images: LabelledImages
    name: str
    rows: int
    sets: ConditionLabels | None = None

    def of_classes(self, classes: Sequence[RecipeClass], labels: Sequence[int]) -> Bools:
        """Return bool [n], the images of these classes. An image with several conditions needs only
        one of them."""
        if self.sets is None:
            return np.isin(self.images.labels, labels)
        fitting = [self.sets.of_label(classes[label].source_label) for label in labels]
        return np.any(fitting, axis=0)[self.images.labels]


@dataclass(frozen=True)
class MeasuredAgainst:
    """The images to measure against, and another split of the same source, if it has one."""

    source: SourceImages
    other: SourceImages | None


def open_against(subject: Subject, against: str | Path | None) -> MeasuredAgainst:
    """Return the validation split of a recipe's source as the dataset pins it, with the train
    split; or `against`.

    Raise UserError for missing images, RunFailure if a network or a disk fails.
    """
    if against is not None:
        return MeasuredAgainst(_source_images(labelled_source(against, subject.classes)), None)
    subject = with_source_placed(subject)
    pin = pinned_source(subject)
    recipe = subject.recipe
    assert recipe is not None  # a pinned source has one
    splits = open_source(recipe.source, pin=pin).splits
    validation = recipe.source.validation_split
    names = [name for name in (validation, recipe.source.train_split) if name in splits]
    if splits and not names:
        raise UserError(
            f"source: '{recipe.source.dataset}' has neither split of the recipe; its splits:"
            f" {', '.join(splits)}"
        )
    opened = []
    for name in dict.fromkeys(names or [validation]):
        images, conditions = labelled_rows(recipe.source, name, recipe.classes, pin)
        sets = None
        if conditions is not None:  # sort the sets: label i of the images is set i
            values = np.unique(conditions.values, axis=0)
            sets = ConditionLabels(conditions.names, values)
        opened.append(_source_images(images, sets))
    return MeasuredAgainst(opened[0], opened[1] if len(opened) > 1 else None)


def _source_images(images: LabelledImages, sets: ConditionLabels | None = None) -> SourceImages:
    dataset, _, split = images.name.rpartition("/")
    name = shown_source(dataset, split)
    return SourceImages(evenly_thinned(images, MOST_IMAGES), name, len(images), sets)


def with_source_placed(subject: Subject) -> Subject:
    """Return the subject with its source's folder on this machine, if a folder with that content is
    known."""
    recipe = subject.recipe
    if recipe is None:
        return subject
    source = placed_source(recipe.source, subject.pins.get("source"))
    return replace(subject, recipe=recipe.model_copy(update={"source": source}))


def pinned_source(subject: Subject) -> SourcePin:
    """Return the pin of the source of a subject's recipe. Raise UserError without a recipe, or if
    it has changed."""
    recipe = subject.recipe
    if recipe is None:
        raise UserError(
            "the images have no recipe, so their source is unknown",
            "Name a source: --against IMAGES",
        )
    recorded = subject.pins.get("source")
    pin = open_source(recipe.source, recorded, as_recorded=True).pin
    known = SourcePin.of(recorded)
    if known is not None and known.revision and pin.revision and known.revision != pin.revision:
        raise UserError(
            f"source: '{known.dataset}' is at revision {pin.revision} here, expected"
            f" {known.revision}, the revision that the dataset was built from"
        )
    return pin


def shown_source(dataset: str, split: str) -> str:
    return f"{without_folders(dataset)}:{split}"


DISTANCES = NestedMeasure(measure_distances)


# With 50 images, Wilson's interval of a class is at most 27 points wide; with ten such classes, 9
# points.
IMAGES_A_CLASS = 50
_SALT = "reference"  # of the bootstrap
_INPUT = "the input dataset"


@dataclass(frozen=True)
class PreparedReference(Request):
    """The images to score, their name DATASET:SPLIT, and the models that are not scored there, with
    the reasons.

    If nothing is scored, `images` is None. `skipped` then gives the reason; it is empty if no
    reference is wanted.
    """

    images: LabelledImages | None = None
    split: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    skipped: str | None = None


def prepared_reference(
    subject: Subject,
    stands_for: Mapping[str, object],
    mended: Sequence[str],
    wanted: bool | None,
) -> PreparedReference:
    """Open the validation split of a built dataset's source, before any long step.

    stands_for: each model's name → what it is. mended: names of mended models, which may have seen
    any image of the source. wanted: None for a source that is on this machine, True to fetch one
    from the Hub. The base of corrupted rows is the source's own, so it is compared on request only.
    """
    if wanted is False or subject.recipe is None or subject.directory is None:
        return PreparedReference()
    if wanted is None and subject.recipe.kind.unchanged_base:
        return PreparedReference()
    subject = with_source_placed(subject)
    assert subject.recipe is not None
    source = subject.recipe.source
    left_out = {}
    for name, model in stands_for.items():
        if isinstance(model, str) and model.startswith(PREDICTIONS):
            left_out[name] = "a file of recorded predictions"
        elif isinstance(model, str) and chat_parts(model)[1] is not None and not wanted:
            left_out[name] = "on a server, which --reference asks about these images too"
    left_out |= dict.fromkeys(mended, "which was mended and may have seen these images")
    validation = source.validation_split
    split = shown_source(source.dataset, validation)
    try:
        if not set(stands_for) - set(left_out):
            whys = "; ".join(f"{name} is {why}" for name, why in left_out.items())
            raise UserError(f"no model can be scored on it: {whys}")
        if source.conditions is not None:
            raise UserError("each row of the source has several labels, expected one class per row")
        pin = pinned_source(subject)
        # A dataset of the Hub may be of any size.
        large = not (source.dataset.startswith(LAB) or is_local(source.dataset))
        if large and wanted is None:
            revisions = [folder.name for folder in prepared_folders(source)]
            if pin.revision not in revisions:
                raise UserError(
                    f"'{source.dataset}' is not on this machine", "Add --reference to download it."
                )
        images = labelled_split(source, validation, subject.recipe.classes, pin, units=False)
        first = first_of_classes(images.keys, images.labels, IMAGES_A_CLASS)
        images = rows_of(images, first)
    except reading_errors() as error:
        reason = skipped_because(skipped_reason(_INPUT, error))
        return PreparedReference(split=split, left_out=left_out, skipped=reason)
    return PreparedReference(images, split, left_out)


def measure_reference(answered: AllAnswers) -> tuple[ReferenceResult | None, list[ResultRow]]:
    """Return every model's gap between validation images and the base, over the classes that the
    base measures.

    None if no reference is wanted. A source that cannot be read is skipped and a model that fails
    there is left out, each with the reason.
    """
    prepared = answered.request(PreparedReference) or PreparedReference()
    images = prepared.images
    skipped = prepared.skipped
    if images is None and skipped is None:
        return None, []
    scored: dict[str, Scored] = {}
    failed: dict[str, CounterfoilError] = {}
    left_out = dict(prepared.left_out)
    scorable = [name for name in answered.models if name not in left_out]
    if images is not None:
        folder = writable_cache() / "predictions"
        try:
            with rename_stages(lambda stage: replace(stage, name=f"{stage.name}, validation")):
                scored = answered.asking.scored(images, scorable, folder, failed)
            if not scored:
                skipped = "; ".join(skipped_because(error) for error in failed.values())
        except reading_errors() as error:
            skipped = skipped_because(skipped_reason(_INPUT, error))
    if images is None or skipped is not None:
        return ReferenceResult(prepared.split, skipped=skipped, left_out=left_out), []
    # `scored` has cached models first: restore the order of the models, so that equal answers give
    # equal bytes.
    in_order = {}
    for name in scorable:
        if name in failed:
            left_out[name] = f"which failed there: {skipped_because(failed[name])}"
        if name in scored:
            in_order[name] = scored[name]
    return _gaps(answered, replace(prepared, left_out=left_out), images, in_order)


def _gaps(
    answered: AllAnswers,
    prepared: PreparedReference,
    images: LabelledImages,
    scored: Mapping[str, Scored],
) -> tuple[ReferenceResult, list[ResultRow]]:
    near = answered.near_chance
    places = [answered.models.index(name) for name in scored]
    predictions = [scores.predictions for scores in scored.values()]
    readable = np.all([of_model.readable for of_model in predictions], axis=0)
    correct = np.stack([of_model.correct for of_model in predictions], axis=1)
    both = []
    bases = []
    why = "no class has enough images on the base"
    if answered.enough(0):
        why = "it has no readable image of these classes"
        for cls in answered.seen(0):
            label = answered.label_of[cls.class_id]
            rows = np.flatnonzero((images.labels == label) & readable)
            if not rows.size:
                continue
            # The answers to one class, (n, models): first to validation images, then to base
            # images.
            on_base = cls.base_correct[cls.base_present][:, places]
            together = np.concatenate([correct[rows], on_base])
            first = np.arange(len(together)) < len(rows)
            both.append(ClassUnits(cls.class_id, first, together, ~first, together))
            bases.append(ClassUnits(cls.class_id, ~first, together, ~first, together))
    others = [cls for cls in both if cls.class_id in near.classes]
    unseen = None
    unseen_known = False
    if others:
        averaged = ~near.models[places]
        if not averaged.any():
            averaged[:] = True
        of_models = np.mean([other.base_accuracy for other in others], axis=0)
        unseen = float(of_models[averaged].mean())
        # Whether classes near chance on the base are clearly above chance here.
        chances = [near.chances[other.class_id] for other in others]
        chance = float(np.mean(chances))
        n = sum(other.counts[0] for other in others)
        unseen_known = not near_chance(np.array([unseen]), n, chance).item()
    result = ReferenceResult(
        split=prepared.split,
        images=sum(cls.counts[0] for cls in both),
        classes=len(both),
        skipped=None if both else why,
        left_out=prepared.left_out,
        unseen=unseen,
        unseen_known=unseen_known,
    )
    if not both:
        return result, []
    base_name = answered.group(0).name
    seed = answered.seed
    measured = {
        VALIDATION: accuracy_stats.class_averages(both, seed=seed, salt=_SALT),
        VALIDATION_BASE: accuracy_stats.class_averages(bases, seed=seed, salt=base_name),
        VALIDATION_GAP: accuracy_stats.drops_of_classes(both, paired=False, seed=seed, salt=_SALT),
    }
    result_rows = []
    for column, name in enumerate(scored):
        for measure, numbers in measured.items():
            estimate = numbers.interval(column)
            result_rows.append(estimate_row(measure, estimate, model=name, n=result.images))
    return result, result_rows


REFERENCE = NestedMeasure(measure_reference)
