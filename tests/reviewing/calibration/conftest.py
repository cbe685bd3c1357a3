"""Finished datasets with an open shift, written through the store: images are discs, scores are
drawn by seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from counterfoil.dataset.closing import close_dataset
from counterfoil.documents import sha256_json
from counterfoil.generate.screen.thresholds import resolve_thresholds
from counterfoil.models.clip import pin_clip
from counterfoil.models.names import pin_model
from counterfoil.plan.layout import Sample, make_plan
from counterfoil.recipe import Recipe, load_recipe_text
from counterfoil.recipe.keep.cells import decide_cell
from counterfoil.recipe.keep.rule import Verdict
from counterfoil.store.dataset_store import DatasetStore
from counterfoil.store.rows import Candidate
from support.images import encoded

RECIPE = """
recipe: 1
name: cranes
source:
  dataset: lab:wardrobe
  classes:
    - {id: '00', name: "</script><b>crane</b>", source_label: 0}
    - {id: '01', name: coot, source_label: 1}
generator: {model: lab:sd, steps: 20, batch_size: 4}
prompts:
  base: {prompt: "a photo of a {class}"}
  shifts:
    snow: {prompt: "a {class} in the snow", caption: "in the <i>snow</i>", threshold: {percentile: 30}}
    rain: {prompt: "a {class} in the rain", caption: "in the rain", threshold: 0.2}
    plain: {prompt: "a plain {class}"}
screen: {model: lab:clip, object_threshold: 0.2, keep_rejected: false}
samples: {candidates: 40, seed: 3}
output: {rows_per_shard: 40}
"""
INPUTS = {
    "models": {
        "generator": pin_model("lab:sd").document(),
        "screen": pin_clip("lab:clip", None).document(),
    },
    "source": {},
    "tokens": None,
    "thresholds": None,
}


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset with one object caption, without rejected images. Read only."""
    return written(tmp_path_factory.mktemp("calibration") / "cranes", load_recipe_text(RECIPE))


@pytest.fixture(scope="session")
def styled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset with an object caption and a threshold of one shift, and every image kept.
    Read only."""
    changes = (
        "prompts.shifts.rain.style=true",
        "prompts.shifts.plain.object_threshold=0.22",
        "screen.keep_rejected=true",
    )
    return written(
        tmp_path_factory.mktemp("calibration") / "styled", load_recipe_text(RECIPE, changes)
    )


@pytest.fixture(scope="session")
def dark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a dataset with measured contrast, of which rain asks for some; every image kept. Read
    only."""
    changes = (
        "screen.keep=[visible, thresholds]",
        "prompts.shifts.rain.keep=[{visible: {contrast: 10, black: 0.8}}, thresholds]",
        "screen.keep_rejected=true",
    )
    return written(
        tmp_path_factory.mktemp("calibration") / "dark", load_recipe_text(RECIPE, changes)
    )


def written(out: Path, recipe: Recipe) -> Path:
    plan = make_plan(recipe)
    thresholds = resolve_thresholds(recipe, None)
    hashes = {"plan": recipe.plan_hash, "screen": recipe.screen_hash, "inputs": sha256_json(INPUTS)}
    portable = recipe.portable_yaml
    attachments = {"thresholds.json": thresholds.content()}
    with DatasetStore.open(
        out, plan, hashes, INPUTS, {"device": "cpu"}, recipe_yaml=portable, attachments=attachments
    ) as store:
        for shard in store.pending():
            store.writer.write(
                shard,
                [
                    candidate
                    for cell in shard.cells
                    for candidate in cell_of(plan, cell, thresholds)
                ],
            )
        close_dataset(store)
    return out


def cell_of(plan, cell, thresholds) -> list[Candidate]:
    samples = list(plan.samples(cell))
    verdicts = [verdict_of(plan, sample, thresholds) for sample in samples]
    reasons = decide_cell(plan.shift(cell.shift).keep, verdicts, None)
    return [
        Candidate(sample, verdict, reason, None if reason == "failed" else picture(sample))
        for sample, verdict, reason in zip(samples, verdicts, reasons, strict=True)
    ]


def verdict_of(plan, sample: Sample, thresholds) -> Verdict:
    chance = np.random.default_rng(sample.index + 1000 * sample.label + len(sample.shift))
    scores = chance.normal(0.25, 0.05, 2)
    at = thresholds.of(sample.shift, sample.class_id)
    is_open = thresholds.is_open(sample.shift)
    if sample.index == 7:
        return Verdict({}, at, open=is_open)
    screened = plan.shift(sample.shift).caption is not None
    object_score, shift_score = (float(np.float32(score)) for score in scores)
    measured = {
        "contrast": float(chance.integers(0, 60)),
        "black": float(np.float32(chance.random())),
        "white": 0.0,
    }
    columns = [name for rule in plan.shift(sample.shift).keep for name in rule.columns()]
    seen = {name: value for name, value in measured.items() if name in columns}
    return Verdict(
        {"object": object_score, "shift": shift_score if screened else None, **seen},
        at,
        open=is_open,
    )


def picture(sample: Sample) -> bytes:
    image = Image.new("RGB", (160, 160), (200, 220, 240))
    ImageDraw.Draw(image).ellipse(
        (4, 4, 20 + sample.index, 60), fill="#cc3344" if sample.label else "#3366cc"
    )
    return encoded(image)
