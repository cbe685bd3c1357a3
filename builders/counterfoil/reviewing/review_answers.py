"""`review --answers`: people's selections become the folder `review/` of the dataset, and are shown
on its card."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from counterfoil.dataset.closing import close_again, closed_dataset
from counterfoil.dataset.label_checks import (
    TASKS,
    AllControls,
    ControlsPassed,
    RaterResult,
    ReviewTask,
    Selected,
    Selection,
    ShiftSelected,
    TaskResult,
    share_of,
)
from counterfoil.dataset.reading import SoundDataset
from counterfoil.documents import csv_text
from counterfoil.options import takes
from counterfoil.regular_files import named_path
from counterfoil.report.labels import CheckedShare
from counterfoil.reviewing.answers import AnsweredGrid, Asked, RaterAnswers, read_answers
from counterfoil.reviewing.grids import AcceptedImage, RealControl, accepted_images, known_ids
from counterfoil.reviewing.options import AnswersOptions
from counterfoil.stats import CONFIDENCE, clustered_interval, fleiss_kappa
from counterfoil.store.manifest import changed_data, content_of_receipts, refuse_changed
from counterfoil.store.sealed_folder import REVIEWED

_COLUMNS = ("task", "key", "shift", "class_id", "shown", "selected", "frequency")
_DIGITS = 6
TABLE = "selection.csv"


def mean_frequency(answers: Sequence[tuple[int, int]]) -> CheckedShare | None:
    """Return the mean selection frequency with its 95 % interval over images, or None. answers: for
    each image, how often it was selected and how often people were asked.
    """
    import numpy as np

    if not answers:
        return None
    selected, shown = np.asarray(answers, np.float64).T
    low, high = clustered_interval(selected, shown)
    share = float(np.mean(selected / shown))
    return CheckedShare(share, min(low, share), max(high, share))


def agreement(answers: Mapping[str, Mapping[int, bool]]) -> tuple[float | None, int]:
    """Return Fleiss' kappa of answers (image → rater → selected), and the number of images behind
    it.

    Kappa is computed on the images that all raters saw. If there are none, kappa is a mean over the
    numbers of raters that saw an image, weighted by images. Kappa is None for fewer than two
    raters, or if all answers agree.
    """
    raters = {rater for answer in answers.values() for rater in answer}
    if len(raters) < 2:
        return None, 0
    shared = [answer for answer in answers.values() if len(answer) == len(raters)]
    groups: dict[int, list[tuple[int, int]]] = {}
    for ratings in shared or answers.values():
        if len(ratings) > 1:
            groups.setdefault(len(ratings), []).append(
                (sum(ratings.values()), len(ratings) - sum(ratings.values()))
            )
    kappas = [
        (kappa, len(counts))
        for counts in groups.values()
        if (kappa := fleiss_kappa(counts)) is not None
    ]
    images = sum(count for _, count in kappas)
    if not images:
        return None, 0
    return sum(kappa * count for kappa, count in kappas) / images, images


def selection_of(raters: Sequence[RaterAnswers], task_list: Asked) -> Selection:
    """Count the answers of these people."""
    # ReviewTask → image → rater → whether they selected it.
    answers: dict[ReviewTask, dict[AcceptedImage, dict[int, bool]]] = {task: {} for task in TASKS}
    for index, rater in enumerate(raters):
        for grid in rater.grids:
            for id, image in _own(grid, task_list).items():
                answers[grid.task].setdefault(image, {})[index] = id in grid.selected
    results = {}
    for shift, task in itertools.product(task_list.shifts, TASKS):
        of_shift = {image.key: by for image, by in answers[task].items() if image.shift == shift}
        results[shift, task] = _task_result(of_shift)
    people = []
    for index, rater in enumerate(raters, 1):
        passed = ControlsPassed()
        images = 0
        for grid in rater.grids:
            images_of_dataset = _own(grid, task_list)
            selected = set(grid.selected)
            real = {id for id in grid.shown if isinstance(task_list.known[id], RealControl)}
            without = set(grid.shown) - images_of_dataset.keys() - real
            passed += ControlsPassed(
                len(real), len(real & selected), len(without), len(without - selected)
            )
            images += len(images_of_dataset)
        people.append(
            RaterResult(f"rater-{index}", len(rater.grids), images, passed, passed.failed)
        )
    controls = sum((rater.controls for rater in people), ControlsPassed())
    real_share = share_of(controls.real_passed, controls.real) if controls.real else None
    without_share = None
    if controls.without:
        without_share = share_of(controls.without_passed, controls.without)
    shifts = []
    for shift in task_list.shifts:
        of_class = results[shift, "class"]
        of_shift = results[shift, "shift"]
        if of_class or of_shift:
            shifts.append(ShiftSelected(shift, of_class, of_shift))
    selected_images: dict[ReviewTask, dict[str, Selected]] = {}
    for task in TASKS:
        selected_images[task] = {}
        for image, by in answers[task].items():
            selected_images[task][image.key] = Selected(len(by), sum(by.values()))
    return Selection(
        content=task_list.content,
        confidence=CONFIDENCE,
        raters=tuple(people),
        controls=AllControls(
            **asdict(controls),
            real_share=_rounded(real_share),
            without_share=_rounded(without_share),
        ),
        shifts=tuple(shifts),
        images=selected_images,
    )


def _own(grid: AnsweredGrid, task_list: Asked) -> dict[str, AcceptedImage]:
    """Return the images of a grid that have its label according to the dataset. All other pictures
    are controls."""
    images = {}
    for id in grid.shown:
        picture = task_list.known[id]
        if isinstance(picture, AcceptedImage):
            label = picture.shift
            if grid.task == "class":
                label = task_list.classes[picture.label]
            if grid.label == label:
                images[id] = picture
    return images


def _task_result(answers: Mapping[str, Mapping[int, bool]]) -> TaskResult | None:
    counts = [(sum(by.values()), len(by)) for by in answers.values()]
    selected = _rounded(mean_frequency(counts))
    if selected is None:
        return None
    kappa, compared = agreement(answers)
    kappa = None if kappa is None else round(kappa, _DIGITS)
    return TaskResult(len(answers), sum(count for _, count in counts), selected, kappa, compared)


def _rounded(share: CheckedShare | None) -> CheckedShare | None:
    if share is None:
        return None
    return CheckedShare(*(round(value, _DIGITS) for value in asdict(share).values()))


@dataclass(frozen=True)
class Review:
    """The counted answers, and the folder that holds them. raters: files and typed names, which are
    not stored. replaced: the number of people whose earlier answers were replaced.
    """

    directory: Path
    folder: Path
    selection: Selection
    raters: tuple[RaterAnswers, ...]
    replaced: int

    @property
    def notes(self) -> tuple[str, ...]:
        """People who answered several pages, and which of their answers count."""
        notes = []
        for person, rater in zip(self.selection.raters, self.raters, strict=True):
            if not rater.others:
                continue
            files = ", ".join(map(str, (rater.path, *rater.others)))
            note = f"{files} are of one person, {person.rater}"
            if rater.again:
                note += f", who answered {rater.again} images twice: the later file's answers count"
            notes.append(note)
        return tuple(notes)

    def to_json(self) -> dict[str, Any]:
        """Return the stored numbers, with the files and names of raters."""
        document = self.selection.to_json()
        named = zip(document["raters"], self.raters, strict=True)
        for person, rater in named:
            person |= {
                "file": str(rater.path),
                "more_files": list(map(str, rater.others)),
                "name": rater.name,
            }
        return {"directory": str(self.directory), "folder": str(self.folder), **document}


@takes(AnswersOptions)
def review_answers(given: AnswersOptions) -> Review:
    """Count people's answers, store them in the folder `review/` of the dataset, and show them on
    its card.

    Returns:
        A Review with the agreement and the counts.

    Raises:
        UserError: The directory is not a finished dataset, a file does not hold answers to a page
            of this dataset, or two files hold one person's answers to the same page. The message
            lists every problem.
        RunFailure: The dataset is damaged.
    """
    directory = named_path(given.directory)
    dataset = closed_dataset(directory)
    task_list = asked_of(dataset)
    content = task_list.content
    raters = read_answers(given.answers, task_list)
    hint = (
        f"`counterfoil verify {directory}` lists everything that is damaged, and how to repair it."
    )
    refuse_changed(directory, changed_data(directory, dataset.receipts), hint)
    selection = selection_of(raters, task_list)
    before, _ = Selection.of_dataset(directory, content)
    shifts = list(task_list.shifts)
    rows = []
    images = [image for image in task_list.known.values() if isinstance(image, AcceptedImage)]
    for task, answers_of_task in selection.images.items():
        for image in sorted(images, key=lambda image: (shifts.index(image.shift), image.key)):
            if answer := answers_of_task.get(image.key):
                row = (
                    task,
                    image.key,
                    image.shift,
                    task_list.classes[image.label],
                    answer.shown,
                    answer.selected,
                )
                rows.append(
                    dict(
                        zip(_COLUMNS, (*row, f"{answer.selected / answer.shown:.6g}"), strict=True)
                    )
                )
    table = csv_text(rows, _COLUMNS).encode()
    close_again(directory, REVIEWED.files(selection.to_json(), {TABLE: table}), content, REVIEWED)
    replaced = len(before.raters) if before else 0
    return Review(directory, directory / REVIEWED.name, selection, tuple(raters), replaced)


def asked_of(dataset: SoundDataset) -> Asked:
    """Return what pages of a dataset can ask."""
    content = content_of_receipts(dataset.receipts)
    images = accepted_images(dataset.directory, dataset.plan, dataset.receipts)
    classes = dataset.recipe.classes
    shifts = tuple(shift.name for shift in dataset.recipe.all_shifts())
    return Asked(
        content, known_ids(content, images, classes), tuple(cls.id for cls in classes), shifts
    )
