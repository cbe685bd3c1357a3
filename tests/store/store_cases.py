"""A small recipe, its candidates and a finished dataset, for the tests of the store."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from clip_verdicts import clip_verdict
from counterfoil.documents import sha256_json
from counterfoil.plan.layout import Plan, PlanPart, Sample, Shard, make_plan
from counterfoil.recipe.loader import load_recipe_text
from counterfoil.store.dataset_store import DatasetStore
from counterfoil.store.manifest import Entry
from counterfoil.store.rows import Candidate
from support.files import published
from support.images import encoded

# Two classes share a name; one group holds two shifts; one shift is accepted nowhere.
RECIPE = """
recipe: 1
name: cranes
license: cc0-1.0
source:
  dataset: lab:wardrobe
  classes:
    - {id: n02012849, name: crane, source_label: 0}
    - {id: n03126707, name: crane, source_label: 1}
    - {id: n02018207, name: coot, source_label: 2}
generator: {model: lab:sd, steps: 20, batch_size: 4}
prompts:
  base: {prompt: "a photo of a {class}"}
  shifts:
    snow: {prompt: "a photo of a {class} in the snow", caption: "a photo in the snow", group: weather}
    rain: {prompt: "a photo of a {class} in the rain", caption: "a photo in the rain", group: weather}
    nowhere: {prompt: "a photo of a {class} nowhere", caption: "a photo of nowhere"}
screen: {model: lab:clip, object_threshold: 0.25, shift_threshold: 0.2, keep_rejected: true}
samples: {candidates: 4, seed: 3}
output: {rows_per_shard: 8}
"""
INPUTS = {"generator": {"model": "lab:sd", "sha256": "ab" * 32}, "screen": {"model": "lab:clip"}}
STACK = {"device": "cpu", "threads": 1, "versions": {"torch": "2.15.0", "diffusers": "0.42.0"}}
ATTACHMENTS = {
    "thresholds.json": b'{"object": 0.25}\n',
    "tokens/crane.safetensors": bytes(range(200)),
}
README = "# Cranes\n"
FIGURES = {"sheet.png": b"\x89PNG figure"}


def plan_of(*overrides: str) -> Plan:
    return make_plan(load_recipe_text(RECIPE, overrides))


def png(key: str) -> bytes:
    """Return a real image whose pixels follow from the key."""
    digest = hashlib.sha256(key.encode()).digest()
    return encoded(Image.frombytes("RGB", (8, 8), (digest * 6)[: 8 * 8 * 3]))


def candidate_of(sample: Sample, image: bytes | None = None) -> Candidate:
    """Return a candidate that follows from the sample's key: about half are accepted, a few
    failed."""
    byte = hashlib.sha256(sample.key.encode()).digest()[0]
    reason = "failed" if byte < 16 else "accepted" if byte < 144 else "low_object"
    if sample.shift == "nowhere":
        reason = "low_shift"
    failed = reason == "failed"
    base = sample.shift == "base"
    return Candidate(
        sample=sample,
        verdict=clip_verdict(
            (None if failed else byte / 300, None if failed or base else byte / 400),
            (0.25, None if base else 0.2),
        ),
        reason=reason,
        image=None if failed else image or png(sample.key),
    )


def candidates_of(plan: Plan, shard: Shard, image: bytes | None = None) -> list[Candidate]:
    return [candidate_of(sample, image) for sample in shard.samples(plan)]


def all_candidates(plan: Plan) -> list[Candidate]:
    return [candidate for shard in plan.shards for candidate in candidates_of(plan, shard)]


@functools.cache
def hashes_of(plan: Plan) -> dict[str, str]:
    return {"plan": plan.recipe.plan_hash, "screen": plan.recipe.screen_hash}


@functools.cache
def yaml_of(plan: Plan) -> str:
    return plan.recipe.portable_yaml


@contextlib.contextmanager
def opened(
    out: Path,
    plan: Plan,
    *,
    inputs: Mapping[str, Any] = INPUTS,
    stack: Mapping[str, Any] = STACK,
    allow_mixed: bool = False,
    repair: Mapping[str, Entry] | None = None,
    part: PlanPart | None = None,
) -> Iterator[DatasetStore]:
    hashes = {**hashes_of(plan), "inputs": sha256_json(inputs)}
    with DatasetStore.open(
        out,
        plan,
        hashes,
        inputs,
        stack,
        recipe_yaml=yaml_of(plan),
        attachments=ATTACHMENTS,
        allow_mixed=allow_mixed,
        repair=repair,
        part=part,
    ) as store:
        yield store


def build(out: Path, plan: Plan, image: bytes | None = None) -> Path:
    """Write whatever shards are missing, and finish."""
    with opened(out, plan) as store:
        for shard in store.pending():
            store.writer.write(shard, candidates_of(plan, shard, image))
        store.finish(README, FIGURES)
    return out


def data_files(directory: Path, what: str, group: str) -> Sequence[str]:
    return sorted(str(path) for path in (directory / what / group).iterdir())


def cached_copy(dataset: Path, repository: Path) -> Path:
    """Return a copy as the Hub's client keeps it: a snapshot of links to the repository's blobs."""
    snapshot = repository / "snapshots" / ("ab" * 20)
    blobs = repository / "blobs"
    blobs.mkdir(parents=True)
    for name, content in published(dataset).items():
        blob = blobs / hashlib.sha256(content).hexdigest()
        link = snapshot / name
        blob.write_bytes(content)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    return snapshot
