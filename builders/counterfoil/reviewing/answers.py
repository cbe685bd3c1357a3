"""Read files of answers and check them against the dataset, because a file may come from anyone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field

from counterfoil.dataset.label_checks import ReviewTask
from counterfoil.documents import STRICT, Form, parse_document
from counterfoil.errors import UserError
from counterfoil.regular_files import named_path, read_regular
from counterfoil.report.labels import CheckedShare
from counterfoil.report.words import format_count
from counterfoil.reviewing.grids import GRID, CandidateImage, RealControl, ShownPicture
from counterfoil.stats import clustered_interval

VERSION = 1
# Marks such a file.
FORM = {"form": "counterfoil-review", "version": VERSION}
MOST_NAME = 60  # characters of a rater's name
MOST_RATERS = 1000
_MOST_BYTES = 4_000_000  # a grid takes 2 kB
_MOST_GRIDS = 2_000
_MOST_PROBLEMS = 10  # problems of one file
_LONGEST_LABEL = 255
_HINT = (
    "answers.json comes from the download button of the page that `counterfoil review` writes. A"
    " page fits only the dataset that it was written for, unchanged."
)


def _each_once(ids: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(ids)) < len(ids):
        raise ValueError(f"expected at most {GRID} ids of images, each once")
    return ids


_Ids = Annotated[
    tuple[Annotated[str, Field(pattern="^[0-9a-f]{20}$")], ...],
    Field(max_length=GRID),
    AfterValidator(_each_once),
]
_Token = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]


@dataclass(frozen=True, slots=True)
class AnsweredGrid:
    """A grid in the file: the pictures shown under a label, and those selected."""

    task: ReviewTask
    label: Annotated[str, Field(max_length=_LONGEST_LABEL)]
    shown: Annotated[_Ids, Field(min_length=1)]
    selected: _Ids


@dataclass(frozen=True, slots=True)
class AnsweredPage:
    """One person's answers to one page (`sheet`)."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT
    FORM: ClassVar[Form] = Form(
        f"the answers of a review ({FORM['form']}, version {VERSION})", _HINT
    )
    form: Literal["counterfoil-review"]
    version: Annotated[int, Field(ge=VERSION, le=VERSION)]
    content: Annotated[str, Field(max_length=_LONGEST_LABEL)]
    sheet: _Token
    rater: Annotated[str, Field(max_length=MOST_NAME)]
    """A typed name, if any."""
    token: _Token
    """Distinguishes people."""
    grids: Annotated[tuple[AnsweredGrid, ...], Field(min_length=1, max_length=_MOST_GRIDS)]


@dataclass(frozen=True, slots=True)
class RaterAnswers:
    """The finished grids of one person. name: the name that the person typed, which is not stored.
    others: files with the person's answers to other pages. again: the number of answers that a
    later file replaced. sampled: the ids on the person's pages of `--screen`.
    """

    path: Path
    name: str
    grids: tuple[AnsweredGrid, ...]
    others: tuple[Path, ...] = ()
    again: int = 0
    sampled: frozenset[str] = frozenset()

    def with_later(self, later: RaterAnswers) -> RaterAnswers:
        """Return these answers with the same person's answers to another page. If both have an
        answer, the later file counts.
        """
        answered = {(grid.task, grid.label, id) for grid in later.grids for id in grid.shown}
        left = []
        replaced = 0
        for grid in self.grids:
            shown = tuple(id for id in grid.shown if (grid.task, grid.label, id) not in answered)
            replaced += len(grid.shown) - len(shown)
            if shown:
                selected = tuple(id for id in grid.selected if id in shown)
                left.append(replace(grid, shown=shown, selected=selected))
        grids = (*left, *later.grids)
        others = (*self.others, later.path)
        again = self.again + replaced
        return replace(
            self,
            name=later.name or self.name,
            grids=grids,
            others=others,
            again=again,
            sampled=self.sampled | later.sampled,
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """What a dataset's pages can ask. known: picture by id. shifts: the base first."""

    content: str
    known: Mapping[str, ShownPicture]
    classes: Sequence[str]
    shifts: Sequence[str]

    def can_show(
        self,
        task: ReviewTask,
        label: str,
        id: str,
    ) -> bool:
        """Check whether a page can show a picture under a label, of it or as a control."""
        picture = self.known.get(id)
        if picture is None:
            return False
        if isinstance(picture, RealControl):
            return task == "class" and self.classes[picture.label] == label
        return task == "class" or picture.shift in (label, self.shifts[0])

    def own_images(self, grid: AnsweredGrid) -> dict[str, CandidateImage]:
        """Return the images of a grid that have its label according to the dataset. All other
        pictures are controls."""
        images = {}
        for id in grid.shown:
            picture = self.known[id]
            if isinstance(picture, CandidateImage):
                label = picture.shift
                if grid.task == "class":
                    label = self.classes[picture.label]
                if grid.label == label:
                    images[id] = picture
        return images


def read_answers(
    paths: Sequence[str | Path],
    questions: Asked,
) -> list[RaterAnswers]:
    """Return the answers in these files, one for each token. Raise UserError with every problem."""
    if not paths:
        raise UserError("found no answers", "Name the answers.json of each person.")
    if len(paths) > MOST_RATERS:
        raise UserError(f"found {len(paths):,} files of answers, expected at most {MOST_RATERS:,}")
    raters: dict[str, RaterAnswers] = {}
    problems: list[str] = []
    pages: dict[tuple[str, str], Path] = {}
    for path in map(named_path, paths):
        try:
            text = read_regular(path, _MOST_BYTES)
            page = parse_document(AnsweredPage, text, str(path))
        except FileNotFoundError:
            problems.append(f"{path} does not exist")
            continue
        except OSError as error:
            problems.append(f"{path} cannot be read: it {error.strerror or error}")
            continue
        except UserError as error:
            problems += error.problems
            continue
        wrong = [f"{path}: {line}" for line in _problems(page, questions)]
        problems += wrong[:_MOST_PROBLEMS]
        if len(wrong) > _MOST_PROBLEMS:
            problems.append(f"{path}: … and {len(wrong) - _MOST_PROBLEMS} more problems")
        first = pages.setdefault((page.token, page.sheet), path)
        if first is not path:
            problems.append(
                f"{path} has the same person and page as {first}: give only the later one"
            )
        elif not wrong:
            letters = [letter if letter.isprintable() else " " for letter in page.rater]
            name = " ".join("".join(letters).split())
            ids = frozenset(id for grid in page.grids for id in grid.shown)
            pictures = [questions.known[id] for id in ids]
            if all(isinstance(each, RealControl) or each.kept for each in pictures):
                # Other pages choose kept images evenly over classes, not at random.
                ids = frozenset()
            rater = RaterAnswers(path, name, page.grids, sampled=ids)
            if page.token in raters:
                rater = raters[page.token].with_later(rater)
            raters[page.token] = rater
    if problems:
        raise UserError(problems, _HINT)
    return list(raters.values())


def _problems(
    page: AnsweredPage,
    questions: Asked,
) -> Iterator[str]:
    """Yield the problems of well-formed answers with the dataset."""
    if page.content != questions.content:
        yield (
            "is for another dataset, or for this one before it changed: content"
            f" {page.content!r:.40}, expected {questions.content[:12]}…"
        )
        return
    answered: set[tuple[str, str, str]] = set()
    for number, grid in enumerate(page.grids, 1):
        # The base shows no shift.
        labels = questions.classes if grid.task == "class" else questions.shifts[1:]
        if grid.label not in labels:
            yield (
                f"grid {number}: found the {grid.task} {grid.label!r:.40}, which the dataset does"
                " not have"
            )
            continue
        shown = [questions.can_show(grid.task, grid.label, id) for id in grid.shown]
        strange = shown.count(False)
        if strange:
            yield (
                f"grid {number}: {strange} of {len(shown)} images belong to no page of this dataset"
            )
        if not set(grid.selected) <= set(grid.shown):
            yield f"grid {number}: selects images that it does not show"
        grid_ids = {(grid.task, grid.label, id) for id in grid.shown}
        again = grid_ids & answered
        if again:
            yield f"answers {len(again)} images twice under the {grid.task} {grid.label!r:.40}"
        answered |= grid_ids
    if any(grid.selected for grid in page.grids):
        return
    pictures = [questions.known.get(id) for grid in page.grids for id in grid.shown]
    if any(isinstance(picture, RealControl) for picture in pictures):
        # A person who looked at the grids would have selected some real images.
        grids = "its grid"
        if len(page.grids) > 1:
            grids = f"any of its {format_count(len(page.grids), 'grid')}"
        yield f"has no answers: no image is selected in {grids}, not even a real one"


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
