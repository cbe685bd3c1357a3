"""A killed build of images with objects goes on to the bytes of an undisturbed one, boxes
included."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from counterfoil.building.build_dataset import build
from counterfoil.dataset.verification import verify
from counterfoil.evaluation import evaluate
from counterfoil.evaluation.dataset import open_dataset
from counterfoil.evaluation.tasks.objects.subject import open_objects
from counterfoil.starting.init_recipe import init
from support.boxes import coco_folder
from support.colour_detector import ColourDetector
from tiny_builds import half_done, published

# A cell is not divided, so there is a shard a group: the base and two changes.
KINDS = ("gaussian_noise", "fog")
SETTINGS = (
    "prompts.shifts={}",
    f"prompts.shifts={{{', '.join(f'{kind}: {{corruption: {kind}, severity: 3}}' for kind in KINDS)}}}",
    "generator.size=96",
    "output={format: parquet, image: {format: png, quality: null}}",
)
IMAGES = 12


def test_a_killed_build_with_objects_ends_with_the_same_bytes(tmp_path: Path) -> None:
    coco_folder(tmp_path / "coco", IMAGES)
    recipe = tmp_path / "recipe.yaml"
    again = tmp_path / "again"
    init(tmp_path / "coco", recipe, device="cpu")
    build(recipe, tmp_path / "whole", overrides=SETTINGS, device="cpu", workers=1)
    half_done(tmp_path / "whole", again, *KINDS)
    result = build(recipe, again, overrides=SETTINGS, device="cpu", workers=1)
    assert result.shards_made == len(KINDS)
    assert published(again) == published(tmp_path / "whole")
    subject = open_objects(open_dataset(again))
    assert (
        subject.images == IMAGES and subject.left_out == 0 and len(subject.truth.box) >= IMAGES - 1
    )


EDITED = (
    "generator={kind: edit, model: 'lab:sd', split: train, size: null, saved_size: 48, steps: 2,"
    " guidance: 2.0, batch_size: 4, dtype: float32}",
    "prompts={base: {prompt: 'an {class}'}, shifts: {at_night: {prompt: 'an {class} at night'}}}",
    "screen.keep=[{registered: {translation: 0.05, zoom: 1.1}}]",
    "source.train_split=learned",
    "samples.candidates=8",
    "output={format: parquet, image: {format: png, quality: null}}",
)


def test_edits_that_stay_in_place_are_scored_by_the_boxes_of_their_rows(tmp_path: Path) -> None:
    coco_folder(tmp_path / "coco", 9)
    recipe = tmp_path / "recipe.yaml"
    out = tmp_path / "out"
    init(tmp_path / "coco", recipe, device="cpu")
    build(recipe, out, overrides=["prompts.shifts={}", *EDITED], device="cpu", workers=1)
    assert verify(out).whole
    subject = open_objects(open_dataset(out))
    assert 2 <= subject.images <= 8
    assert (subject.sides == 48).all()
    boxes = np.array(subject.truth.box)
    assert len(boxes)
    assert boxes.min() >= 0 and boxes.max() <= 48
    card = (out / "README.md").read_text()
    assert "moved by more than 5 % of a side" in card
    assert "registration_confidence" in card
    assert "A shift leaves every object" not in card
    results = tmp_path / "results"
    evaluate(out, {"colour": ColourDetector()}, out=results)
    assert "moved by more than 5 % of a side" in (results / "report.html").read_text()
