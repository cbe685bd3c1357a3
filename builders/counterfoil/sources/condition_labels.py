"""Which conditions each row of an input dataset has: by lists of labels, texts parted by `|`, or columns of 0 and 1.

A row that has none is no row without a value: an empty list says that nothing was found, and null that nobody looked.
Nothing is guessed: what stands in a row and in neither list of the recipe is refused, and so is every other value than
0 and 1 (CheXpert's -1, "uncertain", among them).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.recipe.names import did_you_mean
from counterfoil.recipe.schema_inputs import Conditions
from counterfoil.sources.rows import Rows

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
        *_empty(rows, column, empty),
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
            "Every label stands in source.conditions.labels, or in `others` where it is not asked for; a row that has"
            " no condition holds an empty list, or one of the others.",
        )
    return present


def _labels_in(value: Any, names: tuple[str, ...] | None) -> list[str] | None:
    """The labels of a cell; None for one without a value."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(SEPARATOR)] if value.strip() else None
    if isinstance(value, list | tuple | np.ndarray):
        return [_label(one, names) for one in value]
    return None if value is None or value != value else [_label(value, names)]


def _label(value: Any, names: tuple[str, ...] | None) -> str:
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
        problems += _empty(rows, column, [row for row, value in enumerate(values) if _is_none(value)])
        wrong = {row: value for row, value in enumerate(values) if not _is_none(value) and not _is_bit(value)}
        if wrong:
            row, value = next(iter(wrong.items()))
            problems.append(
                f"{rows.place}: column '{column}' holds {str(value)[:40]!r} in row {row}"
                f"{_more(len(wrong) - 1, 'such value')}, expected 0 or 1"
            )
        found.append(np.asarray([value == 1 for value in values], dtype=bool))
    if problems:
        more = [f"… and {len(problems) - _MOST_PROBLEMS} more"] if len(problems) > _MOST_PROBLEMS else []
        raise UserError(
            [*problems[:_MOST_PROBLEMS], *more],
            "Leave these rows out of the input dataset, or decide what they have.",
        )
    return np.stack(found, axis=1)


def _is_none(value: Any) -> bool:
    return value is None or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


def _is_bit(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.bool_ | np.number) and value in (0, 1)


def _empty(rows: Rows, column: str, empty: Sequence[int]) -> Iterator[str]:
    if empty:
        what = "1 row has" if len(empty) == 1 else f"{len(empty):,} rows have"
        yield f"{rows.place}: {what} no value in '{column}', such as row {empty[0]}"


def _counted(own: Sequence[int]) -> str:
    return f"row {own[0]}{_more(len(own) - 1, 'other')} {'have' if len(own) > 1 else 'has'}"


def _more(count: int, what: str) -> str:
    return "" if count <= 0 else f" and {count:,} {what}{'s' if count > 1 else ''}"
