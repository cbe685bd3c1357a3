"""Labelled images of an input dataset, which is a split of a recipe's source, or any named folder
or Hub dataset."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np

from counterfoil.arrays import Ints
from counterfoil.data.folders import refuse_among_inputs
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.data.labels import (
    ConditionLabels,
    conditions_of,
    doubtful_labels,
    joined_splits,
    labels_of,
    refuse_alike,
)
from counterfoil.data.messages import refusal
from counterfoil.data.open_source import OpenSource, open_source
from counterfoil.data.pins import InputDataset, SourcePin
from counterfoil.data.tables import EVERYTHING, Rows
from counterfoil.documents import sha256_json
from counterfoil.models.names import LAB
from counterfoil.recipe import RecipeClass
from counterfoil.recipe.names import refuse_disagreements
from counterfoil.recipe.schema_inputs import Conditions
from counterfoil.regular_files import named_path

_SPLIT = re.compile(r"(?P<dataset>.+):(?P<split>\w+)", re.DOTALL)
_ON_HUB = re.compile(r"(?P<dataset>\w[\w.-]*(/\w[\w.-]*)?)(@(?P<revision>[\w./-]+))?")
_NO_CLASS = "not told"


@dataclass(frozen=True, slots=True)
class NamedDataset:
    """A dataset that a person names, `DATASET[@REVISION][:SPLIT]`, with its columns (an
    `InputDataset`)."""

    dataset: str
    """A folder, `lab:NAME` or a name of the Hub."""
    split: str | None = None
    """A split, or None if the person names none."""
    revision: str | None = None
    """A commit, a tag or a branch of the Hub."""
    config: str | None = None
    """The config, if one is named."""
    image_column: str = "image"
    """The column of images."""
    label_column: str = "label"
    """The column of labels."""
    unit_column: str | None = None
    """The column that says which rows share a unit."""
    conditions: Conditions | None = None
    """The columns or labels of conditions, if an image may have several."""
    exif: Literal["apply", "ignore"] = "ignore"
    """`apply` if photographs are turned as their EXIF tag says."""
    objects: str | None = None
    """The column of objects."""
    mask_column: str | None = None
    """The column of masks."""
    numbering_splits: tuple[str, ...] = ()
    """The splits by which labels of text are numbered: those that a recipe names."""

    @classmethod
    def parse(cls, text: str | Path) -> NamedDataset:
        """Parse the name of an existing folder, `lab:NAME` or a Hub name. Raise UserError for any
        other text."""
        written = str(text)
        match = _SPLIT.fullmatch(written.removeprefix(LAB))
        if written.startswith(LAB):
            return cls(LAB + match["dataset"], match["split"]) if match else cls(written)
        name = written
        split = None
        if named_path(written).is_dir():
            return cls(str(named_path(written).resolve()))
        if match is not None:
            name = match["dataset"]
            split = match["split"]
            if named_path(name).is_dir():
                return cls(str(named_path(name).resolve()), split)
        on_hub = _ON_HUB.fullmatch(name)
        if on_hub is None:
            raise refusal("unknown-dataset.name", name[:200])
        return cls(on_hub["dataset"], split, on_hub["revision"])


def refuse_among_images(output: Path, dataset: str | Path) -> None:
    """Raise UserError for an output path inside the dataset that a person names, if it is a
    folder."""
    refuse_among_inputs(output, NamedDataset.parse(dataset).dataset)


def labelled_split(
    source: InputDataset,
    split: str,
    classes: Sequence[RecipeClass],
    pin: SourcePin | None = None,
    *,
    units: bool = True,
) -> LabelledImages:
    """Return a split of a recipe's input dataset, by its source labels. Rows with other labels are
    left out."""
    rows = open_source(source, pin=pin).rows(split)
    return _labelled([_part(rows, source, classes, numbers=True, units=units)])


def labelled_conditions(
    source: InputDataset,
    split: str,
    pin: SourcePin | None = None,
    *,
    units: bool = True,
) -> tuple[LabelledImages, ConditionLabels]:
    """Return every row of a split, and the conditions of each row. A label is the number of a set
    of conditions that occurs.
    """
    rows = open_source(source, pin=pin).rows(split)
    conditions = conditions_of(rows, source)
    labels, names = conditions.sets()
    values = hashlib.sha256(conditions.values.tobytes()).hexdigest()
    content = sha256_json([rows.content(labels), conditions.names, values])
    part = _chosen(rows, labels, content, names, source.unit_column if units else None)
    return _labelled([part]), conditions


def labelled_rows(
    source: InputDataset,
    split: str,
    classes: Sequence[RecipeClass],
    pin: SourcePin | None,
    *,
    units: bool = True,
) -> tuple[LabelledImages, ConditionLabels | None]:
    """Return the rows of a split by their conditions, with the conditions, or by source label if
    they have none."""
    if source.conditions is None:
        return labelled_split(source, split, classes, pin, units=units), None
    return labelled_conditions(source, split, pin, units=units)


def every_row(reference: NamedDataset, pin: SourcePin | None = None) -> tuple[LabelledImages, Rows]:
    """Return all images of a dataset that needs no labels, such as a pool, and its columns. Every
    label is 0."""
    rows = _rows_of(open_source(reference, pin=pin), reference.split, labelled=False)
    zeros = np.zeros(rows.count, dtype=np.int64)
    part = _chosen(rows, zeros, rows.content(zeros), (_NO_CLASS,), reference.unit_column)
    return _labelled([part]), rows


def labelled_source(
    reference: str | Path | NamedDataset,
    classes: Sequence[RecipeClass] | None = None,
    *,
    configs_are_groups: bool = False,
    group_column: str | None = None,
    unit_column: str | None = None,
    labels_are_numbers: bool = False,
) -> LabelledImages:
    """Return any dataset of images and labels.

    Labels with names are matched with the ids and names of `classes`. Labels without names, or all
    labels with `labels_are_numbers`, are matched with the source labels of `classes`. Without
    `classes` the labels are the dataset's own. `group_column` names the groups. Without it, each
    config is a group.
    """
    if configs_are_groups and group_column is not None:
        raise refusal("unclear-choice.groups")
    origin = reference
    if not isinstance(origin, NamedDataset):
        origin = replace(NamedDataset.parse(origin), unit_column=unit_column)
    opened = open_source(origin)
    if configs_are_groups:
        return _labelled_configs(opened, origin, classes, numbers=labels_are_numbers)
    folder = opened.folder
    rows = _rows_of(opened, origin.split)
    if folder is not None and not labels_are_numbers:
        folder.refuse_alike()
    part = _part(rows, origin, classes, numbers=labels_are_numbers)
    table = _labelled([part])
    if group_column is not None:
        texts = rows.texts(group_column, "group_column")
        values = [texts[row] for row in part.chosen.tolist()]
        group_names, groups = np.unique(np.asarray(values, dtype=object), return_inverse=True)
        table = replace(table, group_names=tuple(group_names), groups=groups)
    if folder is not None:
        notes = folder.notes([rows.split], left_out=False)
        table = replace(table, notes=(*notes, *table.notes))
        of_split = folder.tables.get(rows.split)
        if of_split is not None:
            table = replace(table, unlisted=of_split.unlisted, repeated=of_split.repeated)
    return replace(table, label_names=rows.class_names(origin.label_column))


def _labelled_configs(
    opened: OpenSource,
    origin: NamedDataset,
    classes: Sequence[RecipeClass] | None,
    *,
    numbers: bool,
) -> LabelledImages:
    """Return what `labelled_source` returns, with each config as a group."""
    names = opened.configs
    if len(names) < 2:
        raise refusal("unclear-choice.one-config", f"source: '{origin.dataset}'")
    parts = []
    for name in names:
        config_origin = replace(origin, config=name)
        rows = _rows_of(open_source(config_origin, pin=opened.pin), origin.split)
        parts.append(_part(rows, config_origin, classes, numbers=numbers))
    return _labelled(parts, names)


@dataclass(frozen=True, slots=True)
class _Part:
    """Chosen rows of one split and their values, all [n]. `rows` are all rows of the split."""

    rows: Rows
    chosen: Ints
    labels: Ints
    units: tuple[str, ...] | None
    content: str
    class_names: tuple[str, ...] | None
    left_out: Counter[str]
    notes: tuple[str, ...] = ()


def _rows_of(opened: OpenSource, split: str | None, *, labelled: bool = True) -> Rows:
    """Return the rows of a split, or of the only split if none is named."""
    splits = opened.splits if split is None else (split,)
    if len(splits) > 1:
        name = opened.source.dataset
        raise refusal("unclear-choice.splits", f"source: '{name}'", splits, f"{name}:{splits[-1]}")
    return opened.rows(splits[0] if splits else EVERYTHING, labelled=labelled)


def _part(
    rows: Rows,
    origin: InputDataset,
    classes: Sequence[RecipeClass] | None,
    *,
    numbers: bool,
    units: bool = True,
) -> _Part:
    if origin.conditions is not None:
        raise refusal("unclear-label.several", f"source.conditions: {rows.place}")
    labels = labels_of(rows, origin.label_column, numbered=numbers)
    named = [label for label in labels.known if isinstance(label, str)]
    if numbers and classes is not None and named:
        refuse_disagreements(classes, named, rows.place)
    notes = tuple(joined_splits(rows))
    if classes is None and rows.class_names(origin.label_column) is None:
        refuse_alike(named, f"source.label_column: {rows.place}", origin.label_column)
        notes += tuple(doubtful_labels(labels))
    positions = labels.places(classes, rows.place, numbers=numbers)
    names = None if classes is not None else tuple(map(str, labels.known))
    unit_column = origin.unit_column if units else None
    part = _chosen(rows, positions, rows.content(positions), names, unit_column)
    unmatched = np.flatnonzero(positions < 0).tolist()
    left_out = Counter(labels.shown(row) for row in unmatched)
    return replace(part, left_out=left_out, notes=notes)


def _chosen(
    rows: Rows,
    labels: Ints,
    content: str,
    class_names: tuple[str, ...] | None,
    unit_column: str | None,
) -> _Part:
    """Choose the rows that have a label. `labels` [n] is -1 for rows without a label."""
    chosen = np.flatnonzero(labels >= 0)
    units = None
    if unit_column is not None:
        shared = rows.texts(unit_column, "unit_column")
        units = tuple(shared[row] for row in chosen.tolist())
    return _Part(rows, chosen, labels[chosen], units, content, class_names, Counter())


def row_key(split: str, row: int) -> str:
    """Return the key that a split's row has among labelled images."""
    return f"{split}_{row:08d}"


def _labelled(
    parts: Sequence[_Part], group_names: tuple[str, ...] = (EVERYTHING,)
) -> LabelledImages:
    """Join parts. Several parts are a group each, whose name is at the beginning of the keys."""
    first = parts[0]
    if not any(part.chosen.size for part in parts):
        raise refusal("no-images.classes", f"source: {first.rows.place}")
    if any(part.class_names != first.class_names for part in parts):
        raise refusal("unclear-label.configs", f"source: '{first.rows.dataset}'")
    keys_of: list[list[str]] = []
    paths = []
    other_paths = []
    has_paths = True
    units = []
    chosen = hashlib.sha256()
    left_out: Counter[str] = Counter()
    for part, group in zip(parts, group_names, strict=True):
        rows = part.chosen.tolist()
        keys = [row_key(part.rows.split, row) for row in rows]
        if len(parts) > 1:
            keys = [f"{group}_{key}" for key in keys]
        keys_of.append(keys)
        part_paths = part.rows.paths()
        if part_paths is None:
            has_paths = False
        chosen_rows = set(rows)
        for row, path in enumerate(part_paths or ()):
            if row in chosen_rows:
                paths.append(path)
            else:
                other_paths.append(path)
        units += part.units or ()
        chosen.update(part.chosen.astype("<i8").tobytes())
        chosen.update(part.labels.astype("<i8").tobytes())
        left_out += part.left_out

    def read(keys: frozenset[str] | None) -> Iterator[tuple[str, bytes | None]]:
        for part, part_keys in zip(parts, keys_of, strict=True):
            wanted = []
            rows = []
            for key, row in zip(part_keys, part.chosen.tolist(), strict=True):
                if keys is None or key in keys:
                    wanted.append(key)
                    rows.append(row)
            yield from zip(wanted, part.rows.images(rows), strict=True)

    contents = [part.content for part in parts]
    group_sizes = list(map(len, keys_of))
    return LabelledImages(
        name=f"{first.rows.dataset}/{first.rows.split}",
        content=sha256_json({"splits": contents, "rows": chosen.hexdigest()}),
        keys=tuple(chain.from_iterable(keys_of)),
        labels=np.concatenate([part.labels for part in parts]),
        groups=np.repeat(np.arange(len(parts)), group_sizes),
        group_names=group_names,
        read=read,
        units=None if first.units is None else tuple(units),
        class_names=first.class_names,
        photographs=True,
        left_out=dict(sorted(left_out.items())),
        paths=tuple(paths) if has_paths else None,
        other_paths=tuple(other_paths),
        notes=tuple(chain.from_iterable(part.notes for part in parts)),
    )
