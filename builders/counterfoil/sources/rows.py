"""The rows of one split of an input dataset: columns by name, and images as they are encoded, on demand."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterfoil.errors import UserError


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a split, in order.

    dataset, split: as messages name them. count: how many rows. pinned: sha256 of what pins labels and images in their
    order; None where nothing does. column: one value a row. class_names: those of a column, or of what its lists hold;
    None where it has none. images: of some rows, encoded as the dataset stores them; None for a row without one. paths:
    of a folder of image files, each row's below that folder, with forward slashes; None of anything else.
    """

    dataset: str
    split: str
    count: int
    columns: tuple[str, ...]
    pinned: str | None
    column: Callable[[str], Sequence[Any]]
    class_names: Callable[[str], tuple[str, ...] | None]
    images: Callable[[Sequence[int]], Iterator[bytes | None]]
    paths: Callable[[], tuple[str, ...] | None] = lambda: None

    @property
    def place(self) -> str:
        return f"{self.dataset}, split {self.split}"

    def need(self, **wanted: str | None) -> None:
        """UserError, with the columns there are, for those that are not: key of the recipe's source → column."""
        missing = {key: column for key, column in wanted.items() if column is not None and column not in self.columns}
        if missing:
            keys = " and ".join(f"source.{key}" for key in missing)
            raise UserError(
                [f"source: '{self.dataset}' has no column '{column}'" for column in missing.values()],
                f"Its columns are {', '.join(self.columns)}; set {keys}.",
            )

    def numbers(self, column: str) -> np.ndarray:
        """Integer labels, int64 [n]. UserError for a column of anything else."""
        values = np.asarray(self.column(column))
        if values.dtype.kind not in "iu":
            raise UserError(f"source.label_column: '{column}' holds {values.dtype}, expected integer labels")
        return values.astype(np.int64)

    def texts(self, column: str, key: str) -> tuple[str, ...]:
        """A column's values as text, class names where it has them. UserError for a row that has none."""
        values, names = self.column(column), self.class_names(column)
        empty = [row for row, value in enumerate(values) if value is None]
        if empty:
            raise UserError(
                f"source.{key}: {self.place}: {len(empty)} rows have no {column}, such as row {empty[0]}",
                "Name a column that every row fills.",
            )
        known = {} if names is None else dict(enumerate(names))
        return tuple(str(known.get(value, value)) for value in values)

    def content(self, labels: np.ndarray) -> str:
        """The content id: sha256 of the pin where there is one, else over labels and image bytes in their order."""
        return self.pinned or hash_images(labels, self.images(range(len(labels))))


def hash_images(labels: np.ndarray, images: Iterable[bytes | None]) -> str:
    """sha256 over labels [n] and n encoded images, in order; a row without an image counts as that."""
    digest = hashlib.sha256(np.ascontiguousarray(labels, dtype="<i8").tobytes())
    for image in images:
        digest.update(b"-" if image is None else b"+" + hashlib.sha256(image).digest())
    return digest.hexdigest()
