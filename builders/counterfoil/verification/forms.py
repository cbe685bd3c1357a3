"""Whether a shard's file has the columns that its table has, and declares them as `datasets` reads them."""

from __future__ import annotations

import json
import tarfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from counterfoil.store.layout import What
from counterfoil.store.rows import TableForm, arrow_schema, column_types, unique_names
from counterfoil.store.tars import tar_columns

if TYPE_CHECKING:
    from counterfoil.recipe import Recipe

_FEATURES = b"huggingface"
_MOST_NAMED = 3


def form_fault(path: Path, what: What, recipe: Recipe) -> str | None:
    """What is wrong with a file's columns, features or members; whatever its reader raises where it is damaged."""
    return _tar_fault(path, what, recipe) if path.suffix == ".tar" else _parquet_fault(path, what, recipe)


def _parquet_fault(path: Path, what: What, recipe: Recipe) -> str | None:
    import pyarrow.parquet as pq

    names = unique_names([(cls.id, cls.name) for cls in recipe.classes])
    expected = arrow_schema(what, names, TableForm.of(recipe))
    found = pq.read_schema(path)
    if not found.remove_metadata().equals(expected.remove_metadata()):
        wrong = [f"{field.name} ({field.type})" for field in found if field not in expected.remove_metadata()]
        lacking = [name for name in expected.names if name not in found.names]
        return (
            f"has other columns than its table: {_listed(wrong) or 'none wrong'}; lacking: {_listed(lacking) or 'none'}"
        )
    declared = (found.metadata or {}).get(_FEATURES)
    if declared is None or json.loads(declared) != json.loads((expected.metadata or {})[_FEATURES]):
        return "declares other features or class names than the recipe's"
    return None


def _tar_fault(path: Path, what: What, recipe: Recipe) -> str | None:
    # A member that is there twice would hide the other from some readers and not from others.
    with tarfile.open(path, "r:") as tar:
        times = Counter(member.name for member in tar)
    repeated = [name for name, count in times.items() if count > 1]
    if repeated:
        return f"has members more than once: {_listed(repeated)}"
    found, expected = set(tar_columns(path)), set(column_types(what, TableForm.of(recipe)))
    if found != expected:
        wrong, lacking = sorted(found - expected), sorted(expected - found)
        return (
            f"has other columns than its table: {_listed(wrong) or 'none wrong'}; lacking: {_listed(lacking) or 'none'}"
        )
    return None


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
