"""answers.json, as the page writes it and strangers may: of bounded size, of one form, and every problem told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from counterfoil.errors import UserError
from counterfoil.regular_files import named_path, read_regular
from counterfoil.reviewing.accepted_images import AcceptedImage, RealControl
from counterfoil.reviewing.grids import GRID, TASKS, Task
from counterfoil.store.documents import parse_document

# What tells such a file from any other.
FORM = {"form": "counterfoil-review", "version": 1}
MOST_NAME = 60  # characters of a rater's name
MOST_RATERS = 1000
_MOST_BYTES = 4_000_000  # a grid takes 2 kB
_MOST_GRIDS = 2_000
_MOST_TOLD = 10  # problems of one file

_KEYS = {*FORM, "content", "sheet", "rater", "token", "grids"}
_GRID_KEYS = {"task", "label", "shown", "selected"}
_ID = re.compile(r"[0-9a-f]{20}")
_TOKEN = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class FinishedGrid:
    """What one person answered to one grid: which pictures were shown, as what they are, and which were selected."""

    task: Task
    label: str
    shown: Mapping[str, AcceptedImage | RealControl]
    selected: frozenset[str]


@dataclass(frozen=True, slots=True)
class RaterAnswers:
    """The finished grids of one person. name: what they typed, which is stored nowhere; empty for nothing.

    others: their answers to other pages than that of `path`, in order; again: how many answers of an earlier file a
    later one replaced.
    """

    path: Path
    name: str
    grids: tuple[FinishedGrid, ...]
    others: tuple[Path, ...] = ()
    again: int = 0

    def with_later(self, later: RaterAnswers) -> RaterAnswers:
        """These with what the same person answered to another page: of what both answer, the later file counts."""
        answered = {(grid.task, grid.label, each) for grid in later.grids for each in grid.shown}
        kept = [
            (grid, {each: one for each, one in grid.shown.items() if (grid.task, grid.label, each) not in answered})
            for grid in self.grids
        ]
        left = [replace(grid, shown=shown, selected=grid.selected & shown.keys()) for grid, shown in kept if shown]
        replaced = sum(len(grid.shown) - len(shown) for grid, shown in kept)
        return replace(
            self,
            name=later.name or self.name,
            grids=(*left, *later.grids),
            others=(*self.others, later.path),
            again=self.again + replaced,
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """What a dataset's pages can ask: its content, what ids stand for, its class ids and its shifts, the base first."""

    content: str
    known: Mapping[str, AcceptedImage | RealControl]
    classes: Sequence[str]
    shifts: Sequence[str]


def read_answers(paths: Sequence[str | Path], asked: Asked) -> list[RaterAnswers]:
    """The answers in these files, a person each, in the order of their first files. UserError with every problem.

    One person may have answered several pages, which have one token: what they say is one person's.
    """
    if not paths:
        raise UserError("there are no answers", "Name the answers.json of each person.")
    if len(paths) > MOST_RATERS:
        raise UserError(f"found {len(paths):,} files of answers, expected at most {MOST_RATERS:,}")
    raters: dict[str, RaterAnswers] = {}
    problems: list[str] = []
    pages: dict[tuple[str, str], Path] = {}
    for path in map(named_path, paths):
        file = _File(path, asked)
        rater = file.read()
        problems += file.told()
        if rater is None:
            continue
        first = pages.setdefault((file.token, file.sheet), path)
        if first is not path:
            problems.append(f"{path} is of the same person as {first}, and of the same page: give the later one alone")
        else:
            raters[file.token] = raters[file.token].with_later(rater) if file.token in raters else rater
    if problems:
        raise UserError(
            problems,
            "answers.json comes from the button of the page that `counterfoil review` writes; a page belongs to the"
            " dataset as it was then.",
        )
    return list(raters.values())


def _grids(count: int) -> str:
    return "its grid" if count == 1 else f"any of its {count:,} grids"


class _File:
    """One file under inspection: problems are collected, and nothing is believed before it was looked at."""

    def __init__(self, path: Path, asked: Asked) -> None:
        self._path = path
        self._asked = asked
        self._problems: list[str] = []
        self.token = ""
        self.sheet = ""

    def told(self) -> Iterator[str]:
        yield from self._problems[:_MOST_TOLD]
        if len(self._problems) > _MOST_TOLD:
            yield f"{self._path}: … and {len(self._problems) - _MOST_TOLD} more problems"

    def read(self) -> RaterAnswers | None:
        """The answers; None where there is a problem."""
        document = self._document()
        if document is None:
            return None
        if document["content"] != self._asked.content:
            self._add(
                f"is of another dataset, or of this one before it changed: content {_shown(document['content'])},"
                f" expected {self._asked.content[:12]}…"
            )
            return None
        grids = [grid for number, value in enumerate(document["grids"], 1) if (grid := self._grid(number, value))]
        if not document["grids"]:
            self._add("holds no finished grid")
        self._refuse_twice(grids)
        real = any(isinstance(one, RealControl) for grid in grids for one in grid.shown.values())
        if real and not any(grid.selected for grid in grids):
            # Real images are in it: who looked would have selected some.
            self._add(f"holds no answers: no image is selected in {_grids(len(grids))}, not one of the real ones")
        if self._problems:
            return None
        name = " ".join("".join(letter if letter.isprintable() else " " for letter in document["rater"]).split())
        return RaterAnswers(self._path, name, tuple(grids))

    def _document(self) -> dict[str, Any] | None:
        try:
            document = parse_document(read_regular(self._path, _MOST_BYTES))
        except FileNotFoundError:
            return self._add("is not there")
        except OSError as error:
            return self._add(f"cannot be read: {error.strerror}")
        except ValueError as error:
            return self._add(f"is no JSON: {str(error)[:120]}")
        if not isinstance(document, dict) or any(document.get(key) != value for key, value in FORM.items()):
            return self._add(f"holds no answers of a review ({FORM['form']}, version {FORM['version']})")
        if not self._has_keys("", document, _KEYS):
            return None
        wrong = [
            f"{key}: found {_shown(document[key])}, expected {what}"
            for key, what, right in (
                ("content", "text", isinstance(document["content"], str)),
                ("sheet", "16 hexadecimal digits", _is_text(document["sheet"], _TOKEN)),
                ("token", "16 hexadecimal digits", _is_text(document["token"], _TOKEN)),
                ("rater", f"at most {MOST_NAME} characters", _is_name(document["rater"])),
                ("grids", f"a list of at most {_MOST_GRIDS:,}", _is_list(document["grids"], _MOST_GRIDS)),
            )
            if not right
        ]
        if wrong:
            self._problems += [f"{self._path}: {line}" for line in wrong]
            return None
        self.token, self.sheet = document["token"], document["sheet"]
        return document

    def _grid(self, number: int, value: Any) -> FinishedGrid | None:
        place = f"grid {number}"
        if not isinstance(value, dict):
            return self._add(f"{place}: found {_shown(value)}, expected an object")
        if not self._has_keys(f"{place}: ", value, _GRID_KEYS):
            return None
        task, label, shown, selected = (value[key] for key in ("task", "label", "shown", "selected"))
        if task not in TASKS:
            return self._add(f"{place}: task: found {_shown(task)}, expected one of {', '.join(TASKS)}")
        # The base shows no shift.
        labels = self._asked.classes if task == "class" else self._asked.shifts[1:]
        if label not in labels:
            return self._add(f"{place}: found the {task} {_shown(label)}, which the dataset does not have")
        for name, ids in (("shown", shown), ("selected", selected)):
            if not _is_list(ids, GRID) or not all(_is_text(each, _ID) for each in ids) or len(set(ids)) < len(ids):
                return self._add(f"{place}: {name}: expected at most {GRID} ids of images, each once")
        if not shown:
            return self._add(f"{place} shows no image")
        strange = [each for each in shown if not self._can_show(task, label, each)]
        if strange:
            return self._add(f"{place}: {len(strange)} of {len(shown)} images are none that a page shows there")
        if not set(selected) <= set(shown):
            return self._add(f"{place}: selects images that it does not show")
        return FinishedGrid(task, label, {each: self._asked.known[each] for each in shown}, frozenset(selected))

    def _can_show(self, task: Task, label: str, id: str) -> bool:
        """Whether a page of the dataset can show a picture under a label: of it, or as a control."""
        picture = self._asked.known.get(id)
        if isinstance(picture, RealControl):
            return task == "class" and self._asked.classes[picture.label] == label
        return picture is not None and (task == "class" or picture.shift in (label, self._asked.shifts[0]))

    def _refuse_twice(self, grids: Sequence[FinishedGrid]) -> None:
        seen: set[tuple[str, str, str]] = set()
        for grid in grids:
            answered = {(grid.task, grid.label, each) for each in grid.shown}
            if again := answered & seen:
                self._add(f"answers {len(again)} images twice under the {grid.task} {_shown(grid.label)}")
            seen |= answered

    def _has_keys(self, place: str, value: Mapping[str, Any], keys: set[str]) -> bool:
        missing, other = sorted(keys - value.keys()), sorted(value.keys() - keys)
        if missing:
            self._add(f"{place}lacks {', '.join(missing)}")
        if other:
            self._add(f"{place}holds {', '.join(map(_shown, other[:5]))}, which no page writes")
        return not missing and not other

    def _add(self, what: str) -> None:
        self._problems.append(f"{self._path} {what}" if what[0].islower() else f"{self._path}: {what}")


def _is_text(value: Any, form: re.Pattern[str]) -> bool:
    return isinstance(value, str) and form.fullmatch(value) is not None


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MOST_NAME


def _is_list(value: Any, most: int) -> bool:
    return isinstance(value, list) and len(value) <= most


def _shown(value: Any) -> str:
    """A stranger's value, short and in one line."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
