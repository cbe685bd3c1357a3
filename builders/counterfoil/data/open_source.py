"""Open an input dataset (of the lab, a folder or the Hub) under its pin:
`open_source(recipe.source).rows("train")`."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.data.messages import refusal
from counterfoil.data.pins import InputDataset, SourcePin, binary_columns, take_pin
from counterfoil.data.tables import (
    Outline,
    Rows,
    declared_names,
    is_here,
    load_table,
    plain_folder,
    rows_of_table,
    table_configs,
    table_outline,
)
from counterfoil.documents import sha256_json
from counterfoil.errors import CounterfoilError
from counterfoil.models.names import COMMIT, LAB
from counterfoil.recipe.names import MOST_LABELS, did_you_mean, is_local
from counterfoil.recipe.tasks.masks import MASK

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

    from counterfoil.data.image_folders import ImageFolder
    from counterfoil.data.labels import ConditionLabels
    from counterfoil.recipe import RecipeClass
    from counterfoil.recipe.schema_inputs import Source

# The largest local dataset that is read while a person waits for a recipe to be checked.
_MOST_BYTES = 1 << 30
_MOST_FILES = 100_000
_PLANTED = "planted/"


def open_source(
    source: InputDataset,
    recorded: Any = None,
    *,
    pin: SourcePin | None = None,
    as_recorded: bool = False,
) -> OpenSource:
    """Open a dataset under `pin`. Without a pin, pin the dataset now, or use `recorded` if its
    present state cannot be found out.

    recorded: a pin's document, of any form. as_recorded: open the recorded commit, whatever commit
    the branch has now.
    """
    if source.dataset.startswith(LAB):
        world = lab_dataset(source.dataset)
        return _LabSource(source, pin or SourcePin(source.dataset, world.version, "mit"), world)
    known = SourcePin.of(recorded)
    if pin is None and as_recorded and known is not None:
        same = known.dataset == source.dataset
        pin = known if same and known.revision and COMMIT.fullmatch(known.revision) else None
    return OpenSource(source, pin or take_pin(source, known))


class OpenSource:
    """A pinned input dataset.

    Methods raise UserError for a missing dataset, split or column. They raise RunFailure if the
    network is needed and missing, or if a folder has changed since it was pinned.
    """

    def __init__(self, source: InputDataset, pin: SourcePin) -> None:
        self.source = source
        self.pin = pin

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits. A table that was saved without splits has no names."""
        loaded = load_table(self.source, None, self.pin)
        return tuple(loaded) if isinstance(loaded, dict) else ()

    @property
    def configs(self) -> tuple[str, ...]:
        """The names of the configs; empty for a dataset without configs."""
        return table_configs(self.source, self.pin)

    def outline(self, most_bytes: int) -> Outline:
        """Return the splits and columns of any name. See `table_outline`."""
        return table_outline(self.source, self.pin, most_bytes)

    def rows(self, split: str, *, labelled: bool = True) -> Rows:
        """Return the rows of a split. Raise UserError if it has no images, or if `labelled` and it
        has no labels."""
        table = load_table(self.source, split, self.pin)
        return self._rows(split, table, labelled=labelled and not binary_columns(self.source))

    def _rows(self, split: str, table: Any, *, labelled: bool = True) -> Rows:
        lacks_labels = labelled and self.source.label_column not in table.column_names
        if lacks_labels and self.folder is not None:
            problem = self.folder.classless(split)
            if problem is not None:
                raise problem
        rows = rows_of_table(self.source, split, self.pin, table, labelled=labelled)
        return replace(rows, numbering=self._numbering)

    @cached_property
    def folder(self) -> ImageFolder | None:
        """The folder of image files if the dataset is one, otherwise None."""
        return plain_folder(self.source, self.pin)

    def rows_by_split(self, splits: Sequence[str]) -> dict[str, Rows]:
        """Load the rows of all `splits` that exist, or of the dataset's first split if none
        exists."""
        loaded = load_table(self.source, None, self.pin)
        tables = loaded
        if not isinstance(loaded, dict):
            tables = dict.fromkeys(splits[:1], loaded)
        chosen = [split for split in dict.fromkeys(splits) if split in tables]
        chosen = chosen or [*tables][:1]
        return {split: self._rows(split, tables[split]) for split in chosen}

    def split(self, name: str) -> SourceSplit:
        """Return a split with its labels as numbers, and its images."""
        from counterfoil.data.labels import conditions_of, label_numbers

        source = self.source
        rows = self.rows(name)
        conditions = None
        if source.conditions is None:
            labels = label_numbers(rows, source.label_column)
        else:
            conditions = conditions_of(rows, source)
            labels, _ = conditions.sets()
        return SourceSplit(f"{source.dataset}/{name}", labels, rows.image, rows, conditions)

    def names(self, splits: Sequence[str], *, fetch: bool = True) -> tuple[str, ...]:
        """Return the names by label. If the dataset does not declare names, they are read from
        `splits`.

        fetch: whether names may be downloaded. Raise UserError for labels without names, or if two
        splits have different names.
        """
        source = self.source
        where = f"source: '{source.dataset}'"
        column = source.label_column
        names = declared_names(source, self.pin)
        if names is None:
            if not fetch and not is_local(source.dataset) and not is_here(source, self.pin):
                raise refusal("hub-unreachable.labels", where)
            read = self._texts(splits)
            for _, texts, whole in read:
                if not whole or not texts:
                    raise refusal("unclear-label.numbers", where, column)
            names = self._longest(read, alike=True)
        if len(names) > MOST_LABELS:
            raise refusal("too-much-data.labels", where, len(names), MOST_LABELS, column=column)
        return names

    def _numbering(self) -> tuple[str, ...]:
        """Return the labels of text by source label. Raise UserError if the splits that number them
        differ in what a number means."""
        splits = self.source.numbering_splits
        if not splits:
            return ()
        read = self._texts(splits)
        return self._longest(read, alike=False)

    def _texts(self, splits: Sequence[str]) -> list[tuple[str, tuple[str, ...], bool]]:
        """Return the labels of text of each split, sorted, and whether all its labels are text."""
        from counterfoil.data.labels import labels_of

        read = []
        for split, rows in self.rows_by_split(splits).items():
            known = labels_of(rows, self.source.label_column).known
            texts = tuple(label for label in known if isinstance(label, str))
            whole = len(texts) == len(known)
            read.append((split, texts, whole))
        return read

    def _longest(
        self, read: Sequence[tuple[str, tuple[str, ...], bool]], *, alike: bool
    ) -> tuple[str, ...]:
        """Return the longest of these lists of labels. Raise UserError if a number has another
        meaning in another split; `alike`: or none.
        """
        # Text labels are numbered by the labels that occur, so two splits may number them
        # differently.
        first, names, _ = read[0]
        for other, other_names, _ in read[1:]:
            for label, (name, other_name) in enumerate(zip_longest(names, other_names)):
                if name == other_name:
                    continue
                if not alike and None in (name, other_name):
                    continue
                shown = f"'{name}'" if name else "none"
                other_shown = f"'{other_name}'" if other_name else "none"
                meanings = f"{shown} in {first} and {other_shown} in {other}"
                where = f"source: '{self.source.dataset}'"
                column = self.source.label_column
                raise refusal("unclear-label.splits", where, meanings, label=label, column=column)
        lists = [texts for _, texts, _ in read]
        return max(lists, key=len)


@dataclass(frozen=True, slots=True)
class SourceSplit:
    """One split. `labels` is int64 [n]; with conditions, a label is the number of a set.
    `image(row)` decodes one image as RGB.
    """

    name: str
    labels: np.ndarray
    image: Callable[[int], Image.Image]
    rows: Rows
    conditions: ConditionLabels | None = None

    def rows_of(self, source_label: int) -> np.ndarray:
        """Return the rows of one class, in order."""
        if self.conditions is not None:
            return self.conditions.of_label(source_label).nonzero()[0]
        return (self.labels == source_label).nonzero()[0]


def names_at_hand(source: InputDataset, splits: Sequence[str]) -> tuple[str, ...] | None:
    """Return the names by label if they can be read quickly without asking the Hub, otherwise
    None."""
    if source.conditions is not None or source.objects is not None:
        return None
    with contextlib.suppress(CounterfoilError, OSError):
        if source.dataset.startswith(LAB):
            from counterfoil.lab.vocabulary import CLASSES

            worlds = (f"{LAB}wardrobe", f"{LAB}wardrobe-boxes")
            return CLASSES if source.dataset in worlds else lab_dataset(source.dataset).names
        if is_local(source.dataset):
            folder = Path(source.dataset)
            small = folder.is_dir() and is_small(folder)
            return open_source(source).names(splits) if small else None
        # Importing `datasets` takes seconds. If this machine has no prepared tables, the import
        # would find nothing.
        home = (
            os.environ.get("HF_HOME")
            or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
        )
        tables = Path(os.environ.get("HF_DATASETS_CACHE") or Path(home) / "datasets")
        if tables.expanduser().is_dir():
            return declared_names(source, None)
    return None


def trained_names(source: Source, classes: Sequence[RecipeClass]) -> Sequence[str] | None:
    """Return the names of all labels by number, for a model that may have learned from more classes
    than `classes`.

    Return an empty sequence if these are names of class folders that are not on this machine, and
    None if `classes` are all or the names are not known.
    """
    labels = {cls.source_label for cls in classes}
    if labels == set(range(len(labels))):  # also those of images with conditions or objects
        return None
    if is_local(source.dataset):
        if not Path(source.dataset).is_dir():
            return ()
        with contextlib.suppress(CounterfoilError, OSError):
            if (images := plain_folder(source)) is not None and images.classes:
                return images.classes
    return names_at_hand(source, (source.train_split, source.validation_split))


def is_small(folder: Path, most_bytes: int = _MOST_BYTES) -> bool:
    """Check whether a folder can be read quickly. The check stops once the folder is too large."""
    size = 0
    for files, file in enumerate(folder.rglob("*"), start=1):
        size += file.stat().st_size if file.is_file() else 0
        if files > _MOST_FILES or size > most_bytes:
            return False
    return True


@dataclass(frozen=True, slots=True)
class LabDataset:
    """An input dataset of the lab, which is rendered on access.

    version: the pin. names: the names of labels or categories. rows: split → number of rows.
    columns: name → values of a split's rows. pixels(split, row): uint8 [height, width, 3].
    masks(split, row): the class of each pixel, uint8 [height, width]; None if images have no masks.
    """

    name: str
    version: str
    names: tuple[str, ...]
    rows: Mapping[str, int]
    columns: Mapping[str, Callable[[str], Sequence[Any]]]
    pixels: Callable[[str, int], np.ndarray]
    masks: Callable[[str, int], np.ndarray] | None = None


class _LabSource(OpenSource):
    """A dataset of the lab, rendered on access."""

    def __init__(self, source: InputDataset, pin: SourcePin, world: LabDataset) -> None:
        super().__init__(source, pin)
        self.world = world

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.world.rows)

    @property
    def configs(self) -> tuple[str, ...]:
        return ()

    def names(self, splits: Sequence[str], *, fetch: bool = True) -> tuple[str, ...]:
        return self.world.names

    def outline(self, most_bytes: int) -> Outline:
        kinds = {"label": "integers", "garment": "text", "objects": "objects"}
        columns = {column: kinds[column] for column in self.world.columns}
        if self.world.masks is not None:
            columns[MASK] = "image"
        names = {"objects": self.world.names} if "objects" in columns else {}
        return Outline(self.world.rows, {"image": "image"} | columns, names)

    def rows_by_split(self, splits: Sequence[str]) -> dict[str, Rows]:
        return {split: self.rows(split) for split in splits}

    def rows(self, split: str, *, labelled: bool = True) -> Rows:
        world = self.world
        if split not in world.rows:
            raise refusal("unknown-split.dataset", f"source: '{world.name}'", split, world.rows)

        def images(rows: Sequence[int]) -> Iterator[bytes]:
            for row in rows:
                yield _lab_image(world.name, split, int(row))

        def masks(column: str, rows: Sequence[int]) -> Iterator[bytes]:
            from counterfoil.data.masks import encoded_mask

            if world.masks is None:
                return
            for row in rows:
                mask = world.masks(split, row)
                yield encoded_mask(mask)

        def values(column: str) -> Sequence[Any]:
            if column in world.columns:
                return world.columns[column](split)
            # A picture has no value.
            return [None] * world.rows[split]

        columns = ["image", *world.columns]
        if world.masks is not None:
            columns.append(MASK)
        rows = Rows(
            dataset=world.name,
            split=split,
            count=world.rows[split],
            columns=tuple(columns),
            pinned=sha256_json({"dataset": world.name, "version": world.version, "split": split}),
            column=values,
            class_names=lambda column: world.names if column == "objects" else None,
            images=images,
            pictures=masks,
            rendered=lambda row: _rendered(world, split, row),
        )
        if labelled and not binary_columns(self.source):
            rows.need(label_column=self.source.label_column)
        return rows


@lru_cache(maxsize=8192)  # some 40 MB; measurements read the same rows again
def _lab_image(name: str, split: str, row: int) -> bytes:
    stream = io.BytesIO()
    _rendered(lab_dataset(name), split, row).save(stream, "PNG")
    return stream.getvalue()


def _rendered(world: LabDataset, split: str, row: int) -> Image.Image:
    from PIL import Image

    return Image.fromarray(world.pixels(split, row))


def lab_dataset(name: str) -> LabDataset:
    """Return the dataset `lab:NAME`. Raise UserError if the lab does not have it."""
    from counterfoil.lab import boxes, scenes
    from counterfoil.lab.planted import KINDS
    from counterfoil.lab.vocabulary import CLASSES

    short = name.removeprefix(LAB)
    if short == "wardrobe":
        columns = {
            "label": lambda split: scenes.load_wardrobe(split)[0].tolist(),
            "garment": scenes.wardrobe_garments,
        }
        rows = scenes.WARDROBE_ROWS
        return LabDataset(
            name,
            scenes.VERSION,
            CLASSES,
            rows,
            columns,
            lambda split, row: scenes.load_wardrobe(split)[1](row),
        )
    if short == "wardrobe-boxes":
        columns = {"objects": boxes.split_objects}
        return LabDataset(name, boxes.VERSION, CLASSES, boxes.ROWS, columns, boxes.split_pixels)
    if short == "wardrobe-masks":
        return LabDataset(
            name,
            boxes.VERSION,
            boxes.MASK_CLASSES,
            boxes.ROWS,
            {},
            boxes.split_pixels,
            boxes.split_mask,
        )
    if short.startswith(_PLANTED):
        return _planted(name, short.removeprefix(_PLANTED))
    known = ["wardrobe", "wardrobe-boxes", "wardrobe-masks"]
    known += [f"{_PLANTED}{kind}-0" for kind in KINDS]
    raise refusal("unknown-dataset.lab", "source.dataset", short, known)


def _planted(name: str, world_name: str) -> LabDataset:
    from counterfoil.lab import planted

    world = planted.named_world(world_name)
    if world is None:
        kind, _, seed = world_name.rpartition("-")
        if kind in planted.KINDS:
            hint = f": '{seed}' is not a seed"
        else:
            number = seed if seed.isdecimal() else 0
            hint = did_you_mean(world_name, [f"{known}-{number}" for known in planted.KINDS])
        raise refusal(
            "unknown-dataset.planted",
            "source.dataset",
            world_name,
            planted.KINDS[0],
            hint,
            known=planted.KINDS,
            most=planted.MOST_SEED,
        )
    columns = {"label": lambda split: world.labels(split).tolist(), "garment": world.garments}
    return LabDataset(name, planted.VERSION, world.class_names, planted.ROWS, columns, world.pixels)
