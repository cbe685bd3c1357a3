"""Read a split of an input dataset by the recipe's `source:` key and its pin: the lab's, a folder's or the Hub's."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from counterfoil.errors import UserError
from counterfoil.models.names import LAB
from counterfoil.recipe import sha256_json
from counterfoil.sources.class_matching import label_numbers
from counterfoil.sources.condition_labels import ConditionLabels, conditions_of
from counterfoil.sources.lab_datasets import LabDataset, lab_dataset
from counterfoil.sources.pins import InputDataset, SourcePin, pin_source
from counterfoil.sources.rows import Rows
from counterfoil.sources.tables import (
    Outline,
    table_configs,
    table_outline,
    table_rows,
    table_rows_by_split,
    table_splits,
)
from counterfoil.store.decoding import UnreadableImage, rgb_image

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True, slots=True)
class SourceSplit:
    """One split: `labels` int64 [n] are the input dataset's own; `image(row)` decodes one image as RGB.

    rows: all that the dataset holds. unit_column: as the recipe names it; only who asks for units needs it. conditions:
    what rows have, where they may have several; `labels` then number the sets of conditions that occur.
    """

    name: str
    labels: np.ndarray
    image: Callable[[int], Image.Image]
    rows: Rows
    unit_column: str | None = None
    conditions: ConditionLabels | None = None

    def rows_of(self, source_label: int) -> np.ndarray:
        """Rows of one class, in order."""
        if self.conditions is not None:
            return np.flatnonzero(self.conditions.of_label(source_label))
        return np.flatnonzero(self.labels == source_label)

    def units(self) -> tuple[str, ...] | None:
        """What rows share, one text a row; None where the recipe names no column. UserError for a missing column."""
        if self.unit_column is None:
            return None
        self.rows.need(unit_column=self.unit_column)
        return self.rows.texts(self.unit_column, "unit_column")

    def content(self) -> str:
        """sha256 of labels and images in their order, by the pin where it tells; else every image is read."""
        return self.rows.content(self.labels)


def load_source(source: InputDataset, split: str, pin: SourcePin | None = None) -> SourceSplit:
    """Read a split as it is pinned; pinned now, unless a pin is given.

    UserError for a dataset, split or column that is not there; RunFailure without network, or where a folder is no
    longer what was pinned.
    """
    rows = read_rows(source, split, pin or pin_source(source))
    conditions = None if source.conditions is None else conditions_of(rows, source.label_column, source.conditions)
    labels = label_numbers(rows, source.label_column) if conditions is None else conditions.sets()[0]
    image = image_of(source, split, rows)
    return SourceSplit(f"{source.dataset}/{split}", labels, image, rows, source.unit_column, conditions)


def read_rows(source: InputDataset, split: str, pin: SourcePin, *, labelled: bool = True) -> Rows:
    """The rows of a split as it is pinned, with its images, and its labels where it must be `labelled`.

    Raises as `load_source`.
    """
    if source.dataset.startswith(LAB):
        return _lab_rows(lab_dataset(source.dataset), split)
    by_columns = source.conditions is not None and bool(source.conditions.columns)
    return table_rows(source, split, pin, labelled=labelled and not by_columns)


def read_rows_by_split(source: InputDataset, splits: Sequence[str], pin: SourcePin) -> dict[str, Rows]:
    """The rows of those of the splits that there are, else of the first, loaded at once. Raises as `load_source`."""
    if source.dataset.startswith(LAB):
        return {split: _lab_rows(lab_dataset(source.dataset), split) for split in splits}
    return table_rows_by_split(source, splits, pin)


def source_splits(source: InputDataset, pin: SourcePin) -> tuple[str, ...]:
    """The names of a dataset's splits; none for a table that was saved without. Raises as `load_source`."""
    return lab_dataset(source.dataset).splits if source.dataset.startswith(LAB) else table_splits(source, pin)


def source_configs(source: InputDataset, pin: SourcePin) -> tuple[str, ...]:
    """The names of a dataset's configs; none for one without. Raises as `load_source`."""
    return () if source.dataset.startswith(LAB) else table_configs(source, pin)


def source_outline(source: InputDataset, pin: SourcePin, most_bytes: int) -> Outline:
    """A dataset's splits and columns, whatever these are called. See `table_outline`; the lab's are as they are."""
    if not source.dataset.startswith(LAB):
        return table_outline(source, pin, most_bytes)
    dataset = lab_dataset(source.dataset)
    kinds = {"image": "image", "label": "integers"}
    rows = {split: len(dataset.labels(split)) for split in dataset.splits}
    return Outline(rows, {column: kinds.get(column, "text") for column in dataset.columns}, {})


def _lab_rows(dataset: LabDataset, split: str) -> Rows:
    dataset.need_split(split)
    labels = dataset.labels(split)

    def images(rows: Sequence[int]) -> Iterator[bytes]:
        for row in rows:
            yield _lab_image(dataset.name, split, int(row))

    return Rows(
        dataset=dataset.name,
        split=split,
        count=len(labels),
        columns=dataset.columns,
        pinned=sha256_json({"dataset": dataset.name, "version": dataset.version, "split": split}),
        column=lambda column: dataset.garments(split) if column == "garment" else labels.tolist(),
        class_names=lambda column: None,
        images=images,
    )


@lru_cache(maxsize=8192)  # some 40 MB; whatever is measured looks at the same rows
def _lab_image(name: str, split: str, row: int) -> bytes:
    stream = io.BytesIO()
    _rendered(lab_dataset(name), split, row).save(stream, "PNG")
    return stream.getvalue()


def image_of(source: InputDataset, split: str, rows: Rows) -> Callable[[int], Image.Image]:
    """A function from a row to its image as RGB. It raises UserError for one that cannot be decoded."""
    if source.dataset.startswith(LAB):
        dataset = lab_dataset(source.dataset)
        return lambda row: _rendered(dataset, split, row)

    def image(row: int) -> Image.Image:
        try:
            return rgb_image(next(rows.images([row])), photograph=True)
        except UnreadableImage as error:
            paths = rows.paths()
            place = f"{rows.place}, row {row}" + ("" if paths is None else f", {paths[row]}")
            raise UserError(
                f"source: {place}: unreadable image ({error})",
                "Remove or replace this row of the input dataset.",
            ) from error

    return image


def _rendered(dataset: LabDataset, split: str, row: int) -> Image.Image:
    from PIL import Image

    return Image.fromarray(dataset.pixels(split, row))
