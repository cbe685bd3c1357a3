"""How a dataset compares with its source: distances of features (KID, FID), and accuracy on
validation images.

Features are those of the recipe's CLIP model, or of a classifier before its last layer. For the
reference, the models are scored on at most 50 validation images of each class. A source that is not
available is skipped with the reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

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
from counterfoil.data.labelled_sources import (
    labelled_rows,
    labelled_source,
    labelled_split,
)
from counterfoil.data.labels import ConditionLabels
from counterfoil.data.open_source import open_source
from counterfoil.data.pins import SourcePin, prepared_folders
from counterfoil.errors import CounterfoilError, UserError, raise_together
from counterfoil.evaluation.dataset import Subject
from counterfoil.evaluation.messages import refusal
from counterfoil.evaluation.tasks.classes.answers import (
    AllAnswers,
    Asking,
    NestedMeasure,
    Request,
)
from counterfoil.models.classifiers import describe_classifier, load_classifier
from counterfoil.models.clip import load_clip, pin_clip
from counterfoil.models.loading_errors import reading_errors, skipped_reason
from counterfoil.models.names import LAB, Pin, local_folder
from counterfoil.prediction.embedding import (
    Embedder,
    classifier_embedder,
    clip_embedder,
    embed,
)
from counterfoil.prediction.passes import Scored
from counterfoil.progress import rename_stages, track
from counterfoil.recipe import RecipeClass, Source
from counterfoil.recipe.layering import without_folders
from counterfoil.recipe.names import (
    CHAT,
    OPEN_CLIP,
    PREDICTIONS,
    PYTHON,
    chat_parts,
    is_local,
)
from counterfoil.report.distances import FID, KID, Distances, ImageSet, SetOfImages
from counterfoil.report.reference import (
    VALIDATION,
    VALIDATION_BASE,
    VALIDATION_GAP,
    ReferenceResult,
)
from counterfoil.report.results import ResultRow, estimate_row
from counterfoil.resampled_stats import Units
from counterfoil.stats import Estimate
from counterfoil.store.layout import writable_cache


@dataclass(frozen=True)
class _Side:
    """Features [n, d] of images, and the unit of each image (n,)."""

    features: AnyFloats
    units: Ints

    @property
    def readable(self) -> Bools:
        """Which images could be decoded, bool [n]."""
        return np.asarray(np.isfinite(self.features).all(axis=1))

    @cached_property
    def statistics(self) -> feature_stats.FeatureStatistics:
        return feature_stats.feature_statistics(self.features)

    def only(self, which: Bools | Ints) -> _Side:
        return _Side(self.features[which], self.units[which])


@dataclass(frozen=True)
class PreparedDistances(Request):
    """The names of the feature models, and what distances are measured to."""

    names: tuple[str, ...] = ()
    source: SourceImages | None = None
    """The images to measure against, if they are available."""
    other: SourceImages | None = None
    """Another split of the same source, if it has one."""
    skipped: str = ""
    """The reason that the source is not available."""


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
    if not wanted and against is not None:
        raise refusal("unfit-option.against", "against")
    if not wanted:
        return PreparedDistances()
    try:
        source, *others = open_against(subject, against)
    except CounterfoilError as error:
        if against is not None:
            raise
        return PreparedDistances(wanted, skipped=skipped_because(error))
    if source.images.content == subject.parts[0].images.content:
        itself = f"the images are those of {source.name} themselves"
        return PreparedDistances(wanted, skipped=itself)
    other = None
    if others:
        other = others[0]
    return PreparedDistances(wanted, source, other)


def measure_distances(
    answered: AllAnswers,
) -> tuple[tuple[Distances, ...], list[ResultRow]]:
    """Return distances in the features of each model that was named, and their rows.

    A source that is not available and a model without features are skipped, with the reason. Raise
    RunFailure if a model cannot be fetched or computed.
    """
    prepared = answered.request(PreparedDistances) or PreparedDistances()
    source = prepared.source
    measured: list[Distances] = []
    rows: list[ResultRow] = []
    for name in prepared.names:
        if source is None:
            measured.append(Distances(name, skipped=prepared.skipped))
            continue
        try:
            model = load_features(name, answered.subject, answered.asking.device)
            distances, model_rows = _distances(answered, source, prepared.other, model)
            measured.append(distances)
            rows += model_rows
        except UserError as error:
            measured.append(Distances(name, skipped=skipped_because(error)))
        model = None  # frees its memory for the next
    return tuple(measured), rows


def skipped_because(error: CounterfoilError) -> str:
    """Return all problems of an error in one text: the reason that something was skipped."""
    texts = filter(None, (error.reason, error.hint))
    return "; ".join(texts).rstrip(".")


def _distances(
    answered: AllAnswers,
    opened: SourceImages,
    other: SourceImages | None,
    model: FeatureModel,
) -> tuple[Distances, list[ResultRow]]:
    subject = answered.subject.without_computed()
    asking = answered.asking
    source, decodable = _side_of(opened.images, model, asking)
    folder = subject.workplace / "embeddings"
    parts = [_features(part.images, model, folder, asking) for part in subject.parts]
    features = np.concatenate(parts)
    of_subject = _Side(features, _subject_units(subject))
    readable = of_subject.readable
    unreadable = np.concatenate([~readable, ~decodable])
    distances = Distances(
        features=model.name,
        pin=model.pin,
        width=features.shape[1],
        scaled=model.scaled,
        source=opened.name,
        source_content=opened.images.content,
        source_rows=opened.rows,
        subsets=feature_stats.SUBSETS,
        seed=answered.seed,
        unreadable=int(unreadable.sum()),
    )
    # What is compared: some images of a side, and another side.
    pairs: list[tuple[ImageSet, _Side, Bools, _Side]] = []
    of_classes: dict[tuple[int, ...], _Side] = {}
    for what, name, labels, in_set in _groups(subject):
        if labels not in of_classes:
            of_labels = opened.of_classes(subject.classes, labels)
            of_classes[labels] = source.only(of_labels[decodable])
        against = of_classes[labels]
        chosen = in_set & readable
        images = ImageSet(
            what,
            name,
            classes=len(labels),
            images=int(chosen.sum()),
            source_images=len(against.units),
        )
        pairs.append((images, of_subject, chosen, against))
    # For scale, also measure the source against itself: its two splits, or two halves of its only
    # split.
    if other is not None:
        name = f"{other.name} against {opened.name}"
        first, _ = _side_of(other.images, model, asking)
        another = source
    else:
        name = f"two halves of {opened.name}"
        first, another = _halves(source, opened.images.labels[decodable])
    images = ImageSet(
        "source",
        name,
        classes=len(subject.classes),
        images=len(first.units),
        source_images=len(another.units),
    )
    pairs.append((images, first, first.readable, another))
    sets: list[ImageSet] = []
    rows: list[ResultRow] = []
    stage = f"distances in the features of {model.name}"
    for images, side, chosen, against in track(pairs, stage):
        side = side.only(chosen)
        compared, set_rows = _compared(distances, images, side, against)
        sets.append(compared)
        rows += set_rows
    return replace(distances, sets=tuple(sets)), rows


def _halves(source: _Side, labels: Ints) -> tuple[_Side, _Side]:
    """Return two halves of a source, as even over labels (n,) as they come. Images with equal
    features go to the same half."""
    contents = []
    for of_image in source.features:
        content = np.ascontiguousarray(of_image).tobytes()
        contents.append(hashlib.sha256(content).hexdigest())
    units = list(map(str, source.units))
    halves = deal_halves(labels, 0, units, contents)
    return source.only(halves.discover), source.only(halves.confirm)


def _side_of(
    images: LabelledImages,
    model: FeatureModel,
    asking: Asking,
) -> tuple[_Side, Bools]:
    """Return the features of a source's decodable images, and which images can be decoded, bool
    [n]."""
    features = _features(images, model, None, asking)
    side = _Side(features, _units(images))
    return side.only(side.readable), side.readable


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
        _, width = features.shape
        features = features * np.float32(np.sqrt(width))
    return features


def _groups(subject: Subject) -> Iterator[tuple[SetOfImages, str, tuple[int, ...], Bools]]:
    """Yield the image sets to compare: kind, name, labels of classes, and rows, bool (n,).

    If the dataset has images in several groups, the whole dataset is the first set.
    """
    tops = [index for index, group in enumerate(subject.groups) if group.top]
    images = len(subject.parts[0].images)
    in_dataset = np.unique(subject.shifts[:images])
    merged = np.intersect1d(tops, in_dataset)
    if len(merged) > 1:
        labels: set[int] = set()
        for index in merged.tolist():
            labels |= set(subject.groups[index].class_labels)
        of_dataset = np.isin(subject.shifts, merged)
        yield "dataset", subject.name, tuple(sorted(labels)), of_dataset
    for index in tops:
        group = subject.groups[index]
        yield "group", group.name, group.class_labels, subject.shifts == index


def _units(images: LabelledImages) -> Ints:
    """Return the unit of each image as a number. If the images have no units, each image is its own
    unit."""
    units = images.keys if images.units is None else images.units
    _, numbers = np.unique(units, return_inverse=True)
    return numbers


def _subject_units(subject: Subject) -> Ints:
    """Return the unit of each image: that of the input dataset, if it names any. Otherwise, with
    paired noise, images of one class and index share a unit."""
    if subject.units is not None:
        return subject.units.of_image
    numbered = []
    start = 0
    for part in subject.parts:
        units = _units(part.images)
        rows = slice(start, start + len(units))
        if subject.groups[part.first].paired:
            labels = subject.labels[rows]
            cells = np.stack([labels, subject.indices[rows]])
            _, units = np.unique(cells, axis=1, return_inverse=True)
        numbered.append(units.reshape(-1) + start)
        start = rows.stop
    return np.concatenate(numbered)


def _compared(
    distances: Distances,
    images: ImageSet,
    side: _Side,
    against: _Side,
) -> tuple[ImageSet, list[ResultRow]]:
    """Return a set with its rows, KID and FID, or a note if there are too few images."""
    n = images.images
    key = distances.key(images)
    first = len(np.unique(side.units))
    second = len(np.unique(against.units))
    fewest = feature_stats.FEWEST_IMAGES
    if min(first, second) < fewest:
        note = (
            f"{first:,} and {second:,} independent images, and subsets need {fewest} on either side"
        )
        unknown = estimate_row(
            KID,
            None,
            n=n,
            note=note,
            **key,
        )
        return images, [unknown]
    kid = feature_stats.kernel_distance(
        side.features,
        against.features,
        side.units,
        against.units,
        seed=distances.seed,
    )
    fid = feature_stats.frechet_distance(side.statistics, against.statistics)
    images = replace(
        images,
        kid_subset=kid.subset,
        kid_source_subset=kid.other_subset,
        fid_biased=feature_stats.is_biased(n, images.source_images, distances.width),
    )
    estimate = Estimate(kid.value, kid.low, kid.high)
    kid_row = estimate_row(KID, estimate, n=n, **key)
    fid_row = estimate_row(FID, fid, n=n, **key)
    return images, [kid_row, fid_row]


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
    if name.startswith((PREDICTIONS, PYTHON, CHAT)):
        raise refusal("unusable-model.features", None, name)
    if name != CLIP:
        describe_classifier(name, subject.classes)
        return
    recipe = subject.recipe
    if recipe is not None and recipe.screen.model is not None:
        local_folder(recipe.screen.model)
        return
    lacking = "this recipe has no screen"
    how = "Name a model"
    if recipe is None:
        lacking = "the images have no recipe"
        how = "Name a recipe (--recipe), or a model"
    raise refusal("unusable-model.clip", None, CLIP, lacking=lacking, how=how)


def load_features(name: str, subject: Subject, device: str) -> FeatureModel:
    """Load a feature model on `device`. A CLIP model of the Hub has the commit that the dataset
    pins."""
    if name != CLIP:
        classifier = load_classifier(name, device, subject.classes)
        embedder = classifier_embedder(classifier, device)
        scaled = name.startswith(OPEN_CLIP)
        return FeatureModel(name, f"sha256 {classifier.sha256}", embedder, scaled)
    assert subject.recipe is not None  # `prepared_distances` checked it
    screen = subject.recipe.screen
    models = subject.pins.get("models") or {}
    pinned = models.get("screen") or {}
    if pinned.get("name") and pinned.get("revision"):
        pin = Pin(
            pinned["name"],
            pinned["revision"],
            pinned.get("sha256"),
            pinned.get("license"),
        )
    else:
        pin = pin_clip(screen.clip, screen.weights)
    clip = load_clip(screen.clip, screen.weights, device, revision=pin.revision)
    pin_text = "not pinned"
    if pin.sha256:
        pin_text = f"sha256 {pin.sha256}"
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
        source_labels = [classes[label].source_label for label in labels]
        fitting = [self.sets.of_label(source_label) for source_label in source_labels]
        of_sets = np.any(fitting, axis=0)
        return of_sets[self.images.labels]


def open_against(subject: Subject, against: str | Path | None) -> list[SourceImages]:
    """Return the validation split of a recipe's source as the dataset pins it, and the train split,
    as far as it has both; or `against`.

    Raise UserError for missing images, RunFailure if a network or a disk fails.
    """
    if against is not None:
        images = labelled_source(against, subject.classes)
        return [_source_images(images)]
    recipe = subject.recipe
    if recipe is None:
        raise refusal("unknown-source.against")
    recorded = subject.pins.get("source")
    origin = placed_source(recipe.source, recorded)
    pin = _source_pin(origin, recorded)
    splits = open_source(origin, pin=pin).splits
    validation = origin.validation_split
    names = [name for name in (validation, origin.train_split) if name in splits]
    if splits and not names:
        raise refusal("unknown-source.splits", f"source: '{origin.dataset}'", splits)
    opened = []
    for name in dict.fromkeys(names or [validation]):
        images, conditions = labelled_rows(origin, name, recipe.classes, pin)
        sets = None
        if conditions is not None:  # sort the sets: label i of the images is set i
            values = np.unique(conditions.values, axis=0)
            sets = ConditionLabels(conditions.names, values)
        opened.append(_source_images(images, sets))
    return opened


def _source_images(images: LabelledImages, sets: ConditionLabels | None = None) -> SourceImages:
    dataset, _, split = images.name.rpartition("/")
    name = shown_source(dataset, split)
    thinned = evenly_thinned(images, MOST_IMAGES)
    return SourceImages(thinned, name, len(images), sets)


def _source_pin(source: Source, recorded: Any) -> SourcePin:
    """Return the pin of a dataset's source. Raise UserError if it is not as recorded."""
    pin = open_source(source, recorded, as_recorded=True).pin
    known = SourcePin.of(recorded)
    if known is None or not known.revision or not pin.revision:
        return pin
    if known.revision != pin.revision:
        where = f"source: '{known.dataset}'"
        raise refusal("unknown-source.revision", where, pin.revision, known.revision)
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
    recipe = subject.recipe
    if wanted is False or recipe is None or subject.directory is None:
        return PreparedReference()
    if wanted is None and recipe.kind.unchanged_base:
        return PreparedReference()
    recorded = subject.pins.get("source")
    source = placed_source(recipe.source, recorded)
    left_out = {}
    for name, model in stands_for.items():
        if not isinstance(model, str):
            continue
        _, server = chat_parts(model)
        if model.startswith(PREDICTIONS):
            left_out[name] = "a file of recorded predictions"
        elif server is not None and not wanted:
            left_out[name] = "on a server, which --reference asks about these images too"
    left_out |= dict.fromkeys(mended, "which was mended and may have seen these images")
    validation = source.validation_split
    split = shown_source(source.dataset, validation)
    try:
        if not set(stands_for) - set(left_out):
            whys = [f"{name} is {why}" for name, why in left_out.items()]
            raise refusal("unknown-source.models", None, "; ".join(whys))
        if source.conditions is not None:
            raise refusal("unknown-source.labels")
        pin = _source_pin(source, recorded)
        # A dataset of the Hub may be of any size.
        small = source.dataset.startswith(LAB) or is_local(source.dataset)
        if not small and wanted is None:
            revisions = [folder.name for folder in prepared_folders(source)]
            if pin.revision not in revisions:
                raise refusal("unknown-source.absent", None, source.dataset)
        try:
            images = labelled_split(source, validation, recipe.classes, pin)
        except UserError:
            # This split may lack the units that another one has.
            images = labelled_split(source, validation, recipe.classes, pin, units=False)
        first = first_of_classes(images.keys, images.labels, IMAGES_A_CLASS)
        images = rows_of(images, first)
    except reading_errors() as error:
        reason = skipped_because(skipped_reason(_INPUT, error))
        return PreparedReference(split=split, left_out=left_out, skipped=reason)
    return PreparedReference(images, split, left_out)


def measure_reference(
    answered: AllAnswers,
) -> tuple[ReferenceResult | None, list[ResultRow]]:
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
                reasons = map(skipped_because, failed.values())
                skipped = "; ".join(reasons)
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
    prepared = replace(prepared, left_out=left_out)
    return _gaps(answered, prepared, images, in_order)


def _gaps(
    answered: AllAnswers,
    prepared: PreparedReference,
    images: LabelledImages,
    scored: Mapping[str, Scored],
) -> tuple[ReferenceResult, list[ResultRow]]:
    near = answered.near_chance
    places = [answered.models.index(name) for name in scored]
    predictions = [scores.predictions for scores in scored.values()]
    readable_of_models = [of_model.readable for of_model in predictions]
    right_of_models = [of_model.correct for of_model in predictions]
    readable = np.all(readable_of_models, axis=0)
    correct = np.stack(right_of_models, axis=1)
    both = []
    bases = []
    rows_of_classes = []
    why = "no class has enough images on the base"
    if answered.enough(0):
        why = "it has no readable image of these classes"
        for cls in answered.seen(0):
            of_class = images.labels == answered.label_of[cls.class_id]
            rows = np.flatnonzero(of_class & readable)
            if not len(rows):
                continue
            # The answers to one class, (n, models): to validation images, then to base images.
            on_base = cls.base_correct[cls.base_present][:, places]
            together = np.concatenate([correct[rows], on_base])
            first = np.arange(len(together)) < len(rows)
            units = ClassUnits(
                cls.class_id,
                base_present=first,
                base_correct=together,
                shift_present=~first,
                shift_correct=together,
            )
            both.append(units)
            bases.append(replace(cls, base_correct=cls.base_correct[:, places]))
            rows_of_classes.append(rows)
    others = [cls for cls in both if cls.class_id in near.classes]
    unseen = None
    unseen_known = False
    if others:
        averaged = ~near.models[places]
        if not averaged.any():
            averaged[:] = True
        of_classes = [other.base_accuracy for other in others]
        of_models = np.mean(of_classes, axis=0)
        unseen = float(of_models[averaged].mean())
        # Whether classes near chance on the base are clearly above chance here.
        chances = [near.chances[other.class_id] for other in others]
        chance = float(np.mean(chances))
        n, _ = accuracy_stats.image_counts(others)
        unseen_known = not near_chance(np.array([unseen]), n, chance).item()
    count, _ = accuracy_stats.image_counts(both)
    result = ReferenceResult(
        split=prepared.split,
        images=count,
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
    both = _by_unit(both, bases, rows_of_classes, _units(images), seed)
    gaps = accuracy_stats.drops_of_classes(both, paired=False, seed=seed, salt=_SALT)
    measured = {
        VALIDATION: accuracy_stats.class_averages(both, seed=seed, salt=_SALT),
        VALIDATION_BASE: accuracy_stats.class_averages(bases, seed=seed, salt=base_name),
        VALIDATION_GAP: gaps,
    }
    result_rows = []
    for column, name in enumerate(scored):
        for measure, numbers in measured.items():
            estimate = numbers.interval(column)
            result_rows.append(estimate_row(measure, estimate, model=name, n=count))
    return result, result_rows


def _by_unit(
    both: Sequence[ClassUnits],
    bases: Sequence[ClassUnits],
    rows: Sequence[Ints],
    units: Ints,
    seed: int,
) -> list[ClassUnits]:
    """Return the classes of both sides with the unit of each image, if any images share one.

    rows: those of each class among the validation images, whose units are (n,).
    """
    first = int(units.max()) + 1  # units of base images follow
    numbered = []
    for of_class, cls in zip(rows, bases, strict=True):
        if cls.sources is None:
            images, _ = cls.counts
            of_base = first + np.arange(images)
            first += images
        else:
            _, of_source, _ = cls.sources
            of_base = first + of_source[cls.base_present]
        numbered.append(np.concatenate([units[of_class], of_base]))
    every = Units.of(np.concatenate(numbered))
    if not every.shared:
        return list(both)
    draws = replace(every, seed=seed)
    ends = np.cumsum([len(of_class) for of_class in numbered])
    parts = np.split(draws.of_image, ends[:-1])
    return [
        replace(cls, sources=(draws, part, part)) for cls, part in zip(both, parts, strict=True)
    ]


REFERENCE = NestedMeasure(measure_reference)
