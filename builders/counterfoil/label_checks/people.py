"""What people said of a dataset's labels: `review/selection.json`, a strict document that is read as a stranger's."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field

from counterfoil.documents import STRICT, Count, Share, parse_document, plain
from counterfoil.errors import UserError
from counterfoil.report.labels import CheckedShare, LabelChecks, SelectedByPeople, ShiftChecks
from counterfoil.store.sealed_folder import REVIEWED

Task = Literal["class", "shift"]
TASKS: tuple[Task, ...] = ("class", "shift")
# A rater who gets fewer of either kind of controls right is told, and counted all the same.
FEWEST_PASSED = 0.75


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
    content: str
    confidence: Share
    raters: Annotated[tuple[RaterResult, ...], Field(min_length=1)]
    controls: AllControls
    shifts: tuple[ShiftSelected, ...]
    images: dict[Task, dict[str, Selected]]

    def __post_init__(self) -> None:
        if len({one.name for one in self.shifts}) < len(self.shifts):
            raise ValueError("a shift is there twice")

    def of(self, shift: str, task: Task) -> TaskResult | None:
        """A shift under a task; None where nobody was asked."""
        found = next((one for one in self.shifts if one.name == shift), None)
        return None if found is None else found.by_class if task == "class" else found.by_shift

    def to_json(self) -> dict[str, Any]:
        """As the file has it."""
        told = plain(self)
        for one in told["shifts"]:
            one |= {"class": one.pop("by_class"), "shift": one.pop("by_shift")}
        return told

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
            return parse_document(cls, json.dumps(own), REVIEWED.path, version=REVIEWED.version, hint=""), ""
        except UserError as error:
            return None, error.problems[0]
        except RecursionError:
            return None, f"{REVIEWED.path} is nested too deeply"


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
