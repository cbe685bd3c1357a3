"""Which class each label of a dataset means: by id, by name, or by the number that a recipe gives as source label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.recipe import RecipeClass
from counterfoil.sources.label_agreement import plain_name, shown_labels
from counterfoil.sources.rows import Rows


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
            f"source.label_column: {rows.place}: '{column}' holds lists, so that a row has several labels",
            "Say in source.conditions which of them are asked for.",
        )
    if names is not None:
        # A number that names nothing (-1, by custom) says that a row has no label.
        return Labels([names[v] if v is not None and 0 <= v < len(names) else None for v in values], names)
    if any(isinstance(value, str) for value in values):
        texts = [value if isinstance(value, str) else None for value in values]
        return Labels(texts, tuple(sorted({text for text in texts if text is not None})))
    found = rows.numbers(column).tolist()
    return Labels(found, tuple(sorted(set(found))))


def label_numbers(rows: Rows, column: str) -> NDArray[np.int64]:
    """A column's labels as numbers, int64 [n]: as they are, or of texts the place among those that occur, sorted.

    UserError as `Rows.numbers` for a column of anything else.
    """
    values = rows.column(column)
    if not any(isinstance(value, str) for value in values):
        return rows.numbers(column)
    found = labels_of(rows, column)
    place = {label: number for number, label in enumerate(found.known)}
    return np.asarray([-1 if value is None else place[value] for value in found.values], dtype=np.int64)


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
        raise UserError(problems, "Call these labels by the ids of their classes.")
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
                f"{place}: no label is that of a class",
                f"  labels: {shown_labels(labels)}",
                f"  classes: {shown_labels(known)}",
            ],
            "Call the labels by the classes' ids or names, or name another label column.",
        )
