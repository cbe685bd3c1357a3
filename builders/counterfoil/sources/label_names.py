"""What an input dataset calls its labels, by label: the lab's, those that it declares, its folders, or sorted texts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.errors import CounterfoilError, UserError
from counterfoil.models.names import LAB
from counterfoil.recipe.names import is_local
from counterfoil.sources.lab_datasets import lab_names
from counterfoil.sources.label_agreement import MOST_LABELS

if TYPE_CHECKING:
    from counterfoil.sources.pins import InputDataset, SourcePin
    from counterfoil.sources.rows import Rows

# What `datasets` makes a table of while a person waits for a recipe to be checked.
_MOST_BYTES, _MOST_FILES = 1 << 30, 100_000


def label_names(
    source: InputDataset, splits: Sequence[str], pin: SourcePin | None = None, *, fetch: bool = True
) -> tuple[str, ...]:
    """The names by label; read where the dataset does not declare them, of the `splits` that it has.

    `fetch` says whether a dataset of the Hub may be fetched for it, of any size. UserError where it may not, for labels
    without names, and where the same label has another name in another split; raises as `load_source`.
    """
    if source.dataset.startswith(LAB):
        return lab_names(source.dataset)
    from counterfoil.sources.input_datasets import read_rows_by_split
    from counterfoil.sources.pins import pin_source
    from counterfoil.sources.tables import declared_names

    pin = pin or pin_source(source)
    names = declared_names(source, pin)
    if names is None:
        if not fetch:
            _refuse_far(source, pin)
        there = read_rows_by_split(source, splits, pin)
        read = [(name, _names_of_split(source, rows)) for name, rows in there.items()]
        names = read[0][1]
        for split, others in read[1:]:
            _refuse_other_names(source, (read[0][0], names), (split, others))
    if len(names) > MOST_LABELS:
        raise UserError(
            f"source: '{source.dataset}' has {len(names):,} labels in the column '{source.label_column}', expected at"
            f" most {MOST_LABELS:,}",
            "Is it the column of the labels? Set source.label_column, or write the classes out with source_label.",
        )
    return names


def names_at_hand(source: InputDataset, splits: Sequence[str]) -> tuple[str, ...] | None:
    """The names by label where they are here and soon read; None where they are not, or there are none.

    The Hub is not asked. What is wrong with a dataset is told where it is loaded.
    """
    if source.conditions is not None:
        return None
    with contextlib.suppress(CounterfoilError, OSError):
        if source.dataset.startswith(LAB):
            return lab_names(source.dataset)
        if is_local(source.dataset):
            small = Path(source.dataset).is_dir() and _is_small(Path(source.dataset))
            return label_names(source, splits) if small else None
        if _has_read_tables():
            from counterfoil.sources.tables import declared_names

            return declared_names(source, None)
    return None


def _refuse_far(source: InputDataset, pin: SourcePin) -> None:
    """UserError for a dataset of the Hub that is not on this machine as it is pinned."""
    from counterfoil.sources.pins import prepared_folders

    if not is_local(source.dataset) and not any(folder.name == pin.revision for folder in prepared_folders(source)):
        raise UserError(
            f"'{source.dataset}' is not on this machine and declares no names of its labels: all of it would be fetched"
            " to read them",
            "`counterfoil build` fetches it.",
        )


def _is_small(folder: Path) -> bool:
    """Whether all of it is soon read; of a large one no more is looked at than tells so."""
    size = 0
    for files, file in enumerate(folder.rglob("*"), start=1):
        size += file.stat().st_size if file.is_file() else 0
        if files > _MOST_FILES or size > _MOST_BYTES:
            return False
    return True


def _has_read_tables() -> bool:
    """Whether `datasets`, which takes seconds to import, has anything on this machine."""
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(os.environ.get("HF_DATASETS_CACHE") or Path(home) / "datasets").expanduser().is_dir()


def _names_of_split(source: InputDataset, rows: Rows) -> tuple[str, ...]:
    from counterfoil.sources.class_matching import labels_of

    known = labels_of(rows, source.label_column).known
    names = tuple(label for label in known if isinstance(label, str))
    if len(names) < len(known) or not names:
        raise UserError(
            f"source: the labels of '{source.dataset}' (column '{source.label_column}') are numbers, and have no names",
            "Write each class out: {name: mug, source_label: 0}.",
        )
    return names


def _refuse_other_names(
    source: InputDataset, first: tuple[str, tuple[str, ...]], other: tuple[str, tuple[str, ...]]
) -> None:
    """Labels that are texts are numbered by the ones that occur, which a split without one of them shifts."""
    for label, (one, two) in enumerate(zip_longest(first[1], other[1])):
        if one != two:
            places = ((one, first[0]), (two, other[0]))
            shown = [f"'{name}' in {split}" if name else f"none in {split}" for name, split in places]
            raise UserError(
                f"source: label {label} of '{source.dataset}' is {' and '.join(shown)}: its number means no one class",
                f"Give each split the same labels, or declare those of '{source.label_column}' (a `ClassLabel`).",
            )
