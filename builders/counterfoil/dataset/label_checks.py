"""Whether labels are still true: what a second judge says, and what people say, or nobody; as numbers.

**A judge.** How many labels are false, from how often it disagrees with them and how often it errs, by Rogan and Gladen
1978: it disagrees with the label c of an image where the label is false and it sees so, and where the label is true and
it errs. With q the share of disagreement, f that among images that truly are of c, and s that among images of other
classes, q = p·s + (1 - p)·f, so that the share of false labels is p = (q - f) / (s - f), cut to 0 … 1.

f and s are counted on validation images, so it is taken for granted that **the judge errs here as it does there**.
Where that does not hold, p is no bound either way: under a strong shift a judge may err more, which is counted as false
labels (p is too high); one that was trained on the source shares its shortcuts, and takes for the class what only bears
the source's marks (p is too low). A lock, where answers to validation images are pinned, may come from anybody: what is
read has the recipe's classes, and whole numbers up to those that are written.

**People.** `review/selection.json` is a strict document that is read as a stranger's.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field

from counterfoil.documents import STRICT, Count, Form, Share, parse_document, plain
from counterfoil.errors import UserError
from counterfoil.recipe.names import without_folders
from counterfoil.report.labels import CheckedShare, JudgedLabels, LabelChecks, SelectedByPeople, ShiftChecks
from counterfoil.stats import lang_reiczigel_interval, mover, rogan_gladen, wilson_interval
from counterfoil.store.sealed_folder import REVIEWED

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe

# By true class id, how many images were answered as which class id.
ValidationAnswers = Mapping[str, Mapping[str, int]]

VALIDATION = "validation"
# What is no class of the recipe's. No class id has brackets.
OTHER = "(other)"
MOST_A_CLASS = 200
# An average over classes speaks of a shift where classes with an estimate hold this share of its images.
LEAST_COVERED = 0.8
# (shift, class id) → accepted images that the judge answered to, and those of them whose label it did not answer.
JudgedCounts = Mapping[tuple[str, str], tuple[int, int]]
Task = Literal["class", "shift"]
TASKS: tuple[Task, ...] = ("class", "shift")
# A rater who gets fewer of either kind of controls right is named, and counted all the same.
FEWEST_PASSED = 0.75


def without_validation(pins: Mapping[str, Any]) -> dict[str, Any]:
    """Judges' pins by name, each without what it answered to validation images: what says which judge it is."""
    return {
        name: {key: value for key, value in pin.items() if key != VALIDATION} if isinstance(pin, Mapping) else pin
        for name, pin in pins.items()
    }


def counted(answers: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Counts of (true class id, answered class id or `OTHER`)."""
    found: dict[str, dict[str, int]] = {}
    for true, answered in answers:
        own = found.setdefault(true, {})
        own[answered] = own.get(answered, 0) + 1
    return found


def validation_of(pin: Any, class_ids: Sequence[str]) -> ValidationAnswers | None:
    """The counts in a judge's pin; None where there are none. ValueError for what no build pins."""
    if not isinstance(pin, Mapping):
        raise ValueError("it pins no judge")
    counts = pin.get(VALIDATION)
    if counts is None:
        return None
    known = set(class_ids)
    if not isinstance(counts, Mapping) or not counts or not set(counts) <= known:
        raise ValueError("the judge's answers to validation images are not by class id")
    for own in counts.values():
        if not isinstance(own, Mapping) or not set(own) <= known | {OTHER}:
            raise ValueError("the judge's answers to validation images are not class ids")
        if not all(type(n) is int and n > 0 for n in own.values()) or not 0 < sum(own.values()) <= MOST_A_CLASS:
            raise ValueError(f"the judge's answers to validation images are not counts of 1 to {MOST_A_CLASS} images")
    return counts


@dataclass(frozen=True, slots=True)
class JudgedClass:
    """Counts of one class: `disagreed` of `images` under its label, and of validation images those to which the judge
    did not answer the class: `wrong` of `own`, which are of the class, and `told_apart` of `others`, which are not."""

    images: int
    disagreed: int
    own: int
    wrong: int
    others: int
    told_apart: int

    def __post_init__(self) -> None:
        pairs = ((self.disagreed, self.images), (self.wrong, self.own), (self.told_apart, self.others))
        if not all(0 <= part <= whole for part, whole in pairs):
            raise ValueError(f"impossible counts: {self}")


def share_of(part: int, whole: int) -> CheckedShare:
    """A share with its 95 % interval (Wilson 1927). ValueError for a share of nothing."""
    if not 0 <= part <= whole or whole == 0:
        raise ValueError(f"{part} of {whole} is not a share")
    low, high = wilson_interval(part, whole)
    return CheckedShare(part / whole, low, high)


def is_told_apart(one: JudgedClass) -> bool:
    """Whether the judge clearly disagrees more with false labels than with true ones: else nothing can be estimated.

    The 95 % interval of s - f must exclude zero (Newcombe 1998, method 10).
    """
    if not one.own or not one.others:
        return False
    seen, erred = one.told_apart / one.others, one.wrong / one.own
    of_seen, of_erred = wilson_interval(one.told_apart, one.others), wilson_interval(one.wrong, one.own)
    below, _ = mover((seen - of_seen[0], of_seen[1] - seen), (of_erred[1] - erred, erred - of_erred[0]))
    return bool(seen - erred - below > 0)


def label_error_of_class(one: JudgedClass) -> CheckedShare | None:
    """The share of false labels of a class, with the 95 % interval of Lang and Reiczigel (2014).

    None where there are no images, or the judge does not clearly tell the class apart.
    """
    if not one.images or not is_told_apart(one):
        return None
    counts = (one.disagreed, one.images), (one.wrong, one.own), (one.told_apart, one.others)
    return _with_interval(_share_of_false(one), *lang_reiczigel_interval(*counts), _if_never_erring([one]))


def label_error_of_shift(classes: Sequence[JudgedClass]) -> CheckedShare | None:
    """The share of false labels of several classes together, each counting by its images.

    Classes are averaged before the result is cut to 0 … 1: cutting each would count what chance takes away from one as
    nothing, and what it adds to another in full. None where classes that the judge tells apart hold fewer than four
    fifths of the images.

    The 95 % interval is joined from those of three sums (`mover`): by the delta method a change of
    q, f and s changes the average by its share of the images times dq - (1 - p)·df - p·ds, over s - f. Each sum is a
    mean of shares with weights, and has the Wilson interval of as many images as would vary alike. That takes the
    classes for alike, which is the widest that they can be.
    """
    estimable = [one for one in classes if one.images and is_told_apart(one)]
    every, images = sum(one.images for one in classes), sum(one.images for one in estimable)
    if not images or images < LEAST_COVERED * every:
        return None
    shares = [_share_of_false(one) for one in estimable]
    value = sum(one.images / images * share for one, share in zip(estimable, shares, strict=True))
    cut = [min(1.0, max(0.0, share)) for share in shares]
    # What a change of q changes in the average.
    slopes = [one.images / images / (one.told_apart / one.others - one.wrong / one.own) for one in estimable]
    disagreed = _mean([(slope, one.disagreed, one.images) for slope, one in zip(slopes, estimable, strict=True)])
    erred = _mean([(slope * (1 - p), one.wrong, one.own) for slope, p, one in zip(slopes, cut, estimable, strict=True)])
    # The validation images of other classes are nearly the same ones for every class: they are counted once.
    fewest = min(one.others for one in estimable)
    seen = _mean(
        [(slope * p, one.told_apart, one.others) for slope, p, one in zip(slopes, cut, estimable, strict=True)], fewest
    )
    below, above = mover(disagreed, erred[::-1], seen[::-1])
    return _with_interval(value, value - float(below), value + float(above), _if_never_erring(estimable))


def _mean(parts: Sequence[tuple[float, int, int]], images: float | None = None) -> tuple[float, float]:
    """How far the interval of a weighted sum of shares reaches below and above it, of (weight, part, whole) each.

    `images` is how many it varies like; by default what the weights make of all.
    """
    total = sum(weight for weight, _, _ in parts)
    if total <= 0:
        return 0.0, 0.0
    share = sum(weight * part / whole for weight, part, whole in parts) / total
    n = images or total**2 / sum(weight**2 / whole for weight, _, whole in parts)
    low, high = wilson_interval(share * n, n)
    return total * (share - low), total * (high - share)


def _share_of_false(one: JudgedClass) -> float:
    """p, not cut."""
    return rogan_gladen(one.disagreed / one.images, one.wrong / one.own, one.told_apart / one.others)


def _if_never_erring(classes: Sequence[JudgedClass]) -> float:
    """The most false labels that the disagreement allows, with its own interval, were the judge never wrong here."""
    images = sum(one.images for one in classes)
    seen = sum(one.images / images * one.told_apart / one.others for one in classes)
    return wilson_interval(sum(one.disagreed for one in classes), images)[1] / seen


def _with_interval(value: float, low: float, high: float, if_never_erring: float) -> CheckedShare:
    """Cut to 0 … 1, and with the value inside.

    A judge that disagrees with fewer labels than it errs on validation images errs less here, by how much nobody knows:
    the interval then reaches to where it would end if it never did, so that nothing is not shown as certain.
    """
    if value <= 0:
        high = max(high, if_never_erring)
    value, low, high = (min(1.0, max(0.0, one)) for one in (value, low, high))
    return CheckedShare(value, min(low, value), max(high, value))


def checks_of_dataset(recipe: Recipe, inputs: Mapping[str, Any], counts: JudgedCounts) -> LabelChecks:
    """The checks of every shift of a built dataset, the base first; empty ones where its recipe names no second judge.

    `inputs` are those of its lock. ValueError where these do not pin the judge as a build does.
    """
    shifts = recipe.all_shifts()
    names, judge = [shift.name for shift in shifts], recipe.screen.judge
    own = recipe.kind.corrupts
    if judge is None:
        return LabelChecks(None, None, tuple(map(ShiftChecks, names)), own=own)
    pins = inputs.get("judges")
    pin = pins.get(without_folders(judge)) if isinstance(pins, Mapping) else None
    validation = validation_of(pin, [cls.id for cls in recipe.classes])
    picked = {shift.name for shift in shifts for rule in shift.keep if judge in rule.judges()}
    return replace(judged_checks(without_folders(judge), counts, validation, names, picked), own=own)


def judged_checks(
    judge: str,
    counts: JudgedCounts,
    validation: ValidationAnswers | None,
    shifts: Sequence[str],
    picked: Collection[str] = (),
) -> LabelChecks:
    """Return the checks of `shifts`, in this order, by what the judge said; a shift of no image has none.

    Without `validation` its disagreement stands as it is, and no label error is estimated. So it is under the shifts
    that are `picked`: their images are there because this judge disagrees.
    """
    total = None
    # By class id: its validation images, those not answered as it, all others, and those not answered as it.
    errors: dict[str, tuple[int, int, int, int]] = {}
    if validation is not None:
        total = sum(sum(own.values()) for own in validation.values())
        answered: Counter[str] = Counter()
        for own in validation.values():
            answered.update(own)
        for class_id, own in validation.items():
            images, right = sum(own.values()), own.get(class_id, 0)
            others = total - images
            errors[class_id] = (images, images - right, others, others - (answered[class_id] - right))
    judged: dict[str, dict[str, tuple[int, int]]] = {}
    for (shift, class_id), pair in counts.items():
        if pair[0]:
            judged.setdefault(shift, {})[class_id] = pair

    found = []
    for shift in shifts:
        if shift not in judged:
            found.append(ShiftChecks(shift, picked=shift in picked))
            continue
        known = {} if shift in picked else errors
        of = {name: JudgedClass(*pair, *known.get(name, (0, 0, 0, 0))) for name, pair in judged[shift].items()}
        images, disagreed = (sum(getattr(one, part) for one in of.values()) for part in ("images", "disagreed"))
        labels = JudgedLabels(images, disagreed, share_of(disagreed, images), label_error_of_shift(list(of.values())))
        classes = {
            name: JudgedLabels(
                one.images, one.disagreed, share_of(one.disagreed, one.images), label_error_of_class(one)
            )
            for name, one in of.items()
        }
        found.append(ShiftChecks(shift, labels, classes=classes, picked=shift in picked))
    return LabelChecks(judge, total, tuple(found))


def _in_order(share: CheckedShare) -> CheckedShare:
    if not 0 <= share.low <= share.value <= share.high <= 1:
        raise ValueError("expected a share with its interval")
    return share


_Some = Annotated[int, Field(gt=0, le=1_000_000_000)]
_Selected = Annotated[CheckedShare, AfterValidator(_in_order)]


@dataclass(frozen=True, slots=True)
class ControlsPassed:
    """Controls that were shown and answered rightly. real: images of the class, selected; without: images without the
    label, left alone."""

    real: Count = 0
    real_passed: Count = 0
    without: Count = 0
    without_passed: Count = 0

    def __add__(self, other: ControlsPassed) -> ControlsPassed:
        return ControlsPassed(*(getattr(self, name) + getattr(other, name) for name in ControlsPassed.__slots__))

    @property
    def failed(self) -> bool:
        """Whether fewer than three in four of a kind were right."""
        kinds = ((self.real_passed, self.real), (self.without_passed, self.without))
        return any(shown > 0 and passed < FEWEST_PASSED * shown for passed, shown in kinds)


@dataclass(frozen=True, slots=True)
class AllControls:
    """Those of all people, with the shares that were answered rightly; None of none."""

    real: Count
    real_passed: Count
    without: Count
    without_passed: Count
    real_share: _Selected | None
    without_share: _Selected | None


@dataclass(frozen=True, slots=True)
class RaterResult:
    """One person: `rater-1` and so on, by the order of the files; what they finished, and the controls in it."""

    rater: str
    grids: Count
    images: Count
    controls: ControlsPassed
    failed_controls: bool


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A shift under one task. images: that anybody was shown; answers: by all; selected: the mean selection frequency;
    kappa: Fleiss', over `kappa_images` of them, None where it is undefined."""

    images: _Some
    answers: _Some
    selected: _Selected
    kappa: Annotated[float, Field(ge=-1, le=1)] | None
    kappa_images: Count


@dataclass(frozen=True, slots=True)
class ShiftSelected:
    """A shift under both tasks (`class` and `shift` in the file); None for a task that nobody was given."""

    name: Annotated[str, Field(min_length=1, max_length=255)]
    by_class: Annotated[TaskResult | None, Field(alias="class")]
    by_shift: Annotated[TaskResult | None, Field(alias="shift")]


@dataclass(frozen=True, slots=True)
class Selected:
    """How often an image was shown and selected under a task."""

    shown: _Some
    selected: Count


@dataclass(frozen=True)
class Selection:
    """Everything that answers say, and nobody's name. images: task → key → how often, controls left out."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    FORM: ClassVar[Form] = Form("a selection document of version 1", "Review the dataset again: counterfoil review.")
    content: str
    confidence: Share
    raters: Annotated[tuple[RaterResult, ...], Field(min_length=1)]
    controls: AllControls
    shifts: tuple[ShiftSelected, ...]
    images: dict[Task, dict[str, Selected]]

    def __post_init__(self) -> None:
        if len({one.name for one in self.shifts}) < len(self.shifts):
            raise ValueError("a shift appears twice")

    def of(self, shift: str, task: Task) -> TaskResult | None:
        """A shift under a task; None where nobody was asked."""
        found = next((one for one in self.shifts if one.name == shift), None)
        return None if found is None else found.by_class if task == "class" else found.by_shift

    def to_json(self) -> dict[str, Any]:
        """As the file has it."""
        values = plain(self)
        for one in values["shifts"]:
            one |= {"class": one.pop("by_class"), "shift": one.pop("by_shift")}
        return values

    @classmethod
    def of_dataset(cls, directory: Path, content: str) -> tuple[Selection | None, str]:
        """What a dataset with this content holds, and what is wrong with what another hand sealed there."""
        return cls.sealed(REVIEWED.read(directory, content))

    @classmethod
    def sealed(cls, document: Mapping[str, Any] | None) -> tuple[Selection | None, str]:
        """The same of what is in the folder, whose seal is `version` and `files`."""
        if document is None:
            return None, ""
        own = {key: value for key, value in document.items() if key not in ("version", "files")}
        try:
            return parse_document(cls, json.dumps(own), REVIEWED.path), ""
        except UserError as error:
            return None, error.problems[0]


def read_people(directory: Path, content: str, shifts: Collection[str]) -> LabelChecks | None:
    """What people said of these shifts of a dataset with this content; None where nothing is known of it."""
    people = people_of(Selection.of_dataset(directory, content)[0])
    if people is None:
        return None
    return replace(people, shifts=tuple(shift for shift in people.shifts if shift.shift in shifts))


def people_of(selection: Selection | None) -> LabelChecks | None:
    """The same, beside what a second judge says."""
    if selection is None:
        return None
    return LabelChecks(
        judge=None,
        validated_on=None,
        shifts=tuple(
            ShiftChecks(
                one.name,
                people=SelectedByPeople(
                    class_images=one.by_class.images if one.by_class else 0,
                    class_selected=one.by_class.selected if one.by_class else None,
                    class_kappa=one.by_class.kappa if one.by_class else None,
                    shift_images=one.by_shift.images if one.by_shift else 0,
                    shift_selected=one.by_shift.selected if one.by_shift else None,
                    shift_kappa=one.by_shift.kappa if one.by_shift else None,
                ),
            )
            for one in selection.shifts
        ),
        raters=len(selection.raters),
        controls=selection.controls.real_share,
    )


def with_people(checks: LabelChecks | None, people: LabelChecks | None) -> LabelChecks | None:
    """What a judge and what people say, together; the shifts of the first, then those that people alone looked at."""
    if checks is None or people is None:
        return checks or people
    known = {shift.shift for shift in checks.shifts}
    together = [replace(shift, people=people.of(shift.shift).people) for shift in checks.shifts]
    together += [shift for shift in people.shifts if shift.shift not in known]
    return replace(checks, shifts=tuple(together), raters=people.raters, controls=people.controls)
