"""The class that each label of a dataset means (by id, name, or source label), and the conditions
of each row.

Unlisted labels are refused. A condition is unknown where a cell is blank or holds CheXpert's -1
("uncertain"); the recipe says what becomes of it. Any other value is refused.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.arrays import Bools, Ints
from counterfoil.data.folder_splits import SPLIT_OF
from counterfoil.data.labelled_images import NO_LABEL
from counterfoil.data.messages import message, refusal
from counterfoil.data.pins import InputDataset
from counterfoil.data.tables import Rows
from counterfoil.data.truth import RowTruth
from counterfoil.data.written_objects import Size
from counterfoil.errors import ProblemLine, Problems, UserError
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.names import names_alike, plain_name, shown_labels
from counterfoil.recipe.schema_inputs import Conditions
from counterfoil.recipe.tasks.labels import CONDITIONS
from counterfoil.recipe.tasks.labels import UNKNOWN as UNKNOWN_CONDITIONS
from counterfoil.regular_files import on_a_line
from counterfoil.report.words import format_count, format_list


@dataclass(frozen=True, slots=True)
class Labels:
    """A column of labels. Labels are text if they have names, else numbers."""

    values: Sequence[str | int | None]
    known: tuple[str | int, ...]
    """All declared labels, or else all that occur."""

    def places(
        self, classes: Sequence[RecipeClass] | None, where: str, *, numbers: bool = False
    ) -> Ints:
        """Return (n,) positions in `classes`, or in `known`. A label without a class has the
        position -1. numbers: match by source label.
        """
        names = [label for label in self.known if isinstance(label, str)]
        matched: dict[str | int | None, int] = {}
        if classes is None:
            matched |= {label: position for position, label in enumerate(self.known)}
        elif names and not numbers:
            matched |= match_names(names, classes, where)
        else:
            sources: Sequence[int] = range(len(self.known))
            if not names:
                sources = [int(label) for label in self.known]
            positions = match_numbers(sources, classes, where)
            for label, number in zip(self.known, sources, strict=True):
                if number in positions:
                    matched[label] = positions[number]
        places = [matched.get(value, -1) for value in self.values]
        return np.asarray(places, dtype=np.int64)

    def shown(self, row: int) -> str:
        value = self.values[row]
        return NO_LABEL if value is None else str(value)


def labels_of(rows: Rows, column: str, *, numbered: bool = False) -> Labels:
    """Return a column's labels. Raise UserError for a column of lists, or of neither text nor
    integers.

    numbered: whether the labels are wanted by source label. Text that has none comes last.
    """
    values = rows.column(column)
    names = rows.class_names(column)
    if any(isinstance(value, list | tuple | np.ndarray) for value in values):
        raise refusal("unfit-column.lists", f"source.label_column: {rows.place}", column)
    if names is not None:
        # By custom a number without a name (-1) means that a row has no label.
        name_of = dict(enumerate(names))
        return Labels([name_of.get(value) for value in values], names)
    labels: list[Any] = list(values)
    known: tuple[str, ...] = ()
    if any(isinstance(value, str) for value in values):
        for row, value in enumerate(values):
            if not isinstance(value, str):
                labels[row] = None
        # A split that lacks a class numbers the others differently.
        known = rows.numbering() if numbered else ()
    else:
        labels = list(rows.numbers(column))
    others = {*labels}.difference(known, {None})
    known += tuple(sorted(others))
    return Labels(labels, known)


def refuse_alike(labels: Sequence[str], where: str, column: str) -> None:
    """Raise UserError for labels of text that differ in capitals, spaces, `_` or `-` alone, as a
    class does that several people wrote. Letters, such as a and A, may be classes of their own."""
    problems = Problems(message)
    for names in names_alike(labels):
        longest = max(map(len, names))
        if longest > 1:
            shown = [f"'{on_a_line(name)[:80]}'" for name in names]
            alike = format_list(shown)
            problems.add("unclear-label.texts", where, alike, column=column)
    problems.refuse()


# What programs write for a missing value, as text.
_MISSING = frozenset(("NA", "N/A", "#N/A", "<NA>", "nan", "NaN", "NAN", "null", "NULL"))


def doubtful_labels(labels: Labels) -> Iterator[str]:
    """Yield a sentence on each label that may mean that a row has none."""
    counts = Counter(labels.values)
    for label in labels.known:
        is_minus_one = label == -1 and 0 in labels.known
        if is_minus_one or label in _MISSING:
            images = format_count(counts[label], "image has", "images have")
            yield (
                f"{images} the label {label}, which counts as a class. If it means that there is"
                " none, leave the cell empty"
            )


_SPLIT_COLUMNS = frozenset(("split", "set", "subset", "partition"))


def joined_splits(rows: Rows) -> Iterator[str]:
    """Yield a sentence on each column by which the rows belong to several splits."""
    for column in rows.columns:
        if column.lower() not in _SPLIT_COLUMNS:
            continue
        counts = Counter[str]()
        with contextlib.suppress(UserError):  # a column of pictures
            counts.update(map(str, rows.column(column)))
        splits = {SPLIT_OF.get(value.lower()) for value in counts}
        if len(splits) > 1 and None not in splits:
            shown = [f"{value} ({count:,})" for value, count in counts.items()]
            yield (
                f"the column {column} says {format_list(shown)}, and all these images are read as"
                " one split. Put the images of each split into a folder or file of its own"
            )


def label_numbers(rows: Rows, column: str) -> Ints:
    """Return labels as numbers, int64 [n]. A text's number is its source label. A missing label is
    -1."""
    if any(isinstance(value, str) for value in rows.column(column)):
        return labels_of(rows, column, numbered=True).places(None, "")
    numbers = []
    for number in rows.numbers(column):
        numbers.append(-1 if number is None else number)
    return np.asarray(numbers, dtype=np.int64)


def match_names(
    labels: Sequence[str], classes: Sequence[RecipeClass], where: str
) -> dict[str, int]:
    """Return label → position in `classes`. A label matches a class by its id, or by its name
    without regard to case, `_` and `-`.

    Raise UserError for a name of several classes, and if no label matches.
    """
    ids: dict[str, list[int]] = {}
    names = defaultdict[str, list[int]](list)
    for position, cls in enumerate(classes):
        ids[cls.id] = [position]
        names[plain_name(cls.name)].append(position)
    matched = {}
    problems = Problems(message)
    for label in labels:
        positions = ids.get(label) or names.get(plain_name(label), [])
        if len(positions) > 1:
            owners = ", ".join(classes[position].id for position in positions)
            problems.add("unclear-label.name", where, label, owners)
        elif positions:
            matched[label] = positions[0]
    problems.refuse()
    known = [f"{cls.id} ({cls.name})" for cls in classes]
    _refuse_no_match(matched, labels, known, where)
    return matched


def match_numbers(
    labels: Sequence[int], classes: Sequence[RecipeClass], where: str
) -> dict[int, int]:
    """Return label → position in `classes`. A label matches a class with this source label. Raise
    UserError if no label matches.
    """
    positions = {}
    for position, cls in enumerate(classes):
        positions.setdefault(cls.source_label, position)
    matched = {label: positions[label] for label in labels if label in positions}
    known = [f"{cls.source_label} ({cls.name})" for cls in classes]
    _refuse_no_match(matched, labels, known, where)
    return matched


def _refuse_no_match(
    matched: Mapping[Any, int],
    labels: Sequence[object],
    known: Sequence[str],
    where: str,
) -> None:
    if not matched:
        raise UserError(
            [
                message("unknown-label.all", where),
                f"  labels: {shown_labels(labels)}",
                f"  classes: {shown_labels(known)}",
            ]
        )


# ChestX-ray14 separates the labels of a cell by this character: "Cardiomegaly|Effusion".
SEPARATOR = "|"
_UNFIT = "unfit-column.condition"
NONE = "none of the conditions"


PRESENT = 1
ABSENT = 0
UNKNOWN = -1
_BLANK = 2  # until the recipe's policy decides what it counts as


@dataclass(frozen=True, slots=True)
class ConditionLabels(RowTruth):
    """The conditions of n rows. Label 2k means that condition k is present, label 2k + 1 that it is
    absent; a row in which it is unknown has neither."""

    names: tuple[str, ...]
    values: NDArray[np.int8]
    """[n, K] of `PRESENT`, `ABSENT` and `UNKNOWN`."""
    notes: tuple[str, ...] = ()
    """Sentences on unknown conditions."""

    def columns(self, row: int, size: Size, stored: Size) -> dict[str, Any]:
        values = self.values[row]
        return {
            CONDITIONS: np.flatnonzero(values == PRESENT).tolist(),
            UNKNOWN_CONDITIONS: np.flatnonzero(values == UNKNOWN).tolist(),
        }

    @property
    def present(self) -> Bools:
        return self.values == PRESENT

    @property
    def unknown(self) -> Bools:
        return self.values == UNKNOWN

    def of_label(self, label: int) -> Bools:
        """Return the rows of a label, bool [n]."""
        return self.values[:, label // 2] == (ABSENT if label % 2 else PRESENT)

    def sets(self) -> tuple[Ints, tuple[str, ...]]:
        """Return the number of each row's set of conditions, int64 [n], and the names of all sets
        that occur."""
        values, numbers = np.unique(self.values, axis=0, return_inverse=True)
        names = tuple(map(self._name_of_set, values))
        return numbers.reshape(-1).astype(np.int64), names

    def _name_of_set(self, values: NDArray[np.int8]) -> str:
        present = [self.names[k] for k in np.flatnonzero(values == PRESENT)]
        unknown = [self.names[k] for k in np.flatnonzero(values == UNKNOWN)]
        name = ", ".join(present) or NONE
        return f"{name} ({', '.join(unknown)} unknown)" if unknown else name


def conditions_of(rows: Rows, source: InputDataset) -> ConditionLabels:
    """Return the conditions of every row, read from the label column or from one column for each
    condition. Raise UserError with all problems.
    """
    conditions = source.conditions
    assert conditions is not None
    notes: list[ProblemLine] = []
    if conditions.labels:
        cells = _by_labels(rows, source.label_column, conditions)
    else:
        cells = _by_columns(rows, conditions, notes)
    values = cells.copy()
    for code, policy, what in (
        (_BLANK, conditions.of_blank, "blank"),
        (UNKNOWN, conditions.unknown, "-1 (uncertain)"),
    ):
        value = ABSENT
        taken = "absent"
        if policy == "ignore":
            value = UNKNOWN
            taken = "unknown, and left out label by label"
        has_code = cells == code
        values[has_code] = value
        count = int(has_code.sum())
        if count:
            note = ProblemLine(
                f"{count:,} of {cells.size:,} labels are {what} and count as {taken}"
            )
            notes.append(note.at("source.conditions"))
    return ConditionLabels(conditions.names, values, tuple(notes))


def _by_labels(rows: Rows, column: str, conditions: Conditions) -> NDArray[np.int8]:
    """Return each condition of each row as the label column has it, [n, K]: `PRESENT`, `ABSENT`, or
    `_BLANK` in an empty cell."""
    rows.need(label_column=column)
    values = rows.column(column)
    names = rows.class_names(column)
    if names is not None:
        where = f"source.conditions.labels: {rows.place}"
        lacking = Problems(message)
        for name in conditions.labels:
            if name not in names:  # no row could have it
                lacking.add("unknown-label.condition", where, name, names)
        lacking.refuse()
    if _are_vectors(values):
        if names is None or len(names) != len(values[0]):
            raise refusal("unfit-column.vectors", f"source.label_column: {rows.place}", column)
        values = [np.flatnonzero(vector) for vector in values]
    columns = {name: k for k, name in enumerate(conditions.labels)}
    columns |= dict.fromkeys(conditions.others, -1)
    shape = (len(values), len(conditions.labels))
    cells = np.full(shape, ABSENT, np.int8)
    empty = []
    unknown = defaultdict[str, list[int]](list)
    for row, value in enumerate(values):
        labels = _labels_in(value, names)
        if labels is None:
            empty.append(row)
            continue
        for label in labels:
            if label not in columns:
                unknown[label].append(row)
            elif columns[label] >= 0:
                cells[row, columns[label]] = PRESENT
    problems = Problems(message)
    if conditions.of_blank == "refuse":
        _add_empty(problems, rows, column, empty)
    for label, with_label in unknown.items():
        first, *others = with_label
        name = "unknown-label.rows" if others else "unknown-label.row"
        problems.add(name, rows.place, label[:80], columns, row=first, others=len(others))
    problems.refuse(message.advice["unknown-label.rows"])
    cells[empty] = _BLANK
    return cells


def _are_vectors(values: Sequence[Any]) -> bool:
    """Return whether every cell has a 0 or a 1 for each label: a list of labels names none twice,
    and lists of objects' labels have several lengths."""
    if not values or not all(isinstance(value, list | tuple | np.ndarray) for value in values):
        return False
    lengths = {len(value) for value in values}
    if lengths == {0} or len(lengths) > 1:
        return False
    for value in values:
        for number in value:
            if not isinstance(number, int | float | np.number) or number not in (0, 1):
                return False
    return any(len({*value}) < len(value) for value in values)


def _labels_in(value: Any, names: tuple[str, ...] | None) -> list[str] | None:
    """Return the labels of a cell, or None for a cell without a value."""
    if isinstance(value, list | tuple | np.ndarray):
        return [_label_text(label, names) for label in value]
    if value is None or value != value:  # NaN
        return None
    if not isinstance(value, str):
        return [_label_text(value, names)]
    if not value.strip():
        return None
    return [part.strip() for part in value.split(SEPARATOR)]


def _label_text(value: Any, names: tuple[str, ...] | None) -> str:
    """Return a label as text: the label's name, if the column declares names."""
    number = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if names is not None and number and 0 <= value < len(names):
        return names[value]
    return str(value)


def _by_columns(rows: Rows, conditions: Conditions, notes: list[ProblemLine]) -> NDArray[np.int8]:
    """Return each condition of each row as its own column has it, [n, K]: `PRESENT`, `ABSENT`,
    `UNKNOWN` or `_BLANK`. notes: gets sentences on what names do not say."""
    where = f"source.conditions.columns: {rows.place}"
    lacking = Problems(message)
    for name in conditions.columns:
        if name not in rows.columns:
            lacking.add("missing-column.condition", where, name, rows.columns)
    lacking.refuse()
    allowed = [ABSENT, PRESENT, None]
    if conditions.unknown != "refuse":
        allowed.append(UNKNOWN)
    problems = Problems(message)
    shape = (rows.count, len(conditions.columns))
    cells = np.empty(shape, np.int8)
    for k, column in enumerate(conditions.columns):
        written = rows.column(column)
        names = rows.class_names(column)
        if names is not None:
            named = _named_conditions(column, names)
            if named is None:
                named = {}
                name = names[min(PRESENT, len(names) - 1)]
                note = ProblemLine(f"{column}: {name!r} counts as present, as its number 1 says")
                notes.append(note.at("source.conditions.columns"))
            written = [named.get(value, value) for value in written]
        values = list(map(condition_number, written))
        empty = [row for row, value in enumerate(values) if value is None]
        if conditions.of_blank == "refuse":
            _add_empty(problems, rows, column, empty)
        wrong = [row for row, value in enumerate(values) if value not in allowed]
        if wrong:
            value = rows.column(column)[wrong[0]]
            shown = str(value)[:40]
            if isinstance(value, str):
                shown = repr(shown)
            where = f"{rows.place}: column '{column}'"
            problems.add(_UNFIT, where, shown, rows=len(wrong), row=wrong[0])
            continue
        for row in empty:
            values[row] = _BLANK
        cells[:, k] = values
    problems.refuse(message.advice[_UNFIT])
    return cells


_WORDS = {"yes": PRESENT, "present": PRESENT, "positive": PRESENT}
_WORDS |= {"no": ABSENT, "absent": ABSENT, "negative": ABSENT}
_NEGATIONS = ("no ", "not ", "non ", "without ")


def _named_conditions(column: str, names: Sequence[str]) -> dict[Any, Any] | None:
    """Return number → value of a condition whose numbers have names, such as yes and no, or smiling
    and not smiling; None if the names do not say it."""
    plain = list(map(plain_name, names))
    numbers = [condition_number(_WORDS.get(name, name)) for name in plain]
    if not any(isinstance(number, str) for number in numbers):
        return dict(enumerate(numbers))
    if len(plain) != 2:
        return None
    for present, name in enumerate(plain):
        other = plain[1 - present]
        negated = [f"{word}{name}" for word in _NEGATIONS]
        is_column = name == plain_name(column)
        if other in negated or is_column:
            return {present: PRESENT, 1 - present: ABSENT}
    return None


_BLANKS = frozenset(("", "nan", "na", "n/a", "none", "null"))
_TRUTHS = {"true": PRESENT, "false": ABSENT}


def condition_number(value: Any) -> Any:
    """Return a cell's number (1 present, 0 absent, -1 uncertain), None for a blank cell, or a text
    that is no number.

    Files of text hold numbers as text.
    """
    if isinstance(value, str):
        text = value.strip().lower()
        if text in _BLANKS:
            return None
        try:
            value = _TRUTHS[text] if text in _TRUTHS else float(text)
        except ValueError:
            return value
    is_nan = isinstance(value, float | np.floating) and bool(np.isnan(value))
    return None if is_nan else value


def _add_empty(
    problems: Problems,
    rows: Rows,
    column: str,
    empty: Sequence[int],
) -> None:
    if empty:
        where = f"{rows.place}: column '{column}'"
        problems.add("missing-label.blank", where, len(empty), row=empty[0])
