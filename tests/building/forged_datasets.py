"""Complete datasets that differ from a build's, as another stack, another hand or a fault would
make them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from clip_verdicts import clip_verdict
from counterfoil.documents import document_bytes
from counterfoil.plan.layout import make_plan
from counterfoil.recipe import load_recipe
from counterfoil.store.dataset_store import ShardWriter
from counterfoil.store.lock import read_lock
from counterfoil.store.manifest import write_manifest
from counterfoil.store.reading import read_receipts, read_shard
from counterfoil.store.rows import Candidate


def with_torch(directory: Path, version: str) -> None:
    """Rewrite the lock and the receipts as if another version of torch had made everything."""
    for path in [directory / "lock.json", *(directory / "receipts").iterdir()]:
        document = json.loads(path.read_text())
        document["stack"]["versions"]["torch"] = version
        path.write_bytes(document_bytes(document))
    write_manifest(directory, {})


def with_candidates(
    directory: Path, group: str, number: int, change: Callable[[Candidate], Candidate]
) -> None:
    """Write one shard again with other candidates and without rejected images, and a manifest that
    proves it."""
    lock = read_lock(directory)
    assert lock is not None
    plan = make_plan(load_recipe(directory))
    shard = next(shard for shard in plan.shards if (shard.group, shard.number) == (group, number))
    receipt = next(r for r in read_receipts(directory) if (r.group, r.shard) == (group, number))
    images = {
        row["key"]: row["image"]["bytes"]
        for row in read_shard(directory, receipt, ["key", "image"])
    }
    rows = {row["key"]: row for row in read_shard(directory, receipt, what="candidates")}
    candidates = [
        Candidate(
            replace(sample, prompt=row["prompt"]),
            clip_verdict(
                (row["object_score"], row["shift_score"]), (row["object_threshold"], row["shift_threshold"])
            ),
            row["reason"], images.get(sample.key), row.get("embedding"),
        )
        for sample in shard.samples(plan)
        if (row := rows.get(sample.key)) is not None
    ]  # fmt: skip
    ShardWriter.of_plan(directory, plan, lock.hashes, receipt.stack).write(
        shard, [change(c) for c in candidates]
    )
    write_manifest(directory, {})


def brighter(image: bytes, levels: int) -> bytes:
    """Return the picture with one pixel changed by so many levels in one channel."""
    with Image.open(io.BytesIO(image)) as picture:
        pixels = np.asarray(picture.convert("RGB")).copy()
    pixels[0, 0, 0] = (
        pixels[0, 0, 0] - levels if pixels[0, 0, 0] >= levels else pixels[0, 0, 0] + levels
    )
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()
