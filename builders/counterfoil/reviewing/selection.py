"""What the answers of several people say together: selection frequencies, their agreement, and who failed controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from counterfoil.csv_text import csv_text
from counterfoil.label_checks import CheckedShare
from counterfoil.label_checks.rogan_gladen import share_of
from counterfoil.reviewing.accepted_images import AcceptedImage, RealControl
from counterfoil.reviewing.agreement import agreement, mean_frequency
from counterfoil.reviewing.answers import Asked, FinishedGrid, RaterAnswers
from counterfoil.reviewing.grids import TASKS, Task
from counterfoil.stats import CONFIDENCE

# A rater who gets fewer of either kind of controls right is told, and counted all the same.
FEWEST_PASSED = 0.75
_COLUMNS = ("task", "key", "shift", "class_id", "shown", "selected", "frequency")
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class ControlsPassed:
    """Controls that were shown and answered rightly. real: images of the class, selected; without: images without the
    label, left alone."""

    real: int = 0
    real_passed: int = 0
    without: int = 0
    without_passed: int = 0

    def __add__(self, other: ControlsPassed) -> ControlsPassed:
        return ControlsPassed(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    @property
    def failed(self) -> bool:
        """Whether fewer than three in four of a kind were right."""
        kinds = ((self.real_passed, self.real), (self.without_passed, self.without))
        return any(shown > 0 and passed < FEWEST_PASSED * shown for passed, shown in kinds)


@dataclass(frozen=True, slots=True)
class RaterResult:
    """One person: `rater-1` and so on, by the order of the files; what they finished, and the controls in it."""

    rater: str
    grids: int
    images: int
    controls: ControlsPassed


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A shift under one task. images: that anybody was shown; answers: by all; selected: the mean selection frequency;
    kappa: Fleiss', over `kappa_images` of them, None where it is undefined."""

    images: int
    answers: int
    selected: CheckedShare
    kappa: float | None
    kappa_images: int


@dataclass(frozen=True, slots=True)
class Selected:
    """How often an image was shown and selected under a task."""

    shown: int
    selected: int

    @property
    def frequency(self) -> float:
        return self.selected / self.shown


@dataclass(frozen=True)
class Selection:
    """Everything that the answers say. shifts: shift → task → result, where anybody was asked; images: task → image →
    how often it was selected, controls left out."""

    content: str
    raters: tuple[RaterResult, ...]
    shifts: Mapping[str, Mapping[Task, TaskResult]]
    images: Mapping[Task, Mapping[AcceptedImage, Selected]]

    @property
    def controls(self) -> ControlsPassed:
        return sum((rater.controls for rater in self.raters), ControlsPassed())


def selection_of(raters: Sequence[RaterAnswers], asked: Asked) -> Selection:
    """The answers of these people, counted."""
    # Task → image → rater → whether they selected it.
    answers: dict[Task, dict[AcceptedImage, dict[int, bool]]] = {task: {} for task in TASKS}
    for place, rater in enumerate(raters):
        for grid in rater.grids:
            for id, image in _own(grid, asked).items():
                answers[grid.task].setdefault(image, {})[place] = id in grid.selected
    shifts: dict[str, dict[Task, TaskResult]] = {}
    for shift in asked.shifts:
        for task in TASKS:
            own = {image.key: by for image, by in answers[task].items() if image.shift == shift}
            if (result := _task_result(own)) is not None:
                shifts.setdefault(shift, {})[task] = result
    order = {shift: place for place, shift in enumerate(asked.shifts)}
    return Selection(
        content=asked.content,
        raters=tuple(_rater_result(f"rater-{place}", rater, asked) for place, rater in enumerate(raters, 1)),
        shifts=shifts,
        images={
            task: {
                image: Selected(len(by), sum(by.values()))
                for image, by in sorted(answers[task].items(), key=lambda each: (order[each[0].shift], each[0].key))
            }
            for task in TASKS
        },
    )


def _own(grid: FinishedGrid, asked: Asked) -> dict[str, AcceptedImage]:
    """The images of a grid that have its label by the dataset; all others are controls."""
    return {
        id: picture
        for id, picture in grid.shown.items()
        if isinstance(picture, AcceptedImage)
        and grid.label == (asked.classes[picture.label] if grid.task == "class" else picture.shift)
    }


def _rater_result(name: str, rater: RaterAnswers, asked: Asked) -> RaterResult:
    controls, images = ControlsPassed(), 0
    for grid in rater.grids:
        own = _own(grid, asked)
        real = {id for id, picture in grid.shown.items() if isinstance(picture, RealControl)}
        without = grid.shown.keys() - own.keys() - real
        passed = (len(real & grid.selected), len(without - grid.selected))
        controls += ControlsPassed(len(real), passed[0], len(without), passed[1])
        images += len(own)
    return RaterResult(name, len(rater.grids), images, controls)


def _task_result(answers: Mapping[str, Mapping[int, bool]]) -> TaskResult | None:
    asked = [(sum(by.values()), len(by)) for by in answers.values()]
    given = sum(count for _, count in asked)
    selected = mean_frequency(asked)
    if selected is None:
        return None
    kappa, compared = agreement(answers)
    return TaskResult(len(answers), given, selected, kappa, compared)


def selection_document(selection: Selection) -> dict[str, Any]:
    """What is stored of it: plain numbers, and nobody's name."""
    controls = selection.controls
    return {
        "content": selection.content,
        "confidence": CONFIDENCE,
        "raters": [
            {
                "rater": rater.rater,
                "grids": rater.grids,
                "images": rater.images,
                "controls": asdict(rater.controls),
                "failed_controls": rater.controls.failed,
            }
            for rater in selection.raters
        ],
        "controls": {
            **asdict(controls),
            "real_share": _passed(controls.real_passed, controls.real),
            "without_share": _passed(controls.without_passed, controls.without),
        },
        "shifts": [
            {"name": shift, **{task: _result(by_task.get(task)) for task in TASKS}}
            for shift, by_task in selection.shifts.items()
        ],
        "images": {
            task: {image.key: asdict(each) for image, each in images.items()}
            for task, images in selection.images.items()
        },
    }


def _passed(passed: int, shown: int) -> dict[str, float] | None:
    return _share(share_of(passed, shown)) if shown else None


def selection_csv(selection: Selection, class_ids: Sequence[str]) -> str:
    """A row an image and task: how often it was shown and selected."""
    rows = [
        (task, image.key, image.shift, class_ids[image.label], each.shown, each.selected, f"{each.frequency:.6g}")
        for task, images in selection.images.items()
        for image, each in images.items()
    ]
    return csv_text((dict(zip(_COLUMNS, row, strict=True)) for row in rows), _COLUMNS)


def _result(result: TaskResult | None) -> dict[str, Any] | None:
    if result is None:
        return None
    return {
        "images": result.images,
        "answers": result.answers,
        "selected": _share(result.selected),
        "kappa": None if result.kappa is None else round(result.kappa, _DIGITS),
        "kappa_images": result.kappa_images,
    }


def _share(share: CheckedShare | None) -> dict[str, float] | None:
    return None if share is None else {name: round(value, _DIGITS) for name, value in asdict(share).items()}
