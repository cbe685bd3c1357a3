"""_info.json: how timm's WebDataset reader finds the splits, one for each group with rows, and `all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from counterfoil.store.receipts import Receipt


def timm_info(receipts: Iterable[Receipt]) -> dict[str, Any]:
    """The document that `timm.data.create_dataset("wds/…", root=directory, split=group)` reads."""
    splits: dict[str, Any] = {}
    for receipt in receipts:
        file = receipt.file("data")
        if file is None:
            continue
        for name in (receipt.group, "all"):
            split = splits.setdefault(name, {"name": name, "num_samples": 0, "filenames": [], "shard_lengths": []})
            split["filenames"].append(file.path)
            split["shard_lengths"].append(file.rows)
            split["num_samples"] += file.rows
    return {"splits": splits}
