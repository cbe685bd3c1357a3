"""The input of measures: every model's answers, grouped into classes, shifts and pairs, and their
drops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from counterfoil import accuracy_stats
from counterfoil.accuracy_stats import (
    Averages,
    ClassUnits,
    Drops,
    NearChance,
    find_near_chance,
)
from counterfoil.arrays import Bools, Floats, Floats32, Ints
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.errors import CounterfoilError
from counterfoil.evaluation.dataset import Group, Subject
from counterfoil.evaluation.messages import failure
from counterfoil.evaluation.scored_models import ChosenModels
from counterfoil.prediction.changes import Change
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.passes import CallBudget, Placement, Scored, score_models
from counterfoil.recipe import RecipeClass
from counterfoil.report.results import (
    GroupFacts,
    LeftOut,
    MeasureFacts,
    ResultRow,
    Results,
    estimate_row,
)
from counterfoil.report.words import over_classes
from counterfoil.stats import Estimate

Made = TypeVar("Made")


class Request:
    """Options of one measure; its file declares a frozen dataclass."""


Asked = TypeVar("Asked", bound=Request)


@dataclass(frozen=True)
class ModelAnswers:
    """Every model's answers to all images, in the dataset's order. Arrays are (images, models);
    readable: (images,)."""

    readable: Bools
    prediction: NDArray[np.int32]
    correct: Bools
    correct_top_k: Bools


def near_chance_on_base(
    subject: Subject,
    answers: ModelAnswers,
    chances: Floats,
    min_images: int,
) -> NearChance:
    """Return which models and classes are near chance on the base; `chances` (labels, models).

    Without a base, models are judged by the average over the classes of all readable images. A
    preview has too few images of a class to judge classes.
    """
    if not subject.base:
        labels = subject.labels[answers.readable]
        correct = answers.correct[answers.readable]
        present = np.unique(labels)
        of_classes = []
        for label in present:
            of_class = correct[labels == label]
            of_classes.append(of_class.mean(axis=0))
        accuracy = np.mean(of_classes, axis=0)
        chance = chances[present].mean(axis=0)
        near_models = accuracy_stats.near_chance(accuracy, len(labels), chance)
        return NearChance(near_models)
    on_base = class_units(subject, answers, 0)
    kept = accuracy_stats.classes_with_images(on_base, min_images)
    if not kept:
        _, models = chances.shape
        return NearChance(np.zeros(models, bool))
    class_ids = [units.class_id for units in kept]
    accuracies = [units.base_accuracy for units in kept]
    images = [units.counts[0] for units in kept]
    label_of = {cls.id: label for label, cls in enumerate(subject.classes)}
    labels = [label_of[class_id] for class_id in class_ids]
    near = find_near_chance(
        class_ids,
        np.stack(accuracies),
        np.array(images),
        chances[labels],
    )
    if subject.preview is not None:
        near = replace(near, classes={}, chances={})
    return near


@dataclass(frozen=True)
class AnsweredImages:
    """n images of one group."""

    labels: Ints
    """(n,), as indices and present are."""
    indices: Ints
    present: Bools
    correct: Bools
    """(n, models)."""
    sources: Ints | None = None
    """(n,) units of the input dataset; None if images share none, or if it is not known."""

    @classmethod
    def of_group(
        cls,
        subject: Subject,
        answers: ModelAnswers,
        group: int,
    ) -> AnsweredImages:
        rows = np.flatnonzero(subject.shifts == group)
        sources = None
        if subject.units is not None:
            sources = subject.units.of_image[rows]
        return cls(
            labels=subject.labels[rows],
            indices=subject.indices[rows],
            present=answers.readable[rows],
            correct=answers.correct[rows],
            sources=sources,
        )

    def of_models(self, models: Sequence[int]) -> AnsweredImages:
        return replace(self, correct=self.correct[:, models])


def aligned_units(
    subject: Subject,
    labels: Sequence[int],
    base: AnsweredImages,
    shifted: AnsweredImages,
) -> list[ClassUnits]:
    """Return the classes of these labels, each with its base and shifted images aligned by
    candidate index."""
    units = []
    for label in labels:
        sides = []
        count = 0
        for side in (base, shifted):
            of_label = side.labels == label
            rows = np.flatnonzero(side.present & of_label)
            indices = side.indices[rows]
            sides.append((side, rows, indices))
            count = max(count, 1 + indices.max(initial=-1))
        parts: list[Bools] = []
        sources: list[Ints] = []
        for side, rows, indices in sides:
            present = np.zeros(count, bool)
            present[indices] = True
            _, models = side.correct.shape
            correct = np.zeros((count, models), bool)
            correct[indices] = side.correct[rows]
            parts += [present, correct]
            if side.sources is not None:
                of_side = np.full(count, -1)
                of_side[indices] = side.sources[rows]
                sources.append(of_side)
        of_both = None
        if subject.units and len(sources) == 2:
            of_base, of_shift = sources
            of_both = subject.units, of_base, of_shift
        class_id = subject.classes[label].id
        units.append(ClassUnits(class_id, *parts, sources=of_both))
    return units


def class_units(
    subject: Subject,
    answers: ModelAnswers,
    shift: int,
    base: int = 0,
) -> list[ClassUnits]:
    """Return the planned classes of a shift, each with its base and shifted images aligned by
    candidate index."""
    labels = subject.groups[shift].class_labels
    on_base = AnsweredImages.of_group(subject, answers, base)
    shifted = AnsweredImages.of_group(subject, answers, shift)
    return aligned_units(subject, labels, on_base, shifted)


@dataclass(frozen=True)
class Asking:
    """The models that answer, and where and how they run."""

    models: ChosenModels
    device: str
    batch_size: int
    spread: Placement | None = None
    budget: CallBudget = field(default_factory=CallBudget)

    def scored(
        self,
        images: LabelledImages,
        names: Sequence[str],
        folder: Path,
        failed: dict[str, CounterfoilError] | None = None,
        *,
        changes: Sequence[Change] = (),
        refused: dict[tuple[str, str], str] | None = None,
    ) -> dict[str, Scored]:
        """Return the answers of these models, kept in `folder`, also under changes of the images.
        Raise, or fill `failed` and `refused`, as `score_models` does."""
        spread = self.spread
        if spread is not None:
            local = frozenset(self.models.given)  # no other process can load these
            spread = replace(spread, of_this_process=local)
        return score_models(
            images,
            names,
            self.models.maps,
            folder,
            self.device,
            self.batch_size,
            self.models.load,
            placement=spread,
            failed=failed,
            budget=self.budget,
            changes=changes,
            refused=refused,
        )


def once_a_group(
    measured: Callable[[AllAnswers, int], Made],
) -> Callable[[AllAnswers, int], Made]:
    """Let a method of `AllAnswers` compute what it returns once for each group."""

    @wraps(measured)
    def of_group(answered: AllAnswers, index: int) -> Made:
        return answered.once((measured, index), lambda: measured(answered, index))

    return of_group


@dataclass(frozen=True)
class AllAnswers:
    """The input of a measure: the images, every model's answers, and the drops that several
    measures share.

    Accuracies are over every class with an image. Drops leave out classes with few images and
    classes that are near chance on the base; averages over models leave out models that are.
    """

    subject: Subject
    """The images. Groups have its indices; the base, if any, is first."""
    scored: tuple[Scored, ...]
    """Each model with its answers, in the order in which models were named."""
    answers: ModelAnswers
    """The same answers in arrays."""
    near_chance: NearChance
    """The models and classes that are near chance on the base."""
    min_images: int
    """The fewest images of a class that is measured."""
    seed: int
    """The seed of every resampling."""
    asking: Asking
    """Scores more images."""
    requests: tuple[Request, ...] = ()
    """The options of single measures."""
    refused: Mapping[int, Bools] = field(default_factory=dict)
    """Of a computed shift, by its index: the models that cannot take it, (models,). Their answers
    to it mean nothing."""
    made: dict[tuple[Any, ...], Any] = field(default_factory=dict, repr=False)
    """What `once` has made, by key."""

    @classmethod
    def of(
        cls,
        subject: Subject,
        scored: Sequence[Scored],
        minimum: int,
        seed: int,
        asking: Asking,
        requests: tuple[Request, ...],
        refused: Mapping[int, Bools] | None = None,
    ) -> AllAnswers:
        """Combine every model's answers. Raise RunFailure if no image, or no base image, can be
        decoded."""
        predictions = [scores.predictions for scores in scored]
        readable = [of_model.readable for of_model in predictions]
        prediction = [of_model.prediction for of_model in predictions]
        correct = [of_model.correct for of_model in predictions]
        correct_top_k = [of_model.correct_top_k for of_model in predictions]
        answers = ModelAnswers(
            # Whether an image decodes does not depend on the model.
            readable=np.all(readable, axis=0),
            prediction=np.stack(prediction, axis=1),
            correct=np.stack(correct, axis=1),
            correct_top_k=np.stack(correct_top_k, axis=1),
        )
        needed = answers.readable
        what = "image"
        if subject.base:
            needed = needed & (subject.shifts == 0)
            what = "base image"
        if not needed.any():
            name = "nothing-to-measure.decoded"
            if subject.directory:
                name = "nothing-to-measure.built"
            raise failure(name, subject.directory or subject.source, what)
        of_models = [scores.class_map.chances for scores in scored]
        chances = np.stack(of_models, axis=1)
        near = near_chance_on_base(subject, answers, chances, minimum)
        units = subject.units
        if units is not None:
            in_groups = np.stack([units.of_image, subject.shifts])
            different = np.unique(in_groups, axis=1)
            shared = different.shape[1] < len(subject.shifts)
            units = replace(units, seed=seed) if shared else None
            subject = replace(subject, units=units)
        return cls(
            subject,
            tuple(scored),
            answers,
            near,
            minimum,
            seed,
            asking,
            requests,
            refused or {},
        )

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(scores.classifier.name for scores in self.scored)

    @property
    def maps(self) -> tuple[ClassMap, ...]:
        return tuple(scores.class_map for scores in self.scored)

    @cached_property
    def confidence(self) -> Floats32:
        """Each model's confidence in its top answer, (images, models)."""
        of_models = [scores.predictions.confidence for scores in self.scored]
        return np.stack(of_models, axis=1)

    @property
    def sound(self) -> Bools:
        """The models that are not near chance on the base, (models,) bool."""
        return ~self.near_chance.models

    def able(self, index: int) -> Bools:
        """Return which models answered a group, (models,) bool: all, except for a computed shift."""
        if index in self.refused:
            return ~self.refused[index]
        return np.ones(len(self.scored), bool)

    def unable(self, index: int) -> list[str]:
        """Return the names of the models that did not answer a group."""
        unable = ~self.able(index)
        return np.array(self.models)[unable].tolist()

    @cached_property
    def given(self) -> Bools:
        """Whether each model answered each image, (images, models): it is readable, and the model
        can take its shift."""
        readable = self.answers.readable
        given = np.stack([readable] * len(self.scored), axis=1)
        for index, refused in self.refused.items():
            in_group = self.subject.shifts == index
            given[np.ix_(in_group, refused)] = False
        return given

    def averaged(self, index: int) -> Bools:
        """Return the models that averages over a group are of, (models,) bool."""
        return self.sound & self.able(index)

    def is_answered(self, row: ResultRow) -> bool:
        """Return whether the models of a row answered its group; for one class, whether all models
        did."""
        for index in self.refused:
            if self.group(index).name == row.group:
                unable = self.unable(index)
                return not (row.class_id or row.model in unable or row.against in unable)
        return True

    @property
    def places(self) -> tuple[int, ...]:
        """The groups, by index, that all measures except severity use: of a graded shift only the
        highest level."""
        groups = self.subject.groups
        return tuple(index for index, group in enumerate(groups) if group.top)

    @property
    def shifts(self) -> tuple[int, ...]:
        """The indices of the groups to compare with the base; of all groups if there is no base."""
        return self.places[int(self.subject.base) :]

    def group(self, index: int) -> Group:
        return self.subject.groups[index]

    def key(self, model: int, index: int) -> dict[str, str]:
        """Return the names in the key of a row: of a model, and of a group."""
        group = self.group(index)
        return {"model": self.models[model], "group": group.name}

    def model_rows(
        self,
        measure: str,
        numbers: Iterable[Estimate | float | None],
        **key: Any,
    ) -> Iterator[ResultRow]:
        """Yield a row for each model's number; none for a model without one."""
        for model, number in zip(self.models, numbers, strict=True):
            if number is not None:
                yield estimate_row(measure, number, model=model, **key)

    @cached_property
    def label_of(self) -> dict[str, int]:
        """The number of each class, by its id."""
        return {cls.id: label for label, cls in enumerate(self.subject.classes)}

    @once_a_group
    def rows(self, index: int) -> Ints:
        """Return the readable images of a group."""
        in_group = self.subject.shifts == index
        return np.flatnonzero(in_group & self.answers.readable)

    def base_rows(self, index: int) -> Ints:
        """Return the readable base images that a group is compared with: all, or those that a
        computed shift changes."""
        rows = self.rows(0)
        if self.group(index).change is None:
            return rows
        subject = self.subject
        indices = subject.indices
        cells = subject.labels * (indices.max() + 1) + indices
        changed = cells[self.rows(index)]
        return rows[np.isin(cells[rows], changed)]

    def rows_of_labels(
        self,
        index: int,
        labels: Sequence[int] | Ints | None,
        computed: int = 0,
    ) -> Ints:
        """Return the readable images of a group, or those of these labels. computed: for the base,
        the computed shift whose images alone are wanted."""
        rows = self.rows(index)
        if computed:
            rows = self.base_rows(computed)
        if labels is None:
            return rows
        of_rows = self.subject.labels[rows]
        return rows[np.isin(of_rows, labels)]

    @once_a_group
    def units(self, index: int) -> list[ClassUnits]:
        """Return the planned classes of a group with their base images; without a base, with its
        own on both. A computed shift has only the base images that it changes."""
        base = 0 if self.subject.base else index
        units = class_units(self.subject, self.answers, index, base)
        if self.group(index).change is None:
            return units
        return [cls.pairs() for cls in units]

    def seen(self, index: int) -> list[ClassUnits]:
        """Return the classes with an image in a group, which its accuracy is averaged over."""
        return [cls for cls in self.units(index) if cls.shift_present.any()]

    def enough(self, index: int) -> list[ClassUnits]:
        """Return the classes with enough images on both sides."""
        return accuracy_stats.classes_with_images(self.units(index), self.min_images)

    def kept(self, index: int) -> list[ClassUnits]:
        """Return the classes of a drop: with enough images on both sides, and not near chance on
        the base."""
        near_chance = self.near_chance.classes
        enough = self.enough(index)
        return [cls for cls in enough if cls.class_id not in near_chance]

    def over(self, kept: Sequence[ClassUnits]) -> str:
        """Return over how many classes a drop is; empty for a drop over all of them."""
        classes = len(self.subject.classes)
        return over_classes(len(kept), classes)

    @once_a_group
    def drops(self, index: int) -> Drops | None:
        """Return the drops of all models under a shift, over its measured classes; None if no class
        is measured."""
        return self.drops_over(index, self.kept(index))

    def drops_over(self, index: int, classes: Sequence[ClassUnits]) -> Drops | None:
        """Return the drops of all models under a shift, over some classes; None without any."""
        if not classes:
            return None
        group = self.group(index)
        return accuracy_stats.drops_of_classes(
            classes,
            paired=group.paired,
            seed=self.seed,
            salt=group.name,
            averaged=self.averaged(index),
        )

    def pairs(self, index: int) -> list[ClassUnits]:
        """Return the measured classes with the indices accepted on both sides; empty if noise is
        not paired."""
        if not self.group(index).paired:
            return []
        pairs = [cls.pairs() for cls in self.kept(index)]
        return [cls for cls in pairs if cls.base_present.any()]

    def averages(self) -> Averages:
        """Return every model's accuracy on the base, averaged over all of its classes."""
        seen = self.seen(0)
        salt = self.group(0).name
        return accuracy_stats.class_averages(seen, seed=self.seed, salt=salt)

    def shared_units(self, rows: Ints) -> Ints | None:
        """Return the units of these images, (n,); None if images share none."""
        units = self.subject.units
        return None if units is None else units.of_image[rows]

    def unit_count(self, rows: Ints) -> int | None:
        """Return of how many units these images are; None if images share none."""
        units = self.shared_units(rows)
        return None if units is None else len(np.unique(units))

    def request(self, kind: type[Asked]) -> Asked | None:
        """Return the request of this class; None if there is none."""
        for request in self.requests:
            if isinstance(request, kind):
                return request
        return None

    def once(
        self,
        key: tuple[Any, ...],
        make: Callable[[], Made],
    ) -> Made:
        """Return what `make` returns, calling it once per key."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def facts(self, index: int) -> GroupFacts:
        """Return the facts of a group: its yield, and the classes and images of its drop, or else
        of its accuracy."""
        subject = self.subject
        described = self.group(index)
        compared = subject.base and index > 0
        kept = self.seen(index)
        if compared:
            kept = self.kept(index)
        accepted = int((subject.shifts == index).sum())
        base, images = accuracy_stats.image_counts(kept)
        measured = {cls.class_id for cls in kept}
        left_out = []
        for cls in self.units(index):
            class_id = cls.class_id
            if class_id in measured:
                continue
            name = subject.classes[self.label_of[class_id]].name
            few = LeftOut(class_id, name, *cls.counts)
            if compared and min(cls.counts) >= self.min_images:
                accuracy = self.near_chance.classes[class_id]
                few = replace(few, why="near chance", base_accuracy=accuracy)
            left_out.append(few)
        return GroupFacts(
            name=described.name,
            kind=described.kind,
            prompt=described.prompt,
            group=described.group,
            candidates=described.candidates,
            accepted=accepted,
            unreadable=accepted - len(self.rows(index)),
            classes=len(kept),
            left_out=tuple(left_out),
            images=images,
            base_images=base if subject.base else 0,
        )


def answer_names(
    classes: Sequence[RecipeClass],
    class_map: ClassMap,
) -> Callable[[int], str]:
    """Return a function from a model's output to its name for people."""
    if class_map.outputs == "imagenet":
        from timm.data.imagenet_info import ImageNetInfo

        info = ImageNetInfo()
        return lambda output: info.index_to_description(output).split(",")[0]
    if class_map.outputs == "names":
        by_output = {}
        for cls, target in zip(classes, class_map.targets, strict=True):
            by_output |= dict.fromkeys(target, cls.name)
        labels = class_map.label_names or ()
        return lambda output: by_output.get(output) or labels[output]
    by_source_label = {cls.source_label: cls.name for cls in classes}
    return lambda output: by_source_label.get(output, f"source label {output}")


ShownIn = Literal["terminal", "report", "card"]
EVERYWHERE: tuple[ShownIn, ...] = ("terminal", "report", "card")


@dataclass(frozen=True)
class AnsweredGroup:
    """A model's answers to n readable images of a group, (n,) each. confidence: NaN where the model
    gives none."""

    labels: Ints
    correct: Bools
    correct_top_k: Bools
    confidence: Floats


# The value of a measure in r resamples, (r,): weights (r, n) say how often each image is drawn.
Resampled = Callable[[AnsweredGroup, Floats], Floats]
# Values of a mean distance, (r,), that chance alone gives to a model without any distance. The second
# argument is how many images count as one, because they share a unit.
ByChance = Callable[[AnsweredGroup, float, np.random.Generator], Floats]


@dataclass(frozen=True)
class Measure:
    """A measure. Its key in `MEASURES` is its name and the name of its rows."""

    rows: Callable[[AllAnswers], Iterable[ResultRow]] | None
    """Returns one number each, named after the measure. None: a row for each model and group, of
    `resampled`."""
    title: str
    """What tables call it."""
    unit: Literal["percent", "points", "share", "plain"]
    """How its number is shown."""
    reading: str
    """A sentence on how the number is read."""
    shown: tuple[ShownIn, ...] = ()
    """The pages that have its table (a row per group, a column per model), such as `EVERYWHERE`."""
    figure: Callable[[Results], str | None] | None = None
    """Draws SVG for the report."""
    lower_is_better: bool = False
    """Whether a model with less of it is better."""
    resampled: Resampled | None = None
    """What a line of a gate measures: of all images of a group, or of those of one class."""
    by_chance: ByChance | None = None
    """For a mean distance, which chance makes larger: what chance alone gives."""

    def facts(self, name: str) -> MeasureFacts:
        return MeasureFacts(
            name,
            self.title,
            self.unit,
            self.reading,
            self.shown,
            self.lower_is_better,
        )


@dataclass(frozen=True)
class NestedMeasure:
    """A measure whose facts nest in the document of results beside its rows, under the name of its
    file.

    measure: returns the facts, and rows with their own names; None or an empty tuple if there is
    nothing to measure.
    draw: figures for its section of the report. pictures: more figures, from the images.
    """

    measure: Callable[[AllAnswers], tuple[Any, list[ResultRow]]]
    draw: Callable[[Results], Sequence[Any]] = lambda results: ()
    pictures: Callable[[AllAnswers, Results], Sequence[Any]] = lambda answered, results: ()
