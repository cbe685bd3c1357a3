"""Names and splits for the card's examples of loading, as `datasets`, webdataset and timm take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from counterfoil.recipe.prompts import BASE

if TYPE_CHECKING:
    from counterfoil.plan import Plan
    from counterfoil.store import Receipt


def example_group(plan: Plan, receipts: Sequence[Receipt]) -> str | None:
    """The group that examples load: the first with an accepted image that is not the base, else the base."""
    with_rows = {receipt.group for receipt in receipts if receipt.file("data")}
    return next(
        (group for group in plan.groups if group in with_rows and group != BASE),
        BASE if BASE in with_rows else None,
    )


def timm_splits(receipts: Sequence[Receipt]) -> dict[str, str]:
    """Groups whose name timm's WebDataset reader cannot take as a split, and what it takes instead.

    Any split with the letters "tar" in it (`starry_night`) is read as a list of files there.
    """
    files: dict[str, list[tuple[str, int]]] = {}
    for receipt in receipts:
        file = receipt.file("data")
        if file is not None and "tar" in receipt.group:
            files.setdefault(receipt.group, []).append((file.path, file.rows))
    return {group: _file_list(entries) for group, entries in files.items()}


def _file_list(files: Sequence[tuple[str, int]]) -> str:
    """`path/{a,b}.tar|rows`, in the brace notation of webdataset."""
    paths = [path for path, _ in files]
    rows = sum(count for _, count in files)
    if len(paths) == 1:
        return f"{paths[0]}|{rows}"
    folder = paths[0].rpartition("/")[0]
    names = ",".join(path.rpartition("/")[2].removesuffix(".tar") for path in paths)
    return f"{folder}/{{{names}}}.tar|{rows}"
