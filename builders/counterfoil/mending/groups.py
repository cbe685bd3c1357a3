"""Groups of audited rows that somebody tells, by a column of the input dataset or a file of keys: what dfr: names."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.errors import UserError
from counterfoil.mending.given import BY_CLIP, Given, names_a_table
from counterfoil.mending.key_tables import LONGEST_TEXT, MOST_BYTES, MOST_ROWS, read_key_table
from counterfoil.mending.opening import MendSource
from counterfoil.regular_files import named_path, read_regular
from counterfoil.sources import LabelledImages
from counterfoil.sources.input_datasets import read_rows
from counterfoil.sources.pins import pin_source

_COLUMNS = ("key", "group")


@dataclass(frozen=True)
class Groups:
    """Key of an audited row → its group; by CLIP there are none before a model's contexts are known."""

    by_key: Mapping[str, str]

    def of(self, keys: Sequence[str], name: str) -> NDArray[np.int64]:
        """(n,) a number for each group. UserError for a row without one."""
        missing = [key for key in keys if key not in self.by_key]
        if missing:
            raise UserError(
                f"--with {name}: {len(missing):,} of {len(keys):,} audited rows have no group, such as {missing[0]}"
            )
        names = [self.by_key[key] for key in keys]
        numbers = {group: number for number, group in enumerate(sorted(set(names)))}
        return np.asarray([numbers[group] for group in names], dtype=np.int64)


def read_groups(given: Given, source: MendSource, audited: Sequence[LabelledImages]) -> Groups:
    """The groups that `dfr:` names. UserError for a column or a file that is not there, or no such table."""
    if given.source == BY_CLIP:
        return Groups({})
    if names_a_table(given.source):
        return Groups(_table(given.source))
    found: dict[str, str] = {}
    for images in audited:
        split = images.name.rpartition("/")[2]
        rows = read_rows(source.recipe.source, split, pin_source(source.recipe.source))
        if given.source not in rows.columns:
            raise UserError(
                f"--with {given.name}: '{source.recipe.source.dataset}' has no column '{given.source}'",
                f"Its columns are {', '.join(rows.columns)}; or name a file with the columns key and group.",
            )
        told = rows.texts(given.source, "column")
        found |= {key: told[int(key.rpartition("_")[2])] for key in images.keys}
    return Groups(found)


def _table(name: str) -> dict[str, str]:
    path = named_path(name)
    if not path.is_file():
        raise UserError(
            f"--with dfr:{name}: there is no such file", "Name a CSV or Parquet with the columns key and group."
        )
    if path.suffix == ".parquet":
        table = read_key_table(path, name, dict.fromkeys(_COLUMNS, str)).columns
        return dict(zip(table["key"], table["group"], strict=True))
    try:
        lines = csv.DictReader(io.StringIO(read_regular(path, MOST_BYTES).decode("utf-8-sig"), newline=""), strict=True)
        if lines.fieldnames is None or not set(_COLUMNS) <= set(lines.fieldnames):
            raise UserError(f"{name}: its columns are {', '.join(lines.fieldnames or ())}, expected key and group")
        found: dict[str, str] = {}
        for line in lines:
            key, group = str(line["key"]), str(line["group"])
            if len(found) == MOST_ROWS or len(key) + len(group) > LONGEST_TEXT:
                raise UserError(
                    f"{name}: more than {MOST_ROWS:,} rows, or a key or group of over {LONGEST_TEXT:,} letters"
                )
            found[key] = group
        return found
    except (UnicodeDecodeError, csv.Error, OSError) as error:
        raise UserError(f"{name}: no CSV: {error}") from error
