"""Which class each label of a dataset means (by id, by name, or by the number that a recipe gives as source label), and
which conditions each row has.

A row that has none is no row without a value: an empty list says that nothing was found, and null that nobody looked.
Nothing is guessed: what stands in a row and in neither list of the recipe is refused, and so is every other value than
0 and 1 (CheXpert's -1, "uncertain", among them).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.data.tables import Rows
from counterfoil.errors import UserError, first_of
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.names import did_you_mean, plain_name, shown_labels
from counterfoil.recipe.schema_inputs import Conditions


@dataclass(frozen=True, slots=True)
class Labels:
    """A column of labels: one a row, text where they have names, else numbers, None for a row without; and `known`, the
    distinct ones: all that are declared, in their order, else all that occur, sorted."""

    values: Sequence[str | int | None]
    known: tuple[str | int, ...]

    def places(self, classes: Sequence[RecipeClass] | None, place: str, *, numbers: bool = False) -> NDArray[np.int64]:
        """Each row's position in `classes`, in `known` where there are none; -1 for a row of no class.

        `numbers`: a label's number is its source label, though it has a name. Raises as the functions below.
        """
        if classes is None:
            matched: Mapping[str | int, int] = {label: position for position, label in enumerate(self.known)}
        else:
            named = [label for label in self.known if isinstance(label, str)]
            if named and not numbers:
                matched = {**match_names(named, classes, place)}
            else:
                number = {label: order if named else label for order, label in enumerate(self.known)}
                found = match_numbers([int(each) for each in number.values()], classes, place)
                matched = {label: found[each] for label, each in number.items() if each in found}
        return np.asarray([-1 if v is None else matched.get(v, -1) for v in self.values], dtype=np.int64)

    def shown(self, row: int) -> str:
        value = self.values[row]
        return "no label" if value is None else str(value)


def labels_of(rows: Rows, column: str) -> Labels:
    """A column's labels. UserError for one that holds neither text nor integers, and for one of lists."""
    values, names = rows.column(column), rows.class_names(column)
    if any(isinstance(value, list | tuple | np.ndarray) for value in values):
        raise UserError(
            f"source.label_column: {rows.place}: '{column}' holds lists, so a row has several labels",
            "List the labels that you want in source.conditions.",
        )
    if names is not None:
        # A number that names nothing (-1, by custom) says that a row has no label.
        return Labels([names[v] if v is not None and 0 <= v < len(names) else None for v in values], names)
    if any(isinstance(value, str) for value in values):
        texts = [value if isinstance(value, str) else None for value in values]
        return Labels(texts, tuple(sorted({text for text in texts if text is not None})))
    numbers = rows.numbers(column)
    return Labels(numbers, tuple(sorted({number for number in numbers if number is not None})))


def label_numbers(rows: Rows, column: str) -> NDArray[np.int64]:
    """Return labels as numbers, int64 [n]: as they are, of texts the place among those that occur, -1 for none.

    Raise UserError as `Rows.numbers` for a column of anything else.
    """
    if not any(isinstance(value, str) for value in rows.column(column)):
        return np.asarray([-1 if number is None else number for number in rows.numbers(column)], dtype=np.int64)
    labels = labels_of(rows, column)
    place = {label: number for number, label in enumerate(labels.known)}
    return np.asarray([-1 if value is None else place[value] for value in labels.values], dtype=np.int64)


def match_names(labels: Sequence[str], classes: Sequence[RecipeClass], place: str) -> dict[str, int]:
    """Label → position in `classes`, for those that have one: the class of that id, else of that name.

    Case, `_` and `-` do not count in names. UserError for a name that several classes have, and where nothing matches.
    """
    ids = {cls.id: position for position, cls in enumerate(classes)}
    names: dict[str, list[int]] = {}
    for position, cls in enumerate(classes):
        names.setdefault(plain_name(cls.name), []).append(position)
    matched, problems = {}, []
    for label in labels:
        found = [ids[label]] if label in ids else names.get(plain_name(label), [])
        if len(found) > 1:
            owners = ", ".join(classes[position].id for position in found)
            problems.append(f"{place}: label '{label}' is the name of several classes: {owners}")
        elif found:
            matched[label] = found[0]
    if problems:
        raise UserError(problems, "Use the class ids for these labels.")
    _refuse_strangers(matched, labels, [f"{cls.id} ({cls.name})" for cls in classes], place)
    return matched


def match_numbers(labels: Sequence[int], classes: Sequence[RecipeClass], place: str) -> dict[int, int]:
    """Label → position in `classes`, for those that are a class's source label. UserError where nothing matches."""
    positions: dict[int, int] = {}
    for position, cls in enumerate(classes):
        positions.setdefault(cls.source_label, position)
    matched = {label: positions[label] for label in labels if label in positions}
    _refuse_strangers(matched, labels, [f"{cls.source_label} ({cls.name})" for cls in classes], place)
    return matched


def _refuse_strangers(matched: Mapping[Any, int], labels: Sequence[object], known: Sequence[str], place: str) -> None:
    if not matched:
        raise UserError(
            [
                f"{place}: no label matches a class",
                f"  labels: {shown_labels(labels)}",
                f"  classes: {shown_labels(known)}",
            ],
            "Use the classes' ids or names as labels, or name another label column.",
        )


# As ChestX-ray14 writes them: "Cardiomegaly|Effusion".
SEPARATOR = "|"
_MOST_PROBLEMS = 20
NONE = "none of the conditions"


@dataclass(frozen=True, slots=True)
class ConditionLabels:
    """The conditions that n rows have: `present` bool [n, K], a column for each of the `names`.

    Condition k is two labels: 2k, to have it, and 2k + 1, not to.
    """

    names: tuple[str, ...]
    present: NDArray[np.bool_]

    def of_label(self, label: int) -> NDArray[np.bool_]:
        """bool [n]: the rows of a label. Each row has K labels."""
        return self.present[:, label // 2] != bool(label % 2)

    def sets(self) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """The set of conditions that each row has: its number, int64 [n], and what the sets that occur are called."""
        found, numbers = np.unique(self.present, axis=0, return_inverse=True)
        names = [", ".join(self.names[k] for k in np.flatnonzero(row)) or NONE for row in found]
        return numbers.reshape(-1).astype(np.int64), tuple(names)


def conditions_of(rows: Rows, label_column: str, conditions: Conditions) -> ConditionLabels:
    """The conditions of every row, by `label_column` or by columns of their own, as the recipe says.

    UserError, collected, with the rows: for a label that the recipe does not know, a row without a value, a value that
    is neither 0 nor 1, a column that is not there, and a condition that the column's own names of labels lack.
    """
    if conditions.labels:
        rows.need(label_column=label_column)
        return ConditionLabels(conditions.names, _by_labels(rows, label_column, conditions))
    missing = [name for name in conditions.columns if name not in rows.columns]
    if missing:
        raise UserError(
            [
                f"source.conditions.columns: {rows.place} has no column '{name}'{did_you_mean(name, rows.columns)}"
                for name in missing[:_MOST_PROBLEMS]
            ],
            f"Its columns are {', '.join(rows.columns)}.",
        )
    return ConditionLabels(conditions.names, _by_columns(rows, conditions.columns))


def _by_labels(rows: Rows, column: str, conditions: Conditions) -> NDArray[np.bool_]:
    values, names = rows.column(column), rows.class_names(column)
    _refuse_unnamed(rows, conditions, names)
    places = {name: k for k, name in enumerate(conditions.labels)} | dict.fromkeys(conditions.others, -1)
    present = np.zeros((len(values), len(conditions.labels)), dtype=bool)
    empty: list[int] = []
    unknown: dict[str, list[int]] = {}
    for row, value in enumerate(values):
        labels = _labels_in(value, names)
        if labels is None:
            empty.append(row)
            continue
        for label in labels:
            place = places.get(label)
            if place is None:
                unknown.setdefault(label, []).append(row)
            elif place >= 0:
                present[row, place] = True
    known = list(places)
    problems = [
        *_empty_rows(rows, column, empty),
        *(
            f"{rows.place}: {_counted(own)} the label '{label[:80]}', which the recipe does not know"
            f"{did_you_mean(label[:80], known)}"
            for label, own in islice(unknown.items(), _MOST_PROBLEMS)
        ),
        *([f"… and {len(unknown) - _MOST_PROBLEMS} more labels"] if len(unknown) > _MOST_PROBLEMS else []),
    ]
    if problems:
        raise UserError(
            problems,
            "List every label in source.conditions.labels, or in `others` if you do not need it. A row without"
            " a condition holds an empty list or one of the others.",
        )
    return present


def _labels_in(value: Any, names: tuple[str, ...] | None) -> list[str] | None:
    """The labels of a cell; None for one without a value."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(SEPARATOR)] if value.strip() else None
    if isinstance(value, list | tuple | np.ndarray):
        return [_label_text(one, names) for one in value]
    return None if value is None or value != value else [_label_text(value, names)]


def _label_text(value: Any, names: tuple[str, ...] | None) -> str:
    """A label as text: its name, where the column names it."""
    number = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return names[value] if names is not None and number and 0 <= value < len(names) else str(value)


def _refuse_unnamed(rows: Rows, conditions: Conditions, names: tuple[str, ...] | None) -> None:
    """UserError for conditions that a column of named labels has no name for: no row could have them."""
    missing = [] if names is None else [name for name in conditions.labels if name not in names]
    if missing and names is not None:
        raise UserError(
            [
                f"source.conditions.labels: {rows.place} has no label '{name}'{did_you_mean(name, names)}"
                for name in missing[:_MOST_PROBLEMS]
            ],
            f"Its labels are {', '.join(names[:_MOST_PROBLEMS])}.",
        )


def _by_columns(rows: Rows, columns: Sequence[str]) -> NDArray[np.bool_]:
    problems: list[str] = []
    found: list[NDArray[np.bool_]] = []
    for column in columns:
        values = rows.column(column)
        problems += _empty_rows(rows, column, [row for row, value in enumerate(values) if _is_none(value)])
        wrong = {row: value for row, value in enumerate(values) if not _is_none(value) and not _is_bit(value)}
        if wrong:
            row, value = next(iter(wrong.items()))
            problems.append(
                f"{rows.place}: column '{column}' holds {str(value)[:40]!r} in row {row}"
                f"{_more(len(wrong) - 1, 'such value')}, expected 0 or 1"
            )
        found.append(np.asarray([value == 1 for value in values], dtype=bool))
    if problems:
        raise UserError(
            first_of(problems, _MOST_PROBLEMS),
            "Leave these rows out of the input dataset, or fill in their conditions.",
        )
    return np.stack(found, axis=1)


def _is_none(value: Any) -> bool:
    return value is None or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def _is_bit(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.bool_ | np.number) and value in (0, 1)


def _empty_rows(rows: Rows, column: str, empty: Sequence[int]) -> Iterator[str]:
    if empty:
        what = "1 row has" if len(empty) == 1 else f"{len(empty):,} rows have"
        yield f"{rows.place}: {what} no value in '{column}', such as row {empty[0]}"


def _counted(own: Sequence[int]) -> str:
    return f"row {own[0]}{_more(len(own) - 1, 'other')} {'have' if len(own) > 1 else 'has'}"


def _more(count: int, what: str) -> str:
    return "" if count <= 0 else f" and {count:,} {what}{'s' if count > 1 else ''}"
