"""What the answers of several people say together: selection frequencies, their agreement, and who failed controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from counterfoil.csv_text import csv_text
from counterfoil.label_checks import TASKS, Selection, Task
from counterfoil.label_checks.people import (
    AllControls,
    ControlsPassed,
    RaterResult,
    Selected,
    ShiftSelected,
    TaskResult,
)
from counterfoil.label_checks.rogan_gladen import share_of
from counterfoil.report.labels import CheckedShare
from counterfoil.reviewing.agreement import agreement, mean_frequency
from counterfoil.reviewing.answers import Asked, FinishedGrid, RaterAnswers
from counterfoil.reviewing.grids import AcceptedImage, RealControl
from counterfoil.stats import CONFIDENCE

_COLUMNS = ("task", "key", "shift", "class_id", "shown", "selected", "frequency")
_DIGITS = 6


def selection_of(raters: Sequence[RaterAnswers], asked: Asked) -> Selection:
    """The answers of these people, counted."""
    # Task → image → rater → whether they selected it.
    answers: dict[Task, dict[AcceptedImage, dict[int, bool]]] = {task: {} for task in TASKS}
    for place, rater in enumerate(raters):
        for grid in rater.grids:
            for id, image in _own(grid, asked).items():
                answers[grid.task].setdefault(image, {})[place] = id in grid.selected
    results = {
        (shift, task): _task_result({image.key: by for image, by in answers[task].items() if image.shift == shift})
        for shift in asked.shifts
        for task in TASKS
    }
    people = tuple(_rater_result(f"rater-{place}", rater, asked) for place, rater in enumerate(raters, 1))
    controls = sum((rater.controls for rater in people), ControlsPassed())
    return Selection(
        content=asked.content,
        confidence=CONFIDENCE,
        raters=people,
        controls=AllControls(
            **asdict(controls),
            real_share=_rounded(share_of(controls.real_passed, controls.real)),
            without_share=_rounded(share_of(controls.without_passed, controls.without)),
        ),
        shifts=tuple(
            ShiftSelected(shift, results[shift, "class"], results[shift, "shift"])
            for shift in asked.shifts
            if results[shift, "class"] or results[shift, "shift"]
        ),
        images={
            task: {image.key: Selected(len(by), sum(by.values())) for image, by in answers[task].items()}
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
        controls += ControlsPassed(len(real), len(real & grid.selected), len(without), len(without - grid.selected))
        images += len(own)
    return RaterResult(name, len(rater.grids), images, controls, controls.failed)


def _task_result(answers: Mapping[str, Mapping[int, bool]]) -> TaskResult | None:
    asked = [(sum(by.values()), len(by)) for by in answers.values()]
    selected = _rounded(mean_frequency(asked))
    if selected is None:
        return None
    kappa, compared = agreement(answers)
    kappa = None if kappa is None else round(kappa, _DIGITS)
    return TaskResult(len(answers), sum(count for _, count in asked), selected, kappa, compared)


def _rounded(share: CheckedShare | None) -> CheckedShare | None:
    return None if share is None else CheckedShare(*(round(value, _DIGITS) for value in asdict(share).values()))


def selection_csv(selection: Selection, asked: Asked) -> str:
    """A row an image and task, by shift: how often it was shown and selected."""
    shifts, rows = list(asked.shifts), []
    images = [image for image in asked.known.values() if isinstance(image, AcceptedImage)]
    for task, found in selection.images.items():
        for image in sorted(images, key=lambda image: (shifts.index(image.shift), image.key)):
            if one := found.get(image.key):
                row = (task, image.key, image.shift, asked.classes[image.label], one.shown, one.selected)
                rows.append(dict(zip(_COLUMNS, (*row, f"{one.selected / one.shown:.6g}"), strict=True)))
    return csv_text(rows, _COLUMNS)
