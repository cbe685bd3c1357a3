"""Which class each label of a dataset means: by id, by name, or by the number that a recipe gives as source label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.names import did_you_mean
from counterfoil.sources.rows import Rows

_MOST_SHOWN = 20
# A list of labels of which each is another is no list of classes, but of captions.
MOST_LABELS = 20_000


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
        names.setdefault(_plain(cls.name), []).append(position)
    matched, problems = {}, []
    for label in labels:
        found = [ids[label]] if label in ids else names.get(_plain(label), [])
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


def label_by_name(class_id: str, name: str, labels: Sequence[str]) -> tuple[int, ...]:
    """The labels that a class means by its id, else by its name: none, one, or several of one name."""
    exact = tuple(label for label, known in enumerate(labels) if known == class_id)
    plain = _plain(name)
    return exact or tuple(label for label, known in enumerate(labels) if _plain(known) == plain)


def disagreements(classes: Sequence[RecipeClass], labels: Sequence[str], place: str) -> list[str]:
    """What classes say of their source labels that the names of these labels contradict, a line for each class.

    A name that no label has says nothing: people call classes by other names than datasets do. `labels` are the names
    by label, `place` is whose they are.
    """
    by_name: dict[str, list[int]] = {}
    for label, name in enumerate(labels):
        by_name.setdefault(_plain(name), []).append(label)
    by_id = {name: label for label, name in enumerate(labels)}
    problems = []
    for cls in classes:
        where = f"source.classes[{cls.label}]: '{cls.name[:80]}' has the source_label {cls.source_label}"
        if cls.source_label >= len(labels):
            problems.append(f"{where}, and {place} has the labels 0 to {len(labels) - 1}")
            continue
        own = labels[cls.source_label]
        if cls.id == own or _plain(cls.name) in {_plain(own), *map(_plain, own.split(","))}:
            continue
        meant = [by_id[cls.id]] if cls.id in by_id else by_name.get(_plain(cls.name), [])
        if meant and cls.source_label not in meant:
            numbers = " or ".join(map(str, meant[:3]))
            problems.append(f"{where}, which is '{own[:80]}' in {place}; write {numbers}")
    return problems


def refuse_disagreements(classes: Sequence[RecipeClass], labels: Sequence[str], place: str) -> None:
    """UserError where the names of an input dataset's labels say that classes have the source labels of others."""
    problems = disagreements(classes, labels, place)
    if problems:
        more = [f"… and {len(problems) - _MOST_SHOWN:,} more"] if len(problems) > _MOST_SHOWN else []
        raise UserError(
            [*problems[:_MOST_SHOWN], *more],
            "Leave source_label out, and it is that of the name; or write the numbers of the input dataset.",
        )


def named_problem(name: str, found: Sequence[int], labels: Sequence[str], place: str) -> str | None:
    """Why a class has no source label by its name: no label is called so, or several are; None where one is."""
    if len(found) == 1:
        return None
    if found:
        return (
            f"'{name[:80]}' is the name of the labels {', '.join(map(str, found[:10]))} of {place}; write source_label"
        )
    near = did_you_mean(name, labels) if len(labels) <= MOST_LABELS else ""
    return f"no label of {place} is called '{name[:80]}'{near} (its labels: {_shown(labels)})"


def _plain(name: str) -> str:
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())


def _refuse_strangers(matched: Mapping[Any, int], labels: Sequence[object], known: Sequence[str], place: str) -> None:
    if not matched:
        raise UserError(
            [f"{place}: no label is that of a class", f"  labels: {_shown(labels)}", f"  classes: {_shown(known)}"],
            "Call the labels by the classes' ids or names, or name another label column.",
        )


def _shown(values: Sequence[object]) -> str:
    more = len(values) - _MOST_SHOWN
    shown = ", ".join(str(value)[:80] for value in values[:_MOST_SHOWN]) or "none"
    return shown + (f" and {more} more" if more > 0 else "")
