"""Estimate the share of false labels, by a second judge and by people.

A judge disagrees with a false label if the judge notices that it is false, and with a true label if
the judge errs. Let q be the share of labels with which the judge disagrees, f this share among
images of the class, and s this share among images of other classes. Then q = p·s + (1 - p)·f, so
the share of false labels is p = (q - f) / (s - f), cut to 0 … 1 (Rogan and Gladen 1978). f and s
are counted on validation images, which assumes that **the judge errs as often on the dataset as on
validation images**. Under a strong shift, the judge may err more often, and p is then too high. A
judge that was trained on the source shares its shortcuts, and p is then too low.

The answers to validation images in the lock and `review/selection.json` are not trusted. The reader
accepts only the classes of the recipe, bounded counts and a strict document.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field

from counterfoil.documents import STRICT, Count, Form, Share, parse_document, plain_value
from counterfoil.errors import UserError
from counterfoil.recipe import Recipe
from counterfoil.recipe.names import without_folders
from counterfoil.report.labels import (
    CheckedShare,
    JudgedLabels,
    LabelChecks,
    SelectedByPeople,
    ShiftChecks,
)
from counterfoil.stats import (
    lang_reiczigel_interval,
    mover_distances,
    rogan_gladen,
    wilson_interval,
)
from counterfoil.store.lock import ValidationAnswers, validation_of
from counterfoil.store.sealed_folder import REVIEWED

# A shift has an average over classes only if the classes with an estimate have this share of its
# images.
LEAST_COVERED = 0.8
# (shift, class id) → the number of accepted images that the judge answered, and how often it
# contradicted the label.
JudgedCounts = Mapping[tuple[str, str], tuple[int, int]]
ReviewTask = Literal["class", "shift"]
TASKS: tuple[ReviewTask, ...] = ("class", "shift")
# A rater who passes a smaller share of one kind of controls is named, but the rater's answers still
# count.
FEWEST_PASSED = 0.75


@dataclass(frozen=True, slots=True)
class JudgedClass:
    """Counts of one class: images under its label, and the judge's answers to validation images."""

    images: int
    disagreed: int
    """How many of the `images` have a label that the judge contradicts."""
    of_class: int = 0
    """The validation images of the class."""
    wrong: int = 0
    """How many of these the judge gave to another class."""
    others: int = 0
    """The other validation images."""
    told_apart: int = 0
    """How many of these the judge did not give to the class."""

    @property
    def erred(self) -> float:
        """The share f."""
        return self.wrong / self.of_class

    @property
    def seen(self) -> float:
        """The share s."""
        return self.told_apart / self.others

    @property
    def counts(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
        """Return (part, whole) of the shares q, f and s."""
        return (
            (self.disagreed, self.images),
            (self.wrong, self.of_class),
            (self.told_apart, self.others),
        )


def share_of(part: int, whole: int) -> CheckedShare:
    """Return a share of more than none with its 95 % interval (Wilson 1927)."""
    low, high = wilson_interval(part, whole)
    return CheckedShare(part / whole, low, high)


def is_told_apart(tally: JudgedClass) -> bool:
    """Check that s is clearly above f: the 95 % interval of s - f excludes zero (Newcombe 1998,
    method 10)."""
    if not tally.of_class or not tally.others:
        return False
    seen_low, seen_high = wilson_interval(tally.told_apart, tally.others)
    erred_low, erred_high = wilson_interval(tally.wrong, tally.of_class)
    of_seen = (tally.seen - seen_low, seen_high - tally.seen)
    of_erred = (erred_high - tally.erred, tally.erred - erred_low)
    below, _ = mover_distances(of_seen, of_erred)
    return bool(tally.seen - tally.erred - below > 0)


def label_error_of_class(tally: JudgedClass) -> CheckedShare | None:
    """Return the share of false labels of a class (Lang and Reiczigel 2014), or None if it cannot
    be estimated."""
    if not tally.images or not is_told_apart(tally):
        return None
    low, high = lang_reiczigel_interval(*tally.counts)
    most = _if_never_erring([tally])
    return _with_interval(_share_of_false(tally), low, high, most)


def label_error_of_shift(classes: Sequence[JudgedClass]) -> CheckedShare | None:
    """Return the share of false labels of several classes together, each weighted by the number of
    its images.

    Classes are averaged before the result is cut to 0 … 1, because cutting each class would bias
    the average upwards. None if the classes that the judge can tell apart have fewer than
    `LEAST_COVERED` of the images.

    By the delta method, changes of q, f and s of a class change the average by
    `w · (dq - (1 - p)·df - p·ds) / (s - f)`, where w is the share of images that the class has. The
    average thus varies with three sums, over q, over f and over s. `mover_distances` joins their intervals to
    the 95 % interval. Each sum is a weighted mean of shares with a Wilson interval. Classes are
    taken to vary together, which gives the widest interval.
    """
    estimable = [tally for tally in classes if tally.images and is_told_apart(tally)]
    every = sum(tally.images for tally in classes)
    images = sum(tally.images for tally in estimable)
    if not images or images < LEAST_COVERED * every:
        return None
    weighted = []
    disagreements = []
    errors = []
    sightings = []
    for tally in estimable:
        weight = tally.images / images
        share = _share_of_false(tally)
        weighted.append(weight * share)
        cut = min(1.0, max(0.0, share))
        # How much the average changes with q of the class.
        slope = weight / (tally.seen - tally.erred)
        disagreements.append((slope, tally.disagreed, tally.images))
        errors.append((slope * (1 - cut), tally.wrong, tally.of_class))
        sightings.append((slope * cut, tally.told_apart, tally.others))
    value = sum(weighted)
    # The validation images of other classes are nearly the same for every class, so they are
    # counted once.
    fewest = min(tally.others for tally in estimable)
    of_errors = _mean(errors)[::-1]
    of_sightings = _mean(sightings, fewest)[::-1]
    below, above = mover_distances(_mean(disagreements), of_errors, of_sightings)
    low = value - float(below)
    high = value + float(above)
    most = _if_never_erring(estimable)
    return _with_interval(value, low, high, most)


def _mean(
    parts: Sequence[tuple[float, int, int]],
    images: float | None = None,
) -> tuple[float, float]:
    """Return the distances below and above a sum of shares to the ends of its interval.

    parts: (weight, part, whole) of each share.
    """
    total = sum(weight for weight, _, _ in parts)
    if total <= 0:
        return 0.0, 0.0
    share = sum(weight * part / whole for weight, part, whole in parts) / total
    n = images
    if not n:
        n = total**2 / sum(weight**2 / whole for weight, _, whole in parts)
    low, high = wilson_interval(share * n, n)
    return total * (share - low), total * (high - share)


def _share_of_false(tally: JudgedClass) -> float:
    """Return the share of false labels p, not cut to 0 … 1."""
    disagreed, erred, seen = (part / whole for part, whole in tally.counts)
    return rogan_gladen(disagreed, erred, seen)


def _if_never_erring(classes: Sequence[JudgedClass]) -> float:
    """Return the upper end of the interval of the share of false labels, for a judge that never
    errs on the dataset."""
    images = sum(tally.images for tally in classes)
    disagreed = sum(tally.disagreed for tally in classes)
    seen = sum(tally.images / images * tally.told_apart / tally.others for tally in classes)
    _, high = wilson_interval(disagreed, images)
    return high / seen


def _with_interval(
    value: float,
    low: float,
    high: float,
    if_never_erring: float,
) -> CheckedShare:
    """Return a share cut to 0 … 1, inside its interval.

    If the share is cut to 0, the judge disagrees with fewer labels here than it errs on validation
    images. It thus errs less often here, by an unknown amount. The interval is then extended to the
    upper end for a judge that never errs, so that 0 is not shown as certain.
    """
    if value <= 0:
        high = max(high, if_never_erring)
    value, low, high = (min(1.0, max(0.0, number)) for number in (value, low, high))
    return CheckedShare(value, min(low, value), max(high, value))


def checks_of_dataset(
    recipe: Recipe,
    inputs: Mapping[str, Any],
    counts: JudgedCounts,
) -> LabelChecks:
    """Return the checks of every shift of a built dataset. inputs: those in the lock.

    ValueError for a pin that no build writes.
    """
    shifts = recipe.all_shifts()
    names = [shift.name for shift in shifts]
    judge = recipe.screen.judge
    unchanged = recipe.kind.unchanged_base
    if judge is None:
        unchecked = tuple(map(ShiftChecks, names))
        return LabelChecks(None, None, unchecked, own=unchanged)
    judge_name = without_folders(judge)
    pins = inputs.get("judges")
    pin = pins.get(judge_name) if isinstance(pins, Mapping) else None
    validation = validation_of(pin, [cls.id for cls in recipe.classes])
    picked = set()
    for shift in shifts:
        if any(judge in rule.judges() for rule in shift.keep):
            picked.add(shift.name)
    checks = judged_checks(judge_name, counts, validation, names, picked)
    return replace(checks, own=unchanged)


def judged_checks(
    judge: str,
    counts: JudgedCounts,
    validation: ValidationAnswers | None,
    shifts: Sequence[str],
    picked: Collection[str] = (),
) -> LabelChecks:
    """Return the checks of `shifts` from a judge's answers.

    There is no label error without `validation`, nor for a shift that is in `picked`.
    """
    total = None
    # Class id → the judge's answers to validation images, without images of the dataset.
    validated = {}
    if validation is not None:
        answered: Counter[str] = Counter()
        for answers in validation.values():
            answered.update(answers)
        total = answered.total()
        for class_id, answers in validation.items():
            images = sum(answers.values())
            right = answers.get(class_id, 0)
            others = total - images
            told_apart = others - (answered[class_id] - right)
            validated[class_id] = JudgedClass(0, 0, images, images - right, others, told_apart)
    judged = defaultdict[str, dict[str, tuple[int, int]]](dict)
    for (shift, class_id), pair in counts.items():
        if pair[0]:
            judged[shift][class_id] = pair

    def labels(
        images: int,
        disagreed: int,
        label_error: CheckedShare | None,
    ) -> JudgedLabels:
        return JudgedLabels(images, disagreed, share_of(disagreed, images), label_error)

    checks = []
    for shift in shifts:
        is_picked = shift in picked
        if shift not in judged:
            checks.append(ShiftChecks(shift, picked=is_picked))
            continue
        known = {} if is_picked else validated
        tallies = []
        classes = {}
        images = 0
        disagreed = 0
        for name, (answered_images, contradicted) in judged[shift].items():
            tally = replace(
                known.get(name, JudgedClass(0, 0)),
                images=answered_images,
                disagreed=contradicted,
            )
            tallies.append(tally)
            classes[name] = labels(
                answered_images,
                contradicted,
                label_error_of_class(tally),
            )
            images += answered_images
            disagreed += contradicted
        of_shift = labels(images, disagreed, label_error_of_shift(tallies))
        checks.append(ShiftChecks(shift, of_shift, classes=classes, picked=is_picked))
    return LabelChecks(judge, total, tuple(checks))


def _in_order(share: CheckedShare) -> CheckedShare:
    if not 0 <= share.low <= share.value <= share.high <= 1:
        raise ValueError("expected a share with its interval")
    return share


_Some = Annotated[int, Field(gt=0, le=1_000_000_000)]
_Selected = Annotated[CheckedShare, AfterValidator(_in_order)]


@dataclass(frozen=True, slots=True)
class ControlsPassed:
    """Controls shown and passed. real: images of the class, to be selected; without: images without
    the label, not to be.
    """

    real: Count = 0
    real_passed: Count = 0
    without: Count = 0
    without_passed: Count = 0

    def __add__(self, other: ControlsPassed) -> ControlsPassed:
        return ControlsPassed(
            self.real + other.real,
            self.real_passed + other.real_passed,
            self.without + other.without,
            self.without_passed + other.without_passed,
        )

    @property
    def failed(self) -> bool:
        real = self.real_passed < FEWEST_PASSED * self.real
        without = self.without_passed < FEWEST_PASSED * self.without
        return real or without


@dataclass(frozen=True, slots=True)
class AllControls:
    real: Count
    real_passed: Count
    without: Count
    without_passed: Count
    real_share: _Selected | None
    without_share: _Selected | None


@dataclass(frozen=True, slots=True)
class RaterResult:
    """One person (`rater-1` …, by the order of the files): what they finished, and the controls in
    it."""

    rater: str
    grids: Count
    images: Count
    controls: ControlsPassed
    failed_controls: bool


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A shift under one task; `kappa` is Fleiss', over `kappa_images`, `selected` the mean
    selection frequency."""

    images: _Some
    answers: _Some
    selected: _Selected
    kappa: Annotated[float, Field(ge=-1, le=1)] | None
    kappa_images: Count


@dataclass(frozen=True, slots=True)
class ShiftSelected:
    name: Annotated[str, Field(min_length=1, max_length=255)]
    by_class: Annotated[TaskResult | None, Field(alias="class")]
    by_shift: Annotated[TaskResult | None, Field(alias="shift")]


@dataclass(frozen=True, slots=True)
class Selected:
    shown: _Some
    selected: Count


@dataclass(frozen=True)
class Selection:
    """All answers, without names."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    FORM: ClassVar[Form] = Form(
        "a selection document of version 1", "Review the dataset again: counterfoil review."
    )
    content: str
    confidence: Share
    raters: Annotated[tuple[RaterResult, ...], Field(min_length=1)]
    controls: AllControls
    shifts: tuple[ShiftSelected, ...]
    images: dict[ReviewTask, dict[str, Selected]]
    """Task → key → how often it was selected, without controls."""

    def __post_init__(self) -> None:
        if len({shift.name for shift in self.shifts}) < len(self.shifts):
            raise ValueError("a shift appears twice")

    def of(self, shift: str, task: ReviewTask) -> TaskResult | None:
        """Return a shift's result under a task; None if no person was asked."""
        selected = next((each for each in self.shifts if each.name == shift), None)
        if selected is None:
            return None
        if task == "class":
            return selected.by_class
        return selected.by_shift

    def to_json(self) -> dict[str, Any]:
        values = plain_value(self)
        for shift in values["shifts"]:
            shift |= {"class": shift.pop("by_class"), "shift": shift.pop("by_shift")}
        return values

    @classmethod
    def of_dataset(cls, directory: Path, content: str) -> tuple[Selection | None, str]:
        """Return the selection of a dataset with this content, or None and why a sealed one cannot
        be read."""
        return cls.sealed(REVIEWED.read(directory, content))

    @classmethod
    def sealed(cls, document: Mapping[str, Any] | None) -> tuple[Selection | None, str]:
        """Parse the folder's document, whose keys `version` and `files` are its seal; see
        `of_dataset`."""
        if document is None:
            return None, ""
        unsealed = dict(document)
        unsealed.pop("version", None)
        unsealed.pop("files", None)
        try:
            return parse_document(cls, json.dumps(unsealed), REVIEWED.path), ""
        except UserError as error:
            return None, error.problems[0]
        except RecursionError:
            return None, f"{REVIEWED.path} is nested too deeply"


def read_people(
    directory: Path,
    content: str,
    shifts: Collection[str],
) -> LabelChecks | None:
    """Return people's answers about these shifts of a dataset with this content; None if there are
    none."""
    selection, _ = Selection.of_dataset(directory, content)
    people = people_of(selection)
    if people is None:
        return None
    kept = tuple(shift for shift in people.shifts if shift.shift in shifts)
    return replace(people, shifts=kept)


def people_of(selection: Selection | None) -> LabelChecks | None:
    if selection is None:
        return None
    shifts = []
    for shift in selection.shifts:
        values: list[Any] = []
        for result in (shift.by_class, shift.by_shift):
            if result is None:
                values += [0, None, None]
            else:
                values += [result.images, result.selected, result.kappa]
        shifts.append(ShiftChecks(shift.name, people=SelectedByPeople(*values)))
    raters = len(selection.raters)
    controls = selection.controls.real_share
    return LabelChecks(None, None, tuple(shifts), raters=raters, controls=controls)


def with_people(checks: LabelChecks | None, people: LabelChecks | None) -> LabelChecks | None:
    """Join the checks of a judge and of people: the judge's shifts, then those that only people
    looked at."""
    if checks is None or people is None:
        return checks or people
    together = []
    known = set()
    for shift in checks.shifts:
        known.add(shift.shift)
        of_people = people.of(shift.shift).people
        together.append(replace(shift, people=of_people))
    together += [shift for shift in people.shifts if shift.shift not in known]
    return replace(checks, shifts=tuple(together), raters=people.raters, controls=people.controls)
