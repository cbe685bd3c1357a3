"""What nests in the document of results: findings, transfer, distances, a comparison, the reference, labels.

Plain values, strict in reading. All accuracies, rates and differences are fractions; intervals are at 95 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pydantic import ConfigDict

from counterfoil.documents import STRICT
from counterfoil.stats import CONFIDENCE, Estimate

Relation = Literal["judge", "same architecture", "same family", "other"]

SetOfImages = Literal["dataset", "group", "source"]

# What is said to gain or to lose does so at this level, over all groups together.
LEVEL = round(1 - CONFIDENCE, 10)

# Of fewer images nobody can say whether a shift's labels are true.
LEAST_IMAGES = 10


@dataclass(frozen=True)
class TransferRate:
    """How often a model fails, by one failure rule (`top1`, `top3`), on images that a judge was wrong about.

    rate: over all these images, its interval by captions. base_rate, and by name those of images that stand beside the
    dataset: rates by class there, averaged with the mixture of classes of these images; None where there are none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    rule: str
    failures: int
    rate: Estimate
    base_rate: float | None
    beside: Mapping[str, float]


@dataclass(frozen=True)
class TransferScore:
    """One model on the images that a judge was wrong about; `shift` is None over all of them.

    relation: the judge itself, which is wrong by construction: its top-1 rate is 1, and its top-3 rate is where the
    first three answers were asked about; another model of its architecture with other
    weights, as far as names and configurations tell; of its family; or another. captions: shifts times classes.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    model: str
    family: str
    relation: Relation
    shift: str | None
    captions: int
    images: int
    base_images: int
    rates: tuple[TransferRate, ...]

    def rate(self, rule: str) -> TransferRate | None:
        """The rate by a failure rule; None where the model ranks too few answers for it."""
        return next((one for one in self.rates if one.rule == rule), None)


@dataclass(frozen=True)
class TransferShift:
    """A shift that keeps what at least so many of its judges get wrong; `images` are those that this one got wrong.

    failure: the rule that says what is wrong.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    shift: str
    judges: tuple[str, ...]
    at_least: int
    candidates: int
    accepted: int
    images: int
    failure: str = "top1"


@dataclass(frozen=True)
class Transfer:
    """A judge of the build, and every model's failures on the images that are there because it was wrong.

    near_chance: the models that are so on the base; classes_near_chance: the names of classes that are, whose images no
    rate counts. scored: whether it is among the models of this evaluation. Scores over all images come first, then by
    shift, where there are several.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    judge: str
    architecture: str
    family: str
    scored: bool
    captions: int
    images: int
    shifts: tuple[TransferShift, ...]
    scores: tuple[TransferScore, ...]
    near_chance: tuple[str, ...] = ()
    classes_near_chance: tuple[str, ...] = ()

    def of(self, shift: str | None) -> tuple[TransferScore, ...]:
        """The scores of one shift, or over all."""
        return tuple(score for score in self.scores if score.shift == shift)


@dataclass(frozen=True)
class ReferenceGap:
    """One model: class-averaged accuracy on validation images and on the base, over the same classes.

    gap: validation - base. large: whether it is over 10 points either way, or its interval excludes 0.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    model: str
    validation: Estimate
    base: Estimate
    gap: Estimate
    large: bool


@dataclass(frozen=True)
class ReferenceResult:
    """The source's validation split, as DATASET:SPLIT, and what models say of it.

    images, classes: those that the gaps are over, the classes being those that the base measures. skipped: why nothing
    was scored. left_out: model → why it has no gap. unseen: accuracy on the validation images of the classes that are
    near chance on the base, averaged over classes and models; None where there are no such classes. unseen_known:
    whether it is not near chance, so that the models know these classes, and the base does not show them.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    split: str
    images: int
    classes: int
    skipped: str | None
    gaps: tuple[ReferenceGap, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    unseen: float | None = None
    unseen_known: bool = False

    def of(self, model: str) -> ReferenceGap | None:
        """The gap of a model; None where it has none."""
        return next((one for one in self.gaps if one.model == model), None)


@dataclass(frozen=True)
class Distance:
    """Images against those of the source of the same classes.

    what: all of the dataset, a group of it (`name`), or the source against itself. kid is None for too few images,
    and `note` then says so. kid_subset, kid_source_subset: the most images of either side in one of KID's subsets.
    fid_biased: whether a side has too few images for so many features.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    what: SetOfImages
    name: str
    classes: int
    images: int
    source_images: int
    kid: Estimate | None = None
    kid_subset: int | None = None
    kid_source_subset: int | None = None
    fid: float | None = None
    fid_biased: bool = False
    note: str | None = None


@dataclass(frozen=True)
class Distances:
    """Distances in the features of one model.

    features: its name. pin: what the name stood for. width: how many features an image has. scaled: whether they are
    unit vectors that were lengthened to the square root of the width, so that KID's kernel is (1 + cosine)³. source:
    what was compared with, as DATASET:SPLIT, and source_content the sha256 of these images. source_rows: how many rows
    of these classes it has, of which the images are a part where they are fewer. unreadable: images left out, on both
    sides. near: the source against itself, so that one knows what near is. skipped: why nothing was measured.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    features: str
    pin: str = ""
    width: int | None = None
    scaled: bool = False
    source: str = ""
    source_content: str = ""
    source_rows: int = 0
    subsets: int = 0
    seed: int = 0
    unreadable: int = 0
    rows: tuple[Distance, ...] = ()
    near: Distance | None = None
    skipped: str | None = None

    @property
    def all_rows(self) -> tuple[Distance, ...]:
        """The rows, and the source against itself as the last."""
        return (*self.rows, *((self.near,) if self.near else ()))


@dataclass(frozen=True)
class GroupComparison:
    """Two models in one group, the base or another, over its classes with enough images.

    mended_accuracy, original_accuracy: averaged over the classes that are not near chance on the base, as everywhere;
    None where all are. gain: the difference over all these classes, also of those. only_mended, only_original: images
    that only one of the two is right about. p: McNemar's exact test of these, and adjusted for all groups.
    drop_gain: how much smaller the mended model's drop from the base is, over the classes that a drop is measured on;
    None for the base, and where there is none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    name: str
    kind: str | None
    is_base: bool
    classes: int
    images: int
    mended_accuracy: float | None
    original_accuracy: float | None
    gain: Estimate | None
    only_mended: int
    only_original: int
    p: float | None
    p_adjusted: float | None
    drop_gain: Estimate | None

    @property
    def gains(self) -> bool:
        """Whether it is right more often here, beyond chance: by the test and by the interval over units alike."""
        low = None if self.gain is None else self.gain.low
        return self._differs() and self.only_mended > self.only_original and low is not None and low > 0

    @property
    def loses(self) -> bool:
        """Whether it is right less often here, beyond chance: by the test and by the interval over units alike."""
        high = None if self.gain is None else self.gain.high
        return self._differs() and self.only_mended < self.only_original and high is not None and high < 0

    def _differs(self) -> bool:
        # The test counts images as if no two shared a unit; the interval of the gain is what holds where they do.
        return self.p_adjusted is not None and self.p_adjusted <= LEVEL


@dataclass(frozen=True)
class ModelComparison:
    """The model `mended` against `original`, group after group, the base first.

    average: the gain averaged over groups, each counting once. gained, lost: the sums of the gains above and below 0,
    both as positive fractions. note: what must be said of the two, None for nothing. near_chance: which of the two are
    near chance on the base; classes_near_chance: the names of the classes that are.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    mended: str
    original: str
    groups: tuple[GroupComparison, ...]
    average: Estimate | None
    gained: float
    lost: float
    note: str | None = None
    near_chance: tuple[str, ...] = ()
    classes_near_chance: tuple[str, ...] = ()

    @property
    def loses_more(self) -> bool:
        """Whether it surely loses more than it gains: the interval of the average over groups is below 0."""
        return self.average is not None and self.average.high is not None and self.average.high < 0

    @property
    def gains_more(self) -> bool:
        """Whether it surely gains more than it loses: that interval is above 0."""
        return self.average is not None and self.average.low is not None and self.average.low > 0


@dataclass(frozen=True, slots=True)
class CheckedShare:
    """A share of images with its 95 % interval; all three from 0 to 1."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class JudgedLabels:
    """What the second judge (`screen.judge`) says of a shift, or of one class under it.

    images: accepted images that it answered to. disagreed: those to which it answered another class than the label's.
    label_error: the share of false labels that this tells, corrected for the judge's own errors on validation images
    (Rogan and Gladen 1978), as if it erred here as there: no bound either way. None where there are no such images, so
    that this is plain disagreement.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    images: int
    disagreed: int
    disagreement: CheckedShare
    label_error: CheckedShare | None


@dataclass(frozen=True, slots=True)
class SelectedByPeople:
    """What people said of a shift (Vendrow 2023, appendix A.4). Shares are selection frequencies, averaged over images.

    images: those that anybody was shown for the task; None for a task nobody was given. kappa: Fleiss' kappa; None
    where raters are fewer than two.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    class_images: int
    class_selected: CheckedShare | None
    class_kappa: float | None
    shift_images: int
    shift_selected: CheckedShare | None
    shift_kappa: float | None


@dataclass(frozen=True, slots=True)
class ShiftChecks:
    """Who checked the labels of one shift (`base` is one). classes: the judge's word, by class id.

    picked: whether a keep rule chose its images by this judge's own failures, so that its word says nothing of labels.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    shift: str
    judge: JudgedLabels | None = None
    people: SelectedByPeople | None = None
    classes: Mapping[str, JudgedLabels] = field(default_factory=dict)
    picked: bool = False

    @property
    def checked(self) -> bool:
        """Whether people or a judge that did not pick the images checked `LEAST_IMAGES`; else it is no headline."""
        by_judge = self.judge is not None and not self.picked and self.judge.images >= LEAST_IMAGES
        people = self.people
        return by_judge or (
            people is not None and people.class_selected is not None and people.class_images >= LEAST_IMAGES
        )


@dataclass(frozen=True, slots=True)
class LabelChecks:
    """The checks of a whole dataset. judge: the second judge's name. validated_on: how many validation images tell its
    own errors; None where none were at hand. raters, controls: how many people, and the share of real images of the
    class that they selected; None where nobody was asked. also_scored: the models of an evaluation that are the judge
    itself, whose own drop is then part of its estimate. own: the labels are the input dataset's, of the very images
    that were changed, so that nobody need check that their class was drawn."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    judge: str | None
    validated_on: int | None
    shifts: tuple[ShiftChecks, ...]
    raters: int = 0
    controls: CheckedShare | None = None
    also_scored: tuple[str, ...] = ()
    own: bool = False

    def of(self, shift: str) -> ShiftChecks:
        """The checks of a shift; empty ones where nothing is known."""
        return next((one for one in self.shifts if one.shift == shift), ShiftChecks(shift))


@dataclass(frozen=True)
class FindingScore:
    """How often one model fails under a mined shift, and on the base images of the same classes.

    measured_on: the images, or what the model, being a judge of the build, is "recorded" to have answered there; None
    where it cannot be measured. target: whether the finding is told to be this model's. The counts are sums over the
    measured classes; the rates are averaged over them, each class counting once. base_rate and difference (rate -
    base_rate, with its bootstrap interval) are None for a judge that is not scored here. note: what must be said, or
    why there is no rate. near_chance: whether the model is so on the base, which averages over models then leave out.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    model: str
    target: bool
    measured_on: Literal["images", "recorded"] | None
    classes: int
    images: int
    failures: int
    base_images: int
    base_failures: int | None
    rate: float | None
    base_rate: float | None
    difference: Estimate | None
    note: str | None
    near_chance: bool = False


@dataclass(frozen=True)
class MinedShiftResult:
    """A mined shift, measured over every candidate that a classifier's rule could choose from.

    words, role and target are what its recipe tells of it, None where it tells none. screened: the candidates that
    passed the screen. judges: the classifiers whose rule then took its pick. quota: how many kept images end the
    drawing of a cell, where so: it then ends with a failure, and rates are too high by about one part in so many.
    near_chance: names of its classes that are near chance on the base, and in no rate.
    """

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    shift: str
    words: str | None
    role: str | None
    target: str | None
    class_ids: tuple[str, ...]
    class_names: tuple[str, ...]
    candidates: int
    screened: int
    accepted: int
    judges: tuple[str, ...]
    quota: int | None
    scores: tuple[FindingScore, ...]
    near_chance: tuple[str, ...] = ()
