"""What is known of the labels of a dataset, shift by shift: what card, report and evaluation show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Of fewer images nobody can say whether a shift's labels are true.
LEAST_IMAGES = 10


@dataclass(frozen=True, slots=True)
class CheckedShare:
    """A share of images with its 95 % interval; all three from 0 to 1."""

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
