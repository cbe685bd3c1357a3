"""Parse the values of `--with`, and read the tables of keys that some values name, in bounded
memory.

built                built:hard           user/name@v1:contexts
mined/weights.parquet                     dfr:clip     dfr:weather     dfr:./groups.csv
direction:extra      confidence:extra     domino:extra early:extra    lff:extra
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from counterfoil.arrays import Floats, Ints
from counterfoil.data.labelled_images import LabelledImages
from counterfoil.data.open_source import OpenSource
from counterfoil.errors import UserError
from counterfoil.foreign_tables import NUMBER, TEXT, parquet_metadata, read_foreign_parquet
from counterfoil.mending.baselines import BASELINES
from counterfoil.mining.pools import ORIGIN
from counterfoil.models.loading_errors import error_line
from counterfoil.recipe.names import without_folders
from counterfoil.regular_files import UnfitFile, named_path, open_regular, read_regular

IMAGES = "images"
WEIGHTS = "weights"
BALANCED = "balanced"
POOL = "pool"
BY_CLIP = "clip"
_BALANCED = "dfr:"
_TABLES = (".csv", ".parquet")
# The largest table. ImageNet has 1.3 million training rows, and a key takes some twenty bytes.
MOST_BYTES = 64_000_000
MOST_ROWS = 5_000_000
LONGEST_TEXT = 1_000
_COLUMNS = ("key", "group")
_NEXT = "Write them with: counterfoil mine RECIPE --weights --out mined"


@dataclass(frozen=True, slots=True)
class Given:
    """One value of `--with`.

    name: the value as it was written. source: the dataset, file, column, or split of a pool. group:
    that of a dataset, or the baseline that chooses images of a pool.
    """

    kind: Literal["images", "weights", "balanced", "pool"]
    name: str
    source: str
    group: str | None = None


def given_variants(written: list[str]) -> tuple[Given, ...]:
    """Parse each distinct text once. Raise UserError if there is no text, or if one cannot be
    parsed."""
    if not written:
        raise UserError(
            "nothing to mend with: --with is missing", "Name a built dataset: --with built:contexts"
        )
    return tuple(dict.fromkeys(map(_given, written)))


def balanced_by(text: str) -> str | None:
    """Return the part of `dfr:…` that names groups; None for another name."""
    return text.removeprefix(_BALANCED) if text.startswith(_BALANCED) else None


def _given(text: str) -> Given:
    source = balanced_by(text)
    if source is not None:
        if not source:
            raise UserError(
                f"--with {text}: expected groups to balance by",
                "Write dfr:clip, dfr:COLUMN of the input dataset, or dfr:FILE with the columns key"
                " and group.",
            )
        return Given("balanced", text, source)
    if not text.strip():
        raise UserError(
            "--with: found nothing, expected DATASET or DATASET:GROUP",
            "As in --with built:contexts",
        )
    if text.endswith(_TABLES):
        return Given("weights", text, text)
    if named_path(text).is_dir() or ":" not in text:
        return Given("images", text, text)
    baseline, _, split = text.partition(":")
    if baseline in BASELINES and split:
        return Given("pool", text, split, baseline)
    dataset, _, group = text.rpartition(":")
    if not dataset or not group:
        raise UserError(
            f"--with {text}: expected DATASET or DATASET:GROUP", "As in --with built:contexts"
        )
    return Given("images", text, dataset, group)


def shown_names(names: Iterable[str]) -> dict[str, str]:
    """Return name as it was given → name in documents, which has no folders. Equal names get a
    number."""
    shown: dict[str, str] = {}
    for name in dict.fromkeys(names):
        source = balanced_by(name)
        plain = without_folders(name)
        if source is not None:
            plain = name.removesuffix(source) + without_folders(source)
        candidate = plain
        numbers = itertools.count(2)
        while candidate in shown.values():
            candidate = f"{plain} ({next(numbers)})"
        shown[name] = candidate
    return shown


def read_key_table(
    path: Path, where: str, columns: Mapping[str, type], hint: str | None = None
) -> tuple[dict[str, list[Any]], Mapping[bytes, bytes]]:
    """Read columns of `str` or `float` from a Parquet file; return values by column, and the file's
    metadata.

    Raise UserError for any other file, or for texts longer than `LONGEST_TEXT`. The message begins
    with `where`.
    """
    import pyarrow as pa

    expected = f"expected a Parquet with the columns {' and '.join(columns)}"
    values_by_column: dict[str, list[Any]] = {name: [] for name in columns}
    arrow_kinds = {float: (NUMBER,), str: (TEXT,)}
    kinds = {name: arrow_kinds[kind] for name, kind in columns.items()}
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MOST_BYTES:
                raise UnfitFile(f"has {size:,} bytes, expected at most {MOST_BYTES:,}")
            for batch in read_foreign_parquet(
                file, kinds, most_rows=MOST_ROWS, longest_text=LONGEST_TEXT
            ):
                for name, values in values_by_column.items():
                    values += batch.column(name).to_pylist()
            metadata = parquet_metadata(file)
    except UnfitFile as error:
        raise UserError(f"{where}: it {error.strerror}", hint) from error
    except (OSError, ValueError, TypeError, KeyError, OverflowError, pa.ArrowException) as error:
        raise UserError(f"{where}: {expected}: {error_line(error)}", hint) from error
    if any(value is None for values in values_by_column.values() for value in values):
        raise UserError(f"{where}: {expected}: a row is empty", hint)
    return values_by_column, metadata


def numbered_groups(by_key: Mapping[str, str], keys: Sequence[str], name: str) -> Ints:
    """Return the number of each row's group, (n,). Raise UserError for a row without a group."""
    missing = [key for key in keys if key not in by_key]
    if missing:
        raise UserError(
            f"--with {name}: {len(missing):,} of {len(keys):,} audited rows have no group, such as"
            f" {missing[0]}"
        )
    # Number the groups: an array of text would reserve the longest name for every row.
    groups = [by_key[key] for key in keys]
    numbers = {group: number for number, group in enumerate(sorted(set(groups)))}
    return np.asarray([numbers[group] for group in groups], dtype=np.int64)


def read_groups(
    given: Given, opened: OpenSource, audited: Sequence[LabelledImages]
) -> dict[str, str]:
    """Return audited key → group. The result is empty for groups by CLIP, because they need a
    model's contexts.

    Raise UserError for a missing column or file, or a malformed table.
    """
    if given.source == BY_CLIP:
        return {}
    if Path(given.source).suffix in _TABLES:
        return _table(given.source)
    group_by_key: dict[str, str] = {}
    for images in audited:
        split = images.name.rpartition("/")[2]
        rows = opened.rows(split)
        if given.source not in rows.columns:
            raise UserError(
                f"--with {given.name}: '{opened.source.dataset}' has no column '{given.source}'",
                f"Its columns are {', '.join(rows.columns)}; or name a file with the columns key"
                " and group.",
            )
        values = rows.texts(given.source, "column")
        group_by_key |= {key: values[int(key.rpartition("_")[2])] for key in images.keys}
    return group_by_key


def _table(name: str) -> dict[str, str]:
    path = named_path(name)
    if not path.is_file():
        raise UserError(
            f"--with dfr:{name}: there is no such file",
            "Name a CSV or Parquet with the columns key and group.",
        )
    if path.suffix == ".parquet":
        table, _ = read_key_table(path, name, dict.fromkeys(_COLUMNS, str))
        return dict(zip(table["key"], table["group"], strict=True))
    try:
        lines = csv.DictReader(
            io.StringIO(read_regular(path, MOST_BYTES).decode("utf-8-sig"), newline=""), strict=True
        )
        if lines.fieldnames is None or not set(_COLUMNS) <= set(lines.fieldnames):
            raise UserError(
                f"{name}: its columns are {', '.join(lines.fieldnames or ())}, expected key and"
                " group"
            )
        group_by_key: dict[str, str] = {}
        for line in lines:
            key = str(line["key"])
            group = str(line["group"])
            if len(group_by_key) == MOST_ROWS or len(key) + len(group) > LONGEST_TEXT:
                raise UserError(
                    f"{name}: more than {MOST_ROWS:,} rows, or a key or group of over"
                    f" {LONGEST_TEXT:,} letters"
                )
            group_by_key[key] = group
        return group_by_key
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise UserError(f"{name}: not a CSV file: {error}") from error


def read_train_weights(
    name: str, whole: LabelledImages, keys: Sequence[str]
) -> tuple[Floats, Mapping[str, Any]]:
    """Return the weights of the rows `keys` of the train split `whole`, (n,), and their origin.

    Raise UserError for a missing file, rows of another split, no origin, or no weight above 1.
    """
    path = named_path(name)
    if not path.is_file():
        raise UserError(f"--with {name}: there is no such file", _NEXT)
    table, metadata = read_key_table(path, f"--with {name}", {"key": str, "weight": float}, _NEXT)
    weighed_keys = table["key"]
    weights = np.asarray(table["weight"], dtype=np.float64)
    try:
        origin = json.loads(metadata.get(ORIGIN.encode(), b"null"))
    except (ValueError, RecursionError):
        origin = None
    wrong = int((~np.isfinite(weights) | (weights < 0)).sum())
    if wrong:
        raise UserError(f"--with {name}: {wrong:,} weights are negative or not numbers", _NEXT)
    if not isinstance(origin, dict) or not isinstance(origin.get("mined"), dict):
        raise UserError(f"--with {name}: it does not say which rows it was mined on", _NEXT)
    if origin.get("train_content") != whole.content or sorted(weighed_keys) != sorted(whole.keys):
        raise UserError(
            f"--with {name}: its rows are not those of {whole.name}: it was written for another"
            " split or another list of classes",
            f"{_NEXT} with the recipe of --on.",
        )
    known = dict(zip(weighed_keys, weights.tolist(), strict=True))
    train_weights = np.asarray([known[key] for key in keys])
    if not (train_weights > 1).any():
        raise UserError(
            f"--with {name}: none of {len(keys):,} training rows weighs more than 1",
            "Name another file.",
        )
    return train_weights, origin["mined"]
