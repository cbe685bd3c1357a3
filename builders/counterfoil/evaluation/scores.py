"""What measures are computed from: every model's answers, grouped into classes, shifts and pairs, and their drops.

`correct` is (images, models), in the dataset's order. A measure is a function from
these answers to rows, and what it says of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from counterfoil import accuracy_stats
from counterfoil.accuracy_stats import Averages, ClassUnits, Drops, NearChance, find_near_chance
from counterfoil.data import LabelledImages
from counterfoil.errors import CounterfoilError, RunFailure
from counterfoil.evaluation.dataset import Group, Subject
from counterfoil.evaluation.scored_models import ChosenModels
from counterfoil.prediction.class_map import ClassMap
from counterfoil.prediction.passes import Placement, Scored, score_models
from counterfoil.recipe import RecipeClass
from counterfoil.report.results import GroupFacts, LeftOut, MeasureFacts, ResultRow, Results

Made = TypeVar("Made")


class Request:
    """What is asked of one measure: its file declares a frozen dataclass of its own."""


Asked = TypeVar("Asked", bound=Request)


@dataclass(frozen=True)
class ModelAnswers:
    """What all models answered to all images: (images, models) each, and (images,) readable."""

    readable: NDArray[np.bool_]
    prediction: NDArray[np.int32]
    correct: NDArray[np.bool_]
    correct_top_k: NDArray[np.bool_]


def near_chance_on_base(
    subject: Subject, answers: ModelAnswers, chances: NDArray[np.float64], min_images: int
) -> NearChance:
    """Return which models and classes are near chance on the base; `chances` (labels, models).

    Without a base, models are judged by the average over the classes of all readable images.
    """
    if not subject.base:
        labels, correct = subject.labels[answers.readable], answers.correct[answers.readable]
        there, counts = np.unique(labels, return_counts=True)
        everywhere = np.stack([correct[labels == label].mean(axis=0) for label in there]).mean(axis=0)
        return NearChance(accuracy_stats.near_chance(everywhere, int(counts.sum()), chances[there].mean(axis=0)))
    kept = accuracy_stats.surviving(class_units(subject, answers, 0), min_images)
    if not kept:
        return NearChance(np.zeros(chances.shape[1], dtype=bool))
    label_of = {cls.id: label for label, cls in enumerate(subject.classes)}
    ids = [one.class_id for one in kept]
    accuracy = np.stack([accuracy_stats.accuracy_per_class(one.base_present, one.base_correct) for one in kept])
    images = np.array([one.counts[0] for one in kept])
    return find_near_chance(ids, accuracy, images, chances[[label_of[one] for one in ids]])


@dataclass(frozen=True)
class AnsweredImages:
    """n images of one group, (n,) each: labels, indices and which are present; correct: (n, models)."""

    labels: NDArray[np.int64]
    indices: NDArray[np.int64]
    present: NDArray[np.bool_]
    correct: NDArray[np.bool_]

    @classmethod
    def of_group(cls, subject: Subject, answers: ModelAnswers, place: int) -> AnsweredImages:
        """Return the images of a group, present where they could be decoded."""
        rows = np.flatnonzero(subject.shifts == place)
        return cls(subject.labels[rows], subject.indices[rows], answers.readable[rows], answers.correct[rows])

    def by_label(self) -> dict[int, NDArray[np.int64]]:
        """Return the rows of the present images of each label."""
        rows = np.flatnonzero(self.present)
        order = rows[np.argsort(self.labels[rows], kind="stable")]
        labels, starts = np.unique(self.labels[order], return_index=True)
        return dict(zip(labels.tolist(), np.split(order, starts[1:]), strict=True)) if order.size else {}


def aligned_units(
    subject: Subject, labels: Sequence[int], base: AnsweredImages, shifted: AnsweredImages
) -> list[ClassUnits]:
    """Return the classes of these labels, each with its base and shifted images aligned by candidate index."""
    sides = [(side, side.by_label()) for side in (base, shifted)]
    found = []
    for label in labels:
        own = [(side, rows.get(label, np.empty(0, dtype=np.int64))) for side, rows in sides]
        indices = np.union1d(*(side.indices[rows] for side, rows in own))
        parts: list[NDArray[np.bool_]] = []
        for side, rows in own:
            at = np.searchsorted(indices, side.indices[rows])
            present, correct = np.zeros(len(indices), bool), np.zeros((len(indices), side.correct.shape[1]), bool)
            present[at], correct[at] = True, side.correct[rows]
            parts += [present, correct]
        found.append(ClassUnits(subject.classes[label].id, *parts))
    return found


def class_units(subject: Subject, answers: ModelAnswers, shift: int, base: int = 0) -> list[ClassUnits]:
    """Return the planned classes of a shift, each with its base and shifted images aligned by candidate index."""
    sides = (AnsweredImages.of_group(subject, answers, place) for place in (base, shift))
    return aligned_units(subject, subject.groups[shift].class_labels, *sides)


@dataclass(frozen=True)
class Asking:
    """The models that answer, and where they answer."""

    models: ChosenModels
    device: str
    batch_size: int
    spread: Placement | None = None

    def scored(
        self,
        images: LabelledImages,
        names: Sequence[str],
        folder: Path,
        failed: dict[str, CounterfoilError] | None = None,
    ) -> dict[str, Scored]:
        """Return the answers of these models, kept in `folder`. Raises, or fills `failed`, as `score_models`."""
        here = frozenset(self.models.given)  # no other process can load these
        spread = None if self.spread is None else replace(self.spread, of_this_process=here)
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
        )


@dataclass(frozen=True)
class AllAnswers:
    """What a measure is computed from: the images, what all models answered, and the drops that many measures share.

    What is `near_chance` on the base is in no average: neither classes, nor, where models are averaged, models. Groups
    are numbered as the subject has them, the base first where there is one. `asking` has more images answered, and
    `requests` is what was asked of single measures.
    """

    subject: Subject
    scored: tuple[Scored, ...]
    answers: ModelAnswers
    near_chance: NearChance
    min_images: int
    seed: int
    asking: Asking
    requests: tuple[Request, ...] = ()
    made: dict[tuple[Any, ...], Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        subject: Subject,
        scored: Sequence[Scored],
        minimum: int,
        seed: int,
        asking: Asking,
        requests: tuple[Request, ...],
    ) -> AllAnswers:
        """Put every model's answers together. Raise RunFailure if no image, or no base image, can be decoded."""
        answers = ModelAnswers(
            # An image decodes or not whatever the model.
            readable=np.all([one.predictions.readable for one in scored], axis=0),
            prediction=np.stack([one.predictions.prediction for one in scored], axis=1),
            correct=np.stack([one.predictions.correct for one in scored], axis=1),
            correct_top_k=np.stack([one.predictions.correct_top_k for one in scored], axis=1),
        )
        if not np.any((subject.shifts == 0) & answers.readable if subject.base else answers.readable):
            what = "base image" if subject.base else "image"
            hint = "Run `counterfoil verify` on it." if subject.directory else None
            raise RunFailure(f"{subject.directory or subject.source}: no {what} can be decoded", hint)
        chances = np.stack([one.class_map.chances for one in scored], axis=1)
        near = near_chance_on_base(subject, answers, chances, minimum)
        return cls(subject, tuple(scored), answers, near, minimum, seed, asking, requests)

    @property
    def models(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(one.classifier.name for one in self.scored)

    @property
    def maps(self) -> tuple[ClassMap, ...]:
        """How each model's outputs mean the classes."""
        return tuple(one.class_map for one in self.scored)

    @property
    def confidence(self) -> NDArray[np.float32]:
        """(images, models) of the top answer."""
        return self.once(("confidence",), lambda: np.stack([one.predictions.confidence for one in self.scored], axis=1))

    @property
    def sound(self) -> NDArray[np.bool_]:
        """(models,) which are not near chance on the base."""
        return ~self.near_chance.models

    @property
    def places(self) -> tuple[int, ...]:
        """The groups that every measure but severity is of: of a shift with levels, its highest."""
        return tuple(index for index, group in enumerate(self.subject.groups) if group.top)

    @property
    def shifts(self) -> tuple[int, ...]:
        """Those that are compared with the base; all, where none is one."""
        return self.places[1 if self.subject.base else 0 :]

    def group(self, place: int) -> Group:
        """Return a group of the subject."""
        return self.subject.groups[place]

    def rows(self, place: int) -> NDArray[np.int64]:
        """Return the readable images of a group."""
        return self.once(
            ("rows", place), lambda: np.flatnonzero((self.subject.shifts == place) & self.answers.readable)
        )

    def units(self, place: int) -> list[ClassUnits]:
        """Return the planned classes of a group with their base images; without a base, their own on both sides."""
        base = 0 if self.subject.base else place
        return self.once(("units", place), lambda: class_units(self.subject, self.answers, place, base))

    def enough(self, place: int) -> list[ClassUnits]:
        """Return the classes with enough images on both sides."""
        return accuracy_stats.surviving(self.units(place), self.min_images)

    def kept(self, place: int) -> list[ClassUnits]:
        """Return the classes that averages are over: with enough images, and not near chance on the base."""
        return [one for one in self.enough(place) if one.class_id not in self.near_chance.classes]

    def drops(self, place: int) -> Drops | None:
        """Return what a shift does to all models over its measured classes; None if no class is measured."""
        return self.once(("drops", place), lambda: self._drops(place, self.kept(place)))

    def pairs(self, place: int) -> list[ClassUnits]:
        """Return the measured classes with the indices accepted on both sides; none if noise is not paired."""
        if not self.group(place).paired:
            return []
        return [one.pairs() for one in self.kept(place) if (one.base_present & one.shift_present).any()]

    def pairs_drops(self, place: int) -> Drops | None:
        """Return the drops over pairs alone."""
        return self.once(("pairs", place), lambda: self._drops(place, self.pairs(place)))

    def averages(self) -> Averages | None:
        """Return every model's accuracy on the base, averaged over its measured classes."""
        kept = self.kept(0)
        salt = self.group(0).name
        return self.once(
            ("averages",), lambda: accuracy_stats.averages(kept, seed=self.seed, salt=salt) if kept else None
        )

    def request(self, kind: type[Asked]) -> Asked | None:
        """Return what was asked of a measure, by the class of its request; None if nothing was."""
        return next((one for one in self.requests if isinstance(one, kind)), None)

    def once(self, key: tuple[Any, ...], make: Callable[[], Made]) -> Made:
        """Return what `make` makes, made once for this key."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def _drops(self, place: int, kept: Sequence[ClassUnits]) -> Drops | None:
        group = self.group(place)
        if not kept:
            return None
        return accuracy_stats.drops(kept, paired=group.paired, seed=self.seed, salt=group.name, averaged=self.sound)

    def facts(self, place: int) -> GroupFacts:
        """Return a group's yield, and the classes and images that its averages are over."""
        described, kept = self.group(place), self.kept(place)
        here = self.subject.shifts == place
        base, own = (sum(one.counts[side] for one in kept) for side in (0, 1))
        names = {cls.id: cls.name for cls in self.subject.classes}
        measured = {one.class_id for one in kept}
        left_out = []
        for one in self.units(place):
            if one.class_id not in measured:
                counts = one.class_id, names[one.class_id], *one.counts
                if min(one.counts) < self.min_images:
                    left_out.append(LeftOut(*counts))
                else:
                    left_out.append(LeftOut(*counts, "near chance", self.near_chance.classes[one.class_id]))
        return GroupFacts(
            name=described.name,
            kind=described.kind,
            prompt=described.prompt,
            group=described.group,
            candidates=described.candidates,
            accepted=int(here.sum()),
            unreadable=int((here & ~self.answers.readable).sum()),
            classes=len(kept),
            left_out=tuple(left_out),
            images=own,
            base_images=base if self.subject.base else 0,
        )


def answer_names(classes: Sequence[RecipeClass], class_map: ClassMap) -> Callable[[int], str]:
    """Return a function from a model's output to its name for people."""
    if class_map.outputs == "imagenet":
        from timm.data.imagenet_info import ImageNetInfo

        info = ImageNetInfo()
        return lambda output: info.index_to_description(output).split(",")[0]
    if class_map.outputs == "names":
        by_output = {
            output: cls.name for cls, target in zip(classes, class_map.targets, strict=True) for output in target
        }
        labels = class_map.label_names or ()
        return lambda output: by_output.get(output) or labels[output]
    by_source_label = {cls.source_label: cls.name for cls in classes}
    return lambda output: by_source_label.get(output, f"source label {output}")


ShownIn = Literal["terminal", "report", "card"]
EVERYWHERE: tuple[ShownIn, ...] = ("terminal", "report", "card")


@dataclass(frozen=True)
class Measure:
    """A measure; its name, and that of its rows, is its key in `MEASURES`.

    rows: one number each, of the measure's name. unit and reading: as in `MeasureFacts`. shown: which pages have a
    table of it, a row a group and a column a model; a number that another table shows is in none. Every number is in
    measures.csv, and in pandas and robustness.csv where it is of a model and a group. figure: SVG for the report.
    """

    rows: Callable[[AllAnswers], Iterable[ResultRow]]
    title: str
    unit: Literal["percent", "points", "share", "plain"]
    reading: str
    shown: tuple[ShownIn, ...] = EVERYWHERE
    figure: Callable[[Results], str | None] | None = None

    def facts(self, name: str) -> MeasureFacts:
        """Return what the document of results has of it."""
        return MeasureFacts(name, self.title, self.unit, self.reading, self.shown)


@dataclass(frozen=True)
class NestedMeasure:
    """A measure whose facts nest in the document of results beside its rows; its file is called as they are there.

    measure: the facts, and rows of names of its own. It gives None, or an empty tuple, where nothing is to be measured.
    draw: figures for its section of the report. pictures: more for it, from the images.
    """

    measure: Callable[[AllAnswers], tuple[Any, list[ResultRow]]]
    draw: Callable[[Results], Sequence[Any]] = lambda results: ()
    pictures: Callable[[AllAnswers, Results], Sequence[Any]] = lambda answered, results: ()
