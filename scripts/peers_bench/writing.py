"""Write images to shards: beside webdataset's writer.

Ours writes the same samples, and makes them last: temporary file, SHA-256, fsync, rename, a table of
all candidates without images, and a receipt with hashes behind them. webdataset writes the samples.
"""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from counterfoil.documents import sha256_json
from counterfoil.plan.layout import make_plan
from counterfoil.recipe.keep.rule import CLIP_SCORES, Verdict
from counterfoil.recipe.loader import load_recipe
from counterfoil.store.dataset_store import DatasetStore
from counterfoil.store.reading import read_file
from counterfoil.store.rows import ACCEPTED, Candidate
from peers_bench.pair import Agreement, Pair

NEEDS = ("webdataset",)
ROWS = 200
SHARDS = 4
SIDE = 128
FORMATS = {"webdataset": "tar with a JSON of every column", "parquet": "Parquet, the default"}


def pairs(present: Sequence[str]) -> Iterator[Pair]:
    """Yield our two formats, each beside webdataset's shards."""
    for form, name in FORMATS.items():
        yield from format_pairs(form, name)


def format_pairs(form: str, name: str) -> Iterator[Pair]:
    """Yield a format beside webdataset's shards."""
    overrides = [f"output.format={form}", f"output.rows_per_shard={ROWS}", "tokens=null"]
    overrides += [f"samples.candidates={ROWS}"]
    plan = make_plan(load_recipe("wardrobe-mini", overrides))
    shards = plan.shards[:SHARDS]
    rng = np.random.default_rng(0)
    candidates: dict[str, list[Candidate]] = {}
    for shard in shards:
        candidates[shard.id] = [made(sample, rng) for sample in shard.samples(plan)]
    described = {}
    for rows in candidates.values():
        for candidate in rows:
            described[candidate.sample.key] = {
                "prompt": candidate.sample.prompt,
                "seed": candidate.sample.seed,
                **candidate.verdict.scores,
            }
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        hashes = {"plan": plan.recipe.plan_hash, "screen": plan.recipe.screen_hash}
        hashes["inputs"] = sha256_json({})
        with DatasetStore.open(
            folder / "ours", plan, hashes, {}, {}, recipe_yaml=plan.recipe.portable_yaml
        ) as store:

            def ours() -> dict[str, Path]:
                images = {}
                for shard in shards:
                    receipt = store.writer.write(shard, candidates[shard.id])
                    images[shard.id] = store.directory / receipt.files[0].path
                return images

            def peers() -> list[Path]:
                import webdataset

                pattern = str(folder / "theirs-%05d.tar")
                with webdataset.ShardWriter(pattern, maxcount=ROWS, verbose=0) as writer:
                    for of_shard in candidates.values():
                        for candidate in of_shard:
                            key = candidate.sample.key
                            writer.write(
                                {
                                    "__key__": key,
                                    "png": candidate.image,
                                    "cls": str(candidate.sample.label).encode(),
                                    "json": json.dumps(described[key]).encode(),
                                }
                            )
                return sorted(folder.glob("theirs-*.tar"))

            yield Pair(
                what=f"{SHARDS * ROWS} PNGs of {SIDE} pixels in {SHARDS} shards: {name}",
                peer="webdataset",
                way="`ShardWriter`, a tar with two columns",
                ours=ours,
                peers=peers,
                agreement=same_images,
            )


def made(sample: Any, rng: np.random.Generator) -> Candidate:
    """Return an accepted candidate with an image of noise."""
    shifted = 0.3 if sample.shift != "base" else None
    verdict = Verdict(
        dict(zip(CLIP_SCORES, (0.3, shifted), strict=True)),
        dict(zip(CLIP_SCORES, (0.2, 0.2), strict=True)),
    )
    file = io.BytesIO()
    coarse = Image.fromarray(rng.integers(0, 255, (32, 32, 3), np.uint8))
    coarse.resize((SIDE, SIDE)).save(file, "PNG")
    return Candidate(sample=sample, verdict=verdict, reason=ACCEPTED, image=file.getvalue())


def same_images(ours: dict[str, Path], peers: Sequence[Path]) -> Agreement:
    """Compare the bytes of every image and its label."""
    mine = {}
    for path in ours.values():
        for rows in read_file(path, "data", ["key", "label", "image"]):
            for row in rows:
                mine[row["key"]] = (row["label"], row["image"]["bytes"])
    other = {}
    for path in peers:
        with tarfile.open(path) as tar:
            contents = {}
            for member in tar.getmembers():
                file = tar.extractfile(member)
                assert file is not None
                contents[member.name] = file.read()
        for name, content in contents.items():
            if name.endswith(".png"):
                key = name.removesuffix(".png")
                other[key] = (int(contents[f"{key}.cls"]), content)
    words = f"bytes and labels of {len(mine)} images; ours also hashes, syncs, keeps receipts"
    return Agreement(mine == other, words)
