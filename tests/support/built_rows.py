"""The rows of a built dataset, with the columns that only some recipes have: here, and from the
Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import warm
from counterfoil.recipe import load_recipe
from counterfoil.store.layout import What
from counterfoil.store.reading import read_receipts, read_shard
from counterfoil.store.rows import TableForm
from loopback_hub import LoopbackHub, Reader, client_environment
from tiny_builds import command


def table_rows(
    directory: Path, *columns: str, what: What = "data", added: bool = False
) -> list[dict[str, Any]]:
    """Return these columns of every row of a table. added: also those that the recipe adds."""
    form = TableForm.of(load_recipe(directory))
    names = [*columns, *(form.added if added else ())]
    return [
        row
        for receipt in read_receipts(directory)
        for row in read_shard(directory, receipt, names, what, form)
    ]


def published_rows(
    directory: Path, hub: LoopbackHub, repo: str, folder: Path, *columns: str
) -> list[dict[str, Any]]:
    """Publish a dataset, and return these columns of its rows as another machine loads them.
    folder: where both machines have a home."""
    words, environment = command("publish", str(directory), repo, "--yes")
    of_hub = client_environment(hub, folder / "home", inherited=environment)
    warm.run(words, of_hub, check=True)
    with Reader(hub, folder / "reader") as reader:
        splits = reader.rows(repo, columns=list(columns))
    return [row for rows in splits.values() for row in rows]
