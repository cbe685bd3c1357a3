"""Small datasets written through the store, with images whose colour shows their class, for the
tests of cards."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageDraw

from clip_verdicts import clip_verdict
from counterfoil.dataset.card.card import Card, card_page, card_text, make_card
from counterfoil.dataset.card.contact_sheets import Tally
from counterfoil.dataset.card.croissant import croissant_bytes
from counterfoil.documents import sha256_json
from counterfoil.plan.layout import Plan, Sample, make_plan
from counterfoil.recipe import dump_recipe
from counterfoil.recipe.loader import load_recipe_text
from counterfoil.store.dataset_store import DatasetStore
from counterfoil.store.layout import What, shard_paths
from counterfoil.store.receipts import Receipt, StoredFile, reasons_of
from counterfoil.store.rows import Candidate

# Names repeat and hold what breaks tables, YAML and HTML; a group holds two shifts; a shift is
# accepted nowhere.
RECIPE = """
recipe: 1
name: cranes
license: cc0-1.0
description: |
  Birds | machines, *both* cranes.

  ---
  license: stolen
  ---
source:
  dataset: lab:wardrobe
  classes:
    - {id: n02012849, name: crane, source_label: 0}
    - {id: n03126707, name: crane, source_label: 1}
    - {id: n02018207, name: "coot: <b>a | b</b>", source_label: 2}
generator: {model: lab:sd, steps: 20, batch_size: 4}
prompts:
  base: {prompt: "a photo of a {class}"}
  shifts:
    snow: {prompt: "a photo of a {class} in the snow", caption: "a photo in the snow", group: weather}
    rain: {prompt: "a photo of a {class} in the rain", caption: "a photo in the rain", group: weather}
    starry: {prompt: "a photo of a {class} by starlight", caption: "a photo | `by` starlight"}
    nowhere: {prompt: "a photo of a {class} nowhere", caption: "a photo of nowhere"}
screen: {model: lab:clip, object_threshold: {percentile: 5}, shift_threshold: 0.2, keep_rejected: true}
samples: {candidates: 6, seed: 3}
output: {rows_per_shard: 12}
"""
INPUTS: dict[str, Any] = {
    "models": {
        "generator": {
            "name": "lab:sd",
            "revision": None,
            "sha256": {"unet": "ab" * 32},
            "license": "mit",
        },
        "screen": {"name": "lab:clip", "revision": "4f2b", "sha256": None, "license": None},
    },
    "source": {"dataset": "lab:wardrobe", "revision": None, "license": "mit"},
}
STACK = {"device": "cpu", "threads": 1, "versions": {"torch": "2.15.0"}}
COLOURS = ["#cc3344", "#3366cc", "#44aa55"]

Judge = Callable[[Sample], str]
# Pieces of Python and the folder to run them in → the answer of each.
Offline = Callable[[Sequence[str], Path], list[Any]]


class Built(NamedTuple):
    directory: Path
    plan: Plan
    card: Card


def plan_of(*overrides: str) -> Plan:
    return make_plan(load_recipe_text(RECIPE, overrides))


def picture(sample: Sample, format: str, side: int = 24) -> bytes:
    """Return a real image: its background shows the shift, its disc the class, its position the
    index."""
    digest = hashlib.sha256(sample.shift.encode()).digest()
    image = Image.new(
        "RGB", (side, side), (digest[0] // 2 + 120, digest[1] // 2 + 120, digest[2] // 2 + 120)
    )
    x = 2 + sample.index % 10
    ImageDraw.Draw(image).ellipse(
        (x, 4, x + side // 2, 4 + side // 2), fill=COLOURS[sample.label % 3]
    )
    with io.BytesIO() as file:
        image.save(file, {"jpg": "JPEG"}.get(format, format.upper()))
        return file.getvalue()


def judged(sample: Sample) -> str:
    """Accept most samples, but not all, and none of `nowhere`."""
    byte = hashlib.sha256(sample.key.encode()).digest()[0]
    if sample.shift == "nowhere":
        return "low_shift"
    return "failed" if byte < 12 else "low_object" if byte < 70 else "accepted"


def candidate_of(sample: Sample, format: str = "png", judge: Judge = judged) -> Candidate:
    reason = judge(sample)
    failed = reason == "failed"
    base = sample.shift == "base"
    return Candidate(
        sample=sample,
        verdict=clip_verdict(
            (None if failed else 0.25 + sample.index / 100, None if failed or base else 0.21),
            (0.22, None if base else 0.2),
        ),
        reason=reason,
        image=None if failed else picture(sample, format),
        embedding=[0.5, -0.25],
    )


def all_candidates(plan: Plan, judge: Judge = judged) -> list[Candidate]:
    format = plan.recipe.output.image.format
    return [
        candidate_of(sample, format, judge)
        for shard in plan.shards
        for sample in shard.samples(plan)
    ]


def thresholds_of(plan: Plan) -> bytes:
    objects = {
        shift.name: {
            cls.id: {
                "value": 0.21 + cls.label / 100,
                "percentile": 5.0,
                "n": 40,
                "source": "validation",
            }
            for cls in plan.recipe.classes
        }
        for shift in plan.recipe.all_shifts()
    }
    shifts = {
        shift.name: {
            cls.id: {"value": None, "percentile": percentile, "n": 0, "source": "candidates"}
            if (percentile := shift.threshold.percentile if shift.threshold else None) is not None
            else {"value": 0.2, "percentile": None, "n": 0, "source": "recipe"}
            for cls in plan.recipe.classes
        }
        for shift in plan.recipe.all_shifts()[1:]
        if shift.caption is not None
    }
    return json.dumps({"object": objects, "shift": shifts}).encode()


def build(
    out: Path,
    plan: Plan,
    judge: Judge = judged,
    stacks: Mapping[str, Mapping[str, Any]] | None = None,
) -> Card:
    """Write the whole dataset with its card; `stacks` are the stacks of groups that another one
    rendered."""
    hashes = {
        "plan": plan.recipe.plan_hash,
        "screen": plan.recipe.screen_hash,
        "inputs": sha256_json(INPUTS),
    }
    for group, stack in {**dict.fromkeys(plan.groups, STACK), **(stacks or {})}.items():
        with DatasetStore.open(
            out,
            plan,
            hashes,
            INPUTS,
            stack,
            recipe_yaml=dump_recipe(plan.recipe),
            attachments={"thresholds.json": thresholds_of(plan)},
            allow_mixed=True,
        ) as store:
            for shard in store.pending():
                if shard.group == group:
                    samples = shard.samples(plan)
                    format = plan.recipe.output.image.format
                    store.writer.write(
                        shard, [candidate_of(sample, format, judge) for sample in samples]
                    )
            if not store.pending():
                card = make_card(
                    out, plan, json.loads((out / "lock.json").read_bytes()), store.receipts()
                )
                store.finish(card.readme, card.figures, card.documents)
                return card
    raise AssertionError("shards are left")


@dataclass(frozen=True)
class DescribedDataset:
    """The card of a dataset whose files were never written, without figures, hashes and stack."""

    readme: str
    croissant: str


def describe(folder: Path, plan: Plan, judge: Judge = judged) -> DescribedDataset:
    """Describe the dataset of a plan by its receipts alone. folder: an empty one, for there are no
    thresholds, results or answers of people."""
    receipts = []
    accepted: dict[tuple[str, int], int] = {}
    for shard in plan.shards:
        reasons = [(sample, judge(sample)) for sample in shard.samples(plan)]
        rows = [{"shift": sample.shift, "reason": reason} for sample, reason in reasons]
        for sample, reason in reasons:
            if reason == "accepted":
                cell = sample.shift, sample.label
                accepted[cell] = accepted.get(cell, 0) | 1 << sample.index
        images = [reason for _, reason in reasons].count("accepted")
        kept: dict[What, int] = {"data": images, "rejected": 0, "candidates": len(rows)}
        paths = shard_paths(shard, plan.recipe.output.split, plan.recipe.output.format)
        files = [StoredFile(paths[what], 100 * n, "ab" * 32, n) for what, n in kept.items() if n]
        counts = reasons_of(shard, rows)
        receipts.append(
            Receipt(shard.group, shard.number, shard.of, kept, counts, tuple(files), {}, STACK)
        )
    page = card_page(folder, plan, {"inputs": INPUTS}, receipts, Tally(accepted), set())
    return DescribedDataset(card_text(page), croissant_bytes(folder, page).decode())
