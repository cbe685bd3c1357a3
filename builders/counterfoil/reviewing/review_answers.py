"""`review --answers`: people's selections become the folder `review/` of the dataset, and are shown
on its card."""

from __future__ import annotations

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
from counterfoil.reviewing.answers import Asked, RaterAnswers, mean_frequency, read_answers
from counterfoil.reviewing.grids import CandidateImage, RealControl, accepted_images, known_ids
from counterfoil.reviewing.options import AnswersOptions
from counterfoil.reviewing.screen_errors import TABLE as SCREEN_TABLE
from counterfoil.reviewing.screen_errors import (
    RuleErrors,
    errors_csv,
    rule_errors,
    screened_images,
)
from counterfoil.stats import CONFIDENCE, fleiss_kappa
from counterfoil.store.manifest import changed_data, content_of_receipts, refuse_changed
from counterfoil.store.sealed_folder import REVIEWED

_COLUMNS = ("task", "key", "shift", "class_id", "shown", "selected", "frequency")
_DIGITS = 6
TABLE = "selection.csv"


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
            selected = sum(ratings.values())
            of_size = groups.setdefault(len(ratings), [])
            of_size.append((selected, len(ratings) - selected))
    weighted = []
    images = 0
    for counts in groups.values():
        kappa = fleiss_kappa(counts)
        if kappa is not None:
            weighted.append(kappa * len(counts))
            images += len(counts)
    if not images:
        return None, 0
    return sum(weighted) / images, images


def selection_of(
    raters: Sequence[RaterAnswers],
    questions: Asked,
) -> Selection:
    """Count the answers of these people."""
    # ReviewTask → image → rater → whether they selected it.
    answers: dict[ReviewTask, dict[CandidateImage, dict[int, bool]]] = {task: {} for task in TASKS}
    for index, rater in enumerate(raters):
        for grid in rater.grids:
            for id, image in questions.own_images(grid).items():
                # The card counts only images that the dataset keeps.
                if image.kept:
                    answers[grid.task].setdefault(image, {})[index] = id in grid.selected
    people = []
    for index, rater in enumerate(raters, 1):
        passed = ControlsPassed()
        images = 0
        for grid in rater.grids:
            images_of_dataset = questions.own_images(grid)
            selected = set(grid.selected)
            real = {id for id in grid.shown if isinstance(questions.known[id], RealControl)}
            without = set(grid.shown) - images_of_dataset.keys() - real
            passed += ControlsPassed(
                real=len(real),
                real_passed=len(real & selected),
                without=len(without),
                without_passed=len(without - selected),
            )
            images += len(images_of_dataset)
        name = f"rater-{index}"
        person = RaterResult(name, len(rater.grids), images, passed, passed.failed)
        people.append(person)
    controls = sum((rater.controls for rater in people), ControlsPassed())
    shifts = []
    for shift in questions.shifts:
        results = {}
        for task in TASKS:
            of_task = answers[task].items()
            of_shift = {image.key: by for image, by in of_task if image.shift == shift}
            results[task] = _task_result(of_shift)
        if any(results.values()):
            shifts.append(ShiftSelected(shift, results["class"], results["shift"]))
    selected_images: dict[ReviewTask, dict[str, Selected]] = {}
    for task, of_task in answers.items():
        selected_images[task] = {}
        for image, by in of_task.items():
            selected_images[task][image.key] = Selected(len(by), sum(by.values()))
    return Selection(
        content=questions.content,
        confidence=CONFIDENCE,
        raters=tuple(people),
        controls=AllControls(
            **asdict(controls),
            real_share=_passed_share(controls.real_passed, controls.real),
            without_share=_passed_share(controls.without_passed, controls.without),
        ),
        shifts=tuple(shifts),
        images=selected_images,
    )


def _passed_share(passed: int, shown: int) -> CheckedShare | None:
    if not shown:
        return None
    return _rounded(share_of(passed, shown))


def _task_result(answers: Mapping[str, Mapping[int, bool]]) -> TaskResult | None:
    counts = [(sum(by.values()), len(by)) for by in answers.values()]
    selected = _rounded(mean_frequency(counts))
    if selected is None:
        return None
    kappa, compared = agreement(answers)
    if kappa is not None:
        kappa = round(kappa, _DIGITS)
    given = sum(count for _, count in counts)
    return TaskResult(len(answers), given, selected, kappa, compared)


def _rounded(share: CheckedShare | None) -> CheckedShare | None:
    if share is None:
        return None
    return CheckedShare(*(round(value, _DIGITS) for value in asdict(share).values()))


@dataclass(frozen=True)
class Review:
    """The counted answers, and the folder that holds them. raters: files and typed names, which are
    not stored. replaced: the number of people whose earlier answers were replaced. screen: the errors
    of the keep rules, if people answered a page of `--screen`.
    """

    directory: Path
    folder: Path
    selection: Selection
    raters: tuple[RaterAnswers, ...]
    replaced: int
    screen: tuple[RuleErrors, ...] = ()

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
        return {
            "directory": str(self.directory),
            "folder": str(self.folder),
            **document,
            "screen": [row.to_json() for row in self.screen],
        }


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
    questions = asked_of(dataset)
    content = questions.content
    raters = read_answers(given.answers, questions)
    hint = (
        f"`counterfoil verify {directory}` lists everything that is damaged, and how to repair it."
    )
    refuse_changed(changed_data(directory, dataset.receipts), hint)
    selection = selection_of(raters, questions)
    before, _ = Selection.of_dataset(directory, content)
    shifts = list(questions.shifts)
    rows = []
    images = [image for image in questions.known.values() if isinstance(image, CandidateImage)]
    images.sort(key=lambda image: (shifts.index(image.shift), image.key))
    for task, answers_of_task in selection.images.items():
        for image in images:
            answer = answers_of_task.get(image.key)
            if answer is None:
                continue
            class_id = questions.classes[image.label]
            frequency = f"{answer.selected / answer.shown:.6g}"
            shown = answer.shown
            values = (task, image.key, image.shift, class_id, shown, answer.selected, frequency)
            rows.append(dict(zip(_COLUMNS, values, strict=True)))
    tables = {TABLE: csv_text(rows, _COLUMNS).encode()}
    errors: tuple[RuleErrors, ...] = ()
    if any(rater.sampled for rater in raters):
        errors = rule_errors(raters, questions, screened_images(dataset))
        tables[SCREEN_TABLE] = errors_csv(errors).encode()
    files = REVIEWED.files(selection.to_json(), tables)
    close_again(directory, files, content, REVIEWED)
    replaced = len(before.raters) if before else 0
    return Review(directory, directory / REVIEWED.name, selection, tuple(raters), replaced, errors)


def asked_of(dataset: SoundDataset) -> Asked:
    """Return what pages of a dataset can ask."""
    content = content_of_receipts(dataset.receipts)
    images = accepted_images(dataset.directory, dataset.plan, dataset.receipts)
    if dataset.recipe.screen.keep_rejected:
        images += [each.image for each in screened_images(dataset) if not each.image.kept]
    classes = dataset.recipe.classes
    return Asked(
        content=content,
        known=known_ids(content, images, classes),
        classes=tuple(cls.id for cls in classes),
        shifts=tuple(shift.name for shift in dataset.recipe.all_shifts()),
    )
